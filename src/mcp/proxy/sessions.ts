import { hash } from "node:crypto";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { openWalDatabase } from "../../files/wal-database.ts";
import type { BodyFilter } from "../../upstream/answer-stream.ts";
import { type McpMessage, McpRefused } from "../message.ts";

/** Milliseconds to wait for another gateway that uses the file, such as one that still drains. */
const BUSY_MS = 1000;

/**
 * Owners of sessions, in an SQLite file that outlives the gateway. Records survive a killed
 * process. A power cut may lose the latest ones, and their clients begin new sessions.
 */
export class SessionFile {
  readonly #database: DatabaseSync;
  readonly #put: StatementSync;
  readonly #drop: StatementSync;
  readonly #onFailure: (error: unknown) => void;

  /**
   * @param onFailure called when a session could not be written. It stays known until the gateway
   * ends.
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

interface SessionLimits {
  /** Sessions in total. When full, the session that is idle longest is forgotten. */
  readonly most: number;
  readonly mostPerUser: number;
  /** Milliseconds without a request or an open stream until a session is forgotten. */
  readonly idle: number;
}

export const usualLimits: SessionLimits = { most: 10_000, mostPerUser: 100, idle: 60 * 60 * 1000 };

/** Owners of sessions, kept here or in another process. */
export interface SessionRegister {
  /** Assigns a new session to the user. False if it belongs to another user. */
  open(id: string, username: string): boolean | Promise<boolean>;
  /** True if the session belongs to the user. Counts as a use. */
  use(id: string, username: string): boolean | Promise<boolean>;
  end(id: string): void;
}

/** Hashes the id, so that a reader of the store cannot use the session. */
function keyOf(id: string): string {
  return hash("sha256", id, "base64url");
}

interface Session {
  readonly username: string;
  usedAt: number;
}

/**
 * Owners of the upstream server's sessions. An unknown session belongs to no one: its client gets
 * 404 and begins a new one.
 */
export class Sessions implements SessionRegister {
  readonly #limits: SessionLimits;
  readonly #now: () => number;
  readonly #records: SessionFile | undefined;
  /** By key, least recently used first. */
  readonly #sessions = new Map<string, Session>();

  /**
   * @param now milliseconds on a monotonic clock
   * @param records keeps sessions across restarts. Loaded sessions count as used just now.
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

const member = '"taskId"';
/** A `taskId` member. In quoted JSON the quote follows a backslash. */
const named = /(?<!\\)"taskId"\s*:\s*("(?:[^"\\]|\\.){1,256}")/;
/** Larger than the longest `taskId` member, in bytes. */
const WINDOW = 2048;
const nothing = Buffer.alloc(0);

/**
 * Prefix of task ids in the session register. No header can contain it, so they never collide with
 * session ids.
 */
const mark = "\n";

export function taskKey(id: string): string {
  return `${mark}${id}`;
}

/** Combines two registers, so that sessions and tasks have separate limits. */
export function ownersOf(sessions: SessionRegister, tasks: SessionRegister): SessionRegister {
  const registerOf = (id: string) => (id.startsWith(mark) ? tasks : sessions);
  return {
    open: (id, username) => registerOf(id).open(id, username),
    use: (id, username) => registerOf(id).use(id, username),
    end: (id) => registerOf(id).end(id),
  };
}

/**
 * Passes a tool's response on unchanged. The first task that it names is assigned to the caller
 * before the client learns of it. A task of another user keeps its owner.
 */
export class TaskNotes implements BodyFilter {
  readonly #sessions: SessionRegister;
  readonly #username: string;
  #tail = nothing;
  #isFound = false;

  constructor(sessions: SessionRegister, username: string) {
    this.#sessions = sessions;
    this.#username = username;
  }

  pass(piece: Buffer): Buffer | Promise<Buffer> {
    if (this.#isFound) return piece;
    const seen = this.#tail.length === 0 ? piece : Buffer.concat([this.#tail, piece]);
    this.#tail = Buffer.from(seen.subarray(-WINDOW));
    const [, id] = (seen.includes(member) && named.exec(seen.toString("utf8"))) || [];
    if (id === undefined) return piece;
    this.#isFound = true;
    const opened = this.#sessions.open(taskKey(readId(id)), this.#username);
    return opened instanceof Promise ? opened.then(() => piece) : piece;
  }

  end(): Buffer {
    return nothing;
  }
}

function readId(json: string): string {
  try {
    return String(JSON.parse(json));
  } catch {
    return "";
  }
}

/**
 * Only the user whose call created a task may access it.
 *
 * @throws McpRefused `invalidParams`, the same as for a task that does not exist
 */
export async function requireOwnTask(
  sessions: SessionRegister,
  { method, name, id }: McpMessage,
  username: string,
): Promise<void> {
  if (!method.startsWith("tasks/") || name === undefined) return;
  if (await sessions.use(taskKey(name), username)) return;
  throw new McpRefused("invalidParams", "Invalid params: Task not found", { status: 200, id });
}
