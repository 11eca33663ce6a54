import { EventEmitter, once, setMaxListeners } from "node:events";
import { Refusal, type RefusalCode } from "../refusal.ts";

/** What one side may ask of the other: for each name the question, and what it is answered with. */
export type Calls = Readonly<Record<string, { readonly ask: unknown; readonly answer: unknown }>>;

/** Answers each question; `signal` is aborted once nobody waits for the answer any more. */
export type Handlers<Own extends Calls> = {
  readonly [Name in keyof Own]: (
    ask: Own[Name]["ask"],
    signal: AbortSignal,
  ) => Own[Name]["answer"] | Promise<Own[Name]["answer"]>;
};

/** What becomes of an error on its way: a Refusal stays one, of any other its message is kept. */
interface Failure {
  readonly message: string;
  readonly code?: RefusalCode;
  readonly detail?: string | undefined;
  readonly retryAfter?: number | undefined;
}

/** What goes through a channel, either way. */
export type Message<Own extends Calls> =
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
  constructor() {
    super("the process at the other end is gone");
    this.name = "ChannelClosedError";
  }
}

function toFailure(error: unknown): Failure {
  if (error instanceof Refusal) {
    const { code, message, detail, retryAfter } = error;
    return { code, message, detail, retryAfter };
  }
  return { message: error instanceof Error ? error.message : "unknown error" };
}

function toError({ code, message, detail, retryAfter }: Failure): Error {
  if (code === undefined) return new Error(message);
  return new Refusal(code, {
    message,
    ...(detail === undefined ? {} : { detail }),
    ...(retryAfter === undefined ? {} : { retryAfter }),
  });
}

/**
 * Questions and answers between two processes. Messages go in order, so what was asked first is
 * known first at the other end.
 *
 * @typeParam Own what is answered here
 * @typeParam Other what the other end answers
 */
export class Channel<Own extends Calls, Other extends Calls> {
  readonly #handlers: Handlers<Own>;
  readonly #send: (message: Message<Other>) => void;
  readonly #answers = new EventEmitter();
  readonly #answering = new Map<number, AbortController>();
  readonly #closing = new AbortController();
  #lastId = 0;

  /** @param send sends a message to the other end, or drops it if there is none any more */
  constructor(handlers: Handlers<Own>, send: (message: Message<Other>) => void) {
    this.#handlers = handlers;
    this.#send = send;
    // Everybody who waits for an answer listens for the end.
    setMaxListeners(0, this.#closing.signal);
  }

  /**
   * Asks the other end.
   *
   * @param signal tells the other end that the answer is of no more use; it is awaited all the same,
   *   since it may hold what must be given back
   * @throws Refusal or Error as thrown there, ChannelClosedError
   */
  async ask<Name extends keyof Other>(
    name: Name,
    ask: Other[Name]["ask"],
    signal?: AbortSignal,
  ): Promise<Other[Name]["answer"]> {
    if (this.#closing.signal.aborted) throw new ChannelClosedError();
    const id = ++this.#lastId;
    const answered = once(this.#answers, String(id), { signal: this.#closing.signal });
    const cancel = () => this.#send({ kind: "cancel", id });
    this.#send({ kind: "ask", id, name, ask });
    if (signal?.aborted) cancel();
    signal?.addEventListener("abort", cancel);
    try {
      const [failure, answer] = await answered.catch(() => {
        throw new ChannelClosedError();
      });
      if (failure !== undefined) throw toError(failure);
      return answer;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Takes a message of the other end. */
  receive(message: Message<Own>): void {
    const { kind, id } = message;
    if (kind === "ask") void this.#answer(id, message.name, message.ask);
    else if (kind === "cancel") this.#answering.get(id)?.abort();
    else if (kind === "answer") this.#answers.emit(String(id), undefined, message.answer);
    else this.#answers.emit(String(id), message.failure);
  }

  /** Ends what is being answered and whatever waits for an answer: the other end is gone. */
  close(): void {
    this.#closing.abort();
    for (const controller of this.#answering.values()) controller.abort();
  }

  async #answer<Name extends keyof Own>(
    id: number,
    name: Name,
    ask: Own[Name]["ask"],
  ): Promise<void> {
    const controller = new AbortController();
    this.#answering.set(id, controller);
    try {
      const answer = await this.#handlers[name](ask, controller.signal);
      this.#send({ kind: "answer", id, answer });
    } catch (error) {
      this.#send({ kind: "failure", id, failure: toFailure(error) });
    } finally {
      this.#answering.delete(id);
    }
  }
}
