import type { ChangeName, Operation, TableOperation } from "../query/operation-types.ts";
import { MOST_PREVIEW_ROWS, type OperationFields, type ReadingName } from "../query/operations.ts";
import { Bindings, bindingsOf, requireExpected } from "./bindings.ts";
import { LimitCounter, type QueryLimit } from "./limits.ts";
import type { Operations, QueryContext, Session } from "./remote/dialect.ts";
import type { RowOutput, Spool } from "./spool.ts";
import {
  changeJson,
  countChanged,
  countPreviewed,
  isReading,
  isRowChange,
  previewedOperations,
  previewJson,
  type QueryPosition,
} from "./sql/answers.ts";
import { type RowChangeName, requireSameRows } from "./sql/preview.ts";
import type { Changed } from "./sql/target.ts";

export interface Work {
  readonly isBatch: boolean;
  readonly operations: readonly TableOperation[];
  readonly limits: readonly QueryLimit[];
}

/** @throws EngineRefusal that names the element of a Batch, or the server's error */
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

const MAX_UNANSWERED_CHANGES = 100;

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
  const bindings = new Bindings(operations);
  let answers: Promise<Iterable<string>>[] = [];
  let separator = "";
  async function performElement(operation: TableOperation, element: number) {
    try {
      return await perform(dialect, session, operation, spool, { counter, element, bindings });
    } catch (error) {
      const refusal = concernsStatement(error) ? refusalOf(error) : undefined;
      throw refusal === undefined ? error : bindings.placed(refusal, element);
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
    // The rows that it binds must be known.
    if (bindingsOf(operation).length > 0) await writeAnswers();
    const sent = limits.length === 0 ? session.lastSent?.() : undefined;
    const answer = performElement(operation, index);
    answers.push(answer);
    await Promise.race([sent ?? answer, answer]).catch(writeAnswers);
    if (answers.length === MAX_UNANSWERED_CHANGES) await writeAnswers();
  }
  await writeAnswers();
}

/** @throws EngineRefusal `database_not_found` for a database that no query can name */
export function contextOf<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  database: string,
  counter?: LimitCounter,
): QueryContext<Leased> {
  return { session, database, schema: dialect.visibleSchema(database), counter };
}

async function perform<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  operation: TableOperation,
  spool: Spool,
  inQuery: QueryPosition,
): Promise<Iterable<string>> {
  const { counter, element, bindings } = inQuery;
  const context = contextOf(dialect, session, operation.fields.database, counter);
  if (isReading(operation)) {
    await read(dialect, context, operation, spool);
    return [];
  }
  const { touched } = counter;
  if (touched !== undefined && isRowChange(operation)) {
    requireSameRows(await dialect.digestAffected(context, operation), touched);
  }
  if (bindings === undefined || element === undefined || !isRowChange(operation)) {
    const changed = await change(dialect, context, operation);
    countChanged(changed, inQuery, spool);
    return changeJson(operation, changed, element !== undefined);
  }
  const found = await change(dialect, context, bindings.apply(operation, element));
  const changed = bindings.take(operation, element, found);
  countChanged(changed, inQuery, spool);
  requireExpected(operation, element, changed);
  return changeJson(operation, changed, true);
}

/** Writes the answer of a Preview, whose changes will be rolled back. */
export async function performPreview<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  fields: OperationFields["Preview"],
  spool: Spool,
  counter: LimitCounter,
): Promise<void> {
  const { Batch, limit = MOST_PREVIEW_ROWS } = fields;
  const operations = previewedOperations(fields);
  if (Batch === undefined) {
    spool.write('{"status":"success",');
    for (const operation of operations) {
      await previewOne(dialect, session, operation, spool, { counter, limit });
    }
    return spool.write("}");
  }
  const { refusalOf, concernsStatement } = dialect.failures;
  const bindings = new Bindings(operations);
  spool.write('{"status":"success","data":[');
  for (const [element, operation] of operations.entries()) {
    spool.write(element === 0 ? "{" : ",{");
    try {
      const inQuery = { counter, limit, element, bindings };
      await previewOne(dialect, session, operation, spool, inQuery);
    } catch (error) {
      const refusal = concernsStatement(error) ? refusalOf(error) : undefined;
      throw refusal === undefined ? error : bindings.placed(refusal, element);
    }
    spool.write("}");
  }
  spool.write("]}");
}

async function previewOne<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  operation: Operation<RowChangeName>,
  spool: Spool,
  inQuery: QueryPosition & { readonly limit: number },
): Promise<void> {
  const { counter, limit, element = 0, bindings } = inQuery;
  const { touched } = counter;
  const context = contextOf(dialect, session, operation.fields.database, counter);
  const digest = touched && (await dialect.digestAffected(context, operation));
  const visible = counter.columnsOf(element);
  // A row that others bind to must be read, even if none is shown.
  const options = { visible, isForApprover: touched !== undefined, limit: Math.max(limit, 1) };
  const bound = bindings?.apply(operation, element, true) ?? operation;
  const found = await dialect.preview(context, bound, options);
  const whole = bindings?.takeFromPreview(operation, element, found) ?? found;
  const [before, after] = [whole.before.slice(0, limit), whole.after.slice(0, limit)];
  const previewed = { ...whole, before, after };
  countPreviewed(previewed, inQuery, spool);
  if (bindings !== undefined) requireExpected(operation, element, previewed);
  for (const text of previewJson(previewed, digest)) spool.write(text);
}

function change<Leased extends Session, Name extends ChangeName>(
  { changes }: Operations<Leased>,
  context: QueryContext<Leased>,
  { name, fields }: Operation<Name>,
): Promise<Changed> {
  return changes[name](context, fields);
}

export function read<Leased extends Session, Name extends ReadingName>(
  { reads }: Operations<Leased>,
  context: QueryContext<Leased>,
  { name, fields }: Operation<Name>,
  output: RowOutput,
): Promise<void> {
  return reads[name](context, fields, output);
}
