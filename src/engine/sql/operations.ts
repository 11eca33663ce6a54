import type { TableOperation } from "../../query/shape.ts";

/** An operation that answers with a sentence. */
export type Change = Exclude<TableOperation, { Select: unknown }>;

/** The database that an operation is about. */
export function databaseOf(operation: TableOperation): string {
  if ("Select" in operation) return operation.Select.database;
  if ("Insert" in operation) return operation.Insert.database;
  if ("Update" in operation) return operation.Update.database;
  if ("Delete" in operation) return operation.Delete.database;
  if ("CreateTable" in operation) return operation.CreateTable.database;
  return operation.DropTable.database;
}

/** The sentence that says what was done; `count` is how many rows, if rows were changed. */
export function sentenceOf(operation: Change, count: number): string {
  if ("Insert" in operation) return `Inserted ${rowCount(count)}`;
  if ("Update" in operation) return `Updated ${rowCount(count)}`;
  if ("Delete" in operation) return `Deleted ${rowCount(count)}`;
  if ("CreateTable" in operation) return `Table ${operation.CreateTable.table} created`;
  return `Table ${operation.DropTable.table} dropped`;
}

function rowCount(count: number): string {
  return count === 1 ? "1 row" : `${count} rows`;
}
