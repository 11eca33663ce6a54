import { openRemoteStore, type RemoteOptions } from "../remote/open.ts";
import type { Store } from "../store.ts";
import { parseAddress } from "./address.ts";
import { postgres } from "./dialect.ts";
import { PostgresPool } from "./pool.ts";

/**
 * Opens the PostgreSQL database that a URL names. A server that is not there yet is waited for by
 * answering 503.
 *
 * Throws an `Error` that says why the server refuses the engine, without the password.
 */
export async function openPostgresStore(url: string, options: RemoteOptions): Promise<Store> {
  const address = parseAddress(url);
  const { host, port, database } = address;
  const pool = new PostgresPool(address);
  return openRemoteStore({ dialect: postgres, pool, host, port, wanted: database }, options);
}
