import type { Logger } from "pino";
import { keepListening, listen, parseEndpoint } from "./listen.ts";
import { openStore } from "./open-store.ts";
import type { PostgresDatabases } from "./postgres/open.ts";
import { createEngineServer } from "./server.ts";

/** How long a query may take unless the options say otherwise, in milliseconds. */
const defaultQueryTimeLimit = 30_000;
const defaultPoolSize = 16;

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
 * Throws an `Error` that says what is wrong with the URL, the address or the directory, also if
 * another engine has the directory open and does not end within ten seconds.
 */
export async function startEngine(options: EngineOptions): Promise<Engine> {
  const endpoint = parseEndpoint(options.listen);
  if (options.authorization === "") throw new Error("The engine's authorization is empty.");
  const timeLimit = options.queryTimeLimit ?? defaultQueryTimeLimit;
  const { url, log, databases = "schemas", poolSize = defaultPoolSize } = options;
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
