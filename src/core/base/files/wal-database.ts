import { closeSync, fchmodSync, openSync, statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { errorMessage } from "../client-error.ts";
import { Turns } from "../queues.ts";
import { appendFlags } from "./guarded.ts";
import { resultCode, SQLITE_BUSY } from "./lock.ts";

const RETRY_MS = 5;
/** How long other processes are waited for. */
const BUSY_TIMEOUT_MS = 5000;

const SQLITE_CANTOPEN = 14;
/** SQLite's primary result codes for a disk without room. */
const noRoom = new Set([10, 13]);

function openIn(file: string, mode: "NORMAL" | "EXCLUSIVE", timeout: number): DatabaseSync {
  const deadline = performance.now() + timeout;
  for (;;) {
    const database = new DatabaseSync(file, { timeout });
    try {
      database.exec(`PRAGMA locking_mode = ${mode}; PRAGMA journal_mode = WAL`);
      // Reads the file, since setting the mode alone may not.
      database.exec("SELECT count(*) FROM sqlite_schema");
      return database;
    } catch (error) {
      database.close();
      // SQLite itself does not wait for another process that is creating the log at that moment.
      if (resultCode(error) !== SQLITE_BUSY || performance.now() > deadline) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
    }
  }
}

/**
 * Opens an SQLite file (0600) with a write-ahead log, for several processes at once. A full disk
 * has no room for the shared memory. This process then uses the file exclusively until it closes
 * it: it reads, and it writes once there is room.
 *
 * @param timeout milliseconds to wait for other processes
 * @throws Error that names the file and says what to do, if it cannot be used
 */
export function openWalDatabase(file: string, timeout = BUSY_TIMEOUT_MS): DatabaseSync {
  try {
    // SQLite gives the files that it creates beside it the same mode.
    const descriptor = openSync(file, appendFlags(file), 0o600);
    fchmodSync(descriptor, 0o600);
    closeSync(descriptor);
    try {
      return openIn(file, "NORMAL", timeout);
    } catch (error) {
      if (!noRoom.has(resultCode(error) ?? 0)) throw error;
      return openIn(file, "EXCLUSIVE", timeout);
    }
  } catch (cause) {
    const reason = errorMessage(cause);
    const hint =
      "if its disk is full, or was when the gateway started, free space and restart the gateway";
    throw new Error(`${file} cannot be opened (${reason}): ${hint}`, { cause });
  }
}

/**
 * Returns a function that calls `work` again until no other process has locked the database, since
 * SQLite blocks while it waits. One caller tries at a time, since thousands would block as well.
 * Throws once another file has the name, since what is written would be lost at the next start.
 */
export function waitForUnlock(database: DatabaseSync) {
  const turns = new Turns();
  const file = database.location() ?? "";
  const inode = statSync(file).ino;
  let waiting = 0;

  function attempt<Result>(work: () => Result): Result {
    if (statSync(file, { throwIfNoEntry: false })?.ino !== inode) {
      const problem = "it was moved or replaced; restart every process that uses it";
      throw Object.assign(new Error(problem), { errcode: SQLITE_CANTOPEN });
    }
    try {
      database.exec("PRAGMA busy_timeout = 0");
      return work();
    } finally {
      database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    }
  }

  return async <Result>(work: () => Result, since = performance.now()): Promise<Result> => {
    try {
      // No write overtakes an earlier one.
      if (waiting === 0) return attempt(work);
    } catch (error) {
      if (resultCode(error) !== SQLITE_BUSY) throw error;
    }
    waiting++;
    const turn = turns.run(async () => {
      for (let pauseMs = 0; ; pauseMs = RETRY_MS) {
        await delay(pauseMs);
        try {
          return attempt(work);
        } catch (error) {
          const isLate = performance.now() > since + BUSY_TIMEOUT_MS;
          if (isLate || resultCode(error) !== SQLITE_BUSY) throw error;
        }
      }
    });
    return turn.finally(() => waiting--);
  };
}
