import type { ApprovalRule } from "../../access/decision.ts";
import type { Approval } from "../../approvals/approval.ts";
import type { NoPreview } from "../../approvals/preview.ts";
import { type ShownRows, visibleJson } from "../../approvals/shown-rows.ts";
import { approversOf, summaryOf } from "../../approvals/words.ts";
import { type Html, html, nothing } from "../../pages/html.ts";
import type { Failure } from "../changes.ts";
import { rowsSection } from "./approval-rows.ts";
import { momentOf, outcomeMark, timeLeft, wayOf } from "./approvals.ts";
import { failureNote } from "./forms.ts";
import { type ConsolePage, heading, hidden } from "./frame.ts";

/** What a reader has to do with an approval. */
export type Standing = "approver" | "asker" | "onlooker";

/** What the page of one approval shows. */
export interface ApprovalView {
  readonly approval: Approval;
  readonly standing: Standing;
  readonly csrf: string;
  /** The query, as long as it waits. */
  readonly query: string | undefined;
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

function querySection(query: string | undefined): Html {
  if (query === undefined)
    return html`<p class="quiet">The query was deleted when it was decided.</p>`;
  return html`<h2>The query</h2>
<p class="quiet">Exactly these bytes, ${String(Buffer.byteLength(query))} of them, are sent if it is approved.</p>
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
<div class="field"><label for="own-password">Your own password, again</label>
<input id="own-password" name="password" type="password" autocomplete="current-password" required></div>
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
  const { approval, query, rows, failure, shownBefore } = view;
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
${querySection(query)}
${isPending && rows !== undefined ? decision(view) : nothing}`,
  };
}
