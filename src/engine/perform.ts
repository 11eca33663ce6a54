import type { ChangeName, Operation, TableOperation } from "../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../query/operations.ts";
import { LimitCounter, type QueryLimit } from "./limits.ts";
import type { Operations, Place, Session } from "./remote/dialect.ts";
import type { RowOutput, Spool } from "./spool.ts";
import {
  changeTexts,
  countChanged,
  countPreviewed,
  isReading,
  isRowChange,
  type PlaceInQuery,
  previewedIn,
  previewTexts,
} from "./sql/answers.ts";
import { requireSameRows } from "./sql/preview.ts";
import type { Changed } from "./sql/target.ts";

export interface Work {
  readonly isBatch: boolean;
  readonly operations: readonly TableOperation[];
  readonly limits: readonly QueryLimit[];
}

/**
 * Runs the operations in order and writes the JSON answer to the spool.
 *
 * @throws EngineRefusal that names the element of a Batch, or the server's error
 */
export async function performAll<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  work: Work,
  spool: Spool,
): Promise<void> {
  const { isBatch, operations } = work;
  const isRead = isBatch || operations.some(isReading);
  spool.write(`{"status":"success",${isRead ? '"data":' : ""}${isBatch ? "[" : ""}`);
  if (isBatch) await performBatch(dialect, session, work, spool);
  else {
    const counter = new LimitCounter(work.limits);
    for (const operation of operations) {
      const texts = await perform(dialect, session, operation, spool, { counter });
      for (const text of texts) spool.write(text);
    }
  }
  spool.write(isBatch ? "]}" : "}");
}

const MOST_TOGETHER = 100;

/**
 * Runs the elements of a Batch. Without limits to count, changes do not wait for the replies to
 * earlier ones.
 */
async function performBatch<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  { operations, limits }: Work,
  spool: Spool,
): Promise<void> {
  const { refusalOf, concernsStatement } = dialect.failures;
  const counter = new LimitCounter(limits);
  let answers: Promise<Iterable<string>>[] = [];
  let separator = "";
  async function performElement(operation: TableOperation, element: number) {
    try {
      return await perform(dialect, session, operation, spool, { counter, element });
    } catch (error) {
      throw concernsStatement(error) ? (refusalOf(error)?.inElement(element) ?? error) : error;
    }
  }
  async function writeAnswers(): Promise<void> {
    for (const answer of await Promise.allSettled(answers)) {
      if (answer.status === "rejected") throw answer.reason;
      spool.write(separator);
      for (const text of answer.value) spool.write(text);
      separator = ",";
    }
    answers = [];
  }
  for (const [index, operation] of operations.entries()) {
    if (isReading(operation)) {
      await writeAnswers();
      spool.write(separator);
      await performElement(operation, index);
      separator = ",";
      continue;
    }
    const sent = limits.length === 0 ? session.lastSent?.() : undefined;
    const answer = performElement(operation, index);
    answers.push(answer);
    await Promise.race([sent ?? answer, answer]).catch(writeAnswers);
    if (answers.length === MOST_TOGETHER) await writeAnswers();
  }
  await writeAnswers();
}

/** @throws EngineRefusal `database_not_found` for a database that no query can name */
export function placeOf<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  database: string,
  counter?: LimitCounter,
): Place<Leased> {
  return { session, database, schema: dialect.visibleSchema(database), counter };
}

async function perform<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  operation: TableOperation,
  spool: Spool,
  inQuery: PlaceInQuery,
): Promise<Iterable<string>> {
  const { counter } = inQuery;
  const place = placeOf(dialect, session, operation.fields.database, counter);
  if (isReading(operation)) {
    await read(dialect, place, operation, spool);
    return [];
  }
  const { touched } = counter;
  if (touched !== undefined && isRowChange(operation)) {
    requireSameRows(await dialect.digestTouched(place, operation), touched);
  }
  const changed = await change(dialect, place, operation);
  countChanged(changed, inQuery, spool);
  return changeTexts(operation, changed, inQuery.element !== undefined);
}

/** Writes the answer of a Preview, whose change will be rolled back. */
export async function performPreview<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  fields: OperationFields["Preview"],
  spool: Spool,
  counter: LimitCounter,
): Promise<void> {
  const operation = previewedIn(fields);
  const place = placeOf(dialect, session, operation.fields.database, counter);
  const digest = counter.touched && (await dialect.digestTouched(place, operation));
  const previewed = await dialect.preview(place, operation, counter);
  countPreviewed(previewed, counter, spool);
  for (const text of previewTexts(previewed, digest)) spool.write(text);
}

function change<Leased extends Session, Name extends ChangeName>(
  { changes }: Operations<Leased>,
  place: Place<Leased>,
  { name, fields }: Operation<Name>,
): Promise<Changed> {
  return changes[name](place, fields);
}

export function read<Leased extends Session, Name extends ReadingName>(
  { reads }: Operations<Leased>,
  place: Place<Leased>,
  { name, fields }: Operation<Name>,
  output: RowOutput,
): Promise<void> {
  return reads[name](place, fields, output);
}
