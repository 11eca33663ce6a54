import { once } from "node:events";
import { maySeeGrants } from "../access/administration.ts";
import { limitsText } from "../access/query-limits.ts";
import type { ApprovalRule } from "../access/rights.ts";
import {
  type Approval,
  type ApprovalDecision,
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
import { dateOf, type Html, html, nothing } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { counted } from "../suggestion.ts";
import { fieldLines } from "../upstream/headers.ts";
import { type Failure, failureOf, requirePassword } from "./changes.ts";
import {
  type Column,
  type ConsolePage,
  failureNote,
  heading,
  hidden,
  ownPassword,
  type Refreshing,
  refreshNote,
  table,
} from "./frame.ts";
import { type ConsoleRequest, refreshingOf, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Lists are newest first. */
interface ApprovalsView {
  readonly waiting: readonly Approval[];
  readonly others: readonly Approval[];
  readonly decided: readonly Approval[];
  readonly more: number;
  /** Descriptions of pending approvals by id, as far as the reader may see them. */
  readonly queries: ReadonlyMap<string, PendingQuery>;
  readonly refreshing: Refreshing;
}

/** What distinguishes two pending approvals of a kind. */
interface PendingQuery {
  readonly words: string;
  /** Number of affected rows; undefined if not counted. */
  readonly rows: number | undefined;
}

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
  const assignments = isRecord(set) ? Object.entries(set) : [];
  const written = assignments.map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
  return [
    ...(written.length === 0 ? [] : [`set ${written.join(", ")}`]),
    ...(values === undefined ? [] : [`values ${JSON.stringify(values)}`]),
    ...(where === undefined ? [] : [`where ${conditionInWords(where)}`]),
  ];
}

/** Describes the condition of a query and the values that it writes, shortened to one line. */
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

function outcomeOf({ state }: Approval): string {
  return outcomes[state];
}

/** Shows the outcome as good or bad, never by color only. */
function outcomeMark(approval: Approval): Html {
  const { state } = approval;
  if (state === "pending") return html`<span class="state">${outcomeOf(approval)}</span>`;
  const isGood = state === "approved" || state === "used";
  return html`<span class="state ${isGood ? "good" : "bad"}">${outcomeOf(approval)}</span>`;
}

export function timeLeft(until: number, now: number): string {
  const seconds = Math.max(0, Math.ceil((until - now) / 1000));
  return seconds < 120 ? `in ${seconds} s` : `in ${Math.floor(seconds / 60)} min`;
}

/** Formats epoch milliseconds to the minute. */
function momentOf(milliseconds: number): string {
  return dateOf(milliseconds / 1000);
}

function wayOf({ via, client }: Approval): Html {
  const way = html`<code>${via === "mcp" ? "/mcp" : "/query"}</code>`;
  return client === undefined ? way : html`${way}, client <bdi>${client}</bdi>`;
}

function titled(approval: Approval): Html {
  return html`<a href="/approvals/${approval.id}"><code>${summaryOf(approval)}</code></a>`;
}

function waitingTable(
  label: string,
  list: readonly Approval[],
  { queries, refreshing: { now } }: ApprovalsView,
): Html {
  const described = (one: Approval) => queries.get(one.id);
  const rows = (one: Approval) => described(one)?.rows;
  return table(
    label,
    [
      ...["What", "Asked by", "Comes by"],
      ...([
        ["Rows", "number"],
        ["Asked", "moment"],
        ["Ends", "moment"],
      ] as const),
    ],
    list.map((one) => [
      html`${titled(one)}<span class="hint"><bdi>${described(one)?.words ?? ""}</bdi></span>`,
      html`<bdi>${one.username}</bdi>`,
      wayOf(one),
      rows(one) === undefined ? html`<span class="dim">not counted</span>` : String(rows(one)),
      momentOf(one.asked),
      timeLeft(one.expires, now),
    ]),
  );
}

function decidedTable(list: readonly Approval[]): Html {
  return table(
    "Decided",
    ["What", "Asked by", "Outcome", "Decided by", ["Asked", "moment"]],
    list.map((one) => [
      titled(one),
      html`<bdi>${one.username}</bdi>`,
      html`${outcomeMark(one)}${one.reason === undefined ? nothing : html`<span class="hint"><bdi>${one.reason}</bdi></span>`}`,
      one.author === undefined ? "nobody" : html`<bdi>${one.author.name}</bdi>`,
      momentOf(one.asked),
    ]),
  );
}

function approvalsPage(view: ApprovalsView): ConsolePage {
  const { waiting, others, decided, more, refreshing } = view;
  return {
    title: "Approvals",
    place: "approvals",
    refresh: refreshing.isPaused ? undefined : refreshing.path,
    content: html`${heading("Approvals")}
${refreshNote(refreshing)}
<h2>For you to decide</h2>
${
  waiting.length === 0
    ? html`<p class="sheet empty">Nothing waits for you. What an entry or a permission boundary with <code>require_approval</code> holds back is listed here, until somebody has decided or its time is up.</p>`
    : waitingTable("For you to decide", waiting, view)
}
${others.length === 0 ? nothing : html`<h2>For others to decide</h2>${waitingTable("For others to decide", others, view)}`}
<h2>Decided</h2>
${decided.length === 0 ? html`<p class="sheet empty">Nothing was decided lately.</p>` : decidedTable(decided)}
${more === 0 ? nothing : html`<p class="quiet">${String(more)} more are not shown: <code>gatehouse approvals list --all</code> has them.</p>`}
<p class="quiet">What is older is in the audit.</p>`,
  };
}

type Standing = "approver" | "asker" | "onlooker";

interface ApprovalView {
  readonly approval: Approval;
  readonly standing: Standing;
  readonly csrf: string;
  /** The query, while it is pending or retained. */
  readonly query: string | undefined;
  readonly isHidden: boolean;
  /** The rows that it would change; undefined for a reader who does not decide. */
  readonly rows: ShownRows | NoPreview | undefined;
  readonly failure: Failure | undefined;
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

function approvalPage(view: ApprovalView): ConsolePage {
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

/** A row of a Preview: the JSON of each column. */
type Row = ReadonlyMap<string, string>;

function readRow(text: string): Row {
  const row: unknown = JSON.parse(text, keepSpelling);
  const entries = typeof row === "object" && row !== null ? Object.entries(row) : [];
  return new Map(entries.map(([name, value]) => [name, JSON.stringify(value)]));
}

const number = /^-?\d/;

/**
 * Formats a value for people: text without quotes, unless it could be mistaken for another value.
 */
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

/** Rows before and after in one table, with changes marked per cell. */
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

/** What a query would do to the rows of its table, and what is unknown about that. */
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

const SHOWN = 100;
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

/** The rows that a pending query would change, as far as the approver may see them. */
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
    const answer = await routing.queriesOf(preview.query).ask({
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

function authorOf({ actor }: Visitor): Author {
  return { kind: "console", name: actor.username };
}

/** The visitor's role for an approval; undefined if the visitor may not see it. */
function standingOf(visitor: Visitor, approval: Approval): Standing | undefined {
  const { snapshot, actor, isAdministrator, isManager } = visitor;
  if (approval.username === actor.username) return "asker";
  if (mayApprove(snapshot, authorOf(visitor), approval)) return "approver";
  const manages = () =>
    isManager && approval.rules.every(({ database }) => maySeeGrants(snapshot, actor, database));
  return isAdministrator || manages() ? "onlooker" : undefined;
}

/**
 * True for approvers and administrators. While the query is pending, its author may also see it,
 * and so may an onlooker who may see the grants of every database that it names.
 */
function maySeeQuery(visitor: Visitor, approval: Approval, standing: Standing): boolean {
  const { snapshot, actor, isAdministrator } = visitor;
  const { operations, operationCount, state } = approval;
  if (standing === "approver" || isAdministrator) return true;
  if (state !== "pending") return false;
  // Only the first operations are recorded.
  const isListed = operations.length === operationCount;
  const maySee = () => operations.every(({ database }) => maySeeGrants(snapshot, actor, database));
  return standing === "asker" || (isListed && maySee());
}

/** The approvals that a visitor may see, grouped by what the visitor can do. */
export async function groupsOf(c: ConsoleRequest, visitor: Visitor) {
  const all = (await useApprovals(c, (store) => store.list())) ?? [];
  const known = all.flatMap((approval) => {
    const standing = standingOf(visitor, approval);
    return standing === undefined ? [] : [{ approval, standing }];
  });
  return Map.groupBy(known, ({ approval: { state }, standing }) => {
    if (state !== "pending") return "decided";
    return standing === "approver" ? "waiting" : "others";
  });
}

/** `GET /approvals`: pending approvals and recent decisions. */
export async function showApprovals(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const groups = await groupsOf(c, visitor);
  const of = (group: "waiting" | "others" | "decided") =>
    (groups.get(group) ?? []).slice(0, SHOWN).map(({ approval }) => approval);
  const [waiting, others, decided] = [of("waiting"), of("others"), of("decided")];
  const known = groups.values().reduce((sum, list) => sum + list.length, 0);
  const more = known - waiting.length - others.length - decided.length;
  const pending = (groups.get("waiting") ?? []).concat(groups.get("others") ?? []);
  const queries = new Map<string, PendingQuery>();
  const described = pending.slice(0, DESCRIBED).map(async ({ approval, standing }) => {
    if (!maySeeQuery(visitor, approval, standing)) return;
    try {
      const query = await describePending(c, visitor, approval, standing);
      if (query !== undefined) queries.set(approval.id, query);
    } catch (error) {
      const reason = error instanceof Error ? error.message : "unknown";
      c.var.gateway.log.warn({ id: approval.id, reason }, "a pending query cannot be shown");
    }
  });
  // Counts that are not ready in time are omitted.
  const patience = AbortSignal.timeout(COUNTING_MS);
  await Promise.race([Promise.all(described), once(patience, "abort")]);
  const refreshing = refreshingOf(c);
  const page = approvalsPage({ waiting, others, decided, more, queries, refreshing });
  return sendPage(c, visitor, page);
}

/** Pending approvals described per page, and the time limit for counting their rows. */
const DESCRIBED = 25;
const COUNTING_MS = 3000;
/** Cached row counts per approver, so that a refresh costs the database nothing. */
const rowCounts = new Map<string, Promise<number | undefined>>();
const MOST_COUNTED = 1000;

async function describePending(
  c: ConsoleRequest,
  { actor }: Visitor,
  approval: Approval,
  standing: Standing,
): Promise<PendingQuery | undefined> {
  const body = await useApprovals(c, (store) => store.readBody(approval.id));
  if (body === undefined) return undefined;
  const words = queryInWords(body);
  if (standing !== "approver") return { words, rows: undefined };
  const key = `${approval.id} ${actor.username}`;
  const known = rowCounts.get(key);
  if (known !== undefined) return { words, rows: await known };
  const counting = rowsFor(c.var.gateway, actor.username, approval, body).then((rows) =>
    "affected" in rows ? rows.affected : undefined,
  );
  rowCounts.set(key, counting);
  const [oldest = ""] = rowCounts.keys();
  if (rowCounts.size > MOST_COUNTED) rowCounts.delete(oldest);
  const rows = await counting;
  if (rows === undefined) rowCounts.delete(key);
  return { words, rows };
}

/** @throws Refusal `not_found`, also if the visitor may not see the approval */
async function find(
  c: ConsoleRequest,
  visitor: Visitor,
  id: string,
): Promise<{ approval: Approval; body: Buffer | undefined; standing: Standing }> {
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
  const { approval, body, standing } = await find(c, visitor, c.req.param("id") ?? "");
  const isAsked = standing === "approver" && approval.state === "pending" && body !== undefined;
  const view: ApprovalView = {
    ...{ approval, standing, failure, csrf: visitor.csrf, now: Date.now() },
    query: body?.toString("utf8"),
    isHidden: !maySeeQuery(visitor, approval, standing),
    rows: isAsked
      ? await rowsFor(c.var.gateway, visitor.actor.username, approval, body)
      : undefined,
    shownBefore: failure && c.var.form.get("touched"),
  };
  return sendPage(c, visitor, approvalPage(view), failure?.status);
}

/** @throws Refusal `bad_request` */
function decisionOf({ form }: ConsoleRequest["var"]): ApprovalDecision["state"] {
  const decision = form.get("decision");
  if (decision === "approve") return "approved";
  if (decision === "deny") return "denied";
  throw new Refusal("bad_request");
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
  return authorOf(visitor);
}

/** Another approver has decided in the meantime. */
function tooLate(approval: Approval): Failure {
  const { author, decided } = approval;
  const who = author === undefined ? "" : ` by ${author.name}`;
  const when =
    decided === undefined ? "" : ` at ${new Date(decided).toISOString().slice(11, 19)} UTC`;
  const message = `Too late: this is ${outcomeOf(approval).toLowerCase()}${who}${when}. Your decision changes nothing.`;
  return { status: 409, message };
}

/** `POST /approvals/<id>`: approves the query, which needs the password again, or denies it. */
export async function decideApproval(c: ConsoleRequest): Promise<Response> {
  const id = c.req.param("id") ?? "";
  const { approval } = await find(c, visitorOf(c), id);
  requireApprover(c, approval);
  const state = decisionOf(c.var);
  try {
    const reason = reasonOf(c.var);
    if (state === "approved") await requirePassword(c);
    const author = requireApprover(c, approval);
    const touched = c.var.form.get("touched") ?? "";
    const wait = c.var.gateway.configuration.approvals.wait * 1000;
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
