import { memoizeLast } from "../../memoize.ts";
import type { TableOperation } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { changesOfRows } from "../remote/change.ts";
import type { Dialect, Mode } from "../remote/dialect.ts";
import { KnownTables } from "../remote/known-tables.ts";
import { openRemoteStore, type RemoteOptions } from "../remote/open.ts";
import type { Store } from "../store.ts";
import { parseAddress } from "./address.ts";
import { describeTable, listTables } from "./catalog.ts";
import { targetOf } from "./change.ts";
import { PostgresConnection } from "./connection.ts";
import {
  createDatabase,
  createSchema,
  dropDatabase,
  dropSchema,
  listDatabases,
  listSchemas,
  openDatabase,
  publicSchemaOf,
  requireDroppable,
  visibleDatabase,
  visibleSchema,
} from "./databases.ts";
import { createTable, dropTable } from "./define.ts";
import { failures } from "./failures.ts";
import { select } from "./select.ts";
import type { Beginning, PostgresSession } from "./session.ts";
import type { PostgresTable } from "./tables.ts";

const { preview, digestTouched, ...changes } = changesOfRows(targetOf);

/** PostgreSQL, whose schemas are the databases of queries. */
export const ofSchemas: Dialect<PostgresSession> = {
  name: "PostgreSQL",
  failures,
  begin,
  visibleSchema,
  listDatabases: listSchemas,
  createDatabase: createSchema,
  dropDatabase: dropSchema,
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
  readsBehind: false,
};

/** PostgreSQL, whose databases are those of queries; a connection leads to one of them. */
export const ofDatabases: Dialect<PostgresSession> = {
  ...ofSchemas,
  requireAtomic: requireOneDatabase,
  visibleSchema: publicSchemaOf,
  listDatabases,
  createDatabase,
  dropDatabase,
  requireDroppable,
};

const beginnings: Record<Mode, (timeLimit: number) => Beginning> = {
  // Each statement is a transaction by itself.
  "read only": beginningBy({}),
  "read committed": beginningBy({
    words: "begin isolation level read committed",
    mayBeImplicit: true,
  }),
  "snapshot, read only": beginningBy({
    words: "begin isolation level repeatable read, read only",
  }),
  serializable: beginningBy({ words: "begin isolation level serializable" }),
};

/** A server that hears nothing of us for so long gives the transaction up, in milliseconds. */
const IDLE_LIMIT_MS = 60_000;

/** Has a transaction begin with its first statement, and end with its last; statements take `timeLimit` milliseconds at the most, 0: any time. */
export function begin(
  session: PostgresSession,
  mode: Mode,
  timeLimit: number,
  endsWithLast: boolean,
): undefined {
  session.begin(beginnings[mode](timeLimit), endsWithLast);
}

function beginningBy(how: Omit<Beginning, "settings">): (timeLimit: number) => Beginning {
  return memoizeLast((timeLimit) => ({
    ...how,
    settings: settingsSql(timeLimit, how.words === undefined),
  }));
}

/**
 * Said in each transaction, and not to the connection, since that may lead through a pooler to
 * another server process each time.
 */
function settingsSql(timeLimit: number, isReading: boolean): string {
  const settings = {
    statement_timeout: timeLimit,
    idle_in_transaction_session_timeout: IDLE_LIMIT_MS,
    timezone: "UTC",
    datestyle: "ISO, YMD",
    bytea_output: "hex",
    extra_float_digits: 3,
    ...(isReading ? { transaction_read_only: "on" } : {}),
  };
  const calls = Object.entries(settings).map(
    ([name, value]) => `pg_catalog.set_config('${name}', '${value}', true) is null`,
  );
  // Each is called, and no row comes back that somebody would have to read.
  return `select 1 where ${calls.join(" or ")}`;
}

/**
 * Refuses a Batch over several databases: PostgreSQL commits in each by itself, so nobody could take
 * back what is done in one if another fails.
 *
 * @throws EngineRefusal `batch_not_atomic`
 */
export function requireOneDatabase(operations: readonly TableOperation[]): void {
  const [first, ...others] = operations.map(({ fields }) => fields.database);
  const index = others.findIndex((database) => database !== first);
  if (index < 0) return;
  throw new EngineRefusal(
    "batch_not_atomic",
    `Batch[${index + 1}]: PostgreSQL cannot carry out operations in ${first} and ${others[index]} together, all or nothing; send a Batch for each database`,
  );
}

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
 * @throws Error that says why the server refuses the engine, without the password
 */
export async function openPostgresStore(url: string, options: PostgresOptions): Promise<Store> {
  const address = parseAddress(url);
  const { host, port, database: home } = address;
  const tables = new KnownTables<PostgresTable>();
  const server = { host, port, wanted: home };
  if (options.databases === "schemas") {
    const connections = {
      targetOf: () => home,
      open: () => PostgresConnection.open(address, home, tables),
    };
    return openRemoteStore({ ...server, dialect: ofSchemas, connections }, options);
  }
  const connections = {
    targetOf: (database?: string) => (database === undefined ? home : visibleDatabase(database)),
    open: (target: string) => openDatabase(address, target, tables),
  };
  return openRemoteStore({ ...server, dialect: ofDatabases, connections }, options);
}
