import type { TableOperation } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { deleteRows, update } from "./change.ts";
import { createTable, dropTable } from "./define.ts";
import type { DatabaseHandle } from "./handle.ts";
import { insert } from "./insert.ts";
import { select } from "./select.ts";

/** The database that an operation is about. */
export function databaseOf(operation: TableOperation): string {
  if ("Select" in operation) return operation.Select.database;
  if ("Insert" in operation) return operation.Insert.database;
  if ("Update" in operation) return operation.Update.database;
  if ("Delete" in operation) return operation.Delete.database;
  if ("CreateTable" in operation) return operation.CreateTable.database;
  return operation.DropTable.database;
}

/**
 * Carries out one operation and writes its result to the spool as one JSON value: the rows of a
 * Select, or a sentence that says what was done.
 *
 * Throws `EngineRefusal`, or SQLite's error.
 */
export function perform(handle: DatabaseHandle, operation: TableOperation, spool: Spool): void {
  if ("Select" in operation) select(handle, operation.Select, spool);
  else spool.write(JSON.stringify(change(handle, operation)));
}

function change(
  handle: DatabaseHandle,
  operation: Exclude<TableOperation, { Select: unknown }>,
): string {
  if ("Insert" in operation) return `Inserted ${rowCount(insert(handle, operation.Insert))}`;
  if ("Update" in operation) return `Updated ${rowCount(update(handle, operation.Update))}`;
  if ("Delete" in operation) return `Deleted ${rowCount(deleteRows(handle, operation.Delete))}`;
  if ("CreateTable" in operation) {
    createTable(handle, operation.CreateTable);
    return `Table ${operation.CreateTable.table} created`;
  }
  dropTable(handle, operation.DropTable);
  return `Table ${operation.DropTable.table} dropped`;
}

function rowCount(count: number): string {
  return count === 1 ? "1 row" : `${count} rows`;
}
