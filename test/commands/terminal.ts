/** Commands on a terminal of their own, which util-linux's script(1) makes. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import type { Test } from "tap";
import { shellQuoted } from "../../src/core/base/files/guarded.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { cleanEnvironment, gatehouseCommand } from "../kit/process.ts";

/** Why there is no terminal to be had here; false if there is one. */
export const noTerminal =
  spawnSync("script", ["-qec", "true", "/dev/null"]).status === 0
    ? false
    : "script(1) of util-linux is not installed";

export class Terminal {
  readonly #child: ChildProcess;
  /** When it has ended and all that it showed has come. */
  readonly #end: Promise<unknown>;
  #isOver = false;
  shown = "";
  #read = 0;

  constructor(t: Test, home: string, flags: readonly string[], env: NodeJS.ProcessEnv = {}) {
    const [through, rest] = gatehouseCommand(flags);
    const command = [through, ...rest].map(shellQuoted).join(" ");
    this.#child = spawn("script", ["-qefc", `exec ${command}`, "/dev/null"], {
      cwd: home,
      env: cleanEnvironment(home, env),
      stdio: ["pipe", "pipe", "inherit"],
      timeout: PATIENCE_MS,
    });
    this.#end = once(this.#child, "close").then(() => {
      this.#isOver = true;
    });
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.shown += text.replaceAll("\r", "");
    });
    t.teardown(() => this.#child.kill("SIGKILL"));
  }

  /** Resolves once the terminal shows `pattern` after what was awaited before. */
  async until(pattern: RegExp): Promise<void> {
    for (;;) {
      const found = pattern.exec(this.shown.slice(this.#read));
      if (found !== null) {
        this.#read += found.index + found[0].length;
        return;
      }
      const { stdout } = this.#child;
      if (this.#isOver || stdout === null) {
        throw new Error(`${pattern} was never shown:\n${this.shown}`);
      }
      await Promise.race([once(stdout, "data"), this.#end]);
    }
  }

  type(keys: string): void {
    this.#child.stdin?.write(keys);
  }

  async ended(): Promise<number | null> {
    await this.#end;
    return this.#child.exitCode;
  }
}

export const CTRL_C = "\x03";
export const CTRL_D = "\x04";
