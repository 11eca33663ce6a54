import type { ChangeName, Operation, TableOperation } from "../../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../../query/operations.ts";
import type { LimitCounter } from "../limits.ts";
import { EngineRefusal } from "../refusal.ts";
import type { RowOutput, Spool } from "../spool.ts";
import {
  changeTexts,
  countChanged,
  countPreviewed,
  isReading,
  isRowChange,
  type PlaceInQuery,
  previewedIn,
  previewTexts,
} from "../sql/answers.ts";
import { deleteRows, insert, update, upsert } from "../sql/changes.ts";
import { digestTouched, preview, requireSameRows } from "../sql/preview.ts";
import type { Changed } from "../sql/target.ts";
import { brokenKey } from "../sql/violations.ts";
import { findBrokenKey, take, targetOf } from "./change.ts";
import { createTable, dropTable } from "./define.ts";
import { select } from "./select.ts";
import type { DatabaseHandle } from "./statements.ts";

/** Each reading operation writes its rows to an output. */
const reads: {
  [Name in ReadingName]: (
    handle: DatabaseHandle,
    fields: OperationFields[Name],
    output: RowOutput,
  ) => void;
} = { Select: select };

/** What each change does. */
const changes: {
  [Name in ChangeName]: (handle: DatabaseHandle, fields: OperationFields[Name]) => Changed;
} = {
  Insert: (handle, fields) => take(handle, insert(targetOf(handle, fields.table), fields)),
  Update: (handle, fields) => take(handle, update(targetOf(handle, fields.table), fields)),
  Delete: (handle, fields) => take(handle, deleteRows(targetOf(handle, fields.table), fields)),
  Upsert: (handle, fields) => take(handle, upsert(targetOf(handle, fields.table), fields)),
  CreateTable: createTable,
  DropTable: dropTable,
};

/**
 * Carries out one operation and writes its result to the spool: rows as one JSON array; what a
 * change did, which in a Batch is one value too, and else some members of the answer.
 *
 * @throws EngineRefusal, or SQLite's error
 */
export function perform(
  opened: DatabaseHandle,
  operation: TableOperation,
  spool: Spool,
  place: PlaceInQuery,
): void {
  const handle = { ...opened, counter: place.counter };
  if (isReading(operation)) {
    read(handle, operation, spool);
    return;
  }
  const { touched } = place.counter;
  if (touched !== undefined && isRowChange(operation)) {
    const target = targetOf(handle, operation.fields.table);
    requireSameRows(take(handle, digestTouched(target, operation)), touched);
  }
  const changed = namingKeys(handle, operation, () => change(handle, operation));
  countChanged(changed, place, spool);
  const isBatch = place.element !== undefined;
  for (const text of changeTexts(operation, changed, isBatch)) spool.write(text);
}

/** Writes the answer of a Preview, whose change is to be taken back. @throws as `perform` does */
export function performPreview(
  opened: DatabaseHandle,
  fields: OperationFields["Preview"],
  spool: Spool,
  counter: LimitCounter,
): void {
  const handle = { ...opened, counter };
  const operation = previewedIn(fields);
  const target = targetOf(handle, operation.fields.table);
  const digest = counter.touched && take(handle, digestTouched(target, operation));
  const previewed = take(handle, preview(target, operation, counter));
  countPreviewed(previewed, counter, spool);
  for (const text of previewTexts(previewed, digest)) spool.write(text);
}

/** Carries out a reading operation. @throws as `perform` does */
export function read<Name extends ReadingName>(
  handle: DatabaseHandle,
  { name, fields }: Operation<Name>,
  output: RowOutput,
): void {
  reads[name](handle, fields, output);
}

/** Does the work of a change; SQLite itself does not say which foreign key it breaks. */
function namingKeys<Result>(
  handle: DatabaseHandle,
  operation: Operation<ChangeName>,
  work: () => Result,
): Result {
  try {
    return work();
  } catch (error) {
    const isOfKey = error instanceof Error && error.message === "FOREIGN KEY constraint failed";
    const broken = isOfKey && isRowChange(operation) ? findBrokenKey(handle, operation) : undefined;
    throw broken === undefined ? error : new EngineRefusal(...brokenKey(broken));
  }
}

function change<Name extends ChangeName>(
  handle: DatabaseHandle,
  { name, fields }: Operation<Name>,
): Changed {
  return changes[name](handle, fields);
}
