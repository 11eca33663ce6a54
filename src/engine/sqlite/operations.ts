import type { OperationFields, ReadingName } from "../../query/operations.ts";
import type { ChangeName, Operation, TableOperation } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { isReading, sentenceOf } from "../sql/operations.ts";
import { deleteRows, update } from "./change.ts";
import { createTable, dropTable } from "./define.ts";
import type { DatabaseHandle } from "./handle.ts";
import { insert } from "./insert.ts";
import { select } from "./select.ts";

/** Each reading operation writes its rows to the spool as one JSON array. */
const reads: {
  [Name in ReadingName]: (
    handle: DatabaseHandle,
    fields: OperationFields[Name],
    spool: Spool,
  ) => void;
} = { Select: select };

/** Each change returns how many rows were changed; none where tables are. */
const changes: {
  [Name in ChangeName]: (handle: DatabaseHandle, fields: OperationFields[Name]) => number;
} = {
  Insert: insert,
  Update: update,
  Delete: deleteRows,
  CreateTable: createTable,
  DropTable: dropTable,
};

/**
 * Carries out one operation and writes its result to the spool as one JSON value: rows, or a
 * sentence that says what was done.
 *
 * Throws `EngineRefusal`, or SQLite's error.
 */
export function perform(handle: DatabaseHandle, operation: TableOperation, spool: Spool): void {
  if (isReading(operation)) read(handle, operation, spool);
  else spool.write(JSON.stringify(sentenceOf(operation, change(handle, operation))));
}

function read<Name extends ReadingName>(
  handle: DatabaseHandle,
  { name, fields }: Operation<Name>,
  spool: Spool,
): void {
  reads[name](handle, fields, spool);
}

function change<Name extends ChangeName>(
  handle: DatabaseHandle,
  { name, fields }: Operation<Name>,
): number {
  return changes[name](handle, fields);
}
