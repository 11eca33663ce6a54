import type { TableOperation } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { changesOfRows } from "../remote/change.ts";
import type { Dialect, Mode } from "../remote/dialect.ts";
import { openRemoteStore, type RemoteOptions } from "../remote/open.ts";
import type { Store } from "../store.ts";
import { parseAddress } from "./address.ts";
import { describeTable, listTables } from "./catalog.ts";
import { targetOf } from "./change.ts";
import { MysqlConnection } from "./connection.ts";
import { createTable, dropTable } from "./define.ts";
import { failures } from "./failures.ts";
import { select } from "./select.ts";
import type { MysqlSession } from "./session.ts";
import { createDatabase, dropDatabase, listDatabases, visibleDatabase } from "./tables.ts";

const { preview, digestTouched, ...changes } = changesOfRows(targetOf);

/** MySQL and MariaDB, whose databases are those of queries. */
export const mysql: Dialect<MysqlSession> = {
  name: "MySQL",
  failures,
  begin,
  requireAtomic,
  visibleSchema: visibleDatabase,
  listDatabases,
  createDatabase,
  dropDatabase,
  listTables,
  describeTable,
  reads: { Select: select },
  changes: {
    ...changes,
    CreateTable: createTable,
    DropTable: dropTable,
  },
  preview,
  digestTouched,
  readsBehind: true,
};

/** The connection's own isolation is read committed. */
const beginnings: Record<Mode, readonly string[]> = {
  "read only": ["start transaction read only"],
  "read committed": ["start transaction"],
  "snapshot, read only": [
    "set transaction isolation level repeatable read",
    "start transaction with consistent snapshot, read only",
  ],
  serializable: ["set transaction isolation level serializable", "start transaction"],
};

/** Begins a transaction whose statements take `timeLimit` milliseconds at the most; 0: any time. */
async function begin(session: MysqlSession, mode: Mode, timeLimit: number): Promise<void> {
  session.isUntouched = true;
  await session.limitTime(timeLimit);
  for (const words of beginnings[mode]) await session.command(words);
  session.isUntouched = false;
}

/**
 * Refuses a Batch that makes or drops a table and does something else too: MySQL commits what came
 * before a definition, so nobody could take it back.
 *
 * @throws EngineRefusal `batch_not_atomic`
 */
function requireAtomic(operations: readonly TableOperation[]): void {
  const index = operations.findIndex(({ name }) => name === "CreateTable" || name === "DropTable");
  if (index < 0 || operations.length === 1) return;
  throw new EngineRefusal(
    "batch_not_atomic",
    `Batch[${index}]: MySQL cannot make or drop a table together with other operations, all or nothing; send it by itself`,
  );
}

/**
 * Opens the MySQL or MariaDB server that a URL names. A server that is not there yet is waited for
 * by answering 503.
 *
 * @throws Error that says why the server refuses the engine, without the password
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
