import { openRemoteStore, type RemoteOptions } from "../remote/open.ts";
import type { Store } from "../store.ts";
import { parseAddress } from "./address.ts";
import { MysqlConnection } from "./connection.ts";
import { mysql } from "./dialect.ts";

/**
 * Opens the MySQL or MariaDB server that a URL names. A server that is not there yet is waited for
 * by answering 503.
 *
 * Throws an `Error` that says why the server refuses the engine, without the password.
 */
export async function openMysqlStore(url: string, options: RemoteOptions): Promise<Store> {
  const address = parseAddress(url);
  const { host, port, user } = address;
  const connections = {
    // A connection leads to all databases of the server.
    targetOf: () => "",
    open: () => MysqlConnection.open(address, options.timeLimit),
  };
  return openRemoteStore({ dialect: mysql, connections, host, port, wanted: user }, options);
}
