import type { TableOperation } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { type Change, sentenceOf } from "../sql/operations.ts";
import { deleteRows, update } from "./change.ts";
import { createTable, dropTable } from "./define.ts";
import type { DatabaseHandle } from "./handle.ts";
import { insert } from "./insert.ts";
import { select } from "./select.ts";

/**
 * Carries out one operation and writes its result to the spool as one JSON value: the rows of a
 * Select, or a sentence that says what was done.
 *
 * Throws `EngineRefusal`, or SQLite's error.
 */
export function perform(handle: DatabaseHandle, operation: TableOperation, spool: Spool): void {
  if ("Select" in operation) select(handle, operation.Select, spool);
  else spool.write(JSON.stringify(sentenceOf(operation, change(handle, operation))));
}

/** Returns how many rows were changed; none where tables are. */
function change(handle: DatabaseHandle, operation: Change): number {
  if ("Insert" in operation) return insert(handle, operation.Insert);
  if ("Update" in operation) return update(handle, operation.Update);
  if ("Delete" in operation) return deleteRows(handle, operation.Delete);
  if ("CreateTable" in operation) createTable(handle, operation.CreateTable);
  else dropTable(handle, operation.DropTable);
  return 0;
}
