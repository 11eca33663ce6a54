import type { Logger } from "pino";
import { keepListening, listen, parseEndpoint } from "./listen.ts";
import type { PostgresDatabases } from "./postgres/dialect.ts";
import { createEngineServer } from "./server.ts";
import type { Store } from "./store.ts";

/** How long a query may take unless the options say otherwise, in milliseconds. */
const DEFAULT_QUERY_TIME_LIMIT_MS = 30_000;
const DEFAULT_POOL_SIZE = 16;

/** How an engine is started. */
export interface EngineOptions {
  /**
   * The database: `sqlite:DIRECTORY`, `postgres://user@host:port/database` or
   * `mysql://user@host:port/`.
   */
  readonly url: string;
  /** What the databases of queries are over PostgreSQL; by default schemas of the URL's database. */
  readonly databases?: PostgresDatabases;
  /** `unix:/path`, or a loopback `host:port` (port 0 takes a free one). */
  readonly listen: string;
  /** The `Authorization` header that every request must carry; absent: none is asked for. */
  readonly authorization?: string;
  /** How long the database may take for one query, in milliseconds; 30 seconds by default. */
  readonly queryTimeLimit?: number;
  /** How many queries are carried out at a time over a database server; 16 by default. */
  readonly poolSize?: number;
  readonly log: Logger;
}

/** An engine that listens. */
export interface Engine {
  /** `unix:/path` or `http://host:port`. */
  readonly address: string;
  /** Finishes the requests under way, then closes the listener and the databases. */
  close(): Promise<void>;
}

/**
 * Starts the SQL adapter: it carries out queries for whoever reaches it and knows no users.
 *
 * @throws Error that says what is wrong with the URL, the address or the directory, also if
 * another engine has the directory open and does not end within ten seconds
 */
export async function startEngine(options: EngineOptions): Promise<Engine> {
  const endpoint = parseEndpoint(options.listen);
  if (options.authorization === "") throw new Error("The engine's authorization is empty.");
  const timeLimit = options.queryTimeLimit ?? DEFAULT_QUERY_TIME_LIMIT_MS;
  const { url, log, databases = "schemas", poolSize = DEFAULT_POOL_SIZE } = options;
  const store = await openStore(url, { timeLimit, log, databases, poolSize });
  const { server, drain } = createEngineServer({
    store,
    log: options.log,
    loopbackHostOnly: endpoint.kind === "port",
    authorization: options.authorization,
  });
  try {
    const address = await listen(server, endpoint);
    options.log.info({ address }, "engine listening");
    const stopLooking = keepListening(server, endpoint, log);
    return {
      address,
      async close() {
        stopLooking();
        await drain();
        await store.close();
      },
    };
  } catch (error) {
    await store.close();
    throw error;
  }
}

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
 * @throws Error whose message says what is wrong with the URL, the directory or the server,
 * and DirectoryInUseError
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
        `The engine cannot open a database of the kind "${scheme || url}": it speaks sqlite (sqlite:DIRECTORY), PostgreSQL (postgres://user@host:port/database) and MySQL (mysql://user@host:port/).`,
      );
  }
}

function sqliteDirectory(url: string): string {
  const directory = url.replace(/^sqlite:(\/\/(?=\/))?/, "");
  if (directory === "") throw new Error("The engine's URL names no directory: sqlite:DIRECTORY.");
  return directory;
}
