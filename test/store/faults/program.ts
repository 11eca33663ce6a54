import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { findProgram } from "../../deploy/programs.ts";
import { owner } from "../../engine/postgres/binaries.ts";
import type { Teardown } from "../kit.ts";

/** A program of the system, which can be killed and started again. */
export class SystemProgram {
  readonly #command: readonly [string, ...string[]];
  #child: ChildProcess | undefined;

  private constructor(command: readonly [string, ...string[]]) {
    this.#command = command;
  }

  /** Undefined if this machine lacks the program. */
  static find(t: Teardown, name: string, flags: readonly string[]): SystemProgram | undefined {
    const file = findProgram(name);
    if (file === undefined) return undefined;
    const program = new SystemProgram([file, ...flags]);
    t.teardown(() => program.stop());
    return program;
  }

  get isRunning(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  /** Starts it as an unprivileged user. */
  start(): void {
    const [file, ...flags] = this.#command;
    const env = { PATH: process.env.PATH, LC_ALL: "C.UTF-8", HOME: "/nonexistent" };
    this.#child = spawn(file, flags, { ...owner, env, stdio: "ignore" });
  }

  async stop(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill(signal);
    await exit;
  }
}
