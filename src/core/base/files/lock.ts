import { closeSync, existsSync, openSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { Turns } from "../queues.ts";
import { appendFlags, giveToDirectoryOwner, isStorageError, replaceFile } from "./guarded.ts";

export class LockTimeoutError extends Error {
  constructor(file: string) {
    super(`another process is writing ${file}`);
    this.name = "LockTimeoutError";
  }
}

const WAIT_MS = 10_000;
const RETRY_MS = 10;
/** For a caller whose turn comes late, since others of this process had the lock before. */
const LEAST_WAIT_MS = 500;

interface Queue {
  readonly turns: Turns;
  /** True if another process kept the lock too long. Then callers whose wait has ended try only once. */
  isStuck: boolean;
}

/** Callers of this process by file. Thousands that each try again and again would block it. */
const queues = new Map<string, Queue>();
/** SQLite's result code if another connection has locked the file. */
export const SQLITE_BUSY = 5;

export function resultCode(error: unknown): number | undefined {
  if (!(error instanceof Error && "errcode" in error)) return undefined;
  return typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
}

export class LockRefusedError extends Error {
  constructor(file: string, cause: unknown) {
    super(`cannot create or use the lock file ${lockFilePath(file)}`, { cause });
    this.name = "LockRefusedError";
  }
}

/** The lock file of `file`, which stays beside it after the first write. */
export function lockFilePath(file: string): string {
  return path.join(path.dirname(file), `.${path.basename(file)}.lock`);
}

/**
 * Creates the lock file, which only its owner can open. An existing one must not be opened: closing
 * any descriptor of a file drops every lock of this process on it (POSIX, fcntl).
 */
function makePrivate(lock: string): void {
  if (!existsSync(lock)) closeSync(openSync(lock, appendFlags(lock), 0o600));
}

/** Returns the open, locked file; undefined while another holder has the lock. */
function tryToLock(lock: string, file: string, mayBeFull: boolean): DatabaseSync | undefined {
  let database: DatabaseSync | undefined;
  try {
    makePrivate(lock);
    database = new DatabaseSync(lock, { timeout: 0 });
    // Nothing is ever written, but SQLite wants room for a journal on disk.
    if (mayBeFull) database.exec("PRAGMA journal_mode = MEMORY");
    database.exec("BEGIN EXCLUSIVE");
    giveToDirectoryOwner(lock);
    return database;
  } catch (error) {
    database?.close();
    const code = resultCode(error);
    if (code === SQLITE_BUSY) return undefined;
    // SQLite reports a read-only directory, a full disk, and a file that is no database.
    if (code !== undefined || isStorageError(error)) throw new LockRefusedError(file, error);
    throw error;
  }
}

async function acquire(file: string, wait: number, mayBeFull: boolean): Promise<DatabaseSync> {
  const lock = lockFilePath(file);
  const deadline = performance.now() + wait;
  for (;;) {
    const database = tryToLock(lock, file, mayBeFull);
    if (database !== undefined) return database;
    if (performance.now() > deadline) throw new LockTimeoutError(file);
    await delay(RETRY_MS);
  }
}

/**
 * Runs `work` while no other process and no other caller in this one does so for `file`. The lock
 * is the operating system's own lock on an empty SQLite file beside `file`. A killed holder
 * therefore leaves nothing to clean up and no stale lock to detect.
 *
 * @throws LockTimeoutError if another holder keeps it too long, LockRefusedError if the directory
 * is read-only or full
 */
export function withLock<T>(file: string, work: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + WAIT_MS;
  const name = path.resolve(file);
  const queue = queues.get(name) ?? { turns: new Turns(), isStuck: false };
  queues.set(name, queue);
  return queue.turns.run(async () => {
    const least = queue.isStuck ? 0 : LEAST_WAIT_MS;
    queue.isStuck = true;
    const database = await acquire(file, Math.max(deadline - performance.now(), least), false);
    queue.isStuck = false;
    try {
      return await work();
    } finally {
      database.close();
    }
  });
}

/**
 * Takes the lock of `withLock` until the returned function is called or the process ends, also on a
 * full disk, for a holder that can still read.
 *
 * @param wait milliseconds to wait for another holder
 */
export async function takeLock(file: string, wait: number = WAIT_MS): Promise<() => void> {
  const database = await acquire(file, wait, true);
  return () => database.close();
}

/** Creates a file (0600), unless there is one. No process sees a part of it, and the first wins. */
export async function createOnce(file: string, content: string | Buffer): Promise<void> {
  await withLock(file, async () => {
    if (!existsSync(file)) await replaceFile(file, content);
  });
}
