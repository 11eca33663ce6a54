import ipaddr from "ipaddr.js";
import { isUsername } from "../access/records.ts";
import { Refusal } from "../refusal.ts";
import { FailureLimit, type Outcome } from "./failure-limit.ts";
import { RecentLogins } from "./recent-logins.ts";

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
  /** True for a front with everyone behind it, which must not be blocked as one address. */
  readonly isShared: boolean;
  /** Aborted when the client has gone and there is nobody to answer. */
  readonly signal?: AbortSignal | undefined;
}

/** One attempt that counts as a failure until it turns out otherwise; it must be settled. */
export interface Attempt {
  settle(outcome: Outcome): Promise<void>;
}

/** The rate limit on failed logins: counts them per user and address, and per address. */
export interface LoginThrottle {
  /** @throws Refusal `too_many_attempts` with the seconds to wait, or `login_busy` */
  begin(username: string, origin: LoginOrigin): Promise<Attempt>;
}

/** A throttle in memory. */
export interface LoginThrottleHere extends LoginThrottle {
  /** Other bounds from now on; failures stay counted. */
  change(bounds: ThrottleBounds): void;
}

/** The unit that is blocked: an IPv4 address, or the /64 that one IPv6 subscriber has. */
export function addressKey(address: string): string {
  // A connection that is gone already has no address any more.
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  if (parsed.kind() === "ipv4") return parsed.toString();
  return parsed.toNormalizedString().split(":").slice(0, 4).join(":");
}

/** Logins that may wait for the outcome of others; past it they are told to come back. */
const WAITING = 1024;
/** As many of one address, so that it leaves places to the others. */
const WAITING_OF_ADDRESS = 64;

/** Places that are few over all, and fewer for one address. */
class Places {
  readonly #most: number;
  readonly #mostOfAddress: number;
  readonly #taken = new Map<string, number>();
  #count = 0;

  constructor(most: number, mostOfAddress: number) {
    this.#most = most;
    this.#mostOfAddress = mostOfAddress;
  }

  /** @throws Refusal `login_busy` if none is left */
  take(address: string): void {
    const own = this.#taken.get(address) ?? 0;
    if (this.#count >= this.#most || own >= this.#mostOfAddress) {
      throw new Refusal("login_busy", { retryAfter: 1 });
    }
    this.#taken.set(address, own + 1);
    this.#count++;
  }

  release(address: string): void {
    const own = (this.#taken.get(address) ?? 1) - 1;
    if (own > 0) this.#taken.set(address, own);
    else this.#taken.delete(address);
    this.#count--;
  }
}

/**
 * A throttle in memory.
 *
 * @param recent told of each good login
 */
export function createLoginThrottle(
  bounds: ThrottleBounds,
  recent = new RecentLogins(),
): LoginThrottleHere {
  const pairs = new FailureLimit(bounds.perUserAndAddress, bounds.window);
  const addresses = new FailureLimit(bounds.perAddress, bounds.window);
  const waiting = new Places(WAITING, WAITING_OF_ADDRESS);

  async function enter(
    pair: string,
    address: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (address !== undefined) await addresses.enter(address, signal);
    try {
      await pairs.enter(pair, signal);
    } catch (error) {
      if (address !== undefined) await addresses.leave(address, "unjudged");
      throw error;
    }
  }

  return {
    change({ perUserAndAddress, perAddress, window }) {
      pairs.change(perUserAndAddress, window);
      addresses.change(perAddress, window);
    },
    async begin(username, origin) {
      const address = addressKey(origin.address);
      // A name that nobody can have gets no entry of its own, so that made-up names cost nothing.
      const pair = `${address} ${isUsername(username) ? username : "?"}`;
      const counted = origin.isShared ? undefined : address;
      waiting.take(address);
      try {
        await enter(pair, counted, origin.signal);
      } finally {
        waiting.release(address);
      }
      return {
        async settle(outcome) {
          await pairs.leave(pair, outcome);
          if (outcome === "succeeded") {
            recent.note({ username, address, isShared: origin.isShared });
            await pairs.forget(pair);
          }
          if (counted !== undefined) await addresses.leave(counted, outcome);
        },
      };
    },
  };
}
