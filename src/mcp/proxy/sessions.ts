import { hash } from "node:crypto";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { openWalDatabase } from "../../files/wal-database.ts";

/** Milliseconds to wait for another gateway on the same file, such as one that still drains. */
const BUSY_MS = 1000;

/**
 * Whose each session is, in an SQLite file that outlives the gateway. A session that is noted is
 * there after the process was killed; those of the last moments before a power cut begin anew.
 */
export class SessionFile {
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

  /** All of them, in the order in which they began. */
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

/** How many sessions are remembered, and for how long. */
interface SessionLimits {
  /** Sessions at one time; past it, those that were idle longest are forgotten. */
  readonly most: number;
  /** Sessions of one user at one time. */
  readonly mostPerUser: number;
  /** Milliseconds without a request or an open stream after which a session is forgotten. */
  readonly idle: number;
}

/** The limits unless others are given. */
export const usualLimits: SessionLimits = { most: 10_000, mostPerUser: 100, idle: 60 * 60 * 1000 };

/** Whose each session is, kept here or in another process. */
export interface SessionRegister {
  /** Remembers a new session as the user's; false if it is another user's already. */
  open(id: string, username: string): boolean | Promise<boolean>;
  /** True if the session is the user's; it counts as used then. */
  use(id: string, username: string): boolean | Promise<boolean>;
  end(id: string): void;
}

/** What a session is known by: nobody can use it who reads where that is kept. */
function keyOf(id: string): string {
  return hash("sha256", id, "base64url");
}

interface Session {
  readonly username: string;
  usedAt: number;
}

/**
 * Whose each session of the server behind is. A session that is not remembered is nobody's: its
 * client is told that it is over, and begins another one.
 */
export class Sessions implements SessionRegister {
  readonly #limits: SessionLimits;
  readonly #now: () => number;
  readonly #records: SessionFile | undefined;
  /** By their keys, in the order of their last use, the idlest first. */
  readonly #sessions = new Map<string, Session>();

  /**
   * @param now milliseconds on a clock that does not jump
   * @param records keeps them for a gateway that is started later; those that it holds count as
   *   used just now
   */
  constructor(
    limits: SessionLimits = usualLimits,
    now: () => number = () => performance.now(),
    records?: SessionFile,
  ) {
    this.#limits = limits;
    this.#now = now;
    for (const [key, username] of records?.all() ?? []) {
      this.#sessions.set(key, { username, usedAt: now() });
    }
    this.#records = records;
  }

  get size(): number {
    return this.#sessions.size;
  }

  open(id: string, username: string): boolean {
    this.#forgetIdle();
    const key = keyOf(id);
    const known = this.#sessions.get(key);
    if (known !== undefined && known.username !== username) return false;
    this.#sessions.delete(key);
    this.#makeRoom(username);
    this.#sessions.set(key, { username, usedAt: this.#now() });
    this.#records?.put(key, username);
    return true;
  }

  use(id: string, username: string): boolean {
    this.#forgetIdle();
    const key = keyOf(id);
    const session = this.#sessions.get(key);
    if (session?.username !== username) return false;
    session.usedAt = this.#now();
    this.#sessions.delete(key);
    this.#sessions.set(key, session);
    return true;
  }

  end(id: string): void {
    this.#forget(keyOf(id));
  }

  #forget(key: string): void {
    if (this.#sessions.delete(key)) this.#records?.drop(key);
  }

  #forgetIdle(): void {
    const oldest = this.#now() - this.#limits.idle;
    for (const [key, { usedAt }] of this.#sessions) {
      if (usedAt > oldest) return;
      this.#forget(key);
    }
  }

  #makeRoom(username: string): void {
    const own = [...this.#sessions].filter(([, session]) => session.username === username);
    const [first] = this.#sessions.keys();
    const [ownFirst] = own[0] ?? [];
    if (own.length >= this.#limits.mostPerUser && ownFirst !== undefined) this.#forget(ownFirst);
    else if (this.#sessions.size >= this.#limits.most && first !== undefined) this.#forget(first);
  }
}
