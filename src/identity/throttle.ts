import ipaddr from "ipaddr.js";
import { isUsername } from "../access/roles.ts";
import { Refusal } from "../refusal.ts";
import { type KeyCounts, MemoryCounts, type OpenCounts, secondsLeft } from "./counts.ts";
import { busy, RecentLogins } from "./hashing.ts";

export interface ThrottleBounds {
  readonly perUserAndAddress: number;
  readonly perAddress: number;
  /** Seconds until failures are forgotten. */
  readonly window: number;
}

export interface LoginOrigin {
  readonly address: string;
  /** True for a reverse proxy that all clients share. It must not be blocked as one address. */
  readonly isShared: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** An unjudged attempt counts neither way. */
export type Outcome = "succeeded" | "failed" | "unjudged";

/** An attempt counts as a failure until it is settled, so it must be settled. */
export interface Attempt {
  complete(outcome: Outcome): Promise<void>;
}

/** Limits failed logins per user and address, and per address. */
export interface LoginThrottle {
  /** @throws Refusal `too_many_attempts` with the seconds to wait, or `login_busy` */
  begin(username: string, origin: LoginOrigin): Promise<Attempt>;
}

/** The unit that is blocked: an IPv4 address, or a /64 of IPv6, which one subscriber has. */
export function addressKey(address: string): string {
  // A closed connection has no address any more.
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  if (parsed.kind() === "ipv4") return parsed.toString();
  return parsed.toNormalizedString().split(":").slice(0, 4).join(":");
}

/** Unjudged attempts of one key. `next` resolves when one of them is judged. */
interface UnderWay {
  count: number;
  next: PromiseWithResolvers<void>;
}

/**
 * An attempt takes a place before it is judged, so that simultaneous guesses get no more tries than
 * sequential ones. If pending attempts hold all places, a new one waits for their outcome. Only
 * failures are stored, and each has cost a hash, so invented names use no memory.
 */
export class FailureLimit {
  readonly #counts: KeyCounts;
  #failures = 0;
  #windowMs = 0;
  readonly #underWay = new Map<string, UnderWay>();
  #turn: Promise<unknown> = Promise.resolve();

  /** @param window seconds from a key's first failure until its failures are forgotten */
  constructor(failures: number, window: number, counts: KeyCounts) {
    this.#counts = counts;
    this.change(failures, window);
  }

  /** Changes the limits. Existing counts keep their expiry. */
  change(failures: number, window: number): void {
    this.#failures = failures;
    this.#windowMs = window * 1000;
  }

  get size(): number {
    return this.#underWay.size;
  }

  /** @throws Refusal `too_many_attempts` if no place will become free, or `login_busy` */
  async enter(key: string, signal?: AbortSignal): Promise<void> {
    for (;;) {
      if (signal?.aborted) throw busy();
      const ahead = await this.#inTurn(() => this.#take(key));
      if (ahead === undefined) return;
      await ahead.promise;
    }
  }

  async leave(key: string, outcome: Outcome): Promise<void> {
    await this.#inTurn(async () => {
      try {
        if (outcome === "failed") await this.#counts.add(key, 1, this.#windowMs);
      } finally {
        const underWay = this.#underWay.get(key);
        if (underWay !== undefined) {
          underWay.count--;
          if (underWay.count === 0) this.#underWay.delete(key);
          underWay.next.resolve();
          underWay.next = Promise.withResolvers();
        }
      }
    });
  }

  /** Clears the failures of a key. Pending attempts keep their places. */
  async forget(key: string): Promise<void> {
    await this.#inTurn(() => this.#counts.forget(key));
  }

  /** Returns undefined if it took a place, otherwise the event to wait for. */
  async #take(key: string): Promise<PromiseWithResolvers<void> | undefined> {
    const failed = await this.#counts.add(key, 0, this.#windowMs);
    const underWay = this.#underWay.get(key);
    if (failed.count + (underWay?.count ?? 0) < this.#failures) {
      if (underWay !== undefined) underWay.count++;
      else this.#underWay.set(key, { count: 1, next: Promise.withResolvers() });
      return undefined;
    }
    if (underWay !== undefined) return underWay.next;
    throw new Refusal("too_many_attempts", { retryAfter: secondsLeft(failed) });
  }

  /** Counts are asynchronous, and must stay consistent with the pending attempts. */
  async #inTurn<T>(task: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(task);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}

/** Logins that may wait for others. Further ones get `login_busy`. */
const WAITING = 1024;
const WAITING_OF_ADDRESS = 64;

/** @param recent records each successful login @param openCounts default: in memory */
export function createLoginThrottle(
  bounds: ThrottleBounds,
  recent = new RecentLogins(),
  openCounts: OpenCounts = () => new MemoryCounts(),
): LoginThrottle & { change(bounds: ThrottleBounds): void } {
  const { perUserAndAddress, perAddress, window } = bounds;
  const pairs = new FailureLimit(perUserAndAddress, window, openCounts("user and address"));
  const addresses = new FailureLimit(perAddress, window, openCounts("address"));
  /** The address of each waiting login. */
  const waiting: string[] = [];

  return {
    change({ perUserAndAddress, perAddress, window }) {
      pairs.change(perUserAndAddress, window);
      addresses.change(perAddress, window);
    },
    async begin(username, { address: from, isShared, signal }) {
      const address = addressKey(from);
      // Impossible names share one entry, so that invented names use no memory.
      const pair = `${address} ${isUsername(username) ? username : "?"}`;
      const own = waiting.filter((one) => one === address);
      if (waiting.length >= WAITING || own.length >= WAITING_OF_ADDRESS) throw busy();
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
