import type { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import { mainSchema, openConnection, prepareSchema } from "./connection.ts";
import { DatabaseFiles, defaultDatabase } from "./files.ts";
import type { DatabaseHandle } from "./handle.ts";
import { run } from "./statements.ts";

/** Databases that one transaction spans, on one connection. */
export interface Session {
  readonly connection: DatabaseSync;
  readonly handles: ReadonlyMap<string, DatabaseHandle>;
  close(): void;
}

/** SQLite attaches 10 databases to a connection beside its first. */
const sessionLimit = 11;

/** The connections of one process to the databases of a directory. */
export class Databases {
  readonly #files: DatabaseFiles;
  readonly #open = new Map<string, DatabaseHandle>();

  constructor(directory: string) {
    this.#files = new DatabaseFiles(directory);
  }

  /** Throws `database_not_found` unless there is a database of exactly this name. */
  requireExisting(name: string): void {
    if (!this.#open.has(name)) this.#files.requireExisting(name);
  }

  /** A database on its own connection, which is kept. Throws `database_not_found`. */
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
   * Several databases on one connection of their own, so that SQLite commits them together.
   *
   * Throws `too_many_databases` or `database_not_found`.
   */
  openTogether(names: readonly string[]): Session {
    if (names.length > sessionLimit) throw tooMany();
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

  /** Closes the connection to a database, if there is one. */
  forget(name: string): void {
    this.#open.get(name)?.connection.close();
    this.#open.delete(name);
  }

  /** Closes every connection that is kept. */
  close(): void {
    for (const name of [...this.#open.keys()]) this.forget(name);
  }
}

function tooMany(): EngineRefusal {
  return new EngineRefusal("too_many_databases", `A Batch spans at most ${sessionLimit} databases`);
}
