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

/** Flags that make Node load modules before a program, for example an SDK for traces. */
const preload = /^(?:--import|--require|-r)(?<value>=.*)?$/s;

/**
 * The flags by which Node preloads modules. Other flags, such as a debugger's port, apply to one
 * process only.
 *
 * @param flags as in `process.execArgv`
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

/** Forwards text in whole lines. An unfinished last line is dropped. */
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
 * True if several processes may write to standard output. Files and terminals take each line whole,
 * but in a full pipe or socket lines would get mixed up.
 */
function mayShareOutput(): boolean {
  const output = fstatSync(1);
  return !output.isFIFO() && !output.isSocket();
}

/** Six missed seconds leave time to start another worker within ten. */
const HEARTBEAT = { missable: 6, missableAtStart: 60, whileIdle: true };

export class Worker extends ChildProgram<WorkerCalls, MainCalls, RefusalFailure> {
  /** From 1. */
  readonly number: number;

  /** @param output takes the log lines of a worker that cannot write them itself */
  constructor(number: number, { handlers, close }: WorkerHandlers, output: DestinationStream) {
    super(siblingModule(import.meta.url, "program"), {
      fork: {
        // The second flag is the one in `bin/gatehouse.js`.
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
