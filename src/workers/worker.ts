import { fstatSync } from "node:fs";
import type { Readable } from "node:stream";
import type { DestinationStream } from "pino";
import { ChildProgram, siblingModule } from "../ipc/child-program.ts";
import {
  type MainCalls,
  type RefusalFailure,
  refusalCodec,
  type WorkerCalls,
  type WorkerHandlers,
} from "./calls.ts";

/** Flags by which Node loads modules before a program: an SDK for traces, for instance. */
const preload = /^(?:--import|--require|-r)(?<value>=.*)?$/s;

/**
 * Those of a process's flags by which Node loads modules before its program. Its other flags, such
 * as a debugger's port, are for it alone.
 *
 * @param flags as `process.execArgv` has them
 */
export function preloads(flags: readonly string[]): string[] {
  const kept: string[] = [];
  for (const [at, flag] of flags.entries()) {
    const match = preload.exec(flag);
    if (match === null) continue;
    kept.push(flag);
    const next = flags[at + 1];
    if (match.groups?.value === undefined && next !== undefined) kept.push(next);
  }
  return kept;
}

/** Passes text on in whole lines; what has no end when the source has one is dropped. */
export function passLinesOn(source: Readable, output: DestinationStream): void {
  let begun = "";
  source.setEncoding("utf8").on("data", (text: string) => {
    const end = text.lastIndexOf("\n") + 1;
    if (end === 0) {
      begun += text;
      return;
    }
    output.write(begun + text.slice(0, end));
    begun = text.slice(end);
  });
}

/**
 * True if several processes may write to standard output as they like: to a file or a terminal a
 * line is written whole, but in a pipe or a socket that is full, lines would get mixed up.
 */
function mayShareOutput(): boolean {
  const output = fstatSync(1);
  return !output.isFIFO() && !output.isSocket();
}

/** Six missed seconds leave time to start another worker within ten. */
const HEARTBEAT = { missable: 6, missableAtStart: 60, whileIdle: true };

/** A worker's process, as the main process has it. */
export class Worker extends ChildProgram<WorkerCalls, MainCalls, RefusalFailure> {
  /** From 1. */
  readonly number: number;

  /** @param output takes the lines of its log, where it cannot write them itself */
  constructor(number: number, { handlers, close }: WorkerHandlers, output: DestinationStream) {
    super(siblingModule(import.meta.url, "program"), {
      fork: {
        // The second as `bin/gatehouse.js` has it.
        execArgv: [...preloads(process.execArgv), "--no-allocation-site-pretenuring"],
        stdio: ["ignore", mayShareOutput() ? "inherit" : "pipe", "inherit", "ipc"],
      },
      handlers,
      errors: refusalCodec,
      heartbeat: HEARTBEAT,
    });
    this.number = number;
    if (this.output !== null) passLinesOn(this.output, output);
    void this.ended.then(close);
  }
}
