import type { ChangeName, Operation, TableOperation } from "../../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../../query/operations.ts";
import { LimitCounter, type QueryLimit } from "../limits.ts";
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
import { requireSameRows } from "../sql/preview.ts";
import type { Changed } from "../sql/target.ts";
import type { Dialect } from "./dialect.ts";
import type { Place, Session } from "./session.ts";

/** What one transaction does, and how its answer looks. */
export interface Work {
  readonly isBatch: boolean;
  readonly operations: readonly TableOperation[];
  readonly limits: readonly QueryLimit[];
}

/**
 * Carries out the operations in their order and writes the JSON answer to the spool.
 *
 * @throws EngineRefusal, which names the element of a Batch that it is about, or the server's
 * error
 */
export async function performAll<Leased extends Session>(
  dialect: Dialect<Leased>,
  session: Leased,
  { isBatch, operations, limits }: Work,
  spool: Spool,
): Promise<void> {
  const { refusalOf, concernsStatement } = dialect.failures;
  const counter = new LimitCounter(limits);
  const isRead = isBatch || operations.some(isReading);
  spool.write(`{"status":"success",${isRead ? '"data":' : ""}${isBatch ? "[" : ""}`);
  for (const [index, operation] of operations.entries()) {
    if (index > 0) spool.write(",");
    try {
      const place = placeOf(dialect, session, operation.fields.database);
      await perform(
        dialect,
        place,
        operation,
        spool,
        isBatch ? { counter, element: index } : { counter },
      );
    } catch (error) {
      throw isBatch && concernsStatement(error)
        ? (refusalOf(error)?.at(`Batch[${index}]`) ?? error)
        : error;
    }
  }
  spool.write(isBatch ? "]}" : "}");
}

/** A database in a session. @throws EngineRefusal `database_not_found` for one that no query can name */
export function placeOf<Leased extends Session>(
  dialect: Dialect<Leased>,
  session: Leased,
  database: string,
): Place<Leased> {
  return { session, database, schema: dialect.visibleSchema(database) };
}

async function perform<Leased extends Session>(
  dialect: Dialect<Leased>,
  place: Place<Leased>,
  operation: TableOperation,
  spool: Spool,
  inQuery: PlaceInQuery,
): Promise<void> {
  if (isReading(operation)) return readIn(dialect, place, operation, spool);
  const { touched } = inQuery.counter;
  if (touched !== undefined && isRowChange(operation)) {
    requireSameRows(await dialect.digestTouched(place, operation), touched);
  }
  const changed = await change(dialect, place, operation);
  countChanged(changed, inQuery, spool);
  const isBatch = inQuery.element !== undefined;
  for (const text of changeTexts(operation, changed, isBatch)) spool.write(text);
}

/** Writes the answer of a Preview, whose change is to be taken back. @throws as `performAll` does */
export async function performPreview<Leased extends Session>(
  dialect: Dialect<Leased>,
  session: Leased,
  fields: OperationFields["Preview"],
  spool: Spool,
  counter: LimitCounter,
): Promise<void> {
  const operation = previewedIn(fields);
  const place = placeOf(dialect, session, operation.fields.database);
  const digest = counter.touched && (await dialect.digestTouched(place, operation));
  const previewed = await dialect.preview(place, operation, counter.columns);
  countPreviewed(previewed, counter, spool);
  for (const text of previewTexts(previewed, digest)) spool.write(text);
}

/** Carries out a reading operation and writes its rows to an output. @throws as `performAll` does */
export function read<Leased extends Session>(
  dialect: Dialect<Leased>,
  session: Leased,
  operation: Operation<ReadingName>,
  output: RowOutput,
): Promise<void> {
  const place = placeOf(dialect, session, operation.fields.database);
  return readIn(dialect, place, operation, output);
}

function readIn<Leased extends Session, Name extends ReadingName>(
  { reads }: Dialect<Leased>,
  place: Place<Leased>,
  { name, fields }: Operation<Name>,
  output: RowOutput,
): Promise<void> {
  return reads[name](place, fields, output);
}

function change<Leased extends Session, Name extends ChangeName>(
  { changes }: Dialect<Leased>,
  place: Place<Leased>,
  { name, fields }: Operation<Name>,
): Promise<Changed> {
  return changes[name](place, fields);
}
