import type { Pipeline } from "../remote/session.ts";
import type { Exchange, Statement } from "./exchange.ts";

/** A statement that has not gone up yet, and who waits for how many rows it changes. */
interface Queued {
  readonly statement: Statement;
  readonly answer: PromiseWithResolvers<number>;
}

/** How statements go up together. */
type SendAll = (
  statements: readonly Statement[],
  isEnd: boolean,
) => { readonly exchange: Exchange; readonly done: Promise<void> };

/** The last statements of several operations, which go up in one write. */
export class PostgresPipeline implements Pipeline {
  readonly #sendAll: SendAll;
  #queue: Queued[] = [];
  #onQueued: (() => void) | undefined;

  constructor(sendAll: SendAll) {
    this.#sendAll = sendAll;
  }

  /** True where the last statement of an operation is to wait for those of others. */
  get isOpen(): boolean {
    return this.#onQueued !== undefined;
  }

  get isEmpty(): boolean {
    return this.#queue.length === 0;
  }

  /** Drops what has not gone up. */
  close(): void {
    this.#queue = [];
    this.#onQueued = undefined;
  }

  queued(): Promise<true> {
    const { promise, resolve } = Promise.withResolvers<true>();
    this.#onQueued = () => resolve(true);
    return promise;
  }

  /** Resolves to how many rows the statement has changed, once it was sent. */
  add(statement: Statement): Promise<number> {
    const answer = Promise.withResolvers<number>();
    this.#queue.push({ statement, answer });
    this.#onQueued?.();
    return answer.promise;
  }

  async send(isEnd: boolean): Promise<void> {
    if (this.isEmpty) return;
    const queue = this.#queue;
    this.#queue = [];
    const { exchange, done } = this.#sendAll(
      queue.map(({ statement }) => statement),
      isEnd,
    );
    try {
      await done;
    } catch (error) {
      // The server has skipped those behind the one that failed.
      const failed = queue.slice(exchange.counts.length);
      if (failed.length === 0) throw error;
      for (const { answer } of failed) answer.reject(error);
    } finally {
      for (const [index, count] of exchange.counts.entries()) queue[index]?.answer.resolve(count);
    }
  }
}
