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

export interface ProgramOptions<Own extends Calls, Failure> {
  readonly args?: readonly string[];
  readonly fork: ForkOptions;
  readonly handlers: Handlers<Own>;
  readonly errors: ErrorCodec<Failure>;
  /** When the process is considered stuck; never if omitted. */
  readonly heartbeat?: HeartbeatLimits;
}

export interface Deadline {
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
      const onStuck = () => void this.kill(new ChannelClosedError("it did not respond"));
      const isAsked = () => heartbeat.whileIdle === true || this.#channel.isWaiting;
      this.#countMissedBeats = watchHeartbeat(child, heartbeat, onStuck, isAsked);
    }
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
    const timer = setTimeout(() => void this.kill(deadline.onMissed()), deadline.ms);
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
