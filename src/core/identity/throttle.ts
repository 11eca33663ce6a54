import ipaddr from "ipaddr.js";
import { isUsername } from "../access/roles.ts";
import { Turns } from "../base/queues.ts";
import { Refusal } from "../base/refusal.ts";
import { counted } from "../base/suggestion.ts";
import { type KeyCounts, MemoryCounts, type OpenCounts, secondsLeft } from "./counts.ts";
import { busy, RecentLogins } from "./hashing.ts";

export interface ThrottleBounds {
  readonly perUserAndAddress: number;
  readonly perAddress: number;
  /** Seconds. */
  readonly window: number;
}

export interface LoginOrigin {
  readonly address: string;
  /** True for the address of a reverse proxy, which must not be blocked. */
  readonly isShared: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** An unjudged attempt counts neither way. */
export type Outcome = "succeeded" | "failed" | "unjudged";

export interface Attempt {
  complete(outcome: Outcome): Promise<void>;
}

export interface LoginThrottle {
  /** @throws Refusal `too_many_attempts` with the seconds to wait, or `login_busy` */
  begin(username: string, origin: LoginOrigin): Promise<Attempt>;
  /** Clears the user's failures from all addresses. Addresses stay blocked for other users. */
  unlock(username: string): Promise<void>;
}

/** The unit that is blocked: an IPv4 address, or a /64 of IPv6, which one subscriber has. */
export function addressKey(address: string): string {
  // A closed connection has no address.
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  if (parsed.kind() === "ipv4") return parsed.toString();
  return parsed.toNormalizedString().split(":").slice(0, 4).join(":");
}

/** Attempts of one key. `next` resolves when one of them completes. */
interface Pending {
  count: number;
  next: PromiseWithResolvers<void>;
}

/**
 * An attempt takes a place before it is judged, so that simultaneous guesses get no more tries than
 * sequential ones. If all places are taken, a new attempt waits. Only failures are stored, and each
 * has cost a hash, so invented names use little memory.
 */
export class FailureLimit {
  failures: number;
  /** Seconds from a key's first failure until its failures are forgotten. */
  window: number;
  readonly #counts: KeyCounts;
  readonly #pending = new Map<string, Pending>();
  /** Counts are asynchronous and must stay consistent with `#pending`. */
  readonly #turns = new Turns();

  constructor(failures: number, window: number, counts: KeyCounts) {
    this.failures = failures;
    this.window = window;
    this.#counts = counts;
  }

  get size(): number {
    return this.#pending.size;
  }

  /** @throws Refusal `too_many_attempts` if no place will become free, or `login_busy` */
  async enter(key: string, signal?: AbortSignal): Promise<void> {
    for (;;) {
      if (signal?.aborted) throw busy();
      const ahead = await this.#turns.run(() => this.#take(key));
      if (ahead === undefined) return;
      await ahead.promise;
    }
  }

  async leave(key: string, outcome: Outcome): Promise<void> {
    await this.#turns.run(async () => {
      try {
        if (outcome === "failed") await this.#counts.add(key, 1, this.window * 1000);
      } finally {
        const pending = this.#pending.get(key);
        if (pending !== undefined) {
          pending.count--;
          if (pending.count === 0) this.#pending.delete(key);
          pending.next.resolve();
          pending.next = Promise.withResolvers();
        }
      }
    });
  }

  /** Clears the failures of a key. Pending attempts keep their places. */
  async forget(key: string): Promise<void> {
    await this.#turns.run(() => this.#counts.forget(key));
  }

  async forgetEnding(ending: string): Promise<void> {
    await this.#turns.run(() => this.#counts.forgetEnding(ending));
  }

  async #take(key: string): Promise<PromiseWithResolvers<void> | undefined> {
    const failed = await this.#counts.add(key, 0, this.window * 1000);
    const pending = this.#pending.get(key);
    if (failed.count + (pending?.count ?? 0) < this.failures) {
      if (pending !== undefined) pending.count++;
      else this.#pending.set(key, { count: 1, next: Promise.withResolvers() });
      return undefined;
    }
    if (pending !== undefined) return pending.next;
    const retryAfter = secondsLeft(failed);
    const message = `Too many failed attempts: try again in ${counted(retryAfter, "second")}`;
    throw new Refusal("too_many_attempts", { message, retryAfter });
  }
}

/** Further logins get `login_busy`. */
const MAX_WAITING = 1024;
const MAX_WAITING_OF_ADDRESS = 64;

/** The name of the counts by user and address. */
export const PAIRS = "user and address";

/** Ends the keys of a user, whose name has no space. */
export function pairEnding(username: string): string {
  return ` ${username}`;
}

/** @param recent records each successful login @param openCounts default: in memory */
export function createLoginThrottle(
  bounds: ThrottleBounds,
  recent = new RecentLogins(),
  openCounts: OpenCounts = () => new MemoryCounts(),
): LoginThrottle & { change(bounds: ThrottleBounds): void } {
  const { perUserAndAddress, perAddress, window } = bounds;
  const pairs = new FailureLimit(perUserAndAddress, window, openCounts(PAIRS));
  const addresses = new FailureLimit(perAddress, window, openCounts("address"));
  const waiting: string[] = [];

  return {
    change({ perUserAndAddress, perAddress, window }) {
      // Existing counts keep their expiry.
      Object.assign(pairs, { failures: perUserAndAddress, window });
      Object.assign(addresses, { failures: perAddress, window });
    },
    unlock: (username) => pairs.forgetEnding(pairEnding(username)),
    async begin(username, { address: from, isShared, signal }) {
      const address = addressKey(from);
      const pair = address + pairEnding(isUsername(username) ? username : "?");
      const own = waiting.filter((one) => one === address);
      if (waiting.length >= MAX_WAITING || own.length >= MAX_WAITING_OF_ADDRESS) throw busy();
      waiting.push(address);
      try {
        if (!isShared) await addresses.enter(address, signal);
        try {
          await pairs.enter(pair, signal);
        } catch (error) {
          if (!isShared) await addresses.leave(address, "unjudged");
          throw error;
        }
      } finally {
        waiting.splice(waiting.indexOf(address), 1);
      }
      return {
        async complete(outcome) {
          await pairs.leave(pair, outcome);
          if (outcome === "succeeded") {
            recent.note({ username, address, isShared });
            await pairs.forget(pair);
          }
          if (!isShared) await addresses.leave(address, outcome);
        },
      };
    },
  };
}
