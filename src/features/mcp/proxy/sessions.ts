import { openWalDatabase } from "../../../core/base/files/wal-database.ts";
import { Sums } from "../../../core/base/queues.ts";
import { hashId } from "../../../core/base/sealed-bytes.ts";
import { parseIfJson } from "../../../core/json/exact.ts";
import type { BodyFilter } from "../../../core/upstream/answer-stream.ts";
import { type McpMessage, McpRefused } from "../message.ts";

/** Another gateway may use the file, such as one that is shutting down. */
const BUSY_TIMEOUT_MS = 1000;

type SessionFile = ReturnType<typeof openSessionFile>;

/**
 * Owners of sessions, in an SQLite file. A power cut may lose the latest ones, whose clients then
 * start new sessions. A session that cannot be written stays known until the gateway ends.
 */
export function openSessionFile(file: string, onFailure: (error: unknown) => void) {
  const database = openWalDatabase(file, BUSY_TIMEOUT_MS);
  database.exec(
    "PRAGMA synchronous = NORMAL;" +
      "CREATE TABLE IF NOT EXISTS sessions (key TEXT PRIMARY KEY, username TEXT NOT NULL) STRICT",
  );
  const put = database.prepare("INSERT OR REPLACE INTO sessions VALUES (?, ?)");
  const drop = database.prepare("DELETE FROM sessions WHERE key = ?");

  function attempt(write: () => void): void {
    try {
      write();
    } catch (error) {
      onFailure(error);
    }
  }

  return {
    all(): [key: string, username: string][] {
      const rows = database.prepare("SELECT key, username FROM sessions ORDER BY rowid").all();
      return rows.map(({ key, username }) => [String(key), String(username)]);
    },
    put: (key: string, username: string): void => attempt(() => put.run(key, username)),
    drop: (key: string): void => attempt(() => drop.run(key)),
    close: (): void => database.close(),
  };
}

export const sessionLimits = {
  /** When a limit is reached, the session that is idle longest is forgotten. */
  total: 10_000,
  perUser: 100,
  /** Without a request or an open stream, until a session is forgotten. */
  idleMs: 60 * 60 * 1000,
};

export interface SessionRegister {
  /** Assigns a new session to the user. False if it belongs to another user. */
  open(id: string, username: string): boolean | Promise<boolean>;
  /** True if the session belongs to the user. */
  use(id: string, username: string): boolean | Promise<boolean>;
  end(id: string): void;
}

/** An unknown session belongs to no one. Its client gets 404 and starts a new one. */
export class Sessions implements SessionRegister {
  readonly #limits: typeof sessionLimits;
  readonly #now: () => number;
  readonly #records: SessionFile | undefined;
  /** By key, least recently used first. */
  readonly #sessions = new Map<string, { readonly username: string; readonly usedAt: number }>();

  /** Sessions that are loaded from `records` count as just used. */
  constructor(
    limits = sessionLimits,
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
    const key = hashId(id);
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
    const key = hashId(id);
    if (this.#sessions.get(key)?.username !== username) return false;
    this.#sessions.delete(key);
    this.#sessions.set(key, { username, usedAt: this.#now() });
    return true;
  }

  end(id: string): void {
    this.#forget(hashId(id));
  }

  #forget(key: string): void {
    if (this.#sessions.delete(key)) this.#records?.drop(key);
  }

  #forgetIdle(): void {
    const oldest = this.#now() - this.#limits.idleMs;
    for (const [key, { usedAt }] of this.#sessions) {
      if (usedAt > oldest) return;
      this.#forget(key);
    }
  }

  #makeRoom(username: string): void {
    const own = [...this.#sessions].filter(([, session]) => session.username === username);
    const [first] = this.#sessions.keys();
    const [ownFirst] = own[0] ?? [];
    if (own.length >= this.#limits.perUser && ownFirst !== undefined) this.#forget(ownFirst);
    else if (this.#sessions.size >= this.#limits.total && first !== undefined) this.#forget(first);
  }
}

/** Where a response has the id of a task that it creates (MCP Tasks), as members in JSON. */
const taskPlaces: ReadonlySet<string> = new Set(['"result"."taskId"', '"result"."task"."taskId"']);
/** In characters. A longer id is not remembered. */
const LONGEST_ID = 256;
/** In bytes. No task is looked for after so long a message. */
const LONGEST_MESSAGE = 32 * 1024;
const nothing = Buffer.alloc(0);

/** The group is the end of a string. It is empty for one that is incomplete. */
const jsonTokens = /"[^"\\]*(?:\\.[^"\\]*)*("?)|[{}[\]:,]/gs;

/**
 * Finds the task that a response creates, in JSON or events that may be incomplete.
 *
 * @returns its id in JSON, or null after the beginning of a result with content, which creates no task
 */
function findTask(text: string): string | null | undefined {
  /** The member that is being read at each depth. */
  const members: string[] = [];
  let depth = 0;
  let last = "";
  for (const [token, end] of text.matchAll(jsonTokens)) {
    if (end !== undefined) {
      if (end === "") return undefined;
      if (taskPlaces.has(members.slice(1, depth + 1).join("."))) return token;
      last = token;
      continue;
    }
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    members[depth] = token === ":" ? last : "";
    const [, outer, inner] = members;
    if (depth === 2 && outer === '"result"' && inner === '"content"') return null;
  }
  return undefined;
}

/** Prefix of task keys. No header can contain it, so they never equal a session id. */
const taskPrefix = "\n";

export function taskKey(id: string): string {
  return `${taskPrefix}${id}`;
}

/** Sessions and tasks have separate limits. */
export function separateRegisters(
  sessions: SessionRegister,
  tasks: SessionRegister,
): SessionRegister {
  const chooseRegister = (id: string) => (id.startsWith(taskPrefix) ? tasks : sessions);
  return {
    open: (id, username) => chooseRegister(id).open(id, username),
    use: (id, username) => chooseRegister(id).use(id, username),
    end: (id) => chooseRegister(id).end(id),
  };
}

/**
 * Passes a tool's response on unchanged. The task that it creates is assigned to the caller before
 * the client learns of it. A task of another user keeps its owner. A `taskId` elsewhere, such as in
 * a row, may be one that the caller has chosen.
 */
export function assignTasks(sessions: SessionRegister, username: string): BodyFilter {
  /** The message that is passing, as latin1. Undefined once nothing more is to be found. */
  let message: string | undefined = "";
  return {
    async pass(piece) {
      if (message === undefined) return piece;
      message += piece.toString("latin1");
      const found = findTask(message);
      // After an event without a task, the next one begins.
      const isOver = found !== undefined || message.length > LONGEST_MESSAGE;
      message = isOver ? undefined : message.replace(/^.*\n\r?\n/s, "");
      const id = parseIfJson(Buffer.from(found ?? "", "latin1").toString("utf8"));
      if (typeof id === "string" && id.length <= LONGEST_ID) {
        await sessions.open(taskKey(id), username);
      }
      return piece;
    },
    end: () => nothing,
  };
}

/** @throws McpRefused `invalidParams` for another user's task, the same as for an unknown one */
export async function requireOwnTasks(
  sessions: SessionRegister,
  { method, name, taskIds = [], id }: McpMessage,
  username: string,
): Promise<void> {
  const isOfOne = method.startsWith("tasks/") && method !== "tasks/list";
  for (const one of isOfOne ? [name] : new Set(taskIds)) {
    if (one !== undefined && (await sessions.use(taskKey(one), username))) continue;
    throw new McpRefused("invalidParams", "Invalid params: Task not found", { status: 200, id });
  }
}

/** Upstream servers limit the streams of all users together. One user must not fill that limit. */
export const MAX_STREAMS_PER_USER = sessionLimits.perUser;

export interface StreamRegister {
  /** Counts a stream. Returns its release, or undefined if the user has too many open. */
  take(username: string): (() => void) | undefined | Promise<(() => void) | undefined>;
}

export class OpenStreams implements StreamRegister {
  readonly #most: number;
  readonly #open = new Sums();

  constructor(most = MAX_STREAMS_PER_USER) {
    this.#most = most;
  }

  take(username: string): (() => void) | undefined {
    if (this.#open.of(username) >= this.#most) return undefined;
    this.#open.add(username, 1);
    return () => this.#open.add(username, -1);
  }
}
