/** Approvals on a query's way: asked for where a rule demands one, and used up once. */
import { createHash } from "node:crypto";
import {
  type Approval,
  type ApprovalBinding,
  type ApprovalState,
  type ApprovalStore,
  MOST_PENDING,
} from "../approvals/approval.ts";
import { mayApprove } from "../approvals/approvers.ts";
import type { Query } from "../query/query.ts";
import { Refusal, type RefusalCode } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { AUDITED_OPERATIONS, type NeededApproval, originOf } from "./judge.ts";

/** The header by which `POST /query` shows an approval. */
export const APPROVAL_HEADER = "x-gatehouse-approval";

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;

/** A query that needs an approval. */
export interface Needing {
  readonly body: Buffer;
  readonly query: Query;
  readonly needed: NeededApproval;
}

function sha256(content: Buffer | string): string {
  return createHash("sha256").update(content).digest("hex");
}

function bindingOf(exchange: Exchange, { body, needed }: Needing): ApprovalBinding {
  const { via, client } = originOf(exchange);
  const { subject } = exchange.authenticated;
  if (subject === undefined) throw new Error("An approval is needed of nobody");
  const { username } = subject;
  return { username, via, client, bodyHash: sha256(body), basisHash: sha256(needed.basis) };
}

/** What tells the caller that an approval is pending, where it is decided, and what to do once it is given. */
function pending({ consoleUrl }: Gateway, { id, expires }: Approval): Refusal {
  const until = new Date(expires).toISOString();
  const page = consoleUrl === undefined ? {} : { url: `${consoleUrl}/approvals/${id}` };
  const message = `Somebody has to approve this until ${until}; then send the same bytes again with X-Gatehouse-Approval: ${id}`;
  return new Refusal("approval_required", {
    message,
    members: { approval: { id, ...page, expires: until } },
  });
}

async function ask(
  gateway: Gateway,
  exchange: Exchange,
  needing: Needing,
  store: ApprovalStore,
): Promise<Refusal> {
  const { body, query, needed } = needing;
  const operations = query.accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables }) => ({ operation, database, tables: [...tables] }));
  const request = {
    ...bindingOf(exchange, needing),
    body,
    operations,
    operationCount: query.accesses.length,
    rules: needed.rules,
    requestId: exchange.requestId,
  };
  const asked = await store.ask(request, gateway.configuration.approvals.wait * 1000);
  if (asked !== undefined) {
    exchange.verdict.approval = asked.id;
    return pending(gateway, asked);
  }
  const message = `${MOST_PENDING} approvals of the caller wait to be decided, which is the most`;
  return new Refusal("too_many_approvals", { message });
}

/** Why an approval that is not good lifts nothing. */
function refusalFor({ state, reason }: Pick<Approval, "state" | "reason">): Refusal {
  const codes: Record<ApprovalState, RefusalCode> = {
    pending: "approval_required",
    approved: "approval_used",
    denied: "approval_denied",
    expired: "approval_expired",
    used: "approval_used",
    void: "approval_void",
  };
  const message = state === "denied" && reason !== undefined && `This was not approved: ${reason}`;
  return new Refusal(codes[state], message ? { message } : {});
}

/** What an approval rests on that is not there any more; undefined if all of it is. */
function whyVoid(
  { access, queries }: Gateway,
  approval: Approval,
  { rules }: NeededApproval,
  basisHash: string,
): string | undefined {
  if (approval.basisHash !== basisHash) return "the caller's grants have changed";
  const { author, touched, username } = approval;
  if (author !== undefined && !mayApprove(access.snapshot, author, { username, rules })) {
    return "the approver may not approve it any more";
  }
  const isCompared = touched === undefined || queries.isEngine;
  return isCompared ? undefined : "nobody behind can compare the rows that were shown";
}

async function use(
  gateway: Gateway,
  exchange: Exchange,
  needing: Needing,
  store: ApprovalStore,
  id: string,
): Promise<Approval> {
  const binding = bindingOf(exchange, needing);
  const approval = uuid.test(id) ? await store.find(id) : undefined;
  if (approval?.username !== binding.username) throw new Refusal("approval_not_found");
  const { via, client, bodyHash, state } = approval;
  const isSame = via === binding.via && client === binding.client && bodyHash === binding.bodyHash;
  if (!isSame) throw new Refusal("approval_mismatch");
  if (state !== "pending" && state !== "approved") throw refusalFor(approval);
  const problem = whyVoid(gateway, approval, needing.needed, binding.basisHash);
  if (problem !== undefined) {
    await store.makeVoid(id, problem);
    throw new Refusal("approval_void");
  }
  if (state === "pending") throw pending(gateway, approval);
  exchange.verdict.approval = id;
  if (await store.consume(id, exchange.requestId)) return approval;
  throw refusalFor((await store.find(id)) ?? { state: "used", reason: undefined });
}

/**
 * Uses up the approval that a query shows. One that shows none asks for one, and is told so.
 *
 * @throws Refusal `approval_required` while it is pending, and others that say what is wrong with it
 */
export function requireApproval(
  gateway: Gateway,
  exchange: Exchange,
  needing: Needing,
  id: string | undefined,
): Promise<Approval> {
  return gateway.approvals.use(async (store) => {
    if (id === undefined) throw await ask(gateway, exchange, needing, store);
    return use(gateway, exchange, needing, store, id);
  });
}
