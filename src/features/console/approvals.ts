import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import { groupHolder, type Subject } from "../../core/access/grant.ts";
import type { ApprovalRule } from "../../core/access/rights.ts";
import { addedTexts } from "../../core/access/row-filter.ts";
import { namesOfPerson } from "../../core/access/snapshot.ts";
import { errorMessage } from "../../core/base/client-error.ts";
import { runCooperatively, type Steps } from "../../core/base/cooperative-scheduling.ts";
import { type Html, html } from "../../core/base/html.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { counted } from "../../core/base/suggestion.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { predictInSteps } from "../../core/http/query-outcome.ts";
import { identify } from "../../core/identity/authenticate.ts";
import { isObject, parseUnrounded } from "../../core/json/exact.ts";
import { placeName } from "../../core/query/names.ts";
import { STEP_BYTES } from "../../core/query/parse.ts";
import { ask } from "../../core/upstream/database.ts";
import {
  type Approval,
  type ApprovalState,
  type ApprovalStore,
  type Approver,
  approvalSummary,
  describeApprovers,
  type KeptQuery,
  mayApprove,
  readReason,
} from "../approvals/approval.ts";
import {
  countShown,
  type NoPreview,
  type PreviewRows,
  previewQuery,
  readPreviewRows,
  visibleJson,
  whyRowsHidden,
} from "../approvals/preview.ts";
import { conditionInWords, prettyJson, queryInWords } from "../approvals/query-words.ts";
import { confirmationField, failureOf, requireConfirmation } from "./changes.ts";
import {
  type Column,
  dim,
  Failure,
  hidden,
  hint,
  mark,
  postForm,
  table,
  type Visitor,
} from "./frame.ts";
import { dateInWords, formatDate } from "./moment.ts";
import { type ConsoleRequest, refreshOf, sendPage, visitorOf } from "./visit.ts";

const LONGEST_SUMMARY = 200;

function shortText(body: Buffer): string {
  const text = queryInWords(body.toString()).join("; ");
  return text.length > LONGEST_SUMMARY ? `${text.slice(0, LONGEST_SUMMARY)}...` : text;
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

/** @param until epoch milliseconds */
export function timeLeft(until: number, now: number): string {
  const seconds = Math.max(0, Math.ceil((until - now) / 1000));
  return seconds < 120 ? `in ${seconds} s` : `in ${Math.floor(seconds / 60)} min`;
}

function interfaceOf({ via, client }: Approval): Html {
  return html`<code>/${via}</code>${client !== undefined && html`, client <bdi>${client}</bdi>`}`;
}

export function approvalLink(approval: Approval): Html {
  return html`<a href="/approvals/${approval.id}"><code>${approvalSummary(approval)}</code></a>`;
}

const SHOWN = 100;
/** Pending approvals described per page, and the time limit for counting their rows. */
const DESCRIBED = 25;
const COUNTING_MS = 3000;
const moments = ["Requested", "Expires"].map((name) => [name, "moment"] as const);

export async function showApprovals(c: ConsoleRequest): Promise<Response> {
  const visitor = visitorOf(c);
  const { waiting = [], others = [], decided = [] } = await groupApprovals(c, visitor);
  const excess = [waiting, others, decided].map(({ length }) => Math.max(0, length - SHOWN));
  const more = excess.reduce((sum, count) => sum + count);
  const shown = [...waiting, ...others]
    .slice(0, DESCRIBED)
    .filter((one) => maySeeQuery(visitor, one));
  const texts = new Map<string, string | undefined>();
  const counts = new Map<string, number | undefined>();
  const forEachShown = (work: (approval: Approval) => Promise<unknown>) =>
    Promise.all(
      shown.map(async (approval) => {
        try {
          await work(approval);
        } catch (error) {
          const { id } = approval;
          const reason = errorMessage(error);
          c.var.gateway.log.warn({ id, reason }, "a pending query cannot be shown");
        }
      }),
    );
  await forEachShown(async (one) => texts.set(one.id, await summarize(c, one)));
  const counting = forEachShown(async (one) =>
    counts.set(one.id, await countRows(c, visitor, one)),
  );
  // Counts that are not ready in time are omitted.
  await Promise.race([counting, setTimeout(COUNTING_MS, undefined, { ref: false })]);
  const pending = (
    label: string,
    list: readonly Approval[],
    none?: string,
  ) => html`<h2>${label}</h2>
${table(
  label,
  ["Query", "Requested by", "Interface", ["Rows", "number"], ...moments],
  list.slice(0, SHOWN).map((one) => {
    return [
      html`${approvalLink(one)}${hint(html`<bdi>${texts.get(one.id)}</bdi>`)}`,
      html`<bdi>${one.username}</bdi>`,
      interfaceOf(one),
      counts.get(one.id) ?? dim("not counted"),
      formatDate(one.asked / 1000),
      timeLeft(one.expires, Date.now()),
    ];
  }),
  none,
)}`;
  const done = decided
    .slice(0, SHOWN)
    .map((one) => [
      approvalLink(one),
      html`<bdi>${one.username}</bdi>`,
      html`${outcomeMark(one)}${one.reason !== undefined && hint(html`<bdi>${one.reason}</bdi>`)}`,
      html`<bdi>${one.author?.name ?? "-"}</bdi>`,
      formatDate(one.asked / 1000),
    ]);
  const columns = [
    "Query",
    "Requested by",
    "Outcome",
    "Decided by",
    ["Requested", "moment"],
  ] as const;
  return sendPage(c, {
    title: "Approvals",
    section: "Approvals",
    refresh: refreshOf(c),
    content: html`${pending("For you to decide", waiting, "No approvals are waiting for you. Queries that require approval appear here until they are decided or expire.")}
${others.length > 0 && pending("For others to decide", others)}
<h2>Decided</h2>
${table("Decided", columns, done, "No recent decisions.")}
${more > 0 && html`<p class="quiet">${more} more are not shown. Run <code>gatehouse approvals list --all</code> to list them.</p>`}
${visitor.isManager && html`<p class="quiet">Older approvals are in the audit.</p>`}`,
  });
}

function ruleText(rule: ApprovalRule): Html {
  const { entry, boundary, permissions } = rule;
  const kind = entry === undefined ? "the boundary" : "the entry for";
  return html`<li>${permissions.join(", ")} by ${kind} <code>${entry ?? boundary}</code>; approvers: <bdi>${describeApprovers(rule)}</bdi></li>`;
}

function facts(approval: Approval): Html {
  const { username, asked, expires, rules, author, decided, reason, state, touched } = approval;
  const isOpen = state === "pending" || state === "approved";
  return html`<dl class="sheet">
<dt>State</dt><dd>${outcomeMark(approval)}${touched !== undefined && ", for the rows shown"}</dd>
${author && decided !== undefined && html`<dt>Decided by</dt><dd><bdi>${author.name}</bdi>${author.kind === "cli" && " (command line)"}, ${formatDate(decided / 1000)}</dd>`}
${reason !== undefined && html`<dt>Reason</dt><dd><bdi>${reason}</bdi></dd>`}
<dt>Requested by</dt><dd><bdi>${username}</bdi>, over ${interfaceOf(approval)}</dd>
<dt>Requested</dt><dd>${formatDate(asked / 1000)}</dd>
${isOpen && html`<dt>Expires</dt><dd>${formatDate(expires / 1000)}, ${timeLeft(expires, Date.now())}</dd>`}
<dt>Required for</dt><dd><ul class="plain">${rules.map(ruleText)}</ul></dd>
</dl>`;
}

const PIECE_LENGTH = 16 * 1024;

/** A query of any length, in pieces of HTML. */
function* showQuery(text: string): Steps<Html[]> {
  const pieces: Html[] = [];
  for (let start = 0, end = 0; start < text.length; start = end) {
    end = start + PIECE_LENGTH;
    const isInPair = (text.codePointAt(end - 1) ?? 0) > 0xffff;
    if (isInPair) end += 1;
    pieces.push(html`${visibleJson(text.slice(start, end))}`);
    yield;
  }
  return pieces;
}

/** @param query the bytes; undefined once they are deleted */
async function querySection(
  query: Buffer | undefined,
  isPending: boolean,
  isHidden: boolean,
): Promise<Html> {
  if (query === undefined) return html`<p class="quiet">The query is no longer stored.</p>`;
  if (isHidden) {
    const why = isPending
      ? "it may contain values from databases that you cannot read"
      : "only approvers and administrators can review it";
    return html`<p class="quiet">The query is hidden: ${why}.</p>`;
  }
  return html`<h2>Query</h2>
<p class="quiet">The ${isPending ? "approval" : "decision"} applies to exactly these ${query.length} bytes.</p>
<pre>${await runCooperatively(showQuery(prettyJson(query.toString("utf8"))))}</pre>`;
}

/** The effect of a query in words. @param affected the number of rows now, if it is known */
function wordsSection(
  { username, state }: Approval,
  query: Buffer,
  affected: number | undefined,
  notes: readonly string[],
): Html {
  const texts = queryInWords(query.toString("utf8"));
  const will = state === "used" ? "has run this:" : state === "pending" ? "will" : "wanted to";
  const subject = html`<bdi>${username}</bdi> ${will}`;
  const [first] = texts;
  const rows = affected !== undefined && `: ${counted(affected, "row")} now`;
  const isCut = texts.some((text) => text.includes("(cut"));
  return html`<h2>In words</h2>
<div class="sheet">${
    texts.length === 1
      ? html`<p><strong>${subject} <bdi>${first}</bdi>${rows}.</strong></p>`
      : html`<p><strong>${subject} do this in one Batch, all of it or nothing:</strong></p><ol>${texts.map((text) => html`<li><bdi>${text}</bdi></li>`)}</ol>`
  }${notes.map((note) => html`<p><bdi>${note}</bdi></p>`)}${isCut && html`<p>Some of it is cut here. The query below is whole.</p>`}</div>`;
}

/**
 * The row filters that will be added to a pending query, or the reason of its denial. Only visitors
 * who may see the entries read what these contain.
 */
async function decisionNotes(
  { gateway }: ConsoleRequest["var"],
  visitor: Visitor,
  approval: Approval,
  { body, asker: { username, groups, attributes } }: KeptQuery,
): Promise<string[]> {
  const { via, client } = approval;
  const { snapshot } = gateway.access;
  const caller = { user: username, groups, attributes, via, client, isApproved: true };
  const form = gateway.configuration.upstream.query_form;
  const {
    allowed,
    code,
    message,
    decided,
    query: parsed,
  } = await runCooperatively(
    predictInSteps(snapshot, caller, body, { queries: gateway.queries, form }, STEP_BYTES),
  );
  const seesAll = maySeeDatabases(visitor, approval);
  if (!allowed) {
    const why = seesAll ? `: ${visibleJson(message ?? code)}` : "";
    return [`It would be denied now, also when approved${why}.`];
  }
  const added = (decided?.decisions ?? []).flatMap(({ filters }, at) => {
    const { database = "", tables = [] } = parsed?.accesses[at] ?? {};
    const places = tables.map((table) => placeName(database, table)).join(", ");
    return addedTexts(filters).map((text) => {
      const rows = visitor.maySee(database) ? `: only rows where ${conditionInWords(text)}` : "";
      return `The row filter of ${username} is added for ${places}${rows}.`;
    });
  });
  const known = seesAll ? (decided?.limits ?? []) : [];
  const limits = known.flatMap(({ changes }) => changes ?? []);
  return [
    ...new Set(added),
    ...limits.map((most) => `The database refuses it beyond ${counted(most, "changed row")}.`),
  ];
}

function decisionForms(
  { id, username }: Approval,
  csrf: string,
  digest: string | undefined,
  confirmation: Html | undefined,
): Html {
  const form = (decision: string, content: Html) =>
    postForm(
      csrf,
      `/approvals/${id}`,
      "sheet",
      html`${hidden("decision", decision)}
${content}`,
    );
  const approve = html`${digest !== undefined && hidden("touched", digest)}<h3>Approve</h3>
<p>Lets <bdi>${username}</bdi> run this query once.</p>
${confirmation}
<div class="actions"><button class="primary">Approve</button></div>`;
  const deny = html`<h3>Deny</h3>
<p>The query does not run. <bdi>${username}</bdi> receives the reason.</p>
<div class="field"><label for="reason">Reason</label>
<input id="reason" name="reason" maxlength="500" autocomplete="off" aria-describedby="reason-hint">
<span class="hint" id="reason-hint">Optional. Shown to the requester, which may be an AI model.</span></div>
<div class="actions"><button class="danger">Deny</button></div>`;
  return html`<h2>Decide</h2>
<div class="choices">${form("approve", approve)}${form("deny", deny)}</div>`;
}

/** @throws Refusal `not_found`, also if the visitor may not see the approval */
async function find(c: ConsoleRequest, visitor: Visitor) {
  const id = c.req.param("id") ?? "";
  const found = await useApprovals(c, async (store) => {
    const approval = await store.find(id);
    return approval && { approval, kept: await store.readQuery(approval) };
  });
  const relation = found && relationOf(visitor, found.approval);
  if (found === undefined || relation === undefined) throw new Refusal("not_found");
  return { ...found, relation };
}

export async function showApproval(c: ConsoleRequest, failure?: Failure): Promise<Response> {
  const visitor = visitorOf(c);
  const { approval, kept, relation } = await find(c, visitor);
  const isPending = approval.state === "pending";
  const rows =
    relation === "approver" && isPending && kept !== undefined
      ? await previewRows(c.var.gateway, visitor.actor, approval, kept)
      : undefined;
  if (rows !== undefined && "digest" in rows) {
    const author = authorOf(visitor, approval);
    await useApprovals(c, (store) => store.recordRows(approval.id, author, countShown(rows)));
  }
  const digest = rows && "digest" in rows ? rows.digest : undefined;
  const mayReview = relation === "approver" || visitor.isAdministrator;
  const notes =
    isPending && mayReview && kept ? await decisionNotes(c.var, visitor, approval, kept) : [];
  const shownBefore = failure && c.var.form.get("touched");
  const isOther = digest !== undefined && shownBefore !== undefined && shownBefore !== digest;
  const own =
    relation === "requester"
      ? "You requested this, so another approver must decide"
      : "You are not an approver";
  const approvers = [...new Set(approval.rules.map(describeApprovers))].join(", and ");
  return sendPage(c, {
    title: approvalSummary(approval),
    section: "Approvals",
    failure,
    path: html`<a href="/approvals">Approvals</a>`,
    heading: html`<code>${approvalSummary(approval)}</code>`,
    content: html`${isOther && html`<div class="note error"><p>The rows have changed since you last saw them. Check them again.</p></div>`}
${isPending && !rows && html`<div class="note"><p>${own}. Approvers: <bdi>${approvers}</bdi>.</p></div>`}
${kept && maySeeQuery(visitor, approval) && wordsSection(approval, kept.body, rows && "affected" in rows ? rows.affected : undefined, notes)}
${facts(approval)}
${rows && rowsSection(approval, rows)}
${await querySection(kept?.body, isPending, !maySeeQuery(visitor, approval))}
${isPending && rows && decisionForms(approval, visitor.csrf, digest, confirmationField(c))}`,
  });
}

type Row = ReadonlyMap<string, string>;

function readRow(text: string): Row {
  const row: unknown = parseUnrounded(text);
  const entries = isObject(row) ? Object.entries(row) : [];
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

function rowsSection(approval: Approval, shown: PreviewRows | NoPreview): Html {
  if ("reason" in shown) {
    return html`<h2>Rows</h2><div class="note"><p>No rows are shown: ${visibleJson(shown.reason)}. An approval covers the query, whatever rows it affects when it runs.</p></div>`;
  }
  const { affected } = shown;
  const [before, after] = [shown.before.map(readRow), shown.after.map(readRow)];
  const operation = approval.operations[0]?.operation ?? "";
  const verb = `${operation.toLowerCase()}${operation.endsWith("e") ? "d" : "ed"}`;
  const most = Math.max(before.length, after.length);
  const isCompared = operation === "Update" && before.length === after.length;
  return html`<h2>Rows</h2>
<p><strong>${counted(affected, "row")} would be ${verb}.</strong>${affected > most && ` The first ${most} are shown.`}
Your approval covers only these rows. If any of them changes before the query runs, the query does not run.</p>
${isCompared ? rowTable("Before and after", before, after) : [rowTable("Rows before", before), rowTable("Rows after", after)]}
<p class="quiet">Effects on other tables through triggers and foreign keys are neither shown nor compared.</p>`;
}

const PREVIEW_TIMEOUT_MS = 60_000;
/** Enough for a hundred rows before and after. */
const LARGEST_PREVIEW_BYTES = 4 * 1024 * 1024;

/** Returns undefined if no approval was ever requested: viewing approvals creates no store. */
async function useApprovals<Result>(
  c: ConsoleRequest,
  work: (store: ApprovalStore) => Promise<Result>,
): Promise<Result | undefined> {
  const { approvals } = c.var;
  return (await approvals.counts()) === undefined ? undefined : approvals.use(work);
}

async function previewRows(
  gateway: Gateway,
  approver: Subject,
  approval: Approval,
  kept: KeptQuery,
): Promise<PreviewRows | NoPreview> {
  const { queries, access, log, routing } = gateway;
  if (!queries.isEngine) return { reason: "a foreign upstream cannot show them" };
  const preview = await previewQuery(access.snapshot, queries.grammar, approval, kept);
  if ("reason" in preview) return preview;
  const hidden = whyRowsHidden(access.snapshot, queries.grammar, approver, approval);
  if (hidden !== undefined) return { reason: hidden };
  try {
    const answer = await ask(routing.databaseFor(preview.query), {
      ...preview,
      user: approver.username,
      authorizeAgain: undefined,
      requestId: randomUUID(),
      fields: "",
      isRead: true,
      seesSchema: true,
      largest: LARGEST_PREVIEW_BYTES,
      hold: () => {},
      signal: AbortSignal.timeout(PREVIEW_TIMEOUT_MS),
    });
    if (answer.isCut) return { reason: "the rows are too large to show" };
    return readPreviewRows(answer.status, answer.body.toString("utf8"));
  } catch (error) {
    if (error instanceof Refusal) return { reason: error.message };
    log.error({ err: error }, "the rows of an approval cannot be shown");
    return { reason: "the engine's answer cannot be read" };
  }
}

/** The visitor, with the groups of the token that can count for this approval. */
function authorOf({ snapshot, actor }: Visitor, { rules }: Approval): Approver {
  const author = { kind: "console", name: actor.username } as const;
  const groups = actor.groups?.filter((one) => {
    const subject = groupHolder(one);
    return snapshot.grants.has(subject) || rules.some((rule) => rule.approvers?.includes(subject));
  });
  return groups === undefined || groups.length === 0 ? author : { ...author, groups };
}

/** The visitor's relation to an approval; undefined if the visitor may not see it. */
function relationOf(visitor: Visitor, approval: Approval) {
  const { snapshot, actor, maySee, isAdministrator, isManager } = visitor;
  const { username, asked } = approval;
  // An earlier user may have had the name.
  const isOwn = asked >= visitor.earliestIssue(username) * 1000;
  if (isOwn && namesOfPerson(snapshot, username).has(actor.username)) return "requester";
  if (mayApprove(snapshot, authorOf(visitor, approval), approval)) return "approver";
  const manages = isManager && approval.rules.every(({ database }) => maySee(database));
  return isAdministrator || manages ? "observer" : undefined;
}

/**
 * True for approvers and administrators. While the query is pending, its requester may also see it,
 * and so may an observer who may see the grants of every database that it names.
 */
function maySeeQuery(visitor: Visitor, approval: Approval): boolean {
  const relation = relationOf(visitor, approval);
  if (relation === "approver" || visitor.isAdministrator) return true;
  if (approval.state !== "pending") return false;
  return relation === "requester" || maySeeDatabases(visitor, approval);
}

/** True if the visitor may see the grants of every database that the query names. */
function maySeeDatabases(visitor: Visitor, { operations, operationCount }: Approval): boolean {
  // Only the first operations are recorded.
  const isListed = operations.length === operationCount;
  return isListed && operations.every(({ database }) => visitor.maySee(database));
}

export async function groupApprovals(c: ConsoleRequest, visitor: Visitor) {
  const all = (await useApprovals(c, (store) => store.list())) ?? [];
  return Object.groupBy(all, (approval) => {
    const relation = relationOf(visitor, approval);
    if (relation === undefined) return "invisible";
    if (approval.state !== "pending") return "decided";
    return relation === "approver" ? "waiting" : "others";
  });
}

/** Milliseconds until rows that could not be counted are counted again. */
const COUNTING_AGAIN_MS = 300_000;
type Work<Value> = () => Promise<Value | undefined>;

/** The words and row counts (per approver) of the list, kept so that a refresh costs nothing. */
const summaries = new LRUCache<string, string, Work<string>>({
  max: 1000,
  fetchMethod: (_key, _stale, { context }) => context(),
});
const rowCounts = new LRUCache<string, { rows: number | undefined }, Work<number>>({
  max: 1000,
  async fetchMethod(_key, _stale, { context, options }) {
    const rows = await context();
    if (rows === undefined) options.ttl = COUNTING_AGAIN_MS;
    return { rows };
  },
});

function readQuery(c: ConsoleRequest, approval: Approval) {
  return useApprovals(c, (store) => store.readQuery(approval));
}

function summarize(c: ConsoleRequest, approval: Approval): Promise<string | undefined> {
  return summaries.fetch(approval.id, {
    async context() {
      const kept = await readQuery(c, approval);
      return kept && shortText(kept.body);
    },
  });
}

/** The rows that a query would change, for those who may approve it. */
async function countRows(
  c: ConsoleRequest,
  visitor: Visitor,
  approval: Approval,
): Promise<number | undefined> {
  if (relationOf(visitor, approval) !== "approver") return undefined;
  const { actor } = visitor;
  const count = await rowCounts.fetch(`${approval.id} ${actor.username}`, {
    async context() {
      const kept = await readQuery(c, approval);
      if (kept === undefined) return undefined;
      const preview = await previewRows(c.var.gateway, actor, approval, kept);
      return "affected" in preview ? preview.affected : undefined;
    },
  });
  return count?.rows;
}

/** @throws Refusal `role_insufficient` unless the visitor may decide on it now */
function requireApprover(c: ConsoleRequest, approval: Approval): Approver {
  const visitor = visitorOf(c);
  identify(visitor.snapshot, c.var.gateway.revocations, visitor.session);
  if (relationOf(visitor, approval) !== "approver") throw new Refusal("role_insufficient");
  return authorOf(visitor, approval);
}

function alreadyDecided({ author, decided, state }: Approval): Failure {
  const who = author && ` by ${author.name}`;
  const time = decided && ` at ${dateInWords(decided, 19, 11)}`;
  const outcome = outcomes[state].toLowerCase();
  const message = `Already ${outcome}${who ?? ""}${time ?? ""}. Your decision was not saved.`;
  return new Failure(409, message);
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
    const reason = readReason(form.get("reason") ?? "");
    if (state === "approved") await requireConfirmation(c);
    const author = requireApprover(c, approval);
    const touched = form.get("touched") ?? "";
    const wait = gateway.configuration.approvals.wait * 1000;
    const late = await useApprovals(c, async (store) => {
      if (state === "approved" && touched !== "") await store.recordShown(id, author, touched);
      const isDone = await store.decide(id, { state, author, reason, wait });
      return isDone ? undefined : ((await store.find(id)) ?? approval);
    });
    if (late !== undefined) return await showApproval(c, alreadyDecided(late));
  } catch (error) {
    return showApproval(c, failureOf(c, error));
  }
  return c.redirect(`/approvals/${id}`, 303);
}
