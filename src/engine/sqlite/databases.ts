import { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import { DatabaseFiles, defaultDatabase } from "./files.ts";
import { defineSums } from "./kinds.ts";
import { type DatabaseHandle, run } from "./statements.ts";
import { createColumnTable } from "./tables.ts";

/** Databases that share a connection, and so a transaction. */
export interface Session {
  readonly connection: DatabaseSync;
  readonly handles: ReadonlyMap<string, DatabaseHandle>;
  close(): void;
}

/** SQLite attaches at most 10 databases to a connection besides its first. */
const SESSION_LIMIT = 11;

export class Databases {
  readonly #files: DatabaseFiles;
  readonly #open = new Map<string, DatabaseHandle>();

  constructor(directory: string) {
    this.#files = new DatabaseFiles(directory);
  }

  /** @throws EngineRefusal `database_not_found` unless a database has exactly this name */
  requireExisting(name: string): void {
    if (!this.#open.has(name)) this.#files.requireExisting(name);
  }

  /**
   * Opens a database on its own connection, which stays open.
   *
   * @throws EngineRefusal `database_not_found`
   */
  open(name: string): DatabaseHandle {
    const known = this.#open.get(name);
    if (known !== undefined) return known;
    this.#files.requireExisting(name);
    const connection = openConnection(this.#files.path(name));
    const handle = { connection, schema: mainSchema, name };
    this.#open.set(name, handle);
    return handle;
  }

  /**
   * Opens several databases on one new connection, so that SQLite commits them together.
   *
   * @throws EngineRefusal `too_many_databases` or `database_not_found`
   */
  openTogether(names: readonly string[]): Session {
    if (names.length > SESSION_LIMIT) throw tooMany();
    for (const name of names) this.requireExisting(name);
    const [first = defaultDatabase, ...others] = names;
    const connection = openConnection(this.#files.path(first));
    const handles = new Map([[first, { connection, schema: mainSchema, name: first }]]);
    try {
      others.forEach((name, index) => {
        const schema = `attached${index}`;
        run(connection, sql`attach database ${this.#files.path(name)} as ${sql.id(schema)}`);
        prepareSchema(connection, schema);
        handles.set(name, { connection, schema, name });
      });
    } catch (error) {
      connection.close();
      throw error;
    }
    return { connection, handles, close: () => connection.close() };
  }

  forget(name: string): void {
    this.#open.get(name)?.connection.close();
    this.#open.delete(name);
  }

  close(): void {
    for (const name of [...this.#open.keys()]) this.forget(name);
  }
}

function tooMany(): EngineRefusal {
  return new EngineRefusal(
    "too_many_databases",
    `A Batch spans at most ${SESSION_LIMIT} databases`,
  );
}

const mainSchema = "main";

/** How long SQLite waits while another process locks the file. */
const BUSY_TIMEOUT_MS = 1000;

/**
 * Opens a database file for the statements of clients.
 *
 * Every database uses a rollback journal. With it, SQLite commits a transaction over several
 * attached files atomically, even through a power failure, which write-ahead logs do not guarantee.
 * Readers that it would block wait in the store's own locks instead.
 */
function openConnection(path: string): DatabaseSync {
  const connection = new DatabaseSync(path, {
    timeout: BUSY_TIMEOUT_MS,
    enableDoubleQuotedStringLiterals: false,
    defensive: true,
  });
  try {
    prepareSchema(connection, mainSchema);
    // By default, SQLite's LIKE folds ASCII case. That of standard SQL does not.
    connection.exec("pragma case_sensitive_like = on");
    defineSums(connection);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/**
 * Makes an opened or attached database durable. After a power failure, a deleted journal can come
 * back and undo an acknowledged commit. A journal that was truncated and then synced cannot.
 */
function prepareSchema(connection: DatabaseSync, schema: string): void {
  connection.exec("pragma fullfsync = on");
  run(connection, sql`pragma ${sql.id(schema)}.synchronous = full`);
  run(connection, sql`pragma ${sql.id(schema)}.journal_mode = truncate`);
  createColumnTable(connection, schema);
}
