import RateLimiterMemory from "rate-limiter-flexible/lib/RateLimiterMemory.js";
import { Refusal } from "../refusal.ts";
import type { FailureCounts, Outcome } from "./throttle.ts";

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
