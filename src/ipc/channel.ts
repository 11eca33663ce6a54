import { EventEmitter } from "node:events";
import { answerHeartbeat, isHeartbeat } from "./heartbeat.ts";

/** A remote procedure: what is asked, and what it is answered with. */
export interface Call<Ask, Answer> {
  readonly ask: Ask;
  readonly answer: Answer;
}

/** What one side may ask of the other, by name. */
export type Calls = Readonly<Record<string, Call<unknown, unknown>>>;

/** The calls of a side that is asked nothing. */
export type NoCalls = Record<never, never>;

/** Answers each question; `signal` is aborted once nobody waits for the answer any more. */
export type Handlers<Own extends Calls> = {
  readonly [Name in keyof Own]: (
    ask: Own[Name]["ask"],
    signal: AbortSignal,
  ) => Own[Name]["answer"] | Promise<Own[Name]["answer"]>;
};

/** How errors go through a channel: as something that can be cloned. */
export interface ErrorCodec<Failure> {
  encode(error: unknown): Failure;
  decode(failure: Failure): Error;
}

/** Keeps the message alone. */
export const messageCodec: ErrorCodec<string> = {
  encode: (error) => (error instanceof Error ? error.message : "unknown error"),
  decode: (message) => new Error(message),
};

/** What goes through a channel, either way. */
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

/** What a channel is made of. */
export interface ChannelOptions<Own extends Calls, Other extends Calls, Failure> {
  readonly handlers: Handlers<Own>;
  readonly errors: ErrorCodec<Failure>;
  /** Sends a message to the other end, or drops it if there is none any more. */
  readonly send: (message: Message<Other, Failure>) => void;
}

/**
 * Remote procedure calls between two processes. Messages go in order, so what was asked first is
 * known first at the other end.
 *
 * @typeParam Own what is answered here
 * @typeParam Other what the other end answers
 */
export class Channel<Own extends Calls, Other extends Calls, Failure> {
  readonly #options: ChannelOptions<Own, Other, Failure>;
  /** Has a listener for each question without an answer. */
  readonly #answers = new EventEmitter();
  readonly #answering = new Map<number, AbortController>();
  #end: Error | undefined;
  #lastId = 0;

  constructor(options: ChannelOptions<Own, Other, Failure>) {
    this.#options = options;
  }

  /** True while the other end owes an answer. */
  get isWaiting(): boolean {
    return this.#answers.eventNames().length > 0;
  }

  /**
   * Asks the other end.
   *
   * @param signal tells the other end that the answer is of no more use; it is awaited all the same,
   *   since it may hold what must be given back
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

  /** Ends what is being answered and whatever waits for an answer. @param reason for the latter */
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

/** Ignores the signals that a whole process group gets: the parent says when to end. */
export function leaveSignalsToParent(): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
}

/** Opens the channel to the parent, and answers its heartbeat. */
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
