import type { ConnectionOptions } from "node:tls";
import { Client } from "pg";
import { findPassword } from "./password.ts";

/** How a server is reached, and as whom. */
export interface ServerAddress {
  /** A host, or the directory of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  readonly ssl: boolean | ConnectionOptions;
  /**
   * The password for a database. Looked up at each connection that is asked for one, so that a new
   * one needs no restart. Throws `PasswordMissing`.
   */
  password(database: string): Promise<string>;
}

/**
 * Reads `postgres://user:password@host:port/database`. What it leaves out comes from the
 * environment, as with every client of PostgreSQL: `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`,
 * `PGSSLMODE`, `PGPASSWORD`, and the password also from `~/.pgpass`.
 *
 * Throws an `Error` that does not repeat the URL, which may hold the password.
 */
export function parseAddress(url: string): ServerAddress {
  const { host, port, user, database, password, ssl } = readUrl(url);
  if (user === undefined || database === undefined) {
    throw new Error("The engine's URL names no user: postgres://user@host:port/database.");
  }
  const login = { host, port, user };
  return {
    ...login,
    database,
    ssl,
    password: async (database) => password || (await findPassword({ ...login, database })),
  };
}

/** The driver reads the URL, and never connects. */
function readUrl(url: string): Client {
  try {
    new URL(url);
    return new Client({ connectionString: url });
  } catch {
    throw new Error(
      "The engine's URL cannot be read: it is written postgres://user@host:port/database.",
    );
  }
}
