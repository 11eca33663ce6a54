import type { Logger } from "pino";
import type { PostgresDatabases } from "./postgres/open.ts";
import type { Store } from "./store.ts";

/** How a database is opened. */
export interface StoreOptions {
  /** How long a query may take in the database, in milliseconds. */
  readonly timeLimit: number;
  readonly log: Logger;
  /** How many queries are carried out at a time over a server. */
  readonly poolSize: number;
  /** What the databases of queries are over PostgreSQL, which alone leaves the choice. */
  readonly databases: PostgresDatabases;
}

/**
 * Opens the database that a URL names: `sqlite:DIRECTORY`,
 * `postgres://host/database` or `mysql://host/`.
 *
 * Throws an `Error` whose message says what is wrong with the URL, the directory or the server,
 * and `DirectoryInUseError`.
 */
export async function openStore(url: string, options: StoreOptions): Promise<Store> {
  const scheme = url.slice(0, url.indexOf(":") + 1);
  // Each is loaded where it is named: the drivers of the others would only delay the start.
  switch (scheme) {
    case "sqlite:": {
      const { openSqliteStore } = await import("./sqlite/store.ts");
      return openSqliteStore(sqliteDirectory(url), options.timeLimit);
    }
    case "postgres:":
    case "postgresql:": {
      const { openPostgresStore } = await import("./postgres/open.ts");
      return openPostgresStore(url, options);
    }
    case "mysql:":
    case "mariadb:": {
      const { openMysqlStore } = await import("./mysql/open.ts");
      return openMysqlStore(url, options);
    }
    default:
      throw new Error(
        `The engine cannot open a database of the kind "${scheme || url}": it speaks sqlite (sqlite:DIRECTORY), PostgreSQL (postgres://user@host:port/database) and MySQL (mysql://user@host:port/).`,
      );
  }
}

function sqliteDirectory(url: string): string {
  const directory = url.replace(/^sqlite:(\/\/(?=\/))?/, "");
  if (directory === "") throw new Error("The engine's URL names no directory: sqlite:DIRECTORY.");
  return directory;
}
