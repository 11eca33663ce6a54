import { once } from "node:events";
import { maySeeGrants } from "../access/administration-rights.ts";
import type { Approval, ApprovalDecision, Author } from "../approvals/approval.ts";
import { mayApprove } from "../approvals/approvers.ts";
import { identify } from "../identity/authenticate.ts";
import { Refusal } from "../refusal.ts";
import { type Failure, failureOf, requirePassword } from "./changes.ts";
import { type ApprovalView, approvalPage, type Standing } from "./pages/approval.ts";
import { approvalsPage, outcomeOf, type PendingQuery, queryInWords } from "./pages/approvals.ts";
import { type ConsoleRequest, refreshingOf, sendPage, type Visitor, visitorOf } from "./visit.ts";

/** Approvals of one kind on a page. */
const SHOWN = 100;
const LONGEST_REASON = 500;

function authorOf({ actor }: Visitor): Author {
  return { kind: "console", name: actor.username };
}

/** What a visitor has to do with an approval; undefined for what is none of its business. */
function standingOf(visitor: Visitor, approval: Approval): Standing | undefined {
  const { snapshot, actor, isAdministrator, isManager } = visitor;
  if (approval.username === actor.username) return "asker";
  if (mayApprove(snapshot, authorOf(visitor), approval)) return "approver";
  const manages = () =>
    isManager && approval.rules.every(({ database }) => maySeeGrants(snapshot, actor, database));
  return isAdministrator || manages() ? "onlooker" : undefined;
}

/**
 * True for approvers and administrators. While it waits, the asker sees its own query, and an
 * onlooker one that holds values of no database that they may not read.
 */
function maySeeQuery(visitor: Visitor, approval: Approval, standing: Standing): boolean {
  const { snapshot, actor, isAdministrator } = visitor;
  const { operations, operationCount, state } = approval;
  if (standing === "approver" || isAdministrator) return true;
  if (state !== "pending") return false;
  // Only the first operations are listed.
  const isListed = operations.length === operationCount;
  const maySee = () => operations.every(({ database }) => maySeeGrants(snapshot, actor, database));
  return standing === "asker" || (isListed && maySee());
}

/** Approvals that a visitor may see, by what there is to do. */
export async function groupsOf(c: ConsoleRequest, visitor: Visitor) {
  const all = (await c.var.options.approvals.use((store) => store.list())) ?? [];
  const known = all.flatMap((approval) => {
    const standing = standingOf(visitor, approval);
    return standing === undefined ? [] : [{ approval, standing }];
  });
  return Map.groupBy(known, ({ approval: { state }, standing }) => {
    if (state !== "pending") return "decided";
    return standing === "approver" ? "waiting" : "others";
  });
}

/** `GET /approvals`: what waits for somebody's decision, and what was decided lately. */
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
      c.var.options.log.warn({ id: approval.id, reason }, "a pending query cannot be shown");
    }
  });
  // What is not counted in time is left out.
  const patience = AbortSignal.timeout(COUNTING_MS);
  await Promise.race([Promise.all(described), once(patience, "abort")]);
  const refreshing = refreshingOf(c);
  const page = approvalsPage({ waiting, others, decided, more, queries, refreshing });
  return sendPage(c, visitor, page);
}

/** Pending approvals whose query a page describes, and for how long it counts their rows. */
const DESCRIBED = 25;
const COUNTING_MS = 3000;
/** Rows that were counted once for somebody, so that a refresh costs the database nothing. */
const counted = new Map<string, Promise<number | undefined>>();
const MOST_COUNTED = 1000;

async function describePending(
  c: ConsoleRequest,
  { actor }: Visitor,
  approval: Approval,
  standing: Standing,
): Promise<PendingQuery | undefined> {
  const { approvals } = c.var.options;
  const body = await approvals.use((store) => store.readBody(approval.id));
  if (body === undefined) return undefined;
  const words = queryInWords(body);
  if (standing !== "approver") return { words, rows: undefined };
  const key = `${approval.id} ${actor.username}`;
  const known = counted.get(key);
  if (known !== undefined) return { words, rows: await known };
  const counting = approvals
    .rowsFor(actor.username, approval, body)
    .then((rows) => ("affected" in rows ? rows.affected : undefined));
  counted.set(key, counting);
  const [oldest = ""] = counted.keys();
  if (counted.size > MOST_COUNTED) counted.delete(oldest);
  const rows = await counting;
  if (rows === undefined) counted.delete(key);
  return { words, rows };
}

/** The approval that a page is about. @throws Refusal `not_found`, also if the visitor may not see it */
async function find(
  c: ConsoleRequest,
  visitor: Visitor,
  id: string,
): Promise<{ approval: Approval; body: Buffer | undefined; standing: Standing }> {
  const found = await c.var.options.approvals.use(async (store) => {
    const approval = await store.find(id);
    return approval && { approval, body: await store.readBody(id) };
  });
  const standing = found && standingOf(visitor, found.approval);
  if (found === undefined || standing === undefined) throw new Refusal("not_found");
  return { ...found, standing };
}

/** `GET /approvals/<id>`: what is asked for, and what it would do. */
export async function showApproval(c: ConsoleRequest, failure?: Failure): Promise<Response> {
  const visitor = visitorOf(c);
  const { approval, body, standing } = await find(c, visitor, c.req.param("id") ?? "");
  const isAsked = standing === "approver" && approval.state === "pending" && body !== undefined;
  const view: ApprovalView = {
    ...{ approval, standing, failure, csrf: visitor.csrf, now: Date.now() },
    query: body?.toString("utf8"),
    isHidden: !maySeeQuery(visitor, approval, standing),
    rows: isAsked
      ? await c.var.options.approvals.rowsFor(visitor.actor.username, approval, body)
      : undefined,
    shownBefore: failure && c.var.form.get("touched"),
  };
  return sendPage(c, visitor, approvalPage(view), failure?.status);
}

/** What a form decides. @throws Refusal `bad_request` */
function decisionOf({ form }: ConsoleRequest["var"]): ApprovalDecision["state"] {
  const decision = form.get("decision");
  if (decision === "approve") return "approved";
  if (decision === "deny") return "denied";
  throw new Refusal("bad_request");
}

/** What the asker is told; on one line. @throws Refusal `bad_request` */
function reasonOf({ form }: ConsoleRequest["var"]): string | undefined {
  const reason = (form.get("reason") ?? "").replace(/\p{C}+/gu, " ").trim();
  if (reason.length > LONGEST_REASON) {
    const message = `A reason has at most ${LONGEST_REASON} characters`;
    throw new Refusal("bad_request", { message });
  }
  return reason === "" ? undefined : reason;
}

/** @throws Refusal `role_insufficient` unless whoever is signed in may decide on it now */
function requireApprover(c: ConsoleRequest, approval: Approval): Author {
  const visitor = visitorOf(c);
  identify(visitor.snapshot, c.var.options.revocations, visitor.session);
  if (standingOf(visitor, approval) !== "approver") throw new Refusal("role_insufficient");
  return authorOf(visitor);
}

/** What somebody else has decided meanwhile. */
function tooLate(approval: Approval): Failure {
  const { author, decided } = approval;
  const who = author === undefined ? "" : ` by ${author.name}`;
  const when =
    decided === undefined ? "" : ` at ${new Date(decided).toISOString().slice(11, 19)} UTC`;
  const message = `Too late: this is ${outcomeOf(approval).toLowerCase()}${who}${when}. Your decision changes nothing.`;
  return { status: 409, message };
}

/** `POST /approvals/<id>`: approves it, for which the password is asked again, or denies it. */
export async function decideApproval(c: ConsoleRequest): Promise<Response> {
  const id = c.req.param("id") ?? "";
  const { approvals } = c.var.options;
  const { approval } = await find(c, visitorOf(c), id);
  requireApprover(c, approval);
  const state = decisionOf(c.var);
  try {
    const reason = reasonOf(c.var);
    if (state === "approved") await requirePassword(c);
    const author = requireApprover(c, approval);
    const touched = c.var.form.get("touched") ?? "";
    const late = await approvals.use(async (store) => {
      if (state === "approved" && touched !== "") await store.noteShown(id, author, touched);
      const isDone = await store.decide(id, { state, author, reason, wait: approvals.wait });
      return isDone ? undefined : ((await store.find(id)) ?? approval);
    });
    if (late !== undefined) return await showApproval(c, tooLate(late));
  } catch (error) {
    return showApproval(c, failureOf(error));
  }
  return c.redirect(`/approvals/${id}`, 303);
}
