import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { childrenOf } from "../../test/kit/process-info.ts";

/** Clock ticks per second of `/proc/<pid>/stat` on every Linux. */
const TICKS_PER_SECOND = 100;
const READY_ATTEMPTS = 200;
const RETRY_MS = 50;

const running = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});
// A benchmark that is stopped early leaves no server behind.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => process.exit(1));
}

/** A process of a measurement. */
export class Program {
  readonly child: ChildProcess;
  #output = "";

  /** @param core the core to pin it to; undefined for any */
  constructor(command: string, flags: readonly string[], core?: number, env?: NodeJS.ProcessEnv) {
    const pinned = core === undefined ? [] : ["taskset", "-c", String(core)];
    const [first = command, ...rest] = [...pinned, command, ...flags];
    this.child = spawn(first, rest, { stdio: ["ignore", "pipe", "pipe"], env: env ?? process.env });
    running.add(this.child);
    this.child.once("exit", () => running.delete(this.child));
    const keep = (text: string) => (this.#output = (this.#output + text).slice(-100_000));
    this.child.stdout?.setEncoding("utf8").on("data", keep);
    this.child.stderr?.setEncoding("utf8").on("data", keep);
  }

  /** Recent output. */
  get output(): string {
    return this.#output;
  }

  /** Waits for a matching line and returns its first group. */
  async printed(pattern: RegExp, attempts = READY_ATTEMPTS): Promise<string> {
    for (let attempt = 0; attempt < attempts; attempt++) {
      const found = pattern.exec(this.#output)?.[1];
      if (found !== undefined) return found;
      if (this.child.exitCode !== null) break;
      // Notified at once, so that start times are not rounded up to the polling interval.
      const signal = AbortSignal.timeout(RETRY_MS);
      await once(this.child.stdout ?? this.child, "data", { signal }).catch(() => {});
    }
    throw new Error(`${this.child.spawnargs.join(" ")} did not start:\n${this.#output}`);
  }

  async listening(port: number): Promise<void> {
    for (let attempt = 0; attempt < READY_ATTEMPTS; attempt++) {
      if (this.child.exitCode !== null) break;
      if (await accepts(port)) return;
      await wait(RETRY_MS);
    }
    throw new Error(`${this.child.spawnargs.join(" ")} does not listen:\n${this.#output}`);
  }

  /** Seconds of user and system time so far. */
  cpuSeconds(): number {
    return cpuSecondsOf(this.child.pid ?? 0);
  }

  residentMegabytes(): number {
    const status = readFileSync(`/proc/${this.child.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024;
  }

  /** Kills it. */
  async stop(): Promise<void> {
    await this.#signal("SIGKILL");
  }

  /** Stops it gracefully, with its children. */
  async end(): Promise<void> {
    await this.#signal("SIGTERM");
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exit = once(this.child, "exit");
    this.child.kill(signal);
    await exit;
  }
}

/**
 * Seconds of user and system time of a process so far, optionally with those of its ended children.
 */
export function cpuSecondsOf(pid: number, withEnded = false): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const ticks = fields.slice(11, withEnded ? 15 : 13);
  return ticks.reduce((sum, count) => sum + Number(count), 0) / TICKS_PER_SECOND;
}

/** Seconds of user and system time of a process and all below it so far. */
export function treeSeconds(pid: number): number {
  const children = childrenOf(pid).map((child) => {
    try {
      return treeSeconds(child);
    } catch {
      // It has ended in the meantime, so its parent's time contains it.
      return 0;
    }
  });
  return children.reduce((sum, seconds) => sum + seconds, cpuSecondsOf(pid, true));
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
