import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Log } from "../observe/log.ts";
import { parseTarget, type UpstreamTarget } from "./target.ts";

/** The engine that the gateway runs as a process of its own while no upstream is configured. */
export interface EmbeddedEngine {
  readonly target: UpstreamTarget;
  /** Lets the engine finish what it is doing, then ends it. */
  close(): Promise<void>;
}

/** Where the engine is found, and where it keeps its databases. */
export interface EngineAddress {
  readonly target: UpstreamTarget;
  readonly dataDirectory: string;
}

export interface EmbeddedEngineOptions {
  /** The directory of the databases' files. */
  readonly dataDirectory: string;
  readonly log: Log;
}

const program = fileURLToPath(new URL("../../bin/gatehouse.js", import.meta.url));
/** The shortest bound of any system, macOS's 104 bytes with the end marker. */
const SOCKET_PATH_BYTES = 103;
const START_TIMEOUT_MS = 15_000;
const CLOSE_TIMEOUT_MS = 10_000;
const FIRST_RESTART_MS = 100;
const LAST_RESTART_MS = 5000;

/** Secrets of the gateway that the engine has no use for. */
function engineEnvironment(): NodeJS.ProcessEnv {
  const { GATEHOUSE_ADMIN_PASSWORD: _, GATEHOUSE_ENGINE_AUTHORIZATION: __, ...rest } = process.env;
  return rest;
}

/**
 * Starts the process. It is in a session of its own, so that a terminal's Ctrl-C reaches the
 * gateway alone, and it ends when the channel to the gateway closes, however that ends.
 */
function spawnEngine(dataDirectory: string, socketPath: string): ChildProcess {
  const flags = ["engine", "--url", `sqlite:${dataDirectory}`, "--listen", `unix:${socketPath}`];
  return spawn(process.execPath, [program, ...flags], {
    detached: true,
    env: engineEnvironment(),
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
}

/**
 * A path for the engine's socket that nobody else can reach: beside the data, or, since the path
 * of a Unix socket must be short, in a directory of its own under the temporary one.
 */
async function privateSocket(
  dataDirectory: string,
): Promise<{ socketPath: string; removeSocket: () => Promise<void> }> {
  const name = `engine-${process.pid}.sock`;
  const beside = path.join(path.dirname(dataDirectory), name);
  if (Buffer.byteLength(beside) <= SOCKET_PATH_BYTES) {
    return { socketPath: beside, removeSocket: () => rm(beside, { force: true }) };
  }
  const directory = await mkdtemp(path.join(tmpdir(), "gatehouse-"));
  const removeSocket = () => rm(directory, { recursive: true, force: true });
  return { socketPath: path.join(directory, name), removeSocket };
}

/** Resolves when the engine listens. @throws Error if it ends or stays silent before that */
async function whenReady(engine: ChildProcess): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(
    () => reject(new Error("the engine did not start in time; see its log above")),
    START_TIMEOUT_MS,
  );
  const onExit = () =>
    reject(new Error("the engine ended while it was starting; see its log above"));
  engine.once("message", () => resolve());
  engine.once("exit", onExit);
  engine.once("error", reject);
  try {
    await promise;
  } finally {
    clearTimeout(timer);
    engine.off("exit", onExit);
  }
}

/** Resolves when the process has ended, or could not be started at all. */
async function whenEnded(engine: ChildProcess): Promise<Record<string, unknown>> {
  try {
    const [code, signal] = await once(engine, "exit");
    return { code, signal };
  } catch (error) {
    return { reason: error instanceof Error ? error.message : "unknown" };
  }
}

/**
 * Starts the engine on a private Unix socket and starts it again whenever it dies.
 *
 * @throws Error if it does not come up the first time
 */
export async function startEmbeddedEngine(options: EmbeddedEngineOptions): Promise<EmbeddedEngine> {
  const { dataDirectory, log } = options;
  const { socketPath, removeSocket } = await privateSocket(dataDirectory);
  let isClosing = false;
  let engine = spawnEngine(dataDirectory, socketPath);

  async function supervise(): Promise<void> {
    let pause = FIRST_RESTART_MS;
    while (!isClosing) {
      const startedAt = performance.now();
      const ending = await whenEnded(engine);
      if (isClosing) return;
      if (performance.now() - startedAt > LAST_RESTART_MS) pause = FIRST_RESTART_MS;
      log.error({ ...ending, restartInMs: pause }, "the engine died and is started again");
      await delay(pause);
      pause = Math.min(pause * 2, LAST_RESTART_MS);
      if (isClosing) return;
      engine = spawnEngine(dataDirectory, socketPath);
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
    await whenReady(engine);
  } catch (error) {
    await close();
    throw error;
  }
  void supervise();
  return { target: parseTarget(`unix:${socketPath}`), close };
}
