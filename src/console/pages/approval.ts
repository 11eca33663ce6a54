import type { ApprovalRule } from "../../access/decision.ts";
import { type Approval, approversOf, summaryOf } from "../../approvals/approval.ts";
import type { NoPreview } from "../../approvals/preview.ts";
import { type ShownRows, visibleJson } from "../../approvals/shown-rows.ts";
import { counted } from "../../counted.ts";
import { keepSpelling } from "../../json/exact-numbers.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import type { Failure } from "../changes.ts";
import { momentOf, outcomeMark, timeLeft, wayOf } from "./approvals.ts";
import { failureNote, ownPassword } from "./forms.ts";
import { type Column, type ConsolePage, heading, hidden, table } from "./frame.ts";

/** What a reader has to do with an approval. */
export type Standing = "approver" | "asker" | "onlooker";

/** What the page of one approval shows. */
export interface ApprovalView {
  readonly approval: Approval;
  readonly standing: Standing;
  readonly csrf: string;
  /** The query, while it waits or is kept. */
  readonly query: string | undefined;
  /** True if its reader may not see the query. */
  readonly isHidden: boolean;
  /** The rows that it would touch; undefined for whoever does not decide. */
  readonly rows: ShownRows | NoPreview | undefined;
  readonly failure: Failure | undefined;
  /** The digest of the rows on which a decision has failed. */
  readonly shownBefore: string | undefined;
  /** Epoch milliseconds. */
  readonly now: number;
}

function ruleText(rule: ApprovalRule): Html {
  const { entry, boundary, permissions } = rule;
  const by =
    entry === undefined
      ? html`the boundary <code>${boundary ?? ""}</code>`
      : html`the entry for <code>${entry}</code>`;
  return html`<li>${permissions.join(", ")} by ${by}; decided by <bdi>${approversOf(rule)}</bdi></li>`;
}

function facts({ approval, now }: ApprovalView): Html {
  const { username, asked, expires, rules, author, decided, reason, state, touched } = approval;
  const isOpen = state === "pending" || state === "approved";
  const rows = touched === undefined ? nothing : html`, for the rows that were shown`;
  return html`<dl class="sheet">
<dt>State</dt><dd>${outcomeMark(approval)}${rows}</dd>
${author === undefined || decided === undefined ? nothing : html`<dt>Decided by</dt><dd><bdi>${author.name}</bdi>${author.kind === "cli" ? " at the command line" : ""}, ${momentOf(decided)}</dd>`}
${reason === undefined ? nothing : html`<dt>Reason</dt><dd><bdi>${reason}</bdi></dd>`}
<dt>Asked by</dt><dd><bdi>${username}</bdi>, over ${wayOf(approval)}</dd>
<dt>Asked</dt><dd>${momentOf(asked)}</dd>
${isOpen ? html`<dt>${state === "pending" ? "To be decided" : "To be used"}</dt><dd>until ${momentOf(expires)}, ${timeLeft(expires, now)}</dd>` : nothing}
<dt>Held back by</dt><dd><ul class="plain">${rules.map(ruleText)}</ul></dd>
</dl>`;
}

function querySection({ approval: { state }, query, isHidden }: ApprovalView): Html {
  const isPending = state === "pending";
  if (query === undefined) return html`<p class="quiet">The query is not kept any longer.</p>`;
  if (isHidden) {
    const why = isPending
      ? "it may hold values of databases that you may not read"
      : "approvers and administrators may review it";
    return html`<p class="quiet">The query is hidden: ${why}.</p>`;
  }
  return html`<h2>The query</h2>
<p class="quiet">Exactly these bytes, ${String(Buffer.byteLength(query))} of them, ${isPending ? "are sent if it is approved" : "were decided on"}.</p>
<pre>${visibleJson(query)}</pre>`;
}

/** The forms by which it is decided. */
function decision({ approval, csrf, rows }: ApprovalView): Html {
  const action = `/approvals/${approval.id}`;
  const touched = rows !== undefined && "digest" in rows ? hidden("touched", rows.digest) : nothing;
  return html`<h2>Decide</h2>
<div class="choices">
<form method="post" action="${action}" class="sheet">
${hidden("csrf", csrf)}${hidden("decision", "approve")}${touched}
<h3>Approve</h3>
<p>Once, as it stands above. <bdi>${approval.username}</bdi> then sends it again.</p>
${ownPassword}
<div class="actions"><button class="primary">Approve</button></div>
</form>
<form method="post" action="${action}" class="sheet">
${hidden("csrf", csrf)}${hidden("decision", "deny")}
<h3>Deny</h3>
<p>Nothing is done, and <bdi>${approval.username}</bdi> is told so.</p>
<div class="field"><label for="reason">Reason</label>
<input id="reason" name="reason" maxlength="500" autocomplete="off" aria-describedby="reason-hint">
<span class="hint" id="reason-hint">Optional; whoever asks is told, a model as well</span></div>
<div class="actions"><button class="danger">Deny</button></div>
</form>
</div>`;
}

function whoDecides({ standing, approval, rows }: ApprovalView): Html {
  const who = [...new Set(approval.rules.map(approversOf))].join(", and ");
  if (rows !== undefined) return nothing;
  const own =
    standing === "asker"
      ? "You have asked for this, so somebody else decides"
      : "You do not decide on this";
  return html`<div class="note"><p>${own}: <bdi>${who}</bdi>.</p></div>`;
}

/** The page of one approval. */
export function approvalPage(view: ApprovalView): ConsolePage {
  const { approval, rows, failure, shownBefore } = view;
  const isPending = approval.state === "pending";
  const isOther =
    rows !== undefined &&
    "digest" in rows &&
    shownBefore !== undefined &&
    shownBefore !== rows.digest;
  return {
    title: summaryOf(approval),
    place: "approvals",
    content: html`<p class="path"><a href="/approvals">Approvals</a></p>
${heading(html`<code>${summaryOf(approval)}</code>`)}
${failureNote(failure)}
${isOther ? html`<div class="note error"><p>The rows are others than those that you were shown before: look at them again.</p></div>` : nothing}
${isPending ? whoDecides(view) : nothing}
${facts(view)}
${rows === undefined ? nothing : rowsSection(approval, rows)}
${querySection(view)}
${isPending && rows !== undefined ? decision(view) : nothing}`,
  };
}

/** A row of a Preview: what each column holds, as JSON. */
type Row = ReadonlyMap<string, string>;

function readRow(text: string): Row {
  const row: unknown = JSON.parse(text, keepSpelling);
  const entries = typeof row === "object" && row !== null ? Object.entries(row) : [];
  return new Map(entries.map(([name, value]) => [name, JSON.stringify(value)]));
}

const number = /^-?\d/;

/** A value for people: text without its quotes, and what might be taken for another apart. */
function cell(json: string | undefined): Html {
  if (json === undefined || json === "null") return html`<span class="hint">null</span>`;
  if (json === '""') return html`<span class="hint">empty</span>`;
  const text: unknown = json.startsWith('"') ? JSON.parse(json) : json;
  return html`<bdi>${visibleJson(String(text))}</bdi>`;
}

function rowTable(
  label: string,
  rows: readonly Row[],
  cellOf: (row: Row, at: number, name: string) => Html,
) {
  const names = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const isNumeric = (name: string) => rows.every((row) => number.test(row.get(name) ?? "0"));
  const columns = names.map(
    (name): Column => (isNumeric(name) ? [visibleJson(name), "number"] : visibleJson(name)),
  );
  const cells = rows.map((row, at) => names.map((name) => cellOf(row, at, name)));
  return html`<h3>${label}</h3><div class="scroll" tabindex="0" role="region" aria-label="${label}">${table(label, columns, cells)}</div>`;
}

/** Rows before and after in one table, where a change is told cell by cell. */
function changes(before: readonly Row[], after: readonly Row[]): Html {
  return rowTable("Before and after", before, (row, at, name) => {
    const [old, now] = [row.get(name), after[at]?.get(name)];
    return old === now ? cell(old) : html`<del>${cell(old)}</del> <ins>${cell(now)}</ins>`;
  });
}

function rowTables({ before, after }: ShownRows, isUpdate: boolean): Html {
  const [old, now] = [before.map(readRow), after.map(readRow)];
  if (isUpdate && old.length === now.length && old.length > 0) return changes(old, now);
  const list = (label: string, rows: readonly Row[]) =>
    rows.length === 0 ? nothing : rowTable(label, rows, (row, _, name) => cell(row.get(name)));
  return html`${list("Rows before", old)}${list("Rows after", now)}`;
}

const verbs: Readonly<Record<string, string>> = {
  Delete: "deleted",
  Insert: "inserted",
  Update: "updated",
  Upsert: "inserted or updated",
};

/** What a query would do to the rows of its table, and what is not known of that. */
function rowsSection(approval: Approval, shown: ShownRows | NoPreview): Html {
  if ("reason" in shown) {
    return html`<h2>Rows</h2><div class="note"><p>No rows are shown: ${visibleJson(shown.reason)}. Whoever approves approves the query, whatever it touches by then.</p></div>`;
  }
  const { affected, before, after } = shown;
  const operation = approval.operations[0]?.operation ?? "";
  const most = Math.max(before.length, after.length);
  return html`<h2>Rows</h2>
<p><strong>${counted(affected, "row")} would be ${verbs[operation] ?? "changed"}.</strong>${affected > most ? ` The first ${most} are shown.` : ""}
Your approval is for these rows: if one of them is changed, goes or comes meanwhile, nothing is done.</p>
${rowTables(shown, operation === "Update")}
<p class="quiet">Effects on other tables, by triggers and foreign keys, are not shown and not compared.</p>`;
}
