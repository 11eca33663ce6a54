import { RateLimiterMemory } from "rate-limiter-flexible";
import { Refusal } from "../refusal.ts";

/** Attempts on one key that are not judged yet, and the moment when the next of them is. */
interface UnderWay {
  count: number;
  next: PromiseWithResolvers<void>;
}

/** How an attempt came out; one that was not judged counts neither way. */
export type Outcome = "succeeded" | "failed" | "unjudged";

/** Keys with failures that are remembered; past it, those whose first failure is longest ago go. */
const CAPACITY = 100_000;

/**
 * A bound on failures of a key within a window. An attempt takes its place before it is judged, so
 * that many guesses at one moment are no more than many in a row; one that finds every place taken
 * by attempts under way waits for their outcome, so that many good attempts at one moment pass.
 *
 * Only failures are remembered, and each of them has cost a hash: whoever makes up names and
 * addresses fills no memory with attempts that are turned away.
 */
export class FailureLimit {
  readonly #limiter: RateLimiterMemory;
  #failures: number;
  readonly #capacity: number;
  readonly #underWay = new Map<string, UnderWay>();
  /** Keys that have failures, in the order of their first. */
  readonly #known = new Set<string>();
  #turn: Promise<unknown> = Promise.resolve();

  /** @param window seconds after which failures are forgotten */
  constructor(failures: number, window: number, capacity = CAPACITY) {
    this.#limiter = new RateLimiterMemory({ points: failures, duration: window });
    this.#failures = failures;
    this.#capacity = capacity;
  }

  /** Other bounds from now on; what was counted stays counted, for as long as it was to be. */
  change(failures: number, window: number): void {
    this.#failures = failures;
    this.#limiter.duration = window;
  }

  /** How many keys it remembers. */
  get size(): number {
    return this.#known.size + this.#underWay.size;
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
      if (outcome === "failed") await this.#remember(key);
      const underWay = this.#underWay.get(key);
      if (underWay !== undefined) this.#end(key, underWay);
    });
  }

  /** Forgets the failures of a key; attempts that are under way keep their places. */
  async forget(key: string): Promise<void> {
    await this.#inTurn(() => this.#drop(key));
  }

  /** Takes a place and returns undefined, or returns what to wait for. */
  async #take(key: string): Promise<PromiseWithResolvers<void> | undefined> {
    const failed = await this.#limiter.get(key);
    const isOver = failed === null || failed.msBeforeNext <= 0;
    if (isOver) this.#known.delete(key);
    const failures = isOver ? 0 : failed.consumedPoints;
    const underWay = this.#underWay.get(key);
    if (failures + (underWay?.count ?? 0) < this.#failures) {
      if (underWay !== undefined) underWay.count++;
      else this.#underWay.set(key, { count: 1, next: Promise.withResolvers() });
      return undefined;
    }
    if (underWay !== undefined) return underWay.next;
    const retryAfter = Math.max(1, Math.ceil((failed?.msBeforeNext ?? 0) / 1000));
    throw new Refusal("too_many_attempts", { retryAfter });
  }

  async #remember(key: string): Promise<void> {
    const { isFirstInDuration } = await this.#limiter.penalty(key);
    if (isFirstInDuration) this.#known.delete(key);
    this.#known.add(key);
    const [oldest] = this.#known;
    if (this.#known.size > this.#capacity && oldest !== undefined) await this.#drop(oldest);
  }

  async #drop(key: string): Promise<void> {
    this.#known.delete(key);
    await this.#limiter.delete(key);
  }

  #end(key: string, underWay: UnderWay): void {
    underWay.count--;
    if (underWay.count === 0) this.#underWay.delete(key);
    underWay.next.resolve();
    underWay.next = Promise.withResolvers();
  }

  /** The limiter answers later; taking turns keeps its count and that of the attempts in step. */
  async #inTurn<T>(task: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(task);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}
