import { RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import { Refusal } from "../refusal.ts";

/** Attempts on one key that are not judged yet, and the moment when the next of them is. */
interface UnderWay {
  count: number;
  next: PromiseWithResolvers<void>;
}

/** How an attempt came out; one that was not judged counts neither way. */
export type Outcome = "succeeded" | "failed" | "unjudged";

/**
 * A bound on failures of a key within a window. An attempt takes its place before it is judged, so
 * that many guesses at one moment are no more than many in a row; one that finds every place taken
 * by attempts under way waits for their outcome, so that many good attempts at one moment pass.
 */
export class FailureLimit {
  readonly #limiter: RateLimiterMemory;
  readonly #window: number;
  readonly #underWay = new Map<string, UnderWay>();
  #turn: Promise<unknown> = Promise.resolve();

  /** @param window seconds after which failures are forgotten */
  constructor(failures: number, window: number) {
    this.#limiter = new RateLimiterMemory({ points: failures, duration: window });
    this.#window = window;
  }

  /** Takes a place, once there is one. @throws Refusal `too_many_attempts` if none can come */
  async enter(key: string): Promise<void> {
    for (;;) {
      const ahead = await this.#inTurn(() => this.#take(key));
      if (ahead === undefined) return;
      await ahead.next.promise;
    }
  }

  /** Gives the place back, or leaves it taken by a failure. */
  async leave(key: string, outcome: Outcome): Promise<void> {
    await this.#inTurn(async () => {
      const underWay = this.#underWay.get(key);
      if (underWay !== undefined) this.#end(key, underWay);
      if (outcome !== "failed") await this.#limiter.reward(key);
    });
  }

  /** Forgets the failures of a key; attempts that are under way keep their places. */
  async forget(key: string): Promise<void> {
    await this.#inTurn(() =>
      this.#limiter.set(key, this.#underWay.get(key)?.count ?? 0, this.#window),
    );
  }

  /** Takes a place and returns undefined, or returns the attempts to wait for. */
  async #take(key: string): Promise<Pick<UnderWay, "next"> | undefined> {
    const underWay = this.#underWay.get(key);
    try {
      await this.#limiter.consume(key);
    } catch (rejection) {
      if (!(rejection instanceof RateLimiterRes)) throw rejection;
      await this.#limiter.reward(key);
      if (underWay !== undefined) return { next: underWay.next };
      const retryAfter = Math.max(1, Math.ceil(rejection.msBeforeNext / 1000));
      throw new Refusal("too_many_attempts", { retryAfter });
    }
    if (underWay !== undefined) underWay.count++;
    else this.#underWay.set(key, { count: 1, next: Promise.withResolvers() });
    return undefined;
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
