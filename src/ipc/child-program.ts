import { type ChildProcess, type ForkOptions, fork } from "node:child_process";
import path from "node:path";
import type { Readable } from "node:stream";
import {
  type Calls,
  Channel,
  ChannelClosedError,
  type ErrorCodec,
  type Handlers,
  type Message,
} from "./channel.ts";
import { type HeartbeatLimits, isHeartbeat, watchHeartbeat } from "./heartbeat.ts";

/**
 * The module `name` beside the module `address`. Its extension is the same, since a clone runs
 * sources and the published package what was compiled from them.
 */
export function siblingModule(address: string, name: string): URL {
  return new URL(`./${name}${path.extname(address)}`, address);
}

/** How a process ended. */
export interface Ending {
  readonly code?: number | null;
  readonly signal?: NodeJS.Signals | null;
  /** Why, if that is not told by the others. */
  readonly reason?: string;
}

/** The same in words, for logs. */
export function howEnded({ code, signal, reason = `it ended: ${signal ?? code}` }: Ending): string {
  return reason;
}

/** What a child process is started with. */
export interface ProgramOptions<Own extends Calls, Failure> {
  readonly args?: readonly string[];
  readonly fork: ForkOptions;
  readonly handlers: Handlers<Own>;
  readonly errors: ErrorCodec<Failure>;
  /** When it is taken for stuck; never if left out. */
  readonly heartbeat?: HeartbeatLimits;
}

/** Until when an answer is awaited. */
export interface Deadline {
  readonly ms: number;
  /** Called once it has passed. @returns what becomes of all that the process was asked */
  readonly onMissed: () => Error;
}

/**
 * A program of this package that runs as a child process, and the channel to it.
 *
 * @typeParam Own what is answered here
 * @typeParam Other what the program answers
 */
export class ChildProgram<Own extends Calls, Other extends Calls, Failure> {
  /** Resolves when the process is gone and nobody waits for its answers any more. */
  readonly ended: Promise<Ending>;
  readonly #child: ChildProcess;
  readonly #channel: Channel<Own, Other, Failure>;
  readonly #ending = Promise.withResolvers<Ending>();
  #killedFor: Error | undefined;
  #countMissedBeats = () => 0;
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
    child.on("message", (message: Message<Own, Failure>) => {
      if (!isHeartbeat(message)) this.#channel.receive(message);
    });
    if (heartbeat !== undefined) {
      const onStuck = () => void this.kill(new ChannelClosedError("it did not answer"));
      const isAsked = () => heartbeat.whileIdle === true || this.#channel.isWaiting;
      this.#countMissedBeats = watchHeartbeat(child, heartbeat, onStuck, isAsked);
    }
    // Then all that it has sent was received too.
    child.once("close", (code, signal) => this.#ending.resolve({ code, signal }));
    child.on("error", ({ message }) => {
      if (child.pid === undefined) this.#ending.resolve({ reason: `it did not start: ${message}` });
    });
    this.ended = this.#ending.promise.then((ending) => this.#onEnded(ending));
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** How many signs of life in a row it owes. */
  get missedBeats(): number {
    return this.#countMissedBeats();
  }

  /** What it writes, if that is piped. */
  get output(): Readable | null {
    return this.#child.stdout;
  }

  /** True while it may be asked. */
  get isUsable(): boolean {
    return !this.#isGone && !this.#child.killed && this.#child.connected;
  }

  /**
   * Asks the program, and ends its process if the answer is late.
   *
   * @throws Error as thrown there, or why the process is gone: once it is
   */
  async ask<Name extends keyof Other>(
    name: Name,
    ask: Other[Name]["ask"],
    deadline?: Deadline,
  ): Promise<Other[Name]["answer"]> {
    const answer = this.#channel.ask(name, ask);
    if (deadline === undefined) return answer;
    const timer = setTimeout(() => void this.kill(deadline.onMissed()), deadline.ms);
    return answer.finally(() => clearTimeout(timer));
  }

  /**
   * Closes the channel, by which the program is to end.
   *
   * @param patience milliseconds after which it is killed
   */
  async close(patience: number): Promise<void> {
    const child = this.#child;
    if (child.connected && child.exitCode === null && child.signalCode === null) {
      child.disconnect();
      // Whoever disconnects a process himself is told of its exit alone.
      child.once("exit", (code, signal) => this.#ending.resolve({ code, signal }));
    }
    const timer = setTimeout(() => void this.kill(), patience);
    await this.ended;
    clearTimeout(timer);
  }

  /** Ends the process at once. @param reason what whoever waits for an answer is told */
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
