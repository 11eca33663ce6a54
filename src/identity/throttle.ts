import ipaddr from "ipaddr.js";
import RateLimiterMemory from "rate-limiter-flexible/lib/RateLimiterMemory.js";
import { isUsername } from "../access/identifiers.ts";
import { Refusal } from "../refusal.ts";
import { RecentLogins } from "./hashing.ts";

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

/** Attempts on one key that are not judged yet, and the moment when the next of them is. */
interface UnderWay {
  count: number;
  next: PromiseWithResolvers<void>;
}

/**
 * A bound on failures of a key within a window. An attempt takes its place before it is judged, so
 * that many guesses at one moment are no more than many in a row; one that finds every place taken
 * by attempts under way waits for their outcome, so that many good attempts at one moment pass.
 *
 * Only failures are remembered, and each of them has cost a hash: whoever makes up names and
 * addresses fills no memory with attempts that are turned away.
 */
export class FailureLimit {
  readonly #counts: FailureCounts;
  #failures: number;
  readonly #underWay = new Map<string, UnderWay>();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(failures: number, counts: FailureCounts) {
    this.#counts = counts;
    this.#failures = failures;
  }

  /** Other bounds from now on; what was counted stays counted, for as long as it was to be. */
  change(failures: number, window: number): void {
    this.#failures = failures;
    this.#counts.window = window;
  }

  /** How many keys have attempts under way. */
  get size(): number {
    return this.#underWay.size;
  }

  /**
   * Takes a place, once there is one.
   *
   * @throws Refusal `too_many_attempts` if none can come, `login_busy` if the client has gone
   */
  async enter(key: string, signal?: AbortSignal): Promise<void> {
    for (;;) {
      if (signal?.aborted) throw new Refusal("login_busy", { retryAfter: 1 });
      const ahead = await this.#inTurn(() => this.#take(key));
      if (ahead === undefined) return;
      await ahead.promise;
    }
  }

  /** Gives the place back, or makes it a failure. */
  async leave(key: string, outcome: Outcome): Promise<void> {
    await this.#inTurn(async () => {
      try {
        if (outcome === "failed") await this.#counts.add(key);
      } finally {
        this.#end(key);
      }
    });
  }

  /** Forgets the failures of a key; attempts that are under way keep their places. */
  async forget(key: string): Promise<void> {
    await this.#inTurn(() => this.#counts.forget(key));
  }

  /** Takes a place and returns undefined, or returns what to wait for. */
  async #take(key: string): Promise<PromiseWithResolvers<void> | undefined> {
    const { count = 0, msLeft = 0 } = (await this.#counts.find(key)) ?? {};
    const underWay = this.#underWay.get(key);
    if (count + (underWay?.count ?? 0) < this.#failures) {
      if (underWay !== undefined) underWay.count++;
      else this.#underWay.set(key, { count: 1, next: Promise.withResolvers() });
      return undefined;
    }
    if (underWay !== undefined) return underWay.next;
    const retryAfter = Math.max(1, Math.ceil(msLeft / 1000));
    throw new Refusal("too_many_attempts", { retryAfter });
  }

  #end(key: string): void {
    const underWay = this.#underWay.get(key);
    if (underWay === undefined) return;
    underWay.count--;
    if (underWay.count === 0) this.#underWay.delete(key);
    underWay.next.resolve();
    underWay.next = Promise.withResolvers();
  }

  /** The counts answer later; taking turns keeps their count and that of the attempts consistent. */
  async #inTurn<T>(task: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(task);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}

/** Keys with failures that are remembered; past it, those whose first failure is longest ago go. */
const CAPACITY = 100_000;

/** Failures that are counted in memory. */
export class MemoryFailureCounts implements FailureCounts {
  readonly #limiter: RateLimiterMemory;
  readonly #capacity: number;
  /** Keys that have failures, in the order of their first. */
  readonly #known = new Set<string>();

  constructor(window: number, capacity = CAPACITY) {
    // Counted here and judged by who asks, so the points mean nothing.
    this.#limiter = new RateLimiterMemory({ points: 1, duration: window });
    this.#capacity = capacity;
  }

  get window(): number {
    return this.#limiter.duration;
  }

  set window(seconds: number) {
    this.#limiter.duration = seconds;
  }

  /** How many keys it remembers. */
  get size(): number {
    return this.#known.size;
  }

  async find(key: string) {
    const failed = await this.#limiter.get(key);
    if (failed !== null && failed.msBeforeNext > 0) {
      return { count: failed.consumedPoints, msLeft: failed.msBeforeNext };
    }
    this.#known.delete(key);
    return undefined;
  }

  async add(key: string): Promise<void> {
    const { isFirstInDuration } = await this.#limiter.penalty(key);
    if (isFirstInDuration) this.#known.delete(key);
    this.#known.add(key);
    const [oldest] = this.#known;
    if (this.#known.size > this.#capacity && oldest !== undefined) await this.forget(oldest);
  }

  async forget(key: string): Promise<void> {
    this.#known.delete(key);
    await this.#limiter.delete(key);
  }
}

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
