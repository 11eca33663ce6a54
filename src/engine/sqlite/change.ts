import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import type { Row } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import type { ChangeFields } from "../remote/change.ts";
import { refused } from "../remote/failures.ts";
import type { BrokenKey } from "../sql/answers.ts";
import { keyCondition, requireFound } from "../sql/changes.ts";
import { whereSql } from "../sql/conditions.ts";
import type { Fragment, StatementRunner } from "../sql/fragment.ts";
import { type Column, inRow, requireDistinct, resolveColumn, type Table } from "../sql/scope.ts";
import {
  type Changed,
  columnNameSql,
  conflictSql,
  encodeRows,
  existingRows,
  type Insertion,
  namesSql,
  rowDenied,
  type Target,
  type TargetColumn,
} from "../sql/target.ts";
import { requireSettable, storedValue } from "../sql/values.ts";
import { isNumber } from "./compute.ts";
import type { SqliteKind } from "./kinds.ts";
import {
  invalidText,
  invalidTextSql,
  keep,
  type Prepared,
  prepare,
  type ResultRow,
  rows,
  type SqliteContext,
  type SqliteSession,
} from "./statements.ts";
import { keysSql, readTable, type SqliteTable } from "./tables.ts";

export function findTarget(context: SqliteContext, name: string): Target<SQLOutputValue> {
  const { session, schema } = context;
  const table = readTable(context, name);
  if (table.isView && !table.hasTriggers) throw new EngineRefusal(...refused.ofView);
  const again = keyToReadAgain(table);
  const target: Target<SQLOutputValue> = {
    session: table.isView ? countingView(session) : session,
    table,
    name: sql.id(schema, name),
    ...(table.hasConflictClause && { updateWords: sql`update or abort` }),
    keys: keysSql(schema, name),
    lock: sql``,
    ignoresConflictKey: false,
    insert: (values, how) => insert(context, target, table, again, values, how),
    ...(!table.isVirtual && {
      returning: (change, columns, key, isDelete) =>
        returning(session, target, change, columns, isDelete ? undefined : again, key),
    }),
    bind: (_column, raw) => raw,
  };
  return target;
}

type SqliteKey = readonly TargetColumn<SQLOutputValue>[];

/** The primary key of a table whose triggers may change a row after SQLite has returned it. */
function keyToReadAgain({ columns, hasTriggers, isView }: SqliteTable): SqliteKey | undefined {
  const key = [...columns.values()].filter(({ isKey }) => isKey);
  const isRead = hasTriggers && !isView && key.length > 0;
  return isRead && key.every((one) => !one.isNullable && !one.isFolded) ? key : undefined;
}

/** SQLite counts no rows that triggers change instead of those of a view. */
function countingView(session: SqliteSession): StatementRunner<SQLOutputValue> {
  return {
    rows: (fragment) => session.rows(fragment),
    run: async (change) => (await session.rows(sql`${change} returning 1`)).length,
  };
}

/** The columns, and the place of the first one whose text cannot be returned. */
function returningSql(columns: readonly TargetColumn<SQLOutputValue>[]): Fragment {
  return sql` returning ${namesSql(columns)}, ${invalidTextSql(columns.map(columnNameSql))}`;
}

function requireTexts(
  { name }: Table,
  columns: readonly TargetColumn<SQLOutputValue>[],
  found: readonly ResultRow[],
): void {
  for (const row of found) {
    const place = Number(row[columns.length] ?? 0);
    if (place > 0) throw invalidText(columns[place - 1]?.name, name);
  }
}

/** Reads rows by their keys, in the order of these. */
async function readAgain(
  session: SqliteSession,
  { table, name }: Target<SQLOutputValue>,
  columns: readonly TargetColumn<SQLOutputValue>[],
  key: SqliteKey,
  keys: readonly ResultRow[],
): Promise<ResultRow[]> {
  const data: ResultRow[] = [];
  for (const row of keys) {
    const cells = key.map((_, at) => row[at] ?? null);
    const statement = sql`select ${namesSql(columns)} from ${name} where ${keyCondition(key, cells)}`;
    for (const found of rows(session.connection, statement)) data.push(found);
  }
  requireFound(table, { affected: keys.length, data });
  return data;
}

async function returning(
  session: SqliteSession,
  target: Target<SQLOutputValue>,
  change: Fragment,
  columns: readonly TargetColumn<SQLOutputValue>[],
  again: SqliteKey | undefined,
  key: readonly TargetColumn<SQLOutputValue>[],
): Promise<ResultRow[]> {
  const all = [...columns, ...key];
  const read = again ?? all;
  let found = await session.rows(sql`${change}${returningSql(read)}`);
  requireTexts(target.table, read, found);
  if (again !== undefined) found = await readAgain(session, target, all, again, found);
  // SQLite returns changed rows in no defined order.
  return found.sort((one, other) => {
    for (let index = columns.length; index < columns.length + key.length; index += 1) {
      const order = compareValues(one[index] ?? null, other[index] ?? null);
      if (order !== 0) return order;
    }
    return 0;
  });
}

/** Orders like SQLite: null, numbers, text by its bytes, bytes. */
function compareValues(one: SQLOutputValue, other: SQLOutputValue): number {
  if (isNumber(one) && isNumber(other)) return Number(one > other) - Number(one < other);
  if (typeof one === "string" && typeof other === "string") {
    return Buffer.compare(Buffer.from(one), Buffer.from(other));
  }
  if (one instanceof Uint8Array && other instanceof Uint8Array) return Buffer.compare(one, other);
  return typeRank(one) - typeRank(other);
}

function typeRank(value: SQLOutputValue): number {
  if (value === null) return 0;
  if (isNumber(value)) return 1;
  return typeof value === "string" ? 2 : 3;
}

/** A statement of more rows or values is not faster. */
const ROWS_PER_STATEMENT = 64;
const VALUES_PER_STATEMENT = 1024;

/**
 * Inserts rows in order. One prepared statement serves all rows that name the same columns in the
 * same order, and another one inserts many such rows at once, which takes less than half the time.
 */
async function insert(
  context: SqliteContext,
  target: Target<SQLOutputValue>,
  table: SqliteTable,
  key: SqliteKey | undefined,
  values: readonly Row[],
  { conflict, returning: wanted }: Insertion<SQLOutputValue>,
): Promise<Changed> {
  const returning = wanted && (key ?? wanted);
  const isChecked = returning?.every(({ expression }) => expression !== undefined) === true;
  const checked = isChecked ? sql` returning ${namesSql(returning)}` : undefined;
  const uncounted = table.isView ? sql` returning 1` : sql``;
  const answered = returning === undefined ? uncounted : (checked ?? returningSql(returning));
  const insertion = {
    table,
    target: sql`${sql.id(context.schema, table.name)}${conflict === undefined ? sql`` : existingRows}`,
    tail: sql`${conflictSql(conflict)}${answered}`,
    // The order in which a statement returns rows is undefined.
    isMany: (returning === undefined || isChecked) && mayInsertMany(context, table, values),
  };
  const { connection } = context.session;
  const shapes = new Map<string, InsertedShape>();
  const found: ResultRow[] = [];
  let affected = 0;
  const run = (
    prepared: BoundStatement,
    cells: readonly SQLInputValue[],
    { rest }: InsertedShape,
  ) => {
    const { statement } = prepared;
    prepared.values = rest.length === 0 ? cells : [...cells, ...rest];
    if (returning === undefined) {
      affected += table.isView
        ? statement.all(...prepared.values).length
        : Number(statement.run(...prepared.values).changes);
    } else if (isChecked) {
      // All at once, which takes half the time of an iterator.
      for (const row of statement.all(...prepared.values)) {
        if (Number(row[0]) !== 1) throw rowDenied(table);
        affected += 1;
      }
    } else for (const row of statement.iterate(...prepared.values)) found.push(row);
  };
  /** Rows of one shape that were not inserted yet. */
  let waiting: (readonly SQLInputValue[])[] = [];
  let last: InsertedShape | undefined;
  const insertEach = () => {
    const rows = waiting;
    waiting = [];
    for (const cells of rows) if (last !== undefined) run(last.one, cells, last);
  };
  for (const [index, row] of values.entries()) {
    const { shape, cells } = inRow(
      () => index,
      () => {
        const keys = Object.keys(row);
        const text = JSON.stringify(keys);
        const shape = shapes.get(text) ?? prepareShape(context, keys, insertion);
        shapes.set(text, shape);
        const given = Object.values(row);
        const cells = shape.columns.map((column, at) => storedValue(column, given[at] ?? null));
        return { shape, cells };
      },
    );
    if (shape !== last) insertEach();
    last = shape;
    waiting.push(cells);
    if (shape.rowsAtOnce === 1) insertEach();
    else if (waiting.length === shape.rowsAtOnce) {
      // Rows in many orders of columns must not prepare a long statement for each order.
      shape.many ??= shape.prepareRows(shape.rowsAtOnce);
      run(shape.many, waiting.flat(), shape);
      waiting = [];
    }
  }
  insertEach();
  for (const { one, many } of shapes.values()) {
    keep(connection, one);
    if (many !== undefined) keep(connection, many);
  }
  if (wanted === undefined || returning === undefined || isChecked) return { affected };
  requireTexts(table, returning, found);
  const stored =
    key === undefined ? found : await readAgain(context.session, target, wanted, key, found);
  return { affected: found.length, data: encodeRows({ table }, wanted, stored) };
}

/** References of a row are checked at the end of its statement, so the rows that follow would count. */
function mayInsertMany(
  { session, schema }: SqliteContext,
  { name, isView }: SqliteTable,
  values: readonly Row[],
): boolean {
  if (values.length < ROWS_PER_STATEMENT || isView) return false;
  const [own] = rows(
    session.connection,
    sql`select 1 from temp.pragma_foreign_key_list(${name}, ${schema})
      where "table" = ${name} collate nocase limit 1`,
  );
  return own === undefined;
}

interface BoundStatement extends Prepared {
  /** Those that were bound last. */
  values: readonly SQLInputValue[];
}

/** How rows with the same keys are inserted. */
interface InsertedShape {
  readonly columns: readonly Column<SqliteKind>[];
  readonly one: BoundStatement;
  /** Prepared when there are as many rows. */
  many: BoundStatement | undefined;
  readonly rowsAtOnce: number;
  readonly prepareRows: (count: number) => BoundStatement;
  /** The values that follow those of the rows. */
  readonly rest: readonly SQLInputValue[];
}

interface InsertionSql {
  readonly table: SqliteTable;
  readonly target: Fragment;
  readonly tail: Fragment;
  readonly isMany: boolean;
}

function prepareShape(
  { session }: SqliteContext,
  keys: readonly string[],
  { table, target, tail, isMany }: InsertionSql,
): InsertedShape {
  const columns = keys.map((key) => resolveColumn([table], key).column);
  requireDistinct(columns);
  for (const column of columns) requireSettable(column);
  const words = table.hasConflictClause ? sql`insert or abort into` : sql`insert into`;
  const row = sql`(${sql.join(columns.map(() => null))})`;
  const prepareRows = (count: number) => {
    const values = sql.join(Array<Fragment>(count).fill(row));
    const fragment =
      columns.length === 0
        ? sql`${words} ${target} default values${tail}`
        : sql`${words} ${target} (${namesSql(columns)}) values ${values}${tail}`;
    return prepare(session.connection, fragment);
  };
  const one = prepareRows(1);
  const most = isMany && columns.length > 0 ? Math.floor(VALUES_PER_STATEMENT / columns.length) : 1;
  const rowsAtOnce = Math.max(1, Math.min(ROWS_PER_STATEMENT, most));
  const rest = one.values.slice(columns.length);
  return { columns, one, many: undefined, rowsAtOnce, prepareRows, rest };
}

interface ForeignKey {
  readonly table: string;
  readonly columns: string[];
  readonly other: string;
  readonly keys: string[];
}

/** Finds the foreign key that a change broke, after SQLite has undone the change. */
export function findBrokenKey(
  context: SqliteContext,
  changedTable: Table,
  { set, add, values, where }: ChangeFields,
): BrokenKey | undefined {
  const { session, schema } = context;
  const { name: changed } = changedTable;
  const written = values ?? [set ?? {}];
  const isDelete = !(values ?? set ?? add);
  const first = (fragment: Fragment) => [...rows(session.connection, fragment)][0]?.[0];
  const nameList = (names: readonly string[]) => sql.join(names.map((name) => sql.id(name)));
  const shown = (values: readonly unknown[]) =>
    values.length === 1 ? { value: String(values[0]) } : {};
  const suspects: BrokenKey[] = [];
  const added = Object.keys(add ?? {});
  for (const { table, columns, other, keys } of readForeignKeys(context, changed, isDelete)) {
    const to = sql.id(schema, other);
    for (const row of table === changed ? written : []) {
      const values = columns.map((name) => {
        const column = changedTable.columns.get(name);
        return column === undefined ? null : storedValue(column, row[name] ?? null);
      });
      if (values.includes(null)) continue;
      const key = keys.map((name) => ({ name }));
      const found = first(sql`select 1 from ${to} where ${keyCondition(key, values)}`);
      if (found !== undefined) continue;
      return { table, missingIn: other, columns, ...shown(values) };
    }
    const changesKey =
      isDelete || written.some((row) => keys.some((key) => Object.hasOwn(row, key)));
    if (table === changed && columns.some((name) => added.includes(name))) {
      suspects.push({ table, missingIn: other, columns });
    } else if (other === changed && keys.some((name) => added.includes(name))) {
      suspects.push({ table, columns: keys });
    }
    if (other !== changed || where === undefined || !changesKey) continue;
    // A message may only show rows within the caller's row filters.
    const touched = sql`select ${nameList(keys)} from ${to}${whereSql([changedTable], where)}`;
    const value = first(sql`select ${sql.id(columns[0] ?? "")} from ${sql.id(schema, table)}
      where (${nameList(columns)}) in (${touched}) limit 1`);
    if (value != null)
      return { table, columns: keys, ...(keys.length === 1 ? shown([value]) : {}) };
  }
  // The sums are unknown, but if only one key has them, it is the one.
  return suspects.length === 1 ? suspects[0] : undefined;
}

/** True if a foreign key of the table, or to it, restricts a change. */
export function isInForeignKey(context: SqliteContext, table: string): boolean {
  return [true, false].some(
    (isDeleted) => [...readForeignKeys(context, table, isDeleted)].length > 0,
  );
}

/** The column that a part of a foreign key refers to. By default, it is of the primary key. */
export function referencedSql(schema: string): Fragment {
  return sql`coalesce(reference."to", (select "name"
    from temp.pragma_table_info(reference."table", ${schema}) where "pk" = reference."seq" + 1))`;
}

/** Foreign keys of a table, and those to it that restrict its changes. */
function readForeignKeys(
  { session, schema }: SqliteContext,
  name: string,
  isDeleted: boolean,
): Iterable<ForeignKey> {
  const action = sql.id("reference", isDeleted ? "on_delete" : "on_update");
  const found = rows(
    session.connection,
    sql`select entry."name", reference."id", reference."from", reference."table",
        ${referencedSql(schema)}
      from ${sql.id(schema, "sqlite_schema")} as entry
      join temp.pragma_foreign_key_list(entry."name", ${schema}) as reference
      where entry."type" = 'table' and (entry."name" = ${name}
        or (reference."table" = ${name} and ${action} in ('NO ACTION', 'RESTRICT')))
      order by entry."name", reference."id", reference."seq"`,
  );
  const keys = new Map<string, ForeignKey>();
  for (const row of found) {
    const [table = "", id = "", column = "", other = "", key = ""] = Object.values(row).map(String);
    const place = JSON.stringify([table, id]);
    const known = keys.get(place) ?? { table, columns: [], other, keys: [] };
    known.columns.push(column);
    known.keys.push(key);
    keys.set(place, known);
  }
  return keys.values();
}
