import { changesOfRows } from "../remote/change.ts";
import type { Dialect } from "../remote/dialect.ts";
import { describeTable, listTables } from "./catalog.ts";
import { targetOf } from "./change.ts";
import {
  createDatabase,
  dropDatabase,
  listDatabases,
  publicSchemaOf,
  requireDroppable,
} from "./databases.ts";
import { createTable, dropTable } from "./define.ts";
import { failures } from "./failures.ts";
import { createSchema, dropSchema, listSchemas, visibleSchema } from "./schemas.ts";
import { select } from "./select.ts";
import type { PostgresSession } from "./session.ts";
import { begin, requireOneDatabase } from "./transactions.ts";

const { preview, ...changes } = changesOfRows(targetOf);

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
