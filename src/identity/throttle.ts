import ipaddr from "ipaddr.js";
import { isUsername } from "../access/names.ts";
import { Refusal } from "../refusal.ts";
import { FailureLimit, type Outcome } from "./failure-limit.ts";

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
}

/** One attempt that counts as a failure until it turns out otherwise; it must be settled. */
export interface Attempt {
  settle(outcome: Outcome): Promise<void>;
}

/** Counts failed logins per user and address, and per address. */
export interface LoginThrottle {
  /** @throws Refusal `too_many_attempts` with the seconds to wait, or `login_busy` */
  begin(username: string, origin: LoginOrigin): Promise<Attempt>;
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
const WAITING = 256;

/** A throttle in memory. */
export function createLoginThrottle(bounds: ThrottleBounds): LoginThrottle {
  const pairs = new FailureLimit(bounds.perUserAndAddress, bounds.window);
  const addresses = new FailureLimit(bounds.perAddress, bounds.window);
  let entering = 0;

  async function enter(pair: string, address: string | undefined): Promise<void> {
    if (address !== undefined) await addresses.enter(address);
    try {
      await pairs.enter(pair);
    } catch (error) {
      if (address !== undefined) await addresses.leave(address, "unjudged");
      throw error;
    }
  }

  return {
    async begin(username, origin) {
      if (entering >= WAITING) throw new Refusal("login_busy", { retryAfter: 1 });
      const address = addressKey(origin.address);
      // A name that nobody can have gets no entry of its own, so that made-up names cost nothing.
      const pair = `${address} ${isUsername(username) ? username : "?"}`;
      const counted = origin.isShared ? undefined : address;
      entering++;
      try {
        await enter(pair, counted);
      } finally {
        entering--;
      }
      return {
        async settle(outcome) {
          await pairs.leave(pair, outcome);
          if (outcome === "succeeded") await pairs.forget(pair);
          if (counted !== undefined) await addresses.leave(counted, outcome);
        },
      };
    },
  };
}
