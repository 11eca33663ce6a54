import { openRemoteStore, type RemoteOptions } from "../remote/open.ts";
import type { Store } from "../store.ts";
import { parseAddress } from "./address.ts";
import { PostgresConnection } from "./connection.ts";
import { openDatabase, visibleDatabase } from "./databases.ts";
import { ofDatabases, ofSchemas } from "./dialect.ts";

/** What the `database` of a query is: a schema of the URL's database, or a database of the server. */
export type PostgresDatabases = "schemas" | "databases";

/** How a PostgreSQL server is opened. */
export interface PostgresOptions extends RemoteOptions {
  readonly databases: PostgresDatabases;
}

/**
 * Opens the PostgreSQL database that a URL names, or the server's databases by it. A server that is
 * not there yet is waited for by answering 503.
 *
 * Throws an `Error` that says why the server refuses the engine, without the password.
 */
export async function openPostgresStore(url: string, options: PostgresOptions): Promise<Store> {
  const address = parseAddress(url);
  const { host, port, database: home } = address;
  const server = { host, port, wanted: home };
  if (options.databases === "schemas") {
    const connections = {
      targetOf: () => home,
      open: () => PostgresConnection.open(address, home),
    };
    return openRemoteStore({ ...server, dialect: ofSchemas, connections }, options);
  }
  const connections = {
    targetOf: (database?: string) => (database === undefined ? home : visibleDatabase(database)),
    open: (target: string) => openDatabase(address, target),
  };
  return openRemoteStore({ ...server, dialect: ofDatabases, connections }, options);
}
