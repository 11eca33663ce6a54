import ipaddr from "ipaddr.js";
import { RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import { isUsername } from "../access/names.ts";
import { Refusal } from "../refusal.ts";

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

/** One attempt that has been counted as a failure until it turns out otherwise. */
export interface Attempt {
  succeed(): Promise<void>;
  /** The attempt was not judged at all: it counts neither way. */
  withdraw(): Promise<void>;
}

/** Counts failed logins per user and address, and per address. */
export interface LoginThrottle {
  /** @throws Refusal `too_many_attempts` with the seconds to wait */
  begin(username: string, origin: LoginOrigin): Promise<Attempt>;
}

/** The unit that is blocked: an IPv4 address, or the /64 that one IPv6 subscriber has. */
export function addressKey(address: string): string {
  const parsed = ipaddr.process(address);
  if (parsed.kind() === "ipv4") return parsed.toString();
  return parsed.toNormalizedString().split(":").slice(0, 4).join(":");
}

async function consume(limiter: RateLimiterMemory, key: string): Promise<void> {
  try {
    await limiter.consume(key);
  } catch (rejection) {
    if (!(rejection instanceof RateLimiterRes)) throw rejection;
    const retryAfter = Math.max(1, Math.ceil(rejection.msBeforeNext / 1000));
    throw new Refusal("too_many_attempts", { retryAfter });
  }
}

/**
 * A throttle in memory. An attempt is counted before the password is looked at and given back if
 * it succeeds, so that a hundred guesses at one moment count as a hundred.
 */
export function createLoginThrottle(bounds: ThrottleBounds): LoginThrottle {
  const duration = bounds.window;
  const pairs = new RateLimiterMemory({ points: bounds.perUserAndAddress, duration });
  const addresses = new RateLimiterMemory({ points: bounds.perAddress, duration });

  return {
    async begin(username, origin) {
      const address = addressKey(origin.address);
      // A name that nobody can have gets no entry of its own, so that made-up names cost nothing.
      const pair = `${address} ${isUsername(username) ? username : "?"}`;
      if (!origin.isShared) await consume(addresses, address);
      const giveBackAddress = async () => {
        if (!origin.isShared) await addresses.reward(address);
      };
      try {
        await consume(pairs, pair);
      } catch (error) {
        await giveBackAddress();
        throw error;
      }
      return {
        async succeed() {
          await pairs.delete(pair);
          await giveBackAddress();
        },
        async withdraw() {
          await pairs.reward(pair);
          await giveBackAddress();
        },
      };
    },
  };
}
