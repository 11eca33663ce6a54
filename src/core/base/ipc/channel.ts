import { EventEmitter } from "node:events";
import { answerHeartbeat, isHeartbeat } from "./heartbeat.ts";

export interface Call<Ask, Answer> {
  readonly ask: Ask;
  readonly answer: Answer;
}

export type Calls = Readonly<Record<string, Call<unknown, unknown>>>;

export type NoCalls = Record<never, never>;

/** `signal` is aborted when the caller no longer waits for the answer. */
export type Handlers<Own extends Calls> = {
  readonly [Name in keyof Own]: (
    ask: Own[Name]["ask"],
    signal: AbortSignal,
  ) => Own[Name]["answer"] | Promise<Own[Name]["answer"]>;
};

/** Converts errors to a form that can be cloned, and back. */
export interface ErrorCodec<Failure> {
  encode(error: unknown): Failure;
  decode(failure: Failure): Error;
}

export const messageCodec: ErrorCodec<string> = {
  encode: (error) => (error instanceof Error ? error.message : "unknown error"),
  decode: (message) => new Error(message),
};

export type Message<Own extends Calls, Failure> =
  | {
      readonly kind: "ask";
      readonly id: number;
      readonly name: keyof Own;
      readonly ask: Own[keyof Own]["ask"];
    }
  | { readonly kind: "cancel"; readonly id: number }
  | { readonly kind: "answer"; readonly id: number; readonly answer: unknown }
  | { readonly kind: "failure"; readonly id: number; readonly failure: Failure };

/** The process at the other end is gone. */
export class ChannelClosedError extends Error {
  readonly how: string;

  constructor(how = "it is gone") {
    super(`the process at the other end: ${how}`);
    this.name = "ChannelClosedError";
    this.how = how;
  }
}

export interface ChannelOptions<Own extends Calls, Other extends Calls, Failure> {
  readonly handlers: Handlers<Own>;
  readonly errors: ErrorCodec<Failure>;
  /** Sends a message, or drops it if the other end is gone. */
  readonly send: (message: Message<Other, Failure>) => void;
}

/**
 * Remote procedure calls between two processes. Messages keep their order, so the call sent first
 * arrives first.
 *
 * @typeParam Own the calls answered here
 * @typeParam Other the calls that the other end answers
 */
export class Channel<Own extends Calls, Other extends Calls, Failure> {
  readonly #options: ChannelOptions<Own, Other, Failure>;
  /** Has a listener for each unanswered call. */
  readonly #answers = new EventEmitter();
  readonly #answering = new Map<number, AbortController>();
  #end: Error | undefined;
  #lastId = 0;

  constructor(options: ChannelOptions<Own, Other, Failure>) {
    this.#options = options;
  }

  get isWaiting(): boolean {
    return this.#answers.eventNames().length > 0;
  }

  /**
   * Calls the other end.
   *
   * @param signal tells the other end that the answer is no longer needed; it is awaited anyway,
   * since it may hold something that must be released
   * @throws Error as thrown there, or why the channel was closed
   */
  async ask<Name extends keyof Other>(
    name: Name,
    ask: Other[Name]["ask"],
    signal?: AbortSignal,
  ): Promise<Other[Name]["answer"]> {
    if (this.#end !== undefined) throw this.#end;
    const id = ++this.#lastId;
    const { promise, resolve, reject } = Promise.withResolvers<Other[Name]["answer"]>();
    this.#answers.once(String(id), (error: Error | undefined, answer: Other[Name]["answer"]) =>
      error === undefined ? resolve(answer) : reject(error),
    );
    const cancel = () => this.#options.send({ kind: "cancel", id });
    try {
      this.#options.send({ kind: "ask", id, name, ask });
      if (signal?.aborted) cancel();
      signal?.addEventListener("abort", cancel);
      return await promise;
    } finally {
      this.#answers.removeAllListeners(String(id));
      signal?.removeEventListener("abort", cancel);
    }
  }

  receive(message: Message<Own, Failure>): void {
    const { kind, id } = message;
    if (kind === "ask") void this.#answer(id, message.name, message.ask);
    else if (kind === "cancel") this.#answering.get(id)?.abort();
    else if (kind === "answer") this.#answers.emit(String(id), undefined, message.answer);
    else this.#answers.emit(String(id), this.#options.errors.decode(message.failure));
  }

  /** Aborts the calls being answered, and rejects those that wait for an answer with `reason`. */
  close(reason: Error = new ChannelClosedError()): void {
    this.#end = reason;
    for (const id of this.#answers.eventNames()) this.#answers.emit(id, reason);
    for (const controller of this.#answering.values()) controller.abort();
  }

  async #answer<Name extends keyof Own>(
    id: number,
    name: Name,
    ask: Own[Name]["ask"],
  ): Promise<void> {
    const { handlers, errors, send } = this.#options;
    const controller = new AbortController();
    this.#answering.set(id, controller);
    try {
      const answer = await handlers[name](ask, controller.signal);
      send({ kind: "answer", id, answer });
    } catch (error) {
      send({ kind: "failure", id, failure: errors.encode(error) });
    } finally {
      this.#answering.delete(id);
    }
  }
}

/** Ignores signals to the whole process group; the parent decides when this process ends. */
export function leaveSignalsToParent(): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
}

export function openParentChannel<Own extends Calls, Other extends Calls, Failure>(
  handlers: Handlers<Own>,
  errors: ErrorCodec<Failure>,
): Channel<Own, Other, Failure> {
  const parent = new Channel<Own, Other, Failure>({
    handlers,
    errors,
    send(message) {
      if (process.connected) process.send?.(message, undefined, undefined, () => {});
    },
  });
  answerHeartbeat();
  process.on("message", (message: Message<Own, Failure>) => {
    if (!isHeartbeat(message)) parent.receive(message);
  });
  return parent;
}
