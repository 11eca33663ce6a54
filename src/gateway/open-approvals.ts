import { existsSync } from "node:fs";
import { type ApprovalCounts, type ApprovalStore, approvalFileOf } from "../approvals/approval.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import { Refusal } from "../refusal.ts";
import type { StoreReplica } from "../store/open.ts";

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
  readonly audit: Audit;
  readonly log: Log;
  readonly store: StoreReplica | undefined;
  readonly opened: AsyncDisposableStack;
}

async function openStore(
  { serviceDirectory, configuration }: LoadedConfiguration,
  shared: StoreReplica | undefined,
): Promise<ApprovalStore> {
  const { keep } = configuration.approvals;
  if (shared !== undefined) {
    const { approvalsInStore } = await import("../store/approval-database.ts");
    return approvalsInStore(shared.store, keep, () => shared.replica.requireReachable());
  }
  // Loaded on demand, because most gateways never request an approval.
  const { openApprovalsIn } = await import("../approvals/approval-file.ts");
  return openApprovalsIn(serviceDirectory, keep);
}

/** In the service directory, or in the store that replicas share. The stack closes them. */
export async function openApprovals({
  loaded,
  audit,
  log,
  store: shared,
  opened,
}: ApprovalOptions): Promise<Approvals> {
  let store: Promise<ApprovalStore> | undefined;
  let timer: NodeJS.Timeout | undefined;

  /** Steps taken by commands and other processes are written to this audit, too. */
  async function record(current: ApprovalStore): Promise<void> {
    try {
      await current.takeSteps((name, fields) => {
        const isRefused = name === "approval_denied" || name === "approval_void";
        audit.event(name, fields, isRefused ? "warn" : "info");
      }, audit.flush);
    } catch (error) {
      // An unreachable store has already been logged, and the steps stay in it.
      if (error instanceof Refusal) return;
      log.error({ err: error }, "approval steps cannot be written to the audit yet");
    }
  }

  async function open(): Promise<ApprovalStore> {
    try {
      const current = await openStore(loaded, shared);
      timer = setInterval(() => void record(current), POLL_MS).unref();
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
    await current.close();
  });
  const exists = () => shared !== undefined || existsSync(approvalFileOf(loaded.serviceDirectory));
  if (exists()) await use(async () => {}).catch(() => {});
  return {
    use,
    counts: async () => (exists() ? use((current) => current.counts()) : undefined),
  };
}
