import { setImmediate } from "node:timers/promises";
import type { QueryLimit } from "../core/query/limits.ts";
import { MOST_PREVIEW_ROWS } from "../core/query/operations.ts";
import { changesIn, isRowChange } from "../core/query/query.ts";
import type {
  ChangeName,
  Operation,
  OperationFields,
  RowChangeName,
  Select,
  TableOperation,
} from "../core/query/tree.ts";
import { Bindings, findBindings, requireExpected } from "./bindings.ts";
import { LimitCounter } from "./limits.ts";
import { EngineRefusal } from "./refusal.ts";
import type { Operations, QueryContext, Session } from "./remote/dialect.ts";
import { refused } from "./remote/failures.ts";
import type { RowOutput, Spool } from "./spool.ts";
import { changeJson, isReading, previewJson } from "./sql/answers.ts";
import { requireSameRows } from "./sql/changes.ts";
import { requireShortLists } from "./sql/conditions.ts";
import { tablesIn } from "./sql/select.ts";
import { type Changed, tableList } from "./sql/target.ts";

export interface Work {
  readonly isBatch: boolean;
  readonly operations: readonly TableOperation[];
  readonly limits: readonly QueryLimit[];
}

interface Run<Leased extends Session> {
  readonly dialect: Operations<Leased>;
  readonly session: Leased;
  readonly spool: Spool;
  readonly counter: LimitCounter;
  readonly bindings: Bindings;
  readonly isBatch: boolean;
}

/** @throws EngineRefusal that names the element of a Batch, or the server's error */
export async function performAll<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  { isBatch, operations, limits }: Work,
  spool: Spool,
): Promise<void> {
  const counter = new LimitCounter(limits);
  const run = { dialect, session, spool, counter, bindings: new Bindings(operations), isBatch };
  const isRead = isBatch || operations.some(isReading);
  spool.write(`{"status":"success",${isRead ? '"data":' : ""}${isBatch ? "[" : ""}`);
  if (isBatch) await performBatch(run, operations, limits.length === 0);
  else {
    for (const operation of operations) {
      for (const text of await perform(run, operation)) spool.write(text);
    }
  }
  spool.write(isBatch ? "]}" : "}");
}

const MAX_UNANSWERED_CHANGES = 100;
/** Changes that do not wait for replies let the event loop take a turn after this long. */
const LONGEST_TURN_MS = 8;

/**
 * Runs the elements of a Batch. Without limits to count, changes do not wait for the replies to
 * earlier ones.
 */
async function performBatch<Leased extends Session>(
  run: Run<Leased>,
  operations: readonly TableOperation[],
  isUnlimited: boolean,
): Promise<void> {
  const { session, spool } = run;
  let answers: Promise<Iterable<string>>[] = [];
  let separator = "";
  async function writeAnswers(): Promise<void> {
    for (const answer of await Promise.allSettled(answers)) {
      if (answer.status === "rejected") throw answer.reason;
      spool.write(separator);
      for (const text of answer.value) spool.write(text);
      separator = ",";
    }
    answers = [];
  }
  let turnBegan = performance.now();
  for (const [element, operation] of operations.entries()) {
    if (performance.now() - turnBegan > LONGEST_TURN_MS) {
      await setImmediate();
      turnBegan = performance.now();
    }
    const performElement = () => inElement(run, element, () => perform(run, operation, element));
    if (isReading(operation)) {
      await writeAnswers();
      spool.write(separator);
      await performElement();
      separator = ",";
      continue;
    }
    // The rows that it binds must be known.
    if (findBindings(operation).length > 0) await writeAnswers();
    const sent = isUnlimited ? session.lastSent?.() : undefined;
    const answer = performElement();
    answers.push(answer);
    await Promise.race([sent ?? answer, answer]).catch(writeAnswers);
    if (answers.length === MAX_UNANSWERED_CHANGES) await writeAnswers();
  }
  await writeAnswers();
}

async function inElement<Leased extends Session, Result>(
  { dialect: { failures }, bindings }: Run<Leased>,
  element: number,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    const refusal = failures.concernsStatement(error) ? failures.refusalOf(error) : undefined;
    throw refusal === undefined ? error : bindings.placed(refusal, element);
  }
}

/** @throws EngineRefusal `database_not_found` for a database that no query can name */
export function openContext<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  database: string,
  counter?: LimitCounter,
): QueryContext<Leased> {
  return { session, database, schema: dialect.visibleSchema(database), counter };
}

/** The tables of a database, or one table. */
export async function describeSchema<Leased extends Session>(
  dialect: Operations<Leased>,
  session: Leased,
  database: string,
  table: string | undefined,
): Promise<object> {
  const context = openContext(dialect, session, database);
  if (table === undefined) return tableList(await dialect.listTables(context));
  return dialect.describeTable(context, table);
}

async function perform<Leased extends Session>(
  { dialect, session, spool, counter, bindings, isBatch }: Run<Leased>,
  operation: TableOperation,
  element = 0,
): Promise<Iterable<string>> {
  const context = openContext(dialect, session, operation.fields.database, counter);
  if (isReading(operation)) {
    await read(dialect, context, operation.fields, spool);
    return [];
  }
  if (!isRowChange(operation)) {
    return changeJson(operation, await change(dialect, context, operation), isBatch);
  }
  const { touched } = counter;
  if (touched !== undefined) {
    requireShortLists(operation.fields);
    requireSameRows(await dialect.digestAffected(context, operation), touched);
  }
  const found = await change(dialect, context, bindings.apply(operation, element));
  const { affected = 0, data = [] } = found;
  bindings.keep(element, data, data.length);
  const isAnswered = operation.fields.returning !== undefined;
  const rows = isAnswered ? bindings.withoutKept(operation, element, data) : undefined;
  counter.count(element, affected, rows?.length ?? 0);
  spool.countAffected(affected);
  if (rows !== undefined) spool.countRows(rows.length);
  requireExpected(operation, element, affected);
  return changeJson(operation, { affected, ...(rows && { data: rows }) }, isBatch);
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
  const operations = changesIn(fields);
  const isBatch = Batch !== undefined;
  const run = { dialect, session, spool, counter, bindings: new Bindings(operations), isBatch };
  spool.write(`{"status":"success",${isBatch ? '"data":[{' : ""}`);
  for (const [element, operation] of operations.entries()) {
    if (element > 0) spool.write("},{");
    const preview = () => previewOne(run, operation, element, limit);
    await (isBatch ? inElement(run, element, preview) : preview());
  }
  spool.write(isBatch ? "}]}" : "}");
}

async function previewOne<Leased extends Session>(
  { dialect, session, spool, counter, bindings }: Run<Leased>,
  operation: Operation<RowChangeName>,
  element: number,
  limit: number,
): Promise<void> {
  const { touched } = counter;
  const context = openContext(dialect, session, operation.fields.database, counter);
  requireShortLists(operation.fields);
  const digest = touched && (await dialect.digestAffected(context, operation));
  const visible = counter.columnsOf(element);
  const isForApprover = touched !== undefined;
  // A row that others bind to must be read, even if none is shown.
  const options = { visible, isForApprover, limit: Math.max(limit, 1) };
  const bound = bindings.apply(operation, element, true);
  const { affected, before, after } = await dialect.preview(context, bound, options);
  bindings.keep(element, after.length === 0 ? before : after, affected);
  const shown = (rows: readonly string[]) => {
    const some = rows.slice(0, limit);
    return isForApprover ? some : bindings.withoutKept(operation, element, some);
  };
  const previewed = { affected, before: shown(before), after: shown(after) };
  const count = Math.max(previewed.before.length, previewed.after.length);
  counter.count(element, affected, count);
  spool.countRows(count);
  requireExpected(operation, element, affected);
  for (const text of previewJson(previewed, digest)) spool.write(text);
}

function change<Leased extends Session, Name extends ChangeName>(
  { changes }: Operations<Leased>,
  context: QueryContext<Leased>,
  { name, fields }: Operation<Name>,
): Promise<Changed> {
  requireShortLists(fields);
  return changes[name](context, fields);
}

export async function read<Leased extends Session>(
  { select, failures }: Operations<Leased>,
  context: QueryContext<Leased>,
  query: Select,
  output: RowOutput,
): Promise<void> {
  requireShortLists(query);
  try {
    await select(context, query, output);
  } catch (error) {
    if (!failures.concernsStatement(error)) throw error;
    const origin = { schema: context.schema, tables: tablesIn(query), isReading: true };
    const refusal = failures.refusalOf(error, origin);
    const names = refusal?.message === refused.outOfRange[1] ? computedIn(query) : [];
    if (refusal === undefined || names.length === 0) throw refusal ?? error;
    const problem = `A number is out of range: ${names.join(" or ")}`;
    throw new EngineRefusal(refusal.code, problem, { cause: refusal });
  }
}

const arithmetic: ReadonlySet<unknown> = new Set(["add", "sub", "mul", "div", "abs", "sum", "avg"]);

/** The names of a Select whose numbers may be out of range, at every level. */
function computedIn(part: unknown): string[] {
  if (typeof part !== "object" || part === null) return [];
  const names = Object.values(part).flatMap(computedIn);
  const isName = "fn" in part && "as" in part && arithmetic.has(part.fn);
  return isName ? [JSON.stringify(part.as), ...names] : names;
}
