import { mkdirSync } from "node:fs";
import path from "node:path";
import RateLimiterMemory from "rate-limiter-flexible/lib/RateLimiterMemory.js";
import RateLimiterRes from "rate-limiter-flexible/lib/RateLimiterRes.js";
import type { CountRequests } from "../access/rights.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { configuredCosts } from "../identity/hash.ts";
import { type Hashing, type HashingHere, openHashing, RecentLogins } from "../identity/hashing.ts";
import {
  createLoginThrottle,
  type LoginThrottle,
  type OpenFailureCounts,
  type ThrottleBounds,
} from "../identity/throttle.ts";
import { OpenStreams, type StreamRegister } from "../mcp/proxy/judged-request.ts";
import { SessionFile, type SessionRegister, Sessions, usualLimits } from "../mcp/proxy/sessions.ts";
import { ownersOf } from "../mcp/proxy/task-notes.ts";
import type { Log } from "../observe/log.ts";

/** Counts in memory, in fixed windows that begin with their first request. */
export function createRequestCounts(): CountRequests {
  const limiters = new Map<string, RateLimiterMemory>();
  return async ({ key, limit: { count, windowMs }, points }) => {
    const name = `${count}/${windowMs}`;
    const limiter =
      limiters.get(name) ?? new RateLimiterMemory({ points: count, duration: windowMs / 1000 });
    limiters.set(name, limiter);
    try {
      const { consumedPoints: counted } = await limiter.consume(key, points);
      return { counted, retryAfter: 0 };
    } catch (error) {
      if (!(error instanceof RateLimiterRes)) throw error;
      const { consumedPoints: counted, msBeforeNext } = error;
      return { counted, retryAfter: Math.max(1, Math.ceil(msBeforeNext / 1000)) };
    }
  };
}

/**
 * What there is once in a gateway, however many processes serve it: what is counted over all
 * requests, and the process that hashes.
 */
export interface Shared {
  readonly throttle: LoginThrottle;
  readonly hashing: Hashing;
  /** Whose the sessions and tasks of a foreign MCP server are. */
  readonly sessions: SessionRegister;
  readonly streams: StreamRegister;
  readonly countRequests: CountRequests;
  /** Takes over bounds that have changed; those that another process keeps are that one's to change. */
  configure(configuration: Configuration): void;
  condition(): Promise<Condition>;
  /** Notes what has changed of it. */
  note(change: Partial<Condition>): void;
}

/** How it stands with a gateway. */
export interface Condition {
  /** Why the configuration's file, as it is by now, is not in force, if so. */
  readonly configurationFailure: string | undefined;
  /** True from `server.shutdown_delay` before it takes no more connections. */
  readonly isEnding: boolean;
}

/** Where failed logins and requests are counted. */
export interface Counts {
  readonly openFailureCounts: OpenFailureCounts;
  readonly countRequests: CountRequests;
}

/** What of it can be held in one process alone. */
export interface SharedHere extends Shared {
  readonly hashing: HashingHere;
  readonly streams: OpenStreams;
}

function throttleBounds({ auth }: Configuration): ThrottleBounds {
  return {
    perUserAndAddress: auth.max_failures_per_user_and_address,
    perAddress: auth.max_failures_per_address,
    window: auth.failure_window,
  };
}

/** What is said where sessions cannot be kept. */
const lost = "sessions or tasks of the MCP server behind cannot be kept: a restart ends those";

/** Whose the sessions, or the tasks, of a foreign MCP server are, on disk as far as that can be. */
function openSessions(
  name: string,
  { configuration: { mcp, store }, serviceDirectory }: LoadedConfiguration,
  log: Log,
  opened: AsyncDisposableStack,
): Sessions {
  const isKept = mcp.enabled && mcp.upstream !== undefined && store.url === undefined;
  if (!isKept) return new Sessions();
  const file = path.join(serviceDirectory, name);
  const warn = (error: unknown) =>
    log.warn({ file, reason: error instanceof Error ? error.message : "unknown" }, lost);
  try {
    // Before the first of several workers makes it, at a first start.
    mkdirSync(serviceDirectory, { recursive: true, mode: 0o700 });
    const records = new SessionFile(file, warn);
    opened.defer(() => records.close());
    return new Sessions(usualLimits, () => performance.now(), records);
  } catch (error) {
    warn(error);
    return new Sessions();
  }
}

/**
 * Makes all of it in this process; puts its closing on the stack.
 *
 * @param counts by default in memory
 */
export function createShared(
  loaded: LoadedConfiguration,
  log: Log,
  opened: AsyncDisposableStack,
  counts?: Counts,
): SharedHere {
  const { configuration } = loaded;
  let condition: Condition = { configurationFailure: undefined, isEnding: false };
  const recent = new RecentLogins();
  const hashing = openHashing(
    configuredCosts(configuration),
    (reason) => log.error({ reason }, "the process that hashes is replaced"),
    recent,
  );
  opened.defer(() => hashing.close());
  const throttle = createLoginThrottle(
    throttleBounds(configuration),
    recent,
    counts?.openFailureCounts,
  );
  return {
    throttle,
    hashing,
    sessions: ownersOf(
      openSessions("mcp_sessions", loaded, log, opened),
      openSessions("mcp_tasks", loaded, log, opened),
    ),
    streams: new OpenStreams(),
    countRequests: counts?.countRequests ?? createRequestCounts(),
    configure: (next) => throttle.change(throttleBounds(next)),
    condition: async () => condition,
    note(change) {
      condition = { ...condition, ...change };
    },
  };
}

/** A file that every process of a gateway keeps in force for itself. */
export type SharedFile = "access" | "revocations";

/** A process's place among those that serve one gateway together. */
export interface Membership {
  /** From 1. */
  readonly number: number;
  /** True for the one that makes what a first start makes. */
  readonly isFirst: boolean;
  /** What there is once for all of them. */
  readonly shared: Shared;
  /**
   * The port to listen on, to be asked for right before that; 0 for any free one.
   *
   * @throws Error if another gateway or program has it
   */
  claimPort(): Promise<number>;
  /** Has all others read a file again; resolves when what is on disk is in force everywhere. */
  tellOthers(file: SharedFile): Promise<void>;
}
