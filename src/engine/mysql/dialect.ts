import { changesOfRows } from "../remote/change.ts";
import type { Dialect } from "../remote/dialect.ts";
import { describeTable, listTables } from "./catalog.ts";
import { targetOf } from "./change.ts";
import { createDatabase, dropDatabase, listDatabases, visibleDatabase } from "./databases.ts";
import { createTable, dropTable } from "./define.ts";
import { failures } from "./failures.ts";
import { select } from "./select.ts";
import type { MysqlSession } from "./session.ts";
import { begin, requireAtomic } from "./transactions.ts";

const { preview, ...changes } = changesOfRows(targetOf);

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
  readsBehind: true,
};
