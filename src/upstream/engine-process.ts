import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, realpathSync } from "node:fs";
import { mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { messageOf } from "../client-error.ts";
import { watchHeartbeat } from "../ipc/heartbeat.ts";
import type { Log } from "../observe/log.ts";
import { parseTarget } from "./target.ts";

export interface EngineOptions {
  /** The database, in the form that `gatehouse engine --url` accepts. May contain a password. */
  readonly url: string;
  readonly flags: readonly string[];
  readonly directory: string;
  readonly log: Log;
}

const program = fileURLToPath(new URL("../../bin/gatehouse.js", import.meta.url));
/** The lowest limit of all systems: 104 bytes with the terminator, on macOS. */
const SOCKET_PATH_BYTES = 103;
const START_TIMEOUT_MS = 30_000;
const CLOSE_TIMEOUT_MS = 10_000;
const FIRST_RESTART_MS = 100;
const LAST_RESTART_MS = 5000;
/** Consecutive pings, one per second, that may go unanswered. */
const MAX_MISSED_BEATS = 10;

/**
 * Starts the process in its own session, so that Ctrl-C on a terminal reaches only the gateway. It
 * exits when its channel to the gateway closes, even if the gateway crashes.
 */
function spawnEngine({ url, flags }: EngineOptions, socketPath: string): ChildProcess {
  // Secrets that the engine does not need are removed.
  const { GATEHOUSE_ADMIN_PASSWORD: _, GATEHOUSE_ENGINE_AUTHORIZATION: __, ...rest } = process.env;
  return spawn(process.execPath, [program, "engine", "--listen", `unix:${socketPath}`, ...flags], {
    detached: true,
    // Only this user can read the environment.
    env: { ...rest, GATEHOUSE_ENGINE_URL: url },
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
}

/** In a private temporary directory if the path would be too long for a Unix socket. */
async function privateSocket(
  directory: string,
): Promise<{ socketPath: string; removeSocket: () => Promise<void> }> {
  const name = `engine-${process.pid}.sock`;
  const beside = path.join(directory, name);
  if (Buffer.byteLength(beside) <= SOCKET_PATH_BYTES) {
    return { socketPath: beside, removeSocket: () => rm(beside, { force: true }) };
  }
  const own = await mkdtemp(path.join(tmpdir(), "gatehouse-"));
  const socketPath = path.join(own, name);
  // Lets commands find the socket.
  await rm(beside, { force: true });
  await symlink(socketPath, beside);
  const removeSocket = async () => {
    await rm(beside, { force: true });
    await rm(own, { recursive: true, force: true });
  };
  return { socketPath, removeSocket };
}

/** Sockets of engines started for this directory. Some may no longer exist. */
export function engineSockets(directory: string): string[] {
  const names = readdirSync(directory).filter((name) => /^engine-\d+\.sock$/.test(name));
  return names.flatMap((name) => {
    try {
      return [realpathSync(path.join(directory, name))];
    } catch {
      return [];
    }
  });
}

/** @throws Error if it exits or stays silent */
async function whenReady(engine: ChildProcess): Promise<void> {
  const signal = AbortSignal.timeout(START_TIMEOUT_MS);
  const ended = once(engine, "exit").then(() => "exited while it was starting");
  const ready = once(engine, "message", { signal }).then(() => undefined);
  const failure = await Promise.race([ready, ended]).catch((error: unknown) => {
    if (signal.aborted) return "did not start in time";
    throw error;
  });
  if (failure !== undefined) throw new Error(`the engine ${failure}; see its log above`);
}

async function whenEnded(engine: ChildProcess): Promise<Record<string, unknown>> {
  try {
    const [code, signal] = await once(engine, "exit");
    return { code, signal };
  } catch (error) {
    return { reason: messageOf(error) };
  }
}

/**
 * Starts an engine on a private Unix socket and restarts it whenever it dies or hangs. `close` lets
 * it finish its work, then stops it.
 *
 * @throws Error if the first start fails
 */
export async function startEngine(options: EngineOptions) {
  const { directory, log } = options;
  const { socketPath, removeSocket } = await privateSocket(directory);
  let isClosing = false;
  let engine = spawnEngine(options, socketPath);

  async function begin(started: ChildProcess): Promise<void> {
    await whenReady(started);
    watchHeartbeat(started, { maxMissed: MAX_MISSED_BEATS }, () => {
      log.error("the engine does not respond: it is killed");
      started.kill("SIGKILL");
    });
  }

  async function supervise(): Promise<void> {
    let pause = FIRST_RESTART_MS;
    while (!isClosing) {
      const startedAt = performance.now();
      const ending = await whenEnded(engine);
      if (isClosing) return;
      if (performance.now() - startedAt > LAST_RESTART_MS) pause = FIRST_RESTART_MS;
      log.error({ ...ending, restartInMs: pause }, "the engine exited and is restarted");
      await delay(pause);
      pause = Math.min(pause * 2, LAST_RESTART_MS);
      if (isClosing) return;
      engine = spawnEngine(options, socketPath);
      const started = engine;
      begin(started).catch(() => started.kill("SIGKILL"));
    }
  }

  async function close(): Promise<void> {
    isClosing = true;
    if (engine.pid !== undefined && engine.exitCode === null && engine.signalCode === null) {
      const exit = once(engine, "exit");
      if (engine.connected) engine.disconnect();
      const timer = setTimeout(() => engine.kill("SIGKILL"), CLOSE_TIMEOUT_MS);
      await exit;
      clearTimeout(timer);
    }
    await removeSocket();
  }

  try {
    await begin(engine);
  } catch (error) {
    await close();
    throw error;
  }
  void supervise();
  return { target: parseTarget(`unix:${socketPath}`), close };
}
