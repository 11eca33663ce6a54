import { changesOfRows } from "../remote/change.ts";
import type { Dialect } from "../remote/dialect.ts";
import { requireAtomic } from "./atomic.ts";
import { begin } from "./begin.ts";
import { listTables } from "./catalog.ts";
import { createDatabase, dropDatabase, listDatabases, visibleDatabase } from "./databases.ts";
import { createTable, dropTable } from "./define.ts";
import { failures } from "./failures.ts";
import { insert } from "./insert.ts";
import { select } from "./select.ts";
import type { MysqlSession } from "./session.ts";
import { readChangedTable, readTable } from "./tables.ts";

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
  readTable,
  reads: { Select: select },
  changes: {
    Insert: insert,
    ...changesOfRows(readChangedTable),
    CreateTable: createTable,
    DropTable: dropTable,
  },
};
