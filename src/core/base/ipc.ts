import { type ChildProcess, type ForkOptions, fork } from "node:child_process";
import path from "node:path";
import type { Readable } from "node:stream";

/** Sent by a parent process, and answered by its child. */
const PING = "ping";
const PONG = "pong";

export interface Call<Ask, Answer> {
  readonly ask: Ask;
  readonly answer: Answer;
}

type Calls = Readonly<Record<string, Call<unknown, unknown>>>;

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

/** The id of a call that is not to be answered. Others begin at 1. */
const UNANSWERED = 0;

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

interface ChannelOptions<Own extends Calls, Other extends Calls, Failure> {
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
  /** The unanswered calls by id. */
  readonly #asked = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #answering = new Map<number, AbortController>();
  #end: Error | undefined;
  #lastId = 0;

  constructor(options: ChannelOptions<Own, Other, Failure>) {
    this.#options = options;
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
    const asked = Promise.withResolvers<Other[Name]["answer"]>();
    this.#asked.set(id, asked);
    const cancel = () => this.#options.send({ kind: "cancel", id });
    try {
      this.#options.send({ kind: "ask", id, name, ask });
      if (signal?.aborted) cancel();
      signal?.addEventListener("abort", cancel);
      return await asked.promise;
    } finally {
      this.#asked.delete(id);
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Calls the other end, which sends no answer. */
  tell<Name extends keyof Other>(name: Name, ask: Other[Name]["ask"]): void {
    this.#options.send({ kind: "ask", id: UNANSWERED, name, ask });
  }

  receive(message: Message<Own, Failure>): void {
    const { kind, id } = message;
    if (kind === "ask") void this.#answer(id, message.name, message.ask);
    else if (kind === "cancel") this.#answering.get(id)?.abort();
    else if (kind === "answer") this.#asked.get(id)?.resolve(message.answer);
    else this.#asked.get(id)?.reject(this.#options.errors.decode(message.failure));
  }

  /** Aborts the calls being answered, and rejects those that wait for an answer with `reason`. */
  close(reason: Error = new ChannelClosedError()): void {
    this.#end = reason;
    for (const { reject } of this.#asked.values()) reject(reason);
    for (const controller of this.#answering.values()) controller.abort();
  }

  async #answer<Name extends keyof Own>(
    id: number,
    name: Name,
    ask: Own[Name]["ask"],
  ): Promise<void> {
    const { handlers, errors } = this.#options;
    const send = id === UNANSWERED ? () => {} : this.#options.send;
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
  process.on("message", (message: Message<Own, Failure> | typeof PING) => {
    // The answer shows that the event loop runs.
    if (message === PING) process.send?.(PONG, undefined, undefined, () => {});
    else parent.receive(message);
  });
  // The program has started.
  process.send?.(PONG, undefined, undefined, () => {});
  return parent;
}

const BEAT_MS = 1000;

export interface HeartbeatLimits {
  readonly maxMissed: number;
  readonly maxMissedAtStart: number;
  /**
   * True for a child that blocks its event loop while it works: one of its threads echoes standard
   * input to standard output.
   */
  readonly overStdio?: boolean;
}

/**
 * Pings a child process every second until it has ended.
 *
 * @param onStuck called once after too many missed pings, counted only while this process itself
 * ran
 * @returns the number of missed heartbeats in a row
 */
function watchHeartbeat(
  child: ChildProcess,
  { maxMissed, maxMissedAtStart, overStdio = false }: HeartbeatLimits,
  onStuck: () => void,
): () => number {
  if (child.pid === undefined) return () => 0;
  let missed = maxMissed - maxMissedAtStart;
  const onAlive = () => {
    missed = 0;
  };
  child.on("message", onAlive);
  if (overStdio) child.stdout?.on("data", onAlive);
  child.stdin?.on("error", () => {});
  // Counts beats rather than time, since time also passes while this process itself is stopped.
  const timer = setInterval(() => {
    missed++;
    if (missed > maxMissed) {
      clearInterval(timer);
      onStuck();
    } else if (overStdio) {
      child.stdin?.write(".");
    } else if (child.connected) {
      child.send(PING, () => {});
    }
  }, BEAT_MS);
  child.once("exit", () => clearInterval(timer));
  return () => missed;
}

/**
 * The module `name` next to the module `address`, with the same extension: a clone runs the
 * sources, the published package runs compiled files.
 */
export function siblingModule(address: string, name: string): URL {
  return new URL(`./${name}${path.extname(address)}`, address);
}

export interface Ending {
  readonly code?: number | null;
  readonly signal?: NodeJS.Signals | null;
  readonly reason?: string;
}

export function howEnded({ code, signal, reason = `it ended: ${signal ?? code}` }: Ending): string {
  return reason;
}

interface ProgramOptions<Own extends Calls, Failure> {
  readonly args?: readonly string[];
  readonly fork: ForkOptions;
  readonly handlers: Handlers<Own>;
  readonly errors: ErrorCodec<Failure>;
  /** When the process is considered stuck. */
  readonly heartbeat: HeartbeatLimits;
}

interface Deadline {
  /** From the call, or from the end of the process's start. */
  readonly ms: number;
  /** Called when the deadline has passed. @returns the error for all open calls of the process */
  readonly onMissed: () => Error;
}

/**
 * A program of this package that runs as a child process, with the channel to it.
 *
 * @typeParam Own the calls answered here
 * @typeParam Other the calls that the program answers
 */
export class ChildProgram<Own extends Calls, Other extends Calls, Failure> {
  /** Resolves when the process is gone and no call waits for its answer. */
  readonly ended: Promise<Ending>;
  readonly #child: ChildProcess;
  readonly #channel: Channel<Own, Other, Failure>;
  readonly #ending = Promise.withResolvers<Ending>();
  readonly #starting = Promise.withResolvers<void>();
  #killedFor: Error | undefined;
  readonly #countMissedBeats: () => number;
  #isGone = false;

  constructor(program: URL, options: ProgramOptions<Own, Failure>) {
    const { args = [], handlers, errors, heartbeat } = options;
    const child = fork(program, args, { serialization: "advanced", ...options.fork });
    this.#child = child;
    this.#channel = new Channel<Own, Other, Failure>({
      handlers,
      errors,
      send(message) {
        if (child.connected) child.send(message, () => {});
      },
    });
    child.on("message", (message: Message<Own, Failure> | typeof PONG) => {
      this.#starting.resolve();
      if (message !== PONG) this.#channel.receive(message);
    });
    const onStuck = () => void this.kill(new ChannelClosedError("it did not respond"));
    this.#countMissedBeats = watchHeartbeat(child, heartbeat, onStuck);
    // By "close", everything that the process sent has been received.
    child.once("close", (code, signal) => this.#ending.resolve({ code, signal }));
    child.on("error", ({ message }) => {
      if (child.pid === undefined) this.#ending.resolve({ reason: `it did not start: ${message}` });
    });
    this.ended = this.#ending.promise.then((ending) => this.#onEnded(ending));
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  get missedBeats(): number {
    return this.#countMissedBeats();
  }

  get output(): Readable | null {
    return this.#child.stdout;
  }

  get isUsable(): boolean {
    return !this.#isGone && !this.#child.killed && this.#child.connected;
  }

  /**
   * Calls the program, and kills its process if the answer is late.
   *
   * @throws Error as thrown there, or why the process ended, after it has ended
   */
  async ask<Name extends keyof Other>(
    name: Name,
    ask: Other[Name]["ask"],
    deadline?: Deadline,
  ): Promise<Other[Name]["answer"]> {
    const answer = this.#channel.ask(name, ask);
    if (deadline === undefined) return answer;
    let timer: NodeJS.Timeout | undefined;
    void this.#starting.promise.then(() => {
      timer = setTimeout(() => void this.kill(deadline.onMissed()), deadline.ms);
    });
    return answer.finally(() => clearTimeout(timer));
  }

  /** Closes the channel, which makes the program exit. After `timeoutMs` it is killed. */
  async close(timeoutMs: number): Promise<void> {
    const child = this.#child;
    if (child.connected && child.exitCode === null && child.signalCode === null) {
      child.disconnect();
      // After a disconnect from this side, Node only emits "exit".
      child.once("exit", (code, signal) => this.#ending.resolve({ code, signal }));
    }
    const timer = setTimeout(() => void this.kill(), timeoutMs);
    await this.ended;
    clearTimeout(timer);
  }

  async kill(reason?: Error): Promise<void> {
    this.#killedFor ??= reason;
    this.#child.kill("SIGKILL");
    await this.ended;
  }

  #onEnded(ending: Ending): Ending {
    this.#isGone = true;
    const reason = this.#killedFor ?? new ChannelClosedError(howEnded(ending));
    this.#channel.close(reason);
    return this.#killedFor instanceof ChannelClosedError
      ? { ...ending, reason: this.#killedFor.how }
      : ending;
  }
}
