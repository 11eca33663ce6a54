import { setImmediate } from "node:timers/promises";
import { sql } from "kysely";
import { parseExact } from "../../core/json/exact.ts";
import type {
  CellValue,
  OperationFields,
  Row,
  RowChangeName,
  Select,
} from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import type { RowOutput } from "../spool.ts";
import { deleteRows, digestAffected, insert, preview, update, upsert } from "../sql/changes.ts";
import { ByShape, type Fragment, type ResultRow, type StatementRunner } from "../sql/fragment.ts";
import {
  type Included,
  isFixed,
  planIncludes,
  type ReadingPlan,
  type RowSource,
  writeRows,
} from "../sql/include.ts";
import {
  type Column,
  type ColumnKind,
  cellIn,
  type Encoded,
  inRow,
  requireDistinct,
  resolveColumn,
  type Table,
} from "../sql/scope.ts";
import {
  listSources,
  type SelectDialect,
  type SelectedTable,
  SelectPlanner,
  tableKeys,
  tablesIn,
  tablesIncluded,
  tablesWithin,
} from "../sql/select.ts";
import {
  type Changed,
  encodeRows,
  namesSql,
  narrowed,
  readKeys,
  type Target,
  type TargetColumn,
} from "../sql/target.ts";
import { comparedValue, storedValue } from "../sql/values.ts";
import type { Changes, Dialect, Failures, QueryContext, RemoteColumn, Session } from "./dialect.ts";
import { refused } from "./failures.ts";

type Answering<Raw> = Session & StatementRunner<Raw>;

export type ChangeFields = Pick<OperationFields["Insert"], "table" | "returning"> &
  Pick<OperationFields["Select"], "where"> &
  Partial<
    Pick<OperationFields["Update"], "set" | "add"> & Pick<OperationFields["Insert"], "values">
  >;

type KnownTable<Kind extends ColumnKind> = Table<RemoteColumn & Column<Kind>>;

/** How a database reads and changes rows. */
interface RowDialect<Leased extends Answering<Raw>, Raw, Kind extends Encoded<Raw>> {
  readonly failures: Pick<Failures, "refusalOf" | "concernsStatement">;
  /** Reads tables in the order of their names. Cached descriptions are enough. */
  readTables(
    context: QueryContext<Leased>,
    names: readonly string[],
  ): readonly KnownTable<Kind>[] | Promise<readonly KnownTable<Kind>[]>;
  keysSql(schema: string, table: string): Fragment;
  selectDialect(session: Leased): SelectDialect<Kind>;
  rowSource(session: Leased, output: RowOutput): RowSource<Raw, Kind>;
  /** Finds the table of a change. Unless it `isRead`, a cached description is enough. */
  targetOf(
    context: QueryContext<Leased>,
    table: string,
    isRead: boolean,
  ): Target<Raw> | Promise<Target<Raw>>;
  /** Adds what an error of the database does not say. */
  explain(
    context: QueryContext<Leased>,
    target: Target<Raw>,
    error: unknown,
    fields: ChangeFields,
  ): Promise<EngineRefusal | undefined>;
}

interface RowOperations<Leased extends Session, Kind extends ColumnKind>
  extends Pick<Dialect<Leased>, "select" | "preview" | "digestAffected"> {
  planReading(context: QueryContext<Leased>, query: Select): Promise<ReadingPlan<Kind>>;
  readonly changes: Pick<Changes<Leased>, RowChangeName>;
}

export function rowOperations<Leased extends Answering<Raw>, Raw, Kind extends Encoded<Raw>>(
  dialect: RowDialect<Leased, Raw, Kind>,
): RowOperations<Leased, Kind> {
  const { refusalOf, concernsStatement } = dialect.failures;
  const knownIncludes = new ByShape<readonly Included<Kind>[]>();

  async function plannerFor(
    context: QueryContext<Leased>,
    names: readonly string[],
    isChange: boolean,
  ) {
    const tables = new Map<string, KnownTable<Kind>>();
    const found = dialect.readTables(context, [...new Set(names)]);
    for (const known of found instanceof Promise ? await found : found) {
      const { name } = known;
      const { bytewise } = context.counter?.bytewiseIn(context.database, name) ?? {};
      tables.set(name, bytewise === undefined ? known : { ...known, bytewise });
    }
    const selects = dialect.selectDialect(context.session);
    return { tables, planner: new SelectPlanner(context.schema, tables, selects, isChange) };
  }

  async function planReading(
    context: QueryContext<Leased>,
    query: Select,
  ): Promise<ReadingPlan<Kind>> {
    const { session, schema } = context;
    const names = tablesIn(query);
    const { tables: known, planner } = await plannerFor(context, names, false);
    // Templates are cached by table, so a Select of one table uses it as it is.
    const { from, include = [] } = query;
    const included = include.flatMap(tablesIncluded);
    const only =
      names.length === included.length + 1 && typeof from === "string"
        ? known.get(from)
        : undefined;
    const scope = only === undefined ? planner.scopeOf(query) : [only];
    const tables = [...scope];
    for (const [index, source] of query.after === undefined ? [] : listSources(query).entries()) {
      const stored = "table" in source ? known.get(source.table) : undefined;
      const table = scope[index];
      if (table === undefined || stored === undefined) continue;
      const keys = dialect.keysSql(schema, stored.name);
      tables[index] = await withKeys(session, table, stored, query, keys);
    }
    const plan = planner.plan(tables, query);
    const makeIncludes = () => planIncludes(planner, { ...plan, tables }, include);
    if (include.length === 0 || !include.every(isFixed))
      return { ...plan, includes: makeIncludes() };
    const others = included.flatMap((name) => known.get(name) ?? []);
    const shape = JSON.stringify(include);
    return { ...plan, includes: knownIncludes.find(plan.selected, shape, makeIncludes, others) };
  }

  async function runOn<Result>(
    context: QueryContext<Leased>,
    fields: ChangeFields,
    work: (target: Target<Raw>) => Promise<Result>,
    isRead = fields.returning !== undefined,
  ): Promise<Result> {
    const { table, where } = fields;
    const found = await dialect.targetOf(context, table, isRead);
    const names = tablesWithin(where);
    const nesting =
      names.length === 0 ? undefined : (await plannerFor(context, names, true)).planner;
    const whole = nesting === undefined ? found : { ...found, table: { ...found.table, nesting } };
    const target = narrowed(whole, context.counter?.bytewiseIn(context.database, table));
    try {
      return await work(target);
    } catch (error) {
      if (!concernsStatement(error)) throw error;
      // The database does not always name the table, and its errors are read elsewhere too.
      const origin = { schema: context.schema, tables: [table] };
      const explained = await dialect.explain(context, target, error, fields);
      const refusal = explained ?? refusalOf(error, origin);
      throw (refusal && namingColumns(refusal, target.table, fields)) ?? error;
    }
  }

  return {
    planReading,
    async select(context, query, output) {
      const plan = await planReading(context, query);
      await writeRows(plan, dialect.rowSource(context.session, output), output);
    },
    changes: {
      Insert: (context, fields) => runOn(context, fields, (target) => insert(target, fields)),
      Update: (context, fields) => runOn(context, fields, (target) => update(target, fields)),
      Delete: (context, fields) => runOn(context, fields, (target) => deleteRows(target, fields)),
      Upsert: (context, fields) => runOn(context, fields, (target) => upsert(target, fields), true),
    },
    preview: (context, operation, options) =>
      runOn(context, operation.fields, (target) => preview(target, operation, options), true),
    digestAffected: (context, operation) =>
      runOn(context, operation.fields, (target) => digestAffected(target, operation), true),
  };
}

/**
 * Adds the columns of the query that may be at fault where the database names none. Other values
 * were checked before they were sent.
 */
function namingColumns(
  refusal: EngineRefusal,
  { columns }: Table,
  { add = {}, set = {}, values = [set] }: ChangeFields,
): EngineRefusal {
  const { code, message } = refusal;
  const isOfRange = message === refused.outOfRange[1];
  if (!isOfRange && message !== refused.tooLong[1]) return refusal;
  const names = isOfRange ? Object.keys(add) : values.flatMap((row) => Object.keys(row));
  const suspects = [...new Set(names)].flatMap((name) => {
    const { type = "", kind } = columns.get(name) ?? {};
    return isOfRange || (kind && !kind.measure && !kind.bounds) ? [`"${name}" (${type})`] : [];
  });
  if (suspects.length === 0) return refusal;
  return new EngineRefusal(code, `${message}: ${suspects.join(" or ")}`, { cause: refusal });
}

export function bindReadValue<Raw>(column: TargetColumn<Raw>, raw: Raw): unknown {
  return comparedValue(column, parseExact(column.kind.encode(raw)));
}

/** Adds the columns that identify rows. Avoids a query if the primary key is enough. */
async function withKeys<Raw, Kind extends ColumnKind>(
  session: Answering<Raw>,
  table: SelectedTable<Kind>,
  stored: KnownTable<Kind>,
  { order_by = [] }: Select,
  keys: Fragment,
): Promise<SelectedTable<Kind>> {
  const { name } = table;
  const columns = [...stored.columns.values()];
  const { primary } = tableKeys(columns, []);
  const ordered = new Set([order_by].flat().map(({ column }) => column));
  const isOrdered = (column: string) => ordered.has(column) || ordered.has(`${name}.${column}`);
  const isUnique = primary.length > 0 && primary.every(isOrdered);
  const unique = isUnique ? [] : await readKeys(session, keys);
  return { ...table, keys: tableKeys(columns, unique) };
}

/** The table with its primary and unique keys. */
export async function readWithKeys<Leased extends Answering<Raw>, Raw, Found extends Table>(
  context: QueryContext<Leased>,
  name: string,
  readTable: (context: QueryContext<Leased>, name: string) => Found | Promise<Found>,
  keysSql: (schema: string, name: string) => Fragment,
) {
  const table = await readTable(context, name);
  return { ...table, keys: await readKeys(context.session, keysSql(context.schema, name)) };
}

export interface InsertOptions<Raw> {
  /** All rows of the query, if these are only some. */
  readonly all?: readonly Row[];
  /** True if nothing follows the insertion of a single row without a number of its own. */
  readonly endsWithRow?: boolean;
  /** After the name of the table. */
  readonly alias?: Fragment | undefined;
  readonly tail?: Fragment;
  readonly returning?: readonly TargetColumn<Raw>[] | undefined;
  readonly valuesPerStatement: number;
  /** In characters of strings. A single row may exceed both limits. */
  readonly lengthPerStatement?: number;
  /** SQL for the next number in an identity column. Defaults to `default`. */
  readonly nextNumber?: Fragment;
  /** Called with the error of the statement that inserts `part`. */
  noteRow?(error: unknown, part: readonly Row[], all: readonly Row[]): void;
  /** Called with the numbers that rows have just set in the identity column. */
  onNumbers?(identity: Column, numbers: readonly (CellValue | undefined)[]): Promise<void>;
}

const ofDefault = sql`default`;
const ofNull = sql`null`;
const nothing = sql``;

export type Destination<Raw> = Pick<Target<Raw>, "session" | "name" | "table">;

interface Layout {
  readonly columns: readonly Column[];
  readonly head: Fragment;
  /** SQL around the values of a row. */
  readonly around: TemplateStringsArray;
}

const layouts = new ByShape<Layout>();

/** Inserts rows in order. A column that a row omits gets its default or null. */
export async function insertRows<Raw>(
  destination: Destination<Raw>,
  values: readonly Row[],
  options: InsertOptions<Raw>,
): Promise<Changed> {
  const { session, table } = destination;
  const { returning, onNumbers, all = values } = options;
  const identity = [...table.columns.values()].find(({ isIdentity }) => isIdentity);
  // All names are checked before the first row is stored.
  const runs: { readonly some: readonly Row[]; readonly layout: Layout }[] = [];
  for (const some of await splitRuns(values, identity)) {
    runs.push({ some, layout: await planInsert(destination, some, all, options.alias) });
  }
  const found: ResultRow<Raw>[] = [];
  let affected = 0;
  const [first] = values;
  const takesNumber = identity !== undefined && first !== undefined && givesNumber(first, identity);
  const isLast = options.endsWithRow === true && values.length === 1 && !takesNumber;
  for (const { some, layout } of runs) {
    for (const { statement, part } of insertStatements(some, all, layout, options)) {
      try {
        if (returning === undefined) affected += await session.run(statement, isLast);
        else for (const row of await session.rows(statement)) found.push(row);
      } catch (error) {
        options.noteRow?.(error, part, all);
        throw error;
      }
    }
    if (identity === undefined || onNumbers === undefined) continue;
    await onNumbers(
      identity,
      some.map((row) => cellIn(row, identity.name)),
    );
  }
  if (returning === undefined) return { affected };
  return { affected: found.length, data: encodeRows({ table }, returning, found) };
}

/** Rows that are looked at in one turn of the event loop. */
const ROWS_PER_TURN = 16_384;

async function planInsert<Raw>(
  { name, table }: Destination<Raw>,
  rows: readonly Row[],
  all: readonly Row[],
  alias: Fragment | undefined,
): Promise<Layout> {
  const firsts = new Map<string, Row>();
  let last: readonly string[] = [];
  for (const [at, row] of rows.entries()) {
    if ((at + 1) % ROWS_PER_TURN === 0) await setImmediate();
    const keys = Object.keys(row);
    // Rows tend to have the same keys, and a text of each takes long.
    if (keys.length === last.length && keys.every((key, at) => key === last[at])) continue;
    last = keys;
    const text = JSON.stringify(keys);
    if (!firsts.has(text)) firsts.set(text, row);
  }
  const end = alias === undefined ? "" : " as";
  return layouts.find(table, [...firsts.keys()].join() + end, () => {
    for (const row of firsts.values()) {
      inRow(
        () => all.indexOf(row),
        () => requireDistinct(Object.keys(row).map((key) => resolveColumn([table], key).column)),
      );
    }
    const columns = namedColumns(table, [...firsts.values()]);
    const head = sql`insert into ${name}${alias ?? nothing} (${namesSql(columns)}) values `;
    const around = ["(", ...columns.slice(1).map(() => ", "), ")"];
    return { columns, head, around: Object.assign(around, { raw: around }) };
  });
}

/** Separates rows that set their number from those that receive the next one. */
async function splitRuns(
  rows: readonly Row[],
  identity: Column | undefined,
): Promise<readonly (readonly Row[])[]> {
  if (identity === undefined) return [rows];
  const runs: Row[][] = [];
  let isNumbered: boolean | undefined;
  for (const [at, row] of rows.entries()) {
    if ((at + 1) % ROWS_PER_TURN === 0) await setImmediate();
    const isGiven = givesNumber(row, identity);
    if (isGiven !== isNumbered) runs.push([]);
    runs.at(-1)?.push(row);
    isNumbered = isGiven;
  }
  return runs;
}

function givesNumber(row: Row, identity: Column): boolean {
  return (cellIn(row, identity.name) ?? null) !== null;
}

function* insertStatements<Raw>(
  rows: readonly Row[],
  all: readonly Row[],
  { columns, head, around }: Layout,
  options: InsertOptions<Raw>,
): Generator<{ readonly statement: Fragment; readonly part: readonly Row[] }> {
  const { tail = nothing, nextNumber = ofDefault, returning } = options;
  const answered = returning === undefined ? nothing : sql` returning ${namesSql(returning)}`;
  const parts = rows.length === 1 ? [rows] : splitParts(rows, columns.length, options);
  for (const some of parts) {
    const tuples = some.map((row) =>
      inRow(
        () => all.indexOf(row),
        () => sql(around, ...columns.map((column) => insertCell(column, row, nextNumber))),
      ),
    );
    yield { statement: sql`${head}${sql.join(tuples)}${tail}${answered}`, part: some };
  }
}

function* splitParts(
  rows: readonly Row[],
  columnCount: number,
  {
    valuesPerStatement,
    lengthPerStatement = Number.POSITIVE_INFINITY,
  }: Pick<InsertOptions<never>, "valuesPerStatement" | "lengthPerStatement">,
): Generator<Row[]> {
  const mostRows = Math.max(1, Math.floor(valuesPerStatement / columnCount));
  let part: Row[] = [];
  let length = 0;
  for (const row of rows) {
    const own = rowLength(row);
    if (part.length === mostRows || (part.length > 0 && length + own > lengthPerStatement)) {
      yield part;
      part = [];
      length = 0;
    }
    part.push(row);
    length += own;
  }
  yield part;
}

function rowLength(row: Row): number {
  let length = 0;
  for (const value of Object.values(row)) length += typeof value === "string" ? value.length : 0;
  return length;
}

/** The columns that some row names, or any one column. */
function namedColumns<Found extends Column>(table: Table<Found>, rows: readonly Row[]): Found[] {
  const all = [...table.columns.values()];
  const named = new Set(rows.flatMap((row) => Object.keys(row)));
  const columns = all.filter((column) => named.has(column.name));
  return columns.length > 0 ? columns : all.slice(0, 1);
}

function insertCell(column: Column, row: Row, nextNumber: Fragment): unknown {
  const value = cellIn(row, column.name);
  if (column.isIdentity && (value ?? null) === null) return nextNumber;
  return value === undefined ? ofDefault : (storedValue(column, value) ?? ofNull);
}
