import { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import { createColumnTable } from "./column-table.ts";
import { run } from "./statements.ts";
import { defineSums } from "./sums.ts";

/** The schema name that SQLite gives the first database of a connection. */
export const mainSchema = "main";

/** How long SQLite waits for another process that has the file, in milliseconds. */
const busyTimeout = 1000;

/**
 * Opens a database file for statements of clients.
 *
 * Every database has a rollback journal: with it SQLite commits a transaction over several
 * attached files as one, also through a power failure, which write-ahead logs do not give.
 * Readers that this would hold up wait in the store's own locks instead.
 */
export function openConnection(path: string): DatabaseSync {
  const connection = new DatabaseSync(path, {
    timeout: busyTimeout,
    enableDoubleQuotedStringLiterals: false,
    defensive: true,
  });
  try {
    prepareSchema(connection, mainSchema);
    // SQLite's LIKE folds ASCII case unless told; standard SQL's does not.
    connection.exec("pragma case_sensitive_like = on");
    defineSums(connection);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/**
 * Makes an opened or attached database durable. Truncated and then synced, a journal cannot
 * come back after a power failure and undo a commit that was acknowledged; a deleted one can.
 */
export function prepareSchema(connection: DatabaseSync, schema: string): void {
  connection.exec("pragma fullfsync = on");
  run(connection, sql`pragma ${sql.id(schema)}.synchronous = full`);
  run(connection, sql`pragma ${sql.id(schema)}.journal_mode = truncate`);
  createColumnTable(connection, schema);
}
