import ipaddr from "ipaddr.js";

/** The bounds on failed logins. */
export interface ThrottleBounds {
  readonly perUserAndAddress: number;
  readonly perAddress: number;
  /** Seconds after which failures are forgotten. */
  readonly window: number;
}

/** Where a login comes from. */
export interface LoginOrigin {
  readonly address: string;
  /** True for a reverse proxy with everyone behind it, which must not be blocked as one address. */
  readonly isShared: boolean;
  /** Aborted when the client has gone and there is nobody to answer. */
  readonly signal?: AbortSignal | undefined;
}

/** How an attempt came out; one that was not judged counts neither way. */
export type Outcome = "succeeded" | "failed" | "unjudged";

/** One attempt that counts as a failure until it turns out otherwise; it must be settled. */
export interface Attempt {
  settle(outcome: Outcome): Promise<void>;
}

/** The rate limit on failed logins: counts them per user and address, and per address. */
export interface LoginThrottle {
  /** @throws Refusal `too_many_attempts` with the seconds to wait, or `login_busy` */
  begin(username: string, origin: LoginOrigin): Promise<Attempt>;
}

/**
 * Failures of keys, wherever they are counted: memory is one such place (`failure-limit.ts`). All
 * attempts are judged by them one after the other, so they had better answer at once.
 */
export interface FailureCounts {
  /** Seconds after its first failure at which those of a key are forgotten. */
  window: number;
  /** The failures of a key, and the milliseconds until they are forgotten. */
  find(key: string): Promise<{ readonly count: number; readonly msLeft: number } | undefined>;
  add(key: string): Promise<void>;
  forget(key: string): Promise<void>;
}

/** Opens the counts of that name, which all who throttle the same logins share. */
export type OpenFailureCounts = (name: string, window: number) => FailureCounts;

/** The unit that is blocked: an IPv4 address, or the /64 that one IPv6 subscriber has. */
export function addressKey(address: string): string {
  // A connection that is gone already has no address any more.
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  if (parsed.kind() === "ipv4") return parsed.toString();
  return parsed.toNormalizedString().split(":").slice(0, 4).join(":");
}
