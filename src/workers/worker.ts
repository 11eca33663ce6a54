import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fstatSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { DestinationStream } from "pino";
import { Channel, type Message } from "../ipc/channel.ts";
import type { MainCalls, WorkerCalls } from "./calls.ts";
import { passLinesOn } from "./lines.ts";
import { preloads } from "./preloads.ts";
import type { Desk } from "./rpc-handlers.ts";

/** Beside this module, and compiled if it is. */
const program = fileURLToPath(
  new URL(`./program${path.extname(import.meta.url)}`, import.meta.url),
);

/** How a worker ended. */
export interface Ending {
  readonly code?: number | null;
  readonly signal?: NodeJS.Signals | null;
  readonly reason?: string;
}

/**
 * True if several processes may write to standard output as they like: to a file or a terminal a
 * line is written whole, but in a pipe or a socket that is full, lines would get mixed up.
 */
function mayShareOutput(): boolean {
  const output = fstatSync(1);
  return !output.isFIFO() && !output.isSocket();
}

async function whenEnded(child: ChildProcess): Promise<Ending> {
  try {
    const [code, signal] = await once(child, "close");
    return { code, signal };
  } catch (error) {
    return { reason: error instanceof Error ? error.message : "unknown" };
  }
}

/** A worker's process, as the main process has it. */
export class Worker {
  /** From 1. */
  readonly number: number;
  /** Resolves when the process is gone. */
  readonly ended: Promise<Ending>;
  readonly #child: ChildProcess;
  readonly #channel: Channel<WorkerCalls, MainCalls>;

  /** @param output takes the lines of its log, where it cannot write them itself */
  constructor(number: number, desk: Desk, output: DestinationStream) {
    this.number = number;
    this.#child = fork(program, [], {
      execArgv: preloads(process.execArgv),
      serialization: "advanced",
      stdio: ["ignore", mayShareOutput() ? "inherit" : "pipe", "inherit", "ipc"],
    });
    const child = this.#child;
    if (child.stdout !== null) passLinesOn(child.stdout, output);
    this.#channel = new Channel<WorkerCalls, MainCalls>(desk.handlers, (message) => {
      if (child.connected) child.send(message, () => {});
    });
    child.on("message", (message: Message<WorkerCalls>) => this.#channel.receive(message));
    this.ended = whenEnded(child).then((ending) => {
      this.#channel.close();
      desk.close();
      return ending;
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** @throws Refusal or Error as thrown there, ChannelClosedError */
  ask<Name extends keyof MainCalls>(
    name: Name,
    ask: MainCalls[Name]["ask"],
  ): Promise<MainCalls[Name]["answer"]> {
    return this.#channel.ask(name, ask);
  }

  /** Ends the process at once. */
  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.ended;
  }
}
