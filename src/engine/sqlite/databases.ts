import { closeSync, fsyncSync, mkdirSync, openSync, readdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import { EngineRefusal } from "../refusal.ts";
import { spoolFilePrefix } from "../spool.ts";
import { mainSchema, openConnection, prepareSchema } from "./connection.ts";
import type { DatabaseHandle } from "./handle.ts";
import { foldCase } from "./names.ts";
import { run } from "./statements.ts";

/** Databases that one transaction spans, on one connection. */
export interface Session {
  readonly connection: DatabaseSync;
  readonly handles: ReadonlyMap<string, DatabaseHandle>;
  close(): void;
}

/** The database that is always there. */
const defaultDatabase = "main";

/** SQLite attaches 10 databases to a connection beside its first. */
const sessionLimit = 11;

const suffix = ".sqlite";
const journalSuffixes = ["-journal", "-wal", "-shm"];

/** A directory of SQLite files, one a database. */
export class Databases {
  readonly directory: string;
  readonly #open = new Map<string, DatabaseHandle>();

  /** Throws the file system's error if the directory cannot be made or used. */
  constructor(directory: string) {
    this.directory = resolve(directory);
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    this.#removeSpoolFiles();
    if (!this.#names().includes(defaultDatabase)) this.#createFile(defaultDatabase);
  }

  /** Throws `database_not_found` unless there is a database of exactly this name. */
  requireExisting(name: string): void {
    if (this.#open.has(name) || this.#names().includes(name)) return;
    throw new EngineRefusal("database_not_found", `There is no database ${name}`);
  }

  /** A database on its own connection, which is kept. Throws `database_not_found`. */
  open(name: string): DatabaseHandle {
    const known = this.#open.get(name);
    if (known !== undefined) return known;
    this.requireExisting(name);
    const handle = { connection: openConnection(this.#path(name)), schema: mainSchema, name };
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
    const connection = openConnection(this.#path(first));
    const handles = new Map([[first, { connection, schema: mainSchema, name: first }]]);
    try {
      others.forEach((name, index) => {
        const schema = `attached${index}`;
        run(connection, sql`attach database ${this.#path(name)} as ${sql.id(schema)}`);
        prepareSchema(connection, schema);
        handles.set(name, { connection, schema, name });
      });
    } catch (error) {
      connection.close();
      throw error;
    }
    return { connection, handles, close: () => connection.close() };
  }

  /**
   * Makes an empty database. Throws `database_exists`, also if the name differs only by case
   * from an existing one, since both would be one file where the file system folds case.
   */
  create(name: string): void {
    const taken = this.#names().find((other) => foldCase(other) === foldCase(name));
    if (taken !== undefined) {
      throw new EngineRefusal("database_exists", `Database ${taken} exists already`);
    }
    this.#createFile(name);
  }

  /** Deletes a database with its files. Throws `database_not_found` or `database_protected`. */
  drop(name: string): void {
    this.requireExisting(name);
    if (name === defaultDatabase) {
      throw new EngineRefusal("database_protected", `Database ${name} cannot be dropped`);
    }
    this.#open.get(name)?.connection.close();
    this.#open.delete(name);
    this.#removeJournals(name);
    rmSync(this.#path(name));
    this.#syncDirectory();
  }

  /** Closes every connection that is kept. */
  close(): void {
    for (const { connection } of this.#open.values()) connection.close();
    this.#open.clear();
  }

  #createFile(name: string): void {
    // A journal that outlived its database must not be played back into the new one.
    this.#removeJournals(name);
    closeSync(openSync(this.#path(name), "wx", 0o600));
    this.#syncDirectory();
  }

  #removeJournals(name: string): void {
    for (const journal of journalSuffixes) rmSync(this.#path(name) + journal, { force: true });
  }

  #removeSpoolFiles(): void {
    for (const entry of readdirSync(this.directory)) {
      if (entry.startsWith(spoolFilePrefix)) rmSync(join(this.directory, entry), { force: true });
    }
  }

  /** Read from the directory, since a file system that folds case would find any spelling. */
  #names(): string[] {
    return readdirSync(this.directory)
      .filter((entry) => entry.endsWith(suffix))
      .map((entry) => entry.slice(0, -suffix.length));
  }

  #path(name: string): string {
    return join(this.directory, name + suffix);
  }

  #syncDirectory(): void {
    const directory = openSync(this.directory, "r");
    try {
      fsyncSync(directory);
    } finally {
      closeSync(directory);
    }
  }
}

function tooMany(): EngineRefusal {
  return new EngineRefusal("too_many_databases", `A Batch spans at most ${sessionLimit} databases`);
}
