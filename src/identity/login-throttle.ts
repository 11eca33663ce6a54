import { isUsername } from "../access/identifiers.ts";
import { Refusal } from "../refusal.ts";
import { FailureLimit, MemoryFailureCounts } from "./failure-limit.ts";
import { RecentLogins } from "./hash-queue.ts";
import {
  addressKey,
  type LoginThrottle,
  type OpenFailureCounts,
  type ThrottleBounds,
} from "./throttle.ts";

/** Logins that may wait for the outcome of others; past it they are told to come back. */
const WAITING = 1024;
/** As many of one address, so that it leaves places to the others. */
const WAITING_OF_ADDRESS = 64;

/** Places for waiting: few over all, and fewer for one address. */
class Places {
  readonly #taken = new Map<string, number>();
  #count = 0;

  /** @throws Refusal `login_busy` if none is left */
  take(address: string): void {
    const own = this.#taken.get(address) ?? 0;
    if (this.#count >= WAITING || own >= WAITING_OF_ADDRESS) {
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

/** A throttle whose attempts under way are counted in this process. */
interface LoginThrottleHere extends LoginThrottle {
  /** Other bounds from now on; failures stay counted. */
  change(bounds: ThrottleBounds): void;
}

/**
 * A throttle of all logins that this process judges.
 *
 * @param recent told of each good login
 * @param openCounts where failures are counted; by default in memory
 */
export function createLoginThrottle(
  bounds: ThrottleBounds,
  recent = new RecentLogins(),
  openCounts: OpenFailureCounts = (_name, window) => new MemoryFailureCounts(window),
): LoginThrottleHere {
  const { perUserAndAddress, perAddress, window } = bounds;
  const pairs = new FailureLimit(perUserAndAddress, openCounts("user and address", window));
  const addresses = new FailureLimit(perAddress, openCounts("address", window));
  const waiting = new Places();

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
