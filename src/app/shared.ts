import { mkdirSync } from "node:fs";
import path from "node:path";
import { errorMessage } from "../core/base/client-error.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import type { Configuration } from "../core/config/schema.ts";
import type { Condition, Shared } from "../core/http/gateway.ts";
import { MemoryCounts, type OpenCounts, requestCounter } from "../core/identity/counts.ts";
import { configuredCosts } from "../core/identity/hash.ts";
import { openHashing, RecentLogins } from "../core/identity/hashing.ts";
import { createLoginThrottle, type ThrottleBounds } from "../core/identity/throttle.ts";
import type { Log } from "../core/observe/log.ts";
import {
  OpenStreams,
  openSessionFile,
  type SessionRegister,
  Sessions,
  type StreamRegister,
  separateRegisters,
  sessionLimits,
} from "../features/mcp/proxy/sessions.ts";

export interface MemberShared extends Shared {
  /** Of the MCP server behind the proxy. */
  readonly sessions: SessionRegister;
  readonly streams: StreamRegister;
}

export interface LocalShared extends MemberShared {
  readonly hashing: ReturnType<typeof openHashing>;
  readonly streams: OpenStreams;
}

function throttleBounds({ auth }: Configuration): ThrottleBounds {
  return {
    perUserAndAddress: auth.max_failures_per_user_and_address,
    perAddress: auth.max_failures_per_address,
    window: auth.failure_window,
  };
}

function openSessions(
  name: string,
  { configuration: { mcp, store }, serviceDirectory }: LoadedConfiguration,
  log: Log,
  opened: AsyncDisposableStack,
): Sessions {
  if (!mcp.enabled || mcp.upstream === undefined || store.url !== undefined) return new Sessions();
  const file = path.join(serviceDirectory, name);
  const warn = (error: unknown) =>
    log.warn(
      { file, reason: errorMessage(error) },
      "sessions or tasks of the upstream MCP server cannot be saved: a restart will end them",
    );
  try {
    // Created before the first of several workers would, at a first start.
    mkdirSync(serviceDirectory, { recursive: true, mode: 0o700 });
    const records = openSessionFile(file, warn);
    opened.defer(() => records.close());
    return new Sessions(sessionLimits, () => performance.now(), records);
  } catch (error) {
    warn(error);
    return new Sessions();
  }
}

export function createShared(
  loaded: LoadedConfiguration,
  log: Log,
  opened: AsyncDisposableStack,
  openCounts: OpenCounts = () => new MemoryCounts(),
): LocalShared {
  const { configuration } = loaded;
  let condition: Condition = { configurationFailure: undefined, isEnding: false };
  const recent = new RecentLogins();
  const hashing = openHashing(
    configuredCosts(configuration),
    (reason) => log.error({ reason }, "the password hashing process is replaced"),
    recent,
  );
  opened.defer(() => hashing.close());
  const throttle = createLoginThrottle(throttleBounds(configuration), recent, openCounts);
  return {
    throttle,
    hashing,
    sessions: separateRegisters(
      openSessions("mcp_sessions", loaded, log, opened),
      openSessions("mcp_tasks", loaded, log, opened),
    ),
    streams: new OpenStreams(),
    countRequests: requestCounter(openCounts("requests")),
    configure: (next) => throttle.change(throttleBounds(next)),
    condition: async () => condition,
    note(change) {
      condition = { ...condition, ...change };
    },
  };
}

export type SharedFile = "access" | "revocations";

export interface Membership {
  readonly number: number;
  /** True for the process that creates what a first start creates; false after it was restarted. */
  readonly isFirst: boolean;
  readonly shared: MemberShared;
  /**
   * The port to listen on, to be claimed right before listening. 0 means any free port.
   *
   * @throws Error if another gateway or program uses it
   */
  claimPort(): Promise<number>;
  /**
   * Makes all other processes reload a file. Resolves when the version on disk is in force
   * everywhere.
   */
  broadcastReload(file: SharedFile): Promise<void>;
}

/** True for the process that does what one must do for all, also after it was restarted. */
export function leads(member: Membership | undefined): boolean {
  return (member?.number ?? 1) === 1;
}
