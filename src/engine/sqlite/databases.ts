import { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import { defineFunctions } from "./compute.ts";
import { toRefusal } from "./failures.ts";
import { DatabaseFiles, defaultDatabase } from "./files.ts";
import { rows, run, SqliteSession } from "./statements.ts";

/** SQLite attaches at most 10 databases besides the first. */
const SESSION_LIMIT = 11;

export class Databases {
  /** True if a gateway uses the files, so that nothing may be written to them. */
  readonly isGuest: boolean;
  readonly #files: DatabaseFiles;
  readonly #open = new Map<string, { connection: DatabaseSync; file: string | undefined }>();

  constructor(directory: string, isGuest = false) {
    this.isGuest = isGuest;
    this.#files = new DatabaseFiles(directory);
  }

  /** Closes a file that another program has replaced or removed. */
  requireExisting(name: string): void {
    const open = this.#open.get(name);
    if (open !== undefined && open.file === this.#files.fileAt(name)) return;
    this.forget(name);
    this.#files.requireExisting(name);
  }

  /** Returns a new session, of a connection that stays open. */
  open(name: string): SqliteSession {
    this.requireExisting(name);
    const open = (path: string) => ({
      // Before it is opened, so that a file that comes in between is opened by the next query.
      file: this.#files.fileAt(name),
      connection: openConnection(path, this.isGuest),
    });
    const opened = this.#open.get(name) ?? this.#opening(name, open);
    this.#open.set(name, opened);
    return new SqliteSession(opened.connection, new Map([[name, mainSchema]]), true);
  }

  /**
   * Opens one new connection to several databases, which commit together. The caller closes it.
   *
   * @param changed the databases that are changed
   */
  openTogether(names: readonly string[], changed: ReadonlySet<string>): SqliteSession {
    if (names.length > SESSION_LIMIT) {
      const problem = `A Batch can use at most ${SESSION_LIMIT} databases`;
      throw new EngineRefusal("too_many_databases", problem);
    }
    for (const name of names) this.requireExisting(name);
    const [first = defaultDatabase, ...others] = names;
    const open = (path: string) => openConnection(path, this.isGuest);
    const connection = this.#opening(first, open);
    const schemas = new Map([[first, mainSchema]]);
    try {
      others.forEach((name, index) => {
        const schema = `attached${index}`;
        this.#opening(name, (path) => {
          run(connection, sql`attach database ${path} as ${sql.id(schema)}`);
          prepareSchema(connection, schema, this.isGuest);
        });
        schemas.set(name, schema);
      });
      if (changed.size > 1) requireAtomic(connection, schemas, changed);
    } catch (error) {
      connection.close();
      throw error;
    }
    return new SqliteSession(connection, schemas);
  }

  /** Names the database whose file is broken. */
  #opening<Result>(name: string, open: (path: string) => Result): Result {
    const path = this.#files.path(name);
    try {
      return open(path);
    } catch (error) {
      const refusal = toRefusal(error);
      if (refusal?.incident === undefined) throw error;
      const { code, message, incident } = refusal;
      throw new EngineRefusal(code, `${message} (database ${name})`, {
        plain: `${refusal.plain} (database ${name})`,
        incident: { ...incident, file: path },
        cause: error,
      });
    }
  }

  forget(name: string): void {
    this.#open.get(name)?.connection.close();
    this.#open.delete(name);
  }

  close(): void {
    for (const name of [...this.#open.keys()]) this.forget(name);
  }
}

const mainSchema = "main";

/** For locks of other processes, such as commands that show a Preview for at most two seconds. */
const BUSY_TIMEOUT_MS = 3000;

/** A worker holds a value several times. */
const LONGEST_VALUE_BYTES = 64 * 1024 * 1024;

/** True for a file that its other programs keep with a write-ahead log. */
function hasWriteAheadLog(connection: DatabaseSync, schema: string): boolean {
  const [row] = rows(connection, sql`pragma ${sql.id(schema)}.journal_mode`);
  return row?.[0] === "wal";
}

/**
 * A transaction over several files with rollback journals is atomic, even through a power failure.
 * One with write-ahead logs is not (SQLite, "Write-Ahead Logging").
 *
 * @throws EngineRefusal `not_supported`
 */
function requireAtomic(
  connection: DatabaseSync,
  schemas: ReadonlyMap<string, string>,
  changed: ReadonlySet<string>,
): void {
  for (const [name, schema] of schemas) {
    if (!changed.has(name) || !hasWriteAheadLog(connection, schema)) continue;
    const problem = `A Batch cannot change database ${name} together with another one, since its file has a write-ahead log`;
    throw new EngineRefusal("not_supported", problem);
  }
}

function openConnection(path: string, isGuest: boolean): DatabaseSync {
  const connection = new DatabaseSync(path, {
    timeout: BUSY_TIMEOUT_MS,
    enableDoubleQuotedStringLiterals: false,
    defensive: true,
    limits: { length: LONGEST_VALUE_BYTES },
  });
  try {
    prepareSchema(connection, mainSchema, isGuest);
    // By default, SQLite's LIKE ignores ASCII case, unlike standard SQL.
    connection.exec("pragma case_sensitive_like = on");
    defineFunctions(connection);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/**
 * Keeps the write-ahead log of a file, which other programs may have open. Others get a rollback
 * journal. After a power failure, a deleted journal can come back and undo an acknowledged commit;
 * one that was truncated and synced cannot.
 */
function prepareSchema(connection: DatabaseSync, schema: string, isGuest: boolean): void {
  // Changes of a guest stay in memory and are rolled back.
  connection.exec(isGuest ? "pragma cache_spill = off" : "pragma fullfsync = on");
  if (!hasWriteAheadLog(connection, schema)) {
    const mode = sql.lit(isGuest ? "memory" : "truncate");
    run(connection, sql`pragma ${sql.id(schema)}.journal_mode = ${mode}`);
  }
  if (isGuest) return;
  run(connection, sql`pragma ${sql.id(schema)}.synchronous = full`);
}
