import type { DatabaseSync, StatementSync } from "node:sqlite";
import { openWalDatabase } from "../../files/wal-database.ts";

/** Milliseconds to wait for another gateway on the same file, such as one that still drains. */
const BUSY_MS = 1000;

/** Where it is kept whose each session is. */
export interface SessionRecords {
  /** All of them, in the order in which they began. */
  all(): readonly (readonly [key: string, username: string])[];
  put(key: string, username: string): void;
  drop(key: string): void;
}

/**
 * Whose each session is, in an SQLite file that outlives the gateway. A session that is noted is
 * there after the process was killed; those of the last moments before a power cut begin anew.
 */
export class SessionFile implements SessionRecords {
  readonly #database: DatabaseSync;
  readonly #put: StatementSync;
  readonly #drop: StatementSync;
  readonly #onFailure: (error: unknown) => void;

  /**
   * @param onFailure told when a session could not be noted: it is known until the gateway ends
   * @throws Error if the file cannot be used
   */
  constructor(file: string, onFailure: (error: unknown) => void) {
    this.#database = openWalDatabase(file, BUSY_MS);
    this.#database.exec(
      "PRAGMA synchronous = NORMAL;" +
        "CREATE TABLE IF NOT EXISTS sessions (key TEXT PRIMARY KEY, username TEXT NOT NULL) STRICT",
    );
    this.#put = this.#database.prepare("INSERT OR REPLACE INTO sessions VALUES (?, ?)");
    this.#drop = this.#database.prepare("DELETE FROM sessions WHERE key = ?");
    this.#onFailure = onFailure;
  }

  all(): (readonly [key: string, username: string])[] {
    const rows = this.#database.prepare("SELECT key, username FROM sessions ORDER BY rowid").all();
    return rows.map(({ key, username }) => [String(key), String(username)]);
  }

  put(key: string, username: string): void {
    this.#try(() => this.#put.run(key, username));
  }

  drop(key: string): void {
    this.#try(() => this.#drop.run(key));
  }

  close(): void {
    this.#database.close();
  }

  #try(write: () => void): void {
    try {
      write();
    } catch (error) {
      this.#onFailure(error);
    }
  }
}
