import { createHash } from "node:crypto";
import { limitsFor } from "../access/rights.ts";
import {
  type Approval,
  type ApprovalBinding,
  type ApprovalState,
  type ApprovalStore,
  MOST_PENDING,
  mayApprove,
} from "../approvals/approval.ts";
import { Refusal, type RefusalCode } from "../refusal.ts";
import { type Exchange, originOf } from "./exchange.ts";
import type { Admission, Gateway, NeededApproval, ScannedQuery } from "./gateway.ts";
import type { Approvals } from "./open-approvals.ts";
import { AUDITED_OPERATIONS } from "./query.ts";

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;

function sha256(content: Buffer | string): string {
  return createHash("sha256").update(content).digest("hex");
}

function bindingOf(exchange: Exchange, body: Buffer, basis: string): ApprovalBinding {
  const { via, client } = originOf(exchange);
  const { subject } = exchange.authenticated;
  if (subject === undefined) throw new Error("An approval requires a signed-in user");
  return {
    ...{ username: subject.username, via, client },
    ...{ bodyHash: sha256(body), basisHash: sha256(basis) },
  };
}

function pending({ id, expires }: Approval, consoleUrl: string | undefined): Refusal {
  const until = new Date(expires).toISOString();
  const page = consoleUrl === undefined ? {} : { url: `${consoleUrl}/approvals/${id}` };
  const message = `Approval required before ${until}. After the approval, send the same bytes again with X-Gatehouse-Approval: ${id}`;
  return new Refusal("approval_required", {
    message,
    members: { approval: { id, ...page, expires: until } },
  });
}

async function requestApproval(
  gateway: Gateway,
  exchange: Exchange,
  { body, query }: ScannedQuery,
  { rules, basis }: NeededApproval,
  store: ApprovalStore,
  consoleUrl: string | undefined,
): Promise<Refusal> {
  const operations = query.accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables }) => ({ operation, database, tables: [...tables] }));
  const request = {
    ...bindingOf(exchange, body, basis),
    ...{ body, operations, rules, requestId: exchange.requestId },
    operationCount: query.accesses.length,
  };
  const approval = await store.ask(request, gateway.configuration.approvals.wait * 1000);
  if (approval !== undefined) {
    exchange.verdict.approval = approval.id;
    return pending(approval, consoleUrl);
  }
  const message = `${MOST_PENDING} of the caller's approvals are pending, which is the maximum`;
  return new Refusal("too_many_approvals", { message });
}

function refusalFor({ state, reason }: Pick<Approval, "state" | "reason">): Refusal {
  const codes: Record<ApprovalState, RefusalCode> = {
    pending: "approval_required",
    approved: "approval_used",
    denied: "approval_denied",
    expired: "approval_expired",
    used: "approval_used",
    void: "approval_void",
  };
  const message = state === "denied" && reason !== undefined && `Approval denied: ${reason}`;
  return new Refusal(codes[state], message ? { message } : {});
}

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
  return isCompared ? undefined : "the upstream cannot compare the rows that were shown";
}

async function consumeApproval(
  gateway: Gateway,
  exchange: Exchange,
  { body }: ScannedQuery,
  needed: NeededApproval,
  store: ApprovalStore,
  consoleUrl: string | undefined,
  id: string,
): Promise<Approval> {
  const binding = bindingOf(exchange, body, needed.basis);
  const approval = uuid.test(id) ? await store.find(id) : undefined;
  if (approval?.username !== binding.username) throw new Refusal("approval_not_found");
  const { via, client, bodyHash, state } = approval;
  const isSame = via === binding.via && client === binding.client && bodyHash === binding.bodyHash;
  if (!isSame) throw new Refusal("approval_mismatch");
  if (state !== "pending" && state !== "approved") throw refusalFor(approval);
  const problem = whyVoid(gateway, approval, needed, binding.basisHash);
  if (problem !== undefined) {
    await store.invalidate(id, problem);
    throw new Refusal("approval_void");
  }
  if (state === "pending") throw pending(approval, consoleUrl);
  exchange.verdict.approval = id;
  if (await store.consume(id, exchange.requestId)) return approval;
  throw refusalFor((await store.find(id)) ?? { state: "used", reason: undefined });
}

/** Queries that need an approval run once one was given, or are refused until then. */
export function admitApproved(
  approvals: Approvals,
  consoleUrl: () => string | undefined,
): Admission {
  return {
    mayWait({ access }, exchange) {
      const { subject } = exchange.authenticated;
      if (subject === undefined) return false;
      return limitsFor(access.snapshot, subject, originOf(exchange)).some(
        ({ requireApproval }) => requireApproval !== undefined,
      );
    },
    async admit(gateway, exchange, scanned, needed, id) {
      const { touched } = await approvals.use(async (store) => {
        if (id === undefined) {
          throw await requestApproval(gateway, exchange, scanned, needed, store, consoleUrl());
        }
        return consumeApproval(gateway, exchange, scanned, needed, store, consoleUrl(), id);
      });
      return touched === undefined ? [] : [{ touched }];
    },
  };
}
