import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { PATIENCE_MS } from "./eventually.ts";
import { type NodeStart, nodeCommand } from "./node.ts";

export const projectRoot = fileURLToPath(new URL("../..", import.meta.url));

export function gatehouseCommand(
  flags: readonly string[],
  options: NodeStart = {},
  root = projectRoot,
): [program: string, flags: string[]] {
  return nodeCommand([path.join(root, "bin/gatehouse.js"), ...flags], options);
}

export interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

export function cleanEnvironment(home: string, extra: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const { GATEHOUSE_CONFIG: _, GATEHOUSE_ADMIN_PASSWORD: __, ...rest } = process.env;
  return {
    ...rest,
    HOME: home,
    GATEHOUSE_HOME: home,
    NO_COLOR: "1",
    ...extra,
  };
}

interface CommandOptions {
  input?: string | Buffer;
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** A program with flags that runs the command, such as `prlimit`. */
  through?: readonly string[];
  root?: string;
}

export async function runCommand(
  home: string,
  flags: string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  const { env = {}, through, root } = options;
  const command = gatehouseCommand(flags, { options: env.NODE_OPTIONS, through }, root);
  const child = spawn(...command, {
    cwd: options.cwd ?? home,
    env: cleanEnvironment(home, env),
    timeout: PATIENCE_MS,
  });
  const result: CommandResult = { code: null, stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text: string) => (result.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (result.stderr += text));
  // It may have ended without reading its input.
  child.stdin.on("error", () => {}).end(options.input ?? "");
  await once(child, "close");
  result.code = child.exitCode;
  return result;
}

export class Service {
  readonly child: ChildProcess;
  readonly log: Record<string, unknown>[] = [];
  output = "";
  readonly #waiting = new Set<() => void>();
  /** Resolved when its output is complete, which may be after its exit. */
  readonly #end = Promise.withResolvers<void>();
  #isOver = false;

  /**
   * @param through a program with flags that runs it, such as `nsenter`
   * @param root a copy of the project
   */
  constructor(
    home: string,
    flags: string[],
    env: NodeJS.ProcessEnv = {},
    through: readonly string[] = [],
    root?: string,
  ) {
    const command = gatehouseCommand(flags, { options: env.NODE_OPTIONS, through }, root);
    this.child = spawn(...command, {
      cwd: home,
      env: cleanEnvironment(home, env),
      stdio: ["ignore", "pipe", "pipe"],
    });
    let unread = "";
    this.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.output += text;
      const lines = (unread + text).split("\n");
      unread = lines.pop() ?? "";
      for (const line of lines) if (line.startsWith("{")) this.log.push(JSON.parse(line));
      for (const look of this.#waiting) look();
    });
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => (this.output += text));
    this.child.once("close", () => {
      this.#isOver = true;
      this.#end.resolve();
      for (const look of this.#waiting) look();
    });
  }

  /** The first log line that fits, even a future one. */
  async logged(
    fits: (line: Record<string, unknown>) => boolean,
    timeout = PATIENCE_MS,
  ): Promise<Record<string, unknown>> {
    const { promise, resolve, reject } = Promise.withResolvers<Record<string, unknown>>();
    const look = () => {
      const line = this.log.find(fits);
      if (line !== undefined) resolve(line);
      else if (this.#isOver) reject(new Error(`it ended:\n${this.output}`));
    };
    const timer = setTimeout(() => reject(new Error(`not logged:\n${this.output}`)), timeout);
    this.#waiting.add(look);
    look();
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(look);
    }
  }

  /** Sends a signal and resolves to the exit code once `log` is complete. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
    this.child.kill(signal);
    await this.#end.promise;
    return this.child.exitCode;
  }
}
