import type { Times } from "../observe/time-figures.ts";
import { Refusal } from "../refusal.ts";
import { asRefusal } from "./failure.ts";
import type { AnswerHead } from "./http1/answer-head.ts";
import type { Connection } from "./http1/connection.ts";
import type { Release } from "./http1/read-buffer.ts";
import type { AnswerReceiver } from "./http1/receiver.ts";

/** An answer of the upstream that is held whole. */
export interface QueryAnswer {
  readonly status: number;
  readonly body: Buffer;
}

/** A query whose answer the gateway itself has a use for. */
export interface QueryAsk {
  /** Set for `GET` of a path instead of a query. */
  readonly path?: string;
  /** Who asks: connections are shared fairly between users. */
  readonly user: string;
  readonly body: Buffer;
  /** The lines of its header fields. */
  readonly fields: string;
  /** Gives the query up. */
  readonly signal: AbortSignal;
}

/** Bytes of an answer that is held whole; more is for `POST /query`, which streams. */
const LARGEST_ANSWER_BYTES = 32 * 1024 * 1024;

/** Gathers an answer. */
export class HeldAnswer implements AnswerReceiver {
  readonly #connection: Connection;
  readonly #settle: { resolve: (answer: QueryAnswer) => void; reject: (error: Error) => void };
  readonly #signal: AbortSignal;
  /** @throws Refusal `upstream_unreachable`, `upstream_broken` or `upstream_timeout` */
  readonly answer: Promise<QueryAnswer>;
  readonly #times: Times;
  readonly #startedAt = performance.now();
  readonly #pieces: Buffer[] = [];
  #length = 0;
  #status = 0;

  /** @param times where the time to the answer's head is counted */
  constructor(connection: Connection, signal: AbortSignal, times: Times) {
    const { promise, resolve, reject } = Promise.withResolvers<QueryAnswer>();
    this.answer = promise;
    this.#settle = { resolve, reject };
    this.#connection = connection;
    this.#signal = signal;
    this.#times = times;
    signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  onBytes(): void {}

  onInterim(): void {}

  onHead({ status }: AnswerHead): void {
    this.#status = status;
    this.#times.add((performance.now() - this.#startedAt) / 1000);
  }

  onData(piece: Buffer, release: Release): void {
    this.#length += piece.length;
    if (this.#length > LARGEST_ANSWER_BYTES) {
      const detail = "the answer is too large to be held";
      this.#connection.abort(new Refusal("upstream_broken", { detail }));
      return;
    }
    this.#pieces.push(Buffer.from(piece));
    release();
  }

  onEnd(last: Buffer | undefined): void {
    this.#signal.removeEventListener("abort", this.#onAbort);
    if (last !== undefined) this.#pieces.push(last);
    this.#settle.resolve({ status: this.#status, body: Buffer.concat(this.#pieces) });
  }

  onError(error: Error): void {
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#settle.reject(asRefusal(error));
  }

  readonly #onAbort = (): void => {
    this.#connection.abort(new Refusal("upstream_broken", { detail: "given up" }));
  };
}
