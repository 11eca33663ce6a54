import { closeSync, existsSync, openSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { giveToDirectoryOwner } from "./guarded.ts";

export interface LockOptions {
  /** True if the lock is also given while the disk is full, to a holder that can go on reading. */
  readonly mayBeFull?: boolean;
  /** Milliseconds for which another holder is waited for; ten seconds by default. */
  readonly wait?: number;
}

/** Another writer held the lock for too long. */
export class LockTimeoutError extends Error {
  constructor(file: string) {
    super(`another process is writing ${file}`);
    this.name = "LockTimeoutError";
  }
}

const WAIT_MS = 10_000;
const RETRY_MS = 10;
/** SQLite's result code where another connection has the file locked. */
export const SQLITE_BUSY = 5;
/** SQLite's result codes for a file that may not, or for want of room cannot, be written. */
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const sqliteRefusals = new Set([SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN]);
const systemRefusals = new Set(["EROFS", "EACCES", "EPERM", "ENOSPC", "EDQUOT", "EIO"]);

/** SQLite's primary result code of an error, without the extension. */
export function resultCode(error: unknown): number | undefined {
  if (!(error instanceof Error && "errcode" in error)) return undefined;
  return typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
}

function isRefusedBySystem(error: unknown): boolean {
  return error instanceof Error && "code" in error && systemRefusals.has(String(error.code));
}

/** The directory does not let a lock be made in it, or has no room for one. */
export class LockRefusedError extends Error {
  constructor(file: string, cause: unknown) {
    super(`no lock can be made beside ${file}`, { cause });
    this.name = "LockRefusedError";
  }
}

/** The lock of `file`; it stays beside it once there was a writer. */
export function lockFileOf(file: string): string {
  return path.join(path.dirname(file), `.${path.basename(file)}.lock`);
}

/**
 * Makes the lock file, for nobody else to open. One that is there is not opened: to close any
 * descriptor of a file drops every lock that this process has on it (POSIX, fcntl).
 */
function makePrivate(lock: string): void {
  if (!existsSync(lock)) closeSync(openSync(lock, "a", 0o600));
}

/** The open, locked file; undefined while somebody else holds the lock. */
function tryToLock(lock: string, file: string, mayBeFull: boolean): DatabaseSync | undefined {
  let database: DatabaseSync | undefined;
  try {
    makePrivate(lock);
    database = new DatabaseSync(lock, { timeout: 0 });
    // Nothing is ever written, but SQLite wants room for a journal, as whoever writes wants room.
    if (mayBeFull) database.exec("PRAGMA journal_mode = MEMORY");
    database.exec("BEGIN EXCLUSIVE");
    giveToDirectoryOwner(lock);
    return database;
  } catch (error) {
    database?.close();
    const code = resultCode(error);
    if (code === SQLITE_BUSY) return undefined;
    const isRefused = code !== undefined && sqliteRefusals.has(code);
    if (isRefused || isRefusedBySystem(error)) throw new LockRefusedError(file, error);
    throw error;
  }
}

async function acquire(
  file: string,
  { mayBeFull = false, wait = WAIT_MS }: LockOptions,
): Promise<DatabaseSync> {
  const lock = lockFileOf(file);
  const deadline = performance.now() + wait;
  for (;;) {
    const database = tryToLock(lock, file, mayBeFull);
    if (database !== undefined) return database;
    if (performance.now() > deadline) throw new LockTimeoutError(file);
    await delay(RETRY_MS);
  }
}

/**
 * Runs `work` while no other process and no other caller in this one does the same for `file`.
 * The lock is the operating system's own on an empty SQLite file beside `file`, so that a holder
 * that is killed leaves nothing to clean up and nothing to guess the age of.
 *
 * @throws LockTimeoutError if another holds it for too long, LockRefusedError if the directory is read-only or full
 */
export async function withLock<T>(
  file: string,
  work: () => Promise<T>,
  options: LockOptions = {},
): Promise<T> {
  const database = await acquire(file, options);
  try {
    return await work();
  } finally {
    database.close();
  }
}
