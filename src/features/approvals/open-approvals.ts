import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { AccessRules } from "../../core/access/access-rules.ts";
import type { Subject } from "../../core/access/grant.ts";
import { limitsFor } from "../../core/access/rights.ts";
import { errorMessage } from "../../core/base/client-error.ts";
import { isThere } from "../../core/base/files/guarded.ts";
import { Refusal, type RefusalCode } from "../../core/base/refusal.ts";
import type { LoadedConfiguration } from "../../core/config/load.ts";
import { type Exchange, queryOrigin } from "../../core/http/exchange.ts";
import type { Admission, Gateway, NeededApproval } from "../../core/http/gateway.ts";
import { AUDITED_OPERATIONS } from "../../core/http/query.ts";
import { CONFIRM_AFTER_MS } from "../../core/http/reloads.ts";
import type { Audit } from "../../core/observe/audit.ts";
import type { Log } from "../../core/observe/log.ts";
import type { Metrics } from "../../core/observe/metrics.ts";
import type { ParsedQuery } from "../../core/query/query.ts";
import type { StoreReplica } from "../store/open.ts";
import {
  type Approval,
  type ApprovalBinding,
  type ApprovalCounts,
  type ApprovalState,
  type ApprovalStore,
  approvalFilePath,
  mayApprove,
} from "./approval.ts";

const POLL_MS = 1000;

/** Opens the approvals on first use. */
export interface Approvals {
  /**
   * Runs `work` with the store and writes its steps to the audit.
   *
   * @throws Refusal `approvals_failed`, or `store_unreachable` or `store_uncertain` of a shared
   * store, if approvals cannot be read or written; also what `work` throws
   */
  use<Result>(work: (store: ApprovalStore) => Promise<Result>): Promise<Result>;
  /** Undefined if no approval was ever requested. */
  counts(): Promise<ApprovalCounts | undefined>;
}

interface ApprovalOptions {
  readonly loaded: LoadedConfiguration;
  readonly access: AccessRules;
  readonly audit: Audit;
  readonly log: Log;
  readonly metrics: Metrics | undefined;
  readonly store: StoreReplica | undefined;
  readonly opened: AsyncDisposableStack;
  readonly consoleUrl: () => string | undefined;
}

async function openApprovalStore(
  { serviceDirectory, configuration }: LoadedConfiguration,
  shared: StoreReplica | undefined,
): Promise<ApprovalStore> {
  const { keep } = configuration.approvals;
  if (shared !== undefined) {
    const { approvalsInStore } = await import("../store/approval-database.ts");
    return approvalsInStore(shared.store, keep, () => shared.replica.requireReachable());
  }
  // Loaded on demand, because most gateways never request an approval.
  const { openApprovalsIn } = await import("./approval-file.ts");
  return openApprovalsIn(serviceDirectory, keep);
}

/** In the service directory, or in the store that replicas share. The stack closes them. */
export async function openApprovals(options: ApprovalOptions): Promise<Approvals> {
  const { loaded, access, audit, log, metrics, store: shared, opened, consoleUrl } = options;
  const { configuration } = loaded;
  const notifier =
    configuration.approvals.notify &&
    // Loaded on demand, because few gateways have a hook.
    (await import("./notify.ts")).openNotifier({ configuration, log, metrics, consoleUrl });
  let store: Promise<ApprovalStore> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isPolling = false;
  let failure: string | undefined;

  /** Steps taken by commands and other processes are written to this audit, too. */
  async function record(current: ApprovalStore): Promise<void> {
    const asked: string[] = [];
    try {
      await current.takeSteps((name, fields) => {
        const isRefused = name === "approval_denied" || name === "approval_void";
        audit.event(name, fields, isRefused ? "warn" : "info");
        if (name === "approval_asked") asked.push(String(fields.approval));
      }, audit.flush);
      // Each step is taken by one process, which therefore notifies of it.
      for (const id of asked) notifier?.notify(id, () => current.find(id));
      failure = undefined;
    } catch (error) {
      // Without a cause, the store is unreachable, which has been logged. The steps stay in it.
      if (error instanceof Refusal && error.cause === undefined) return;
      const detail = error instanceof Refusal ? error.detail : undefined;
      const reason = detail ?? errorMessage(error);
      if (reason !== failure) {
        log.error({ err: error, detail }, "approval steps cannot be written to the audit yet");
      }
      failure = reason;
    }
  }

  async function open(): Promise<ApprovalStore> {
    try {
      const current = await openApprovalStore(loaded, shared);
      timer = setInterval(async () => {
        if (isPolling) return;
        isPolling = true;
        await record(current);
        isPolling = false;
      }, POLL_MS).unref();
      return current;
    } catch (error) {
      store = undefined;
      throw error;
    }
  }

  async function use<Result>(work: (current: ApprovalStore) => Promise<Result>): Promise<Result> {
    try {
      store ??= open();
      const current = await store;
      try {
        return await work(current);
      } finally {
        await record(current);
      }
    } catch (error) {
      if (error instanceof Refusal) throw error;
      log.error({ err: error }, "approvals cannot be read or written");
      throw new Refusal("approvals_failed", { cause: error });
    }
  }

  opened.defer(async () => {
    clearInterval(timer);
    const current = await store?.catch(() => undefined);
    if (current === undefined) return;
    await record(current);
    await notifier?.close();
    await current.close();
  });
  const exists = () => shared !== undefined || isThere(approvalFilePath(loaded.serviceDirectory));
  if (exists()) await use(async () => {}).catch(() => {});
  const closed = new AbortController();
  opened.defer(() => closed.abort());
  access.subscribe(async (event) => {
    const removed = event.kind === "failed" ? [] : event.diff.usersRemoved;
    if (removed.length === 0 || !exists()) return;
    try {
      await delay(CONFIRM_AFTER_MS, undefined, { signal: closed.signal });
      const gone = removed.filter((name) => !access.snapshot.users.has(name));
      if (gone.length > 0) await use((one) => one.invalidateAll(gone, "the user was removed"));
    } catch {
      // Has been logged, or the gateway stops.
    }
  });
  return {
    use,
    counts: async () => (exists() ? use((current) => current.counts()) : undefined),
  };
}

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;

function sha256(content: Buffer | string): string {
  return createHash("sha256").update(content).digest("hex");
}

function askerOf({ authenticated: { subject } }: Exchange): Subject {
  if (subject === undefined) throw new Error("An approval requires a signed-in user");
  return subject;
}

function createBinding(
  { revocations }: Gateway,
  exchange: Exchange,
  body: Buffer,
  basis: string,
): ApprovalBinding {
  const { via, client } = queryOrigin(exchange);
  const { username } = askerOf(exchange);
  // Tells an account from an earlier one of the same name, whose tokens were revoked.
  const revoked = revocations.earliestIssue(username) || "";
  const basisHash = sha256(`${basis}${revoked}`);
  return { username, via, client, bodyHash: sha256(body), basisHash };
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
  { body, query }: ParsedQuery,
  { rules, basis }: NeededApproval,
  store: ApprovalStore,
  consoleUrl: string | undefined,
): Promise<Refusal> {
  const operations = query.accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables }) => ({ operation, database, tables: [...tables] }));
  const request = {
    ...createBinding(gateway, exchange, body, basis),
    body,
    asker: askerOf(exchange),
    operations,
    rules,
    requestId: exchange.requestId,
    operationCount: query.accesses.length,
  };
  const approval = await store.ask(request, gateway.configuration.approvals.wait * 1000);
  if (approval instanceof Refusal) return approval;
  exchange.verdict.noteApproval(approval.id);
  return pending(approval, consoleUrl);
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
  { access, queries, revocations }: Gateway,
  approval: Approval,
  { rules }: NeededApproval,
  basisHash: string,
): string | undefined {
  if (approval.basisHash !== basisHash)
    return "the caller's grants have changed, or all tokens of the caller were revoked";
  const { author, touched, username, decided = 0 } = approval;
  if (author !== undefined && !mayApprove(access.snapshot, author, { username, rules })) {
    return "the approver may not approve it any more";
  }
  if (author?.kind === "console" && decided < revocations.earliestIssue(author.name) * 1000)
    return "all tokens of the approver were revoked";
  const isCompared = touched === undefined || queries.isEngine;
  return isCompared ? undefined : "the upstream cannot compare the rows that were shown";
}

async function consumeApproval(
  gateway: Gateway,
  exchange: Exchange,
  { body }: ParsedQuery,
  needed: NeededApproval,
  store: ApprovalStore,
  consoleUrl: string | undefined,
  id: string,
): Promise<Approval> {
  const binding = createBinding(gateway, exchange, body, needed.basis);
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
  exchange.verdict.noteApproval(id);
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
      return limitsFor(access.snapshot, subject, queryOrigin(exchange)).some(
        ({ requireApproval }) => requireApproval !== undefined,
      );
    },
    async admit(gateway, exchange, parsed, needed, id) {
      const { touched } = await approvals.use(async (store) => {
        if (id === undefined) {
          throw await requestApproval(gateway, exchange, parsed, needed, store, consoleUrl());
        }
        return consumeApproval(gateway, exchange, parsed, needed, store, consoleUrl(), id);
      });
      return touched === undefined ? [] : [{ touched }];
    },
  };
}
