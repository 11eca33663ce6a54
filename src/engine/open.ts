import type { Logger } from "pino";
import type { PostgresDatabases } from "./postgres/dialect.ts";
import { answerText } from "./spool.ts";
import type { SchemaPath, Store } from "./store.ts";

export interface StoreOptions {
  /** `sqlite:DIRECTORY`, `postgres://user@host:port/database` or `mysql://user@host:port/`. */
  readonly url: string;
  /** Defaults to schemas of the URL's database. */
  readonly databases?: PostgresDatabases | undefined;
  /** Milliseconds that the database may take for one query; default 30 seconds. */
  readonly queryTimeLimit?: number | undefined;
  /** Concurrent queries on a database server. */
  readonly poolSize: number;
  /** True for a command that only reads the schema, or runs a Preview: creates and locks nothing. */
  readonly isGuest?: boolean;
  readonly log: Logger;
}

/**
 * Opens the engine over a database.
 *
 * @throws Error for an unusable URL or directory, and for a server that refuses the engine
 */
export async function openEngineStore({
  url,
  databases = "schemas",
  queryTimeLimit: timeLimit = 30_000,
  poolSize,
  isGuest = false,
  log,
}: StoreOptions): Promise<Store> {
  const options = { timeLimit, log, databases, poolSize };
  const scheme = url.slice(0, url.indexOf(":") + 1);
  // Drivers are loaded on demand, since the others would only delay the start.
  switch (scheme) {
    case "sqlite:": {
      const directory = url.replace(/^sqlite:(\/\/(?=\/))?/, "");
      if (directory === "") {
        throw new Error("upstream.url names no directory: use sqlite:DIRECTORY.");
      }
      const { openSqliteStore } = await import("./sqlite/store.ts");
      return openSqliteStore(directory, { timeLimit, log, isGuest });
    }
    case "postgres:":
    case "postgresql:": {
      const { openPostgresStore } = await import("./postgres/dialect.ts");
      return openPostgresStore(url, options);
    }
    case "mysql:":
    case "mariadb:": {
      const { openMysqlStore } = await import("./mysql/dialect.ts");
      return openMysqlStore(url, options);
    }
    default:
      throw new Error(
        `The engine cannot open a database of the kind "${scheme || url}": use sqlite:DIRECTORY, postgres://user@host:port/database or mysql://user@host:port/.`,
      );
  }
}

/** Logs the tables whose names queries cannot contain. Never rejects. */
export async function reportUnavailable(store: Store, log: Logger): Promise<void> {
  const read = async (path: SchemaPath) =>
    JSON.parse(await answerText(await store.readSchema(path, new AbortController()))).data;
  try {
    for (const database of (await read({})).databases) {
      const { unavailable: tables } = await read({ database });
      const problem = "queries cannot contain the names of these tables; create views for them";
      if (tables !== undefined) log.warn({ database, tables }, problem);
    }
  } catch {
    // The database cannot be reached yet, which is reported elsewhere.
  }
}
