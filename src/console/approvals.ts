import { once } from "node:events";
import { maySeeGrants } from "../access/administration.ts";
import { limitsText } from "../access/narrowed-query.ts";
import type { ApprovalRule } from "../access/rights.ts";
import {
  type Approval,
  type ApprovalState,
  type ApprovalStore,
  type Author,
  approversOf,
  mayApprove,
  summaryOf,
} from "../approvals/approval.ts";
import {
  type NoPreview,
  previewQuery,
  readShownRows,
  type ShownRows,
  visibleJson,
  whyUnseen,
} from "../approvals/preview.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { credentialOf, LIMITS_HEADER } from "../gateway/query.ts";
import { identify } from "../identity/authenticate.ts";
import { keepSpelling } from "../json/document.ts";
import { dateOf, type Html, html } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { counted } from "../suggestion.ts";
import { fieldLines } from "../upstream/headers.ts";
import { Failure, failureOf, requirePassword } from "./changes.ts";
import {
  type Column,
  empty,
  failureNote,
  heading,
  hidden,
  hint,
  mark,
  ownPassword,
  refreshing,
  table,
} from "./frame.ts";
import { type ConsoleRequest, sendPage, type Visitor, visitorOf } from "./visit.ts";

const LONGEST_WORDS = 200;

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function conditionInWords(where: unknown): string {
  if (where === null) return "every row";
  if (!isRecord(where)) return JSON.stringify(where);
  const { column, cmp, value, and, or, not } = where;
  if (not !== undefined) return `not (${conditionInWords(not)})`;
  if (Array.isArray(and)) return and.map(conditionInWords).join(" and ");
  if (Array.isArray(or)) return `(${or.map(conditionInWords).join(" or ")})`;
  if (typeof column !== "string") return JSON.stringify(where);
  return `${column} ${String(cmp)} ${JSON.stringify(value) ?? ""}`;
}

function operationInWords(operation: unknown): string[] {
  const [fields] = isRecord(operation) ? Object.values(operation) : [];
  if (Array.isArray(fields)) return fields.slice(0, 3).flatMap(operationInWords);
  if (!isRecord(fields)) return [];
  const { set, values, where } = fields;
  const assignments = Object.entries(isRecord(set) ? set : {});
  const written = assignments.map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
  const words = [
    written.length > 0 && `set ${written.join(", ")}`,
    values !== undefined && `values ${JSON.stringify(values)}`,
    where !== undefined && `where ${conditionInWords(where)}`,
  ];
  return words.filter((one) => one !== false);
}

function queryInWords(body: Buffer): string {
  const words = operationInWords(JSON.parse(body.toString(), keepSpelling)).join(" ");
  const text = visibleJson(words.slice(0, LONGEST_WORDS));
  return words.length > LONGEST_WORDS ? `${text}...` : text;
}

const outcomes: Readonly<Record<ApprovalState, string>> = {
  pending: "Waiting",
  approved: "Approved",
  denied: "Denied",
  expired: "Expired",
  used: "Approved and used",
  void: "Void",
};

function outcomeMark({ state }: Approval): Html {
  return state === "pending"
    ? html`<span class="state">${outcomes[state]}</span>`
    : mark(state === "approved" || state === "used", outcomes[state]);
}

export function timeLeft(until: number, now: number): string {
  const seconds = Math.max(0, Math.ceil((until - now) / 1000));
  return seconds < 120 ? `in ${seconds} s` : `in ${Math.floor(seconds / 60)} min`;
}

function wayOf({ via, client }: Approval): Html {
  const path = via === "mcp" ? "/mcp" : "/query";
  return html`<code>${path}</code>${client !== undefined && html`, client <bdi>${client}</bdi>`}`;
}

export function titled(approval: Approval): Html {
  return html`<a href="/approvals/${approval.id}"><code>${summaryOf(approval)}</code></a>`;
}

const SHOWN = 100;
/** Pending approvals described per page, and the time limit for counting their rows. */
const DESCRIBED = 25;
const COUNTING_MS = 3000;

export async function showApprovals(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { waiting = [], others = [], decided = [] } = await groupsOf(c, visitor);
  const excess = [waiting, others, decided].map(({ length }) => Math.max(0, length - SHOWN));
  const more = excess.reduce((sum, count) => sum + count);
  const queries = new Map<string, Awaited<ReturnType<typeof describePending>>>();
  const described = [...waiting, ...others].slice(0, DESCRIBED).map(async (approval) => {
    if (!maySeeQuery(visitor, approval)) return;
    try {
      queries.set(approval.id, await describePending(c, visitor, approval));
    } catch (error) {
      const reason = error instanceof Error ? error.message : "unknown";
      c.var.gateway.log.warn({ id: approval.id, reason }, "a pending query cannot be shown");
    }
  });
  // Counts that are not ready in time are omitted.
  const patience = AbortSignal.timeout(COUNTING_MS);
  await Promise.race([Promise.all(described), once(patience, "abort")]);
  const { note, refresh } = refreshing(c);
  const moments = ["Asked", "Ends"].map((name) => [name, "moment"] as const);
  const pending = (label: string, list: readonly Approval[]) =>
    table(
      label,
      ["What", "Asked by", "Comes by", ["Rows", "number"], ...moments],
      list.slice(0, SHOWN).map((one) => {
        const { words, rows } = queries.get(one.id) ?? {};
        return [
          html`${titled(one)}${hint(html`<bdi>${words}</bdi>`)}`,
          html`<bdi>${one.username}</bdi>`,
          wayOf(one),
          rows ?? html`<span class="dim">not counted</span>`,
          dateOf(one.asked / 1000),
          timeLeft(one.expires, Date.now()),
        ];
      }),
    );
  const done = decided
    .slice(0, SHOWN)
    .map((one) => [
      titled(one),
      html`<bdi>${one.username}</bdi>`,
      html`${outcomeMark(one)}${one.reason !== undefined && hint(html`<bdi>${one.reason}</bdi>`)}`,
      one.author === undefined ? "nobody" : html`<bdi>${one.author.name}</bdi>`,
      dateOf(one.asked / 1000),
    ]);
  const columns = ["What", "Asked by", "Outcome", "Decided by", ["Asked", "moment"]] as const;
  const nothing = html`Nothing waits for you. What an entry or a permission boundary with <code>require_approval</code> holds back is listed here, until somebody has decided or its time is up.`;
  return sendPage(c, {
    ...{ title: "Approvals", place: "Approvals", refresh },
    content: html`${heading("Approvals")}
${note}
<h2>For you to decide</h2>
${waiting.length > 0 ? pending("For you to decide", waiting) : empty(nothing)}
${others.length > 0 && html`<h2>For others to decide</h2>${pending("For others to decide", others)}`}
<h2>Decided</h2>
${done.length > 0 ? table("Decided", columns, done) : empty("Nothing was decided lately.")}
${more > 0 && html`<p class="quiet">${more} more are not shown: <code>gatehouse approvals list --all</code> has them.</p>`}
<p class="quiet">What is older is in the audit.</p>`,
  });
}

function ruleText(rule: ApprovalRule): Html {
  const { entry, boundary, permissions } = rule;
  const kind = entry === undefined ? "the boundary" : "the entry for";
  return html`<li>${permissions.join(", ")} by ${kind} <code>${entry ?? boundary}</code>; decided by <bdi>${approversOf(rule)}</bdi></li>`;
}

function facts(approval: Approval): Html {
  const { username, asked, expires, rules, author, decided, reason, state, touched } = approval;
  const isOpen = state === "pending" || state === "approved";
  return html`<dl class="sheet">
<dt>State</dt><dd>${outcomeMark(approval)}${touched !== undefined && ", for the rows that were shown"}</dd>
${author && decided !== undefined && html`<dt>Decided by</dt><dd><bdi>${author.name}</bdi>${author.kind === "cli" && " at the command line"}, ${dateOf(decided / 1000)}</dd>`}
${reason !== undefined && html`<dt>Reason</dt><dd><bdi>${reason}</bdi></dd>`}
<dt>Asked by</dt><dd><bdi>${username}</bdi>, over ${wayOf(approval)}</dd>
<dt>Asked</dt><dd>${dateOf(asked / 1000)}</dd>
${isOpen && html`<dt>${state === "pending" ? "To be decided" : "To be used"}</dt><dd>until ${dateOf(expires / 1000)}, ${timeLeft(expires, Date.now())}</dd>`}
<dt>Held back by</dt><dd><ul class="plain">${rules.map(ruleText)}</ul></dd>
</dl>`;
}

/** @param query the bytes, while they are pending or retained */
function querySection(query: Buffer | undefined, isPending: boolean, isHidden: boolean): Html {
  if (query === undefined) return html`<p class="quiet">The query is not kept any longer.</p>`;
  if (isHidden) {
    const why = isPending
      ? "it may hold values of databases that you may not read"
      : "approvers and administrators may review it";
    return html`<p class="quiet">The query is hidden: ${why}.</p>`;
  }
  return html`<h2>The query</h2>
<p class="quiet">Exactly these bytes, ${query.length} of them, ${isPending ? "are sent if it is approved" : "were decided on"}.</p>
<pre>${visibleJson(query.toString("utf8"))}</pre>`;
}

function decisionForms({ id, username }: Approval, csrf: string, digest: string | undefined): Html {
  const form = (decision: string, content: Html) =>
    html`<form method="post" action="/approvals/${id}" class="sheet">
${hidden("csrf", csrf)}${hidden("decision", decision)}
${content}
</form>`;
  const approve = html`${digest !== undefined && hidden("touched", digest)}<h3>Approve</h3>
<p>Once, as it stands above. <bdi>${username}</bdi> then sends it again.</p>
${ownPassword()}
<div class="actions"><button class="primary">Approve</button></div>`;
  const deny = html`<h3>Deny</h3>
<p>Nothing is done, and <bdi>${username}</bdi> is told so.</p>
<div class="field"><label for="reason">Reason</label>
<input id="reason" name="reason" maxlength="500" autocomplete="off" aria-describedby="reason-hint">
<span class="hint" id="reason-hint">Optional; whoever asks is told, a model as well</span></div>
<div class="actions"><button class="danger">Deny</button></div>`;
  return html`<h2>Decide</h2>
<div class="choices">${form("approve", approve)}${form("deny", deny)}</div>`;
}

/** @throws Refusal `not_found`, also if the visitor may not see the approval */
async function find(c: ConsoleRequest, visitor: Visitor) {
  const id = c.req.param("id") ?? "";
  const found = await useApprovals(c, async (store) => {
    const approval = await store.find(id);
    return approval && { approval, body: await store.readBody(id) };
  });
  const standing = found && standingOf(visitor, found.approval);
  if (found === undefined || standing === undefined) throw new Refusal("not_found");
  return { ...found, standing };
}

export async function showApproval(c: ConsoleRequest, failure?: Failure): Promise<Response> {
  const visitor = visitorOf(c);
  const { approval, body, standing } = await find(c, visitor);
  const isPending = approval.state === "pending";
  const rows =
    standing === "approver" && isPending && body !== undefined
      ? await rowsFor(c.var.gateway, visitor.actor.username, approval, body)
      : undefined;
  const digest = rows && "digest" in rows ? rows.digest : undefined;
  const shownBefore = failure && c.var.form.get("touched");
  const isOther = digest !== undefined && shownBefore !== undefined && shownBefore !== digest;
  const own =
    standing === "asker"
      ? "You have asked for this, so somebody else decides"
      : "You do not decide on this";
  const who = [...new Set(approval.rules.map(approversOf))].join(", and ");
  return sendPage(c, {
    ...{ title: summaryOf(approval), place: "Approvals", failure },
    content: html`<p class="path"><a href="/approvals">Approvals</a></p>
${heading(html`<code>${summaryOf(approval)}</code>`)}
${failureNote(failure)}
${isOther && html`<div class="note error"><p>The rows are others than those that you were shown before: look at them again.</p></div>`}
${isPending && !rows && html`<div class="note"><p>${own}: <bdi>${who}</bdi>.</p></div>`}
${facts(approval)}
${rows && rowsSection(approval, rows)}
${querySection(body, isPending, !maySeeQuery(visitor, approval))}
${isPending && rows && decisionForms(approval, visitor.csrf, digest)}`,
  });
}

type Row = ReadonlyMap<string, string>;

function readRow(text: string): Row {
  const row: unknown = JSON.parse(text, keepSpelling);
  const entries = isRecord(row) ? Object.entries(row) : [];
  return new Map(entries.map(([name, value]) => [name, JSON.stringify(value)]));
}

/** A value for people: text without quotes, unless it could be mistaken for another value. */
function cell(json: string | undefined): Html {
  if (json === undefined || json === "null") return hint("null");
  if (json === '""') return hint("empty");
  const text: unknown = json.startsWith('"') ? JSON.parse(json) : json;
  return html`<bdi>${visibleJson(String(text))}</bdi>`;
}

/** A table of rows, with changes marked per cell. @param after the same rows later */
function rowTable(label: string, rows: readonly Row[], after = rows): Html | undefined {
  if (rows.length === 0) return undefined;
  const names = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const isNumeric = (name: string) => rows.every((row) => /^-?\d/.test(row.get(name) ?? "0"));
  const columns = names.map(
    (name): Column => (isNumeric(name) ? [visibleJson(name), "number"] : visibleJson(name)),
  );
  const cells = rows.map((row, at) =>
    names.map((name) => {
      const [old, now] = [row.get(name), after[at]?.get(name)];
      return old === now ? cell(old) : html`<del>${cell(old)}</del> <ins>${cell(now)}</ins>`;
    }),
  );
  return html`<h3>${label}</h3><div class="scroll" tabindex="0" role="region" aria-label="${label}">${table(label, columns, cells)}</div>`;
}

const verbs: Readonly<Record<string, string>> = {
  Delete: "deleted",
  Insert: "inserted",
  Update: "updated",
  Upsert: "inserted or updated",
};

function rowsSection(approval: Approval, shown: ShownRows | NoPreview): Html {
  if ("reason" in shown) {
    return html`<h2>Rows</h2><div class="note"><p>No rows are shown: ${visibleJson(shown.reason)}. Whoever approves approves the query, whatever it touches by then.</p></div>`;
  }
  const { affected } = shown;
  const [before, after] = [shown.before.map(readRow), shown.after.map(readRow)];
  const operation = approval.operations[0]?.operation ?? "";
  const most = Math.max(before.length, after.length);
  const isCompared = operation === "Update" && before.length === after.length;
  return html`<h2>Rows</h2>
<p><strong>${counted(affected, "row")} would be ${verbs[operation] ?? "changed"}.</strong>${affected > most && ` The first ${most} are shown.`}
Your approval is for these rows: if one of them is changed, goes or comes meanwhile, nothing is done.</p>
${isCompared ? rowTable("Before and after", before, after) : [rowTable("Rows before", before), rowTable("Rows after", after)]}
<p class="quiet">Effects on other tables, by triggers and foreign keys, are not shown and not compared.</p>`;
}

const LONGEST_REASON = 500;
const PREVIEW_TIMEOUT_MS = 60_000;
/** Enough for a hundred rows before and after. */
const LARGEST_PREVIEW_BYTES = 4 * 1024 * 1024;

/** Returns undefined if no approval was ever requested: viewing approvals creates no store. */
async function useApprovals<Result>(
  c: ConsoleRequest,
  work: (store: ApprovalStore) => Promise<Result>,
): Promise<Result | undefined> {
  const { approvals } = c.var.gateway;
  return (await approvals.counts()) === undefined ? undefined : approvals.use(work);
}

async function rowsFor(
  gateway: Gateway,
  approver: string,
  approval: Approval,
  query: Buffer,
): Promise<ShownRows | NoPreview> {
  const { queries, access, log, routing } = gateway;
  if (!queries.isEngine) return { reason: "no gatehouse engine answers behind the gateway" };
  const preview = previewQuery(access.snapshot, queries.grammar, approval, query);
  if ("reason" in preview) return preview;
  const unseen = whyUnseen(access.snapshot, queries.grammar, approver, approval);
  if (unseen !== undefined) return { reason: unseen };
  try {
    const answer = await routing.groupFor(preview.query).ask({
      ...{ user: approver, body: preview.body, isRead: true, largest: LARGEST_PREVIEW_BYTES },
      fields: fieldLines({
        "content-type": "application/json",
        [LIMITS_HEADER]: limitsText(preview.limits),
        ...credentialOf(gateway),
      }),
      hold: () => {},
      signal: AbortSignal.timeout(PREVIEW_TIMEOUT_MS),
    });
    if (answer.isCut) return { reason: "the rows are too long to be shown" };
    return readShownRows(answer.status, answer.body.toString("utf8"));
  } catch (error) {
    if (error instanceof Refusal) return { reason: error.message };
    log.error({ err: error }, "the rows of an approval cannot be shown");
    return { reason: "the engine's answer cannot be read" };
  }
}

/** The visitor's role for an approval; undefined if the visitor may not see it. */
function standingOf(visitor: Visitor, approval: Approval) {
  const { snapshot, actor, isAdministrator, isManager } = visitor;
  if (approval.username === actor.username) return "asker";
  if (mayApprove(snapshot, { kind: "console", name: actor.username }, approval)) return "approver";
  const manages = () =>
    isManager && approval.rules.every(({ database }) => maySeeGrants(snapshot, actor, database));
  return isAdministrator || manages() ? "onlooker" : undefined;
}

/**
 * True for approvers and administrators. While the query is pending, its author may also see it,
 * and so may an onlooker who may see the grants of every database that it names.
 */
function maySeeQuery(visitor: Visitor, approval: Approval): boolean {
  const { snapshot, actor, isAdministrator } = visitor;
  const { operations, operationCount, state } = approval;
  const standing = standingOf(visitor, approval);
  if (standing === "approver" || isAdministrator) return true;
  if (state !== "pending") return false;
  // Only the first operations are recorded.
  const isListed = operations.length === operationCount;
  const maySee = () => operations.every(({ database }) => maySeeGrants(snapshot, actor, database));
  return standing === "asker" || (isListed && maySee());
}

export async function groupsOf(c: ConsoleRequest, visitor: Visitor) {
  const all = (await useApprovals(c, (store) => store.list())) ?? [];
  return Object.groupBy(all, (approval) => {
    const standing = standingOf(visitor, approval);
    if (standing === undefined) return "unseen";
    if (approval.state !== "pending") return "decided";
    return standing === "approver" ? "waiting" : "others";
  });
}

/** Cached row counts per approver, so that a refresh costs the database nothing. */
const rowCounts = new Map<string, Promise<number | undefined>>();
const MOST_COUNTED = 1000;

async function describePending(c: ConsoleRequest, visitor: Visitor, approval: Approval) {
  const body = await useApprovals(c, (store) => store.readBody(approval.id));
  if (body === undefined) return undefined;
  const words = queryInWords(body);
  if (standingOf(visitor, approval) !== "approver") return { words, rows: undefined };
  const { username } = visitor.actor;
  const key = `${approval.id} ${username}`;
  let counting = rowCounts.get(key);
  if (counting === undefined) {
    counting = rowsFor(c.var.gateway, username, approval, body).then((rows) =>
      "affected" in rows ? rows.affected : undefined,
    );
    rowCounts.set(key, counting);
    const [oldest = ""] = rowCounts.keys();
    if (rowCounts.size > MOST_COUNTED) rowCounts.delete(oldest);
  }
  const rows = await counting;
  if (rows === undefined) rowCounts.delete(key);
  return { words, rows };
}

/** The message for the requester, on one line. @throws Refusal `bad_request` */
function reasonOf({ form }: ConsoleRequest["var"]): string | undefined {
  const reason = (form.get("reason") ?? "").replace(/\p{C}+/gu, " ").trim();
  if (reason.length > LONGEST_REASON) {
    const message = `A reason has at most ${LONGEST_REASON} characters`;
    throw new Refusal("bad_request", { message });
  }
  return reason === "" ? undefined : reason;
}

/** @throws Refusal `role_insufficient` unless the visitor may decide on it now */
function requireApprover(c: ConsoleRequest, approval: Approval): Author {
  const visitor = visitorOf(c);
  identify(visitor.snapshot, c.var.gateway.revocations, visitor.session);
  if (standingOf(visitor, approval) !== "approver") throw new Refusal("role_insufficient");
  return { kind: "console", name: visitor.actor.username };
}

function tooLate({ author, decided, state }: Approval): Failure {
  const who = author === undefined ? "" : ` by ${author.name}`;
  const when =
    decided === undefined ? "" : ` at ${new Date(decided).toISOString().slice(11, 19)} UTC`;
  const outcome = outcomes[state].toLowerCase();
  return new Failure(
    409,
    `Too late: this is ${outcome}${who}${when}. Your decision changes nothing.`,
  );
}

export async function decideApproval(c: ConsoleRequest): Promise<Response> {
  const { form, gateway } = c.var;
  const { approval } = await find(c, visitorOf(c));
  const { id } = approval;
  requireApprover(c, approval);
  const decision = form.get("decision");
  if (decision !== "approve" && decision !== "deny") throw new Refusal("bad_request");
  const state = decision === "approve" ? "approved" : "denied";
  try {
    const reason = reasonOf(c.var);
    if (state === "approved") await requirePassword(c);
    const author = requireApprover(c, approval);
    const touched = form.get("touched") ?? "";
    const wait = gateway.configuration.approvals.wait * 1000;
    const late = await useApprovals(c, async (store) => {
      if (state === "approved" && touched !== "") await store.noteShown(id, author, touched);
      const isDone = await store.decide(id, { state, author, reason, wait });
      return isDone ? undefined : ((await store.find(id)) ?? approval);
    });
    if (late !== undefined) return await showApproval(c, tooLate(late));
  } catch (error) {
    return showApproval(c, failureOf(error));
  }
  return c.redirect(`/approvals/${id}`, 303);
}
