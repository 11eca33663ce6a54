import type { Logger } from "pino";
import type { Store } from "../store.ts";
import { parseAddress, type ServerAddress } from "./address.ts";
import { isUnavailable } from "./failures.ts";
import { ConnectionPool } from "./pool.ts";
import { reasonOf } from "./reachability.ts";
import { PostgresStore } from "./store.ts";
import { transaction } from "./transaction.ts";

/** How many connections the engine has at the most. */
const connectionLimit = 16;

/** How a store over PostgreSQL is opened. */
export interface PostgresOptions {
  /** How long a query may take in the database, in milliseconds. */
  readonly timeLimit: number;
  readonly log: Logger;
}

/**
 * Opens the PostgreSQL database that a URL names. A server that is not there yet is waited for by
 * answering 503.
 *
 * Throws an `Error` that says why the server refuses the engine, without the password.
 */
export async function openPostgresStore(url: string, options: PostgresOptions): Promise<Store> {
  const { timeLimit, log } = options;
  const address = parseAddress(url);
  const pool = new ConnectionPool(address, connectionLimit);
  await probe(pool, address, options);
  return new PostgresStore({ pool, connectionLimit, timeLimit, log });
}

async function probe(
  pool: ConnectionPool,
  { host, port, database }: ServerAddress,
  { timeLimit, log }: PostgresOptions,
): Promise<void> {
  const { signal } = new AbortController();
  try {
    await transaction(pool, { mode: "read only", timeLimit, signal }, async () => {});
  } catch (error) {
    if (isUnavailable(error)) {
      log.warn({ host, port, reason: reasonOf(error) }, "PostgreSQL cannot be reached yet");
      return;
    }
    await pool.close();
    throw new Error(
      `PostgreSQL on ${host}:${port} refuses the engine for ${database}: ${reasonOf(error)}`,
    );
  }
}
