import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import type { Row } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import type { RowChange } from "../remote/change.ts";
import { refused } from "../remote/failures.ts";
import type { BrokenKey } from "../sql/answers.ts";
import { keyCondition } from "../sql/changes.ts";
import { whereSql } from "../sql/conditions.ts";
import type { Fragment } from "../sql/fragment.ts";
import { type Column, inRow, requireDistinct, resolveColumn, type Table } from "../sql/scope.ts";
import {
  type Changed,
  columnNameSql,
  conflictSql,
  encodeRows,
  existingRows,
  type Insertion,
  namesSql,
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
  if (table.isView) requireTriggers(context, name);
  return {
    session,
    table,
    name: sql.id(schema, name),
    keys: keysSql(schema, name),
    lock: sql``,
    ignoresConflictKey: false,
    insert: (values, how) => insert(context, table, values, how),
    returning: (change, columns, key) => returning(session, table, change, columns, key),
    bind: (_column, raw) => raw,
  };
}

/** Only triggers write to a view. */
function requireTriggers({ session, schema }: SqliteContext, name: string): void {
  const [trigger] = rows(
    session.connection,
    sql`select 1 from ${sql.id(schema, "sqlite_schema")}
      where "type" = 'trigger' and "tbl_name" = ${name} collate nocase`,
  );
  if (trigger === undefined) throw new EngineRefusal(...refused.ofView);
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

async function returning(
  session: SqliteSession,
  table: Table,
  change: Fragment,
  columns: readonly TargetColumn<SQLOutputValue>[],
  key: readonly TargetColumn<SQLOutputValue>[],
): Promise<ResultRow[]> {
  const all = [...columns, ...key];
  const found = await session.rows(sql`${change}${returningSql(all)}`);
  requireTexts(table, all, found);
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

/**
 * Inserts rows one by one, which avoids SQLite's limit on parameters. One prepared statement serves
 * all rows that name the same columns in the same order.
 */
async function insert(
  context: SqliteContext,
  table: SqliteTable,
  values: readonly Row[],
  { conflict, returning }: Insertion<SQLOutputValue>,
): Promise<Changed> {
  const answered = returning === undefined ? sql`` : returningSql(returning);
  const tail = sql`${conflictSql(conflict)}${answered}`;
  const target = sql`${sql.id(context.schema, table.name)}${conflict === undefined ? sql`` : existingRows}`;
  const { connection } = context.session;
  const shapes = new Map<string, PreparedRow>();
  const found: ResultRow[] = [];
  let affected = 0;
  for (const [index, row] of values.entries()) {
    const keys = Object.keys(row);
    const shape = JSON.stringify(keys);
    inRow(
      () => index,
      () => {
        const known = shapes.get(shape) ?? prepareRow(context, table, keys, target, tail);
        const { columns, prepared, rest } = known;
        const given = Object.values(row);
        const cells = columns.map((column, at) => storedValue(column, given[at] ?? null));
        const { sql, statement } = prepared;
        const values = [...cells, ...rest];
        if (returning === undefined) affected += Number(statement.run(...values).changes);
        else for (const row of statement.iterate(...values)) found.push(row);
        shapes.set(shape, { columns, prepared: { sql, statement, values }, rest });
      },
    );
  }
  for (const { prepared } of shapes.values()) keep(connection, prepared);
  if (returning === undefined) return { affected };
  requireTexts(table, returning, found);
  return { affected: found.length, data: encodeRows({ table }, returning, found) };
}

interface PreparedRow {
  readonly columns: readonly Column<SqliteKind>[];
  /** With the values of the last row. */
  readonly prepared: Prepared;
  /** The values that follow those of a row. */
  readonly rest: readonly SQLInputValue[];
}

function prepareRow(
  { session }: SqliteContext,
  table: SqliteTable,
  keys: readonly string[],
  target: Fragment,
  tail: Fragment,
): PreparedRow {
  const columns = keys.map((key) => resolveColumn([table], key).column);
  requireDistinct(columns);
  for (const column of columns) requireSettable(column);
  const values = sql.join(columns.map(() => null));
  const fragment =
    columns.length === 0
      ? sql`insert into ${target} default values${tail}`
      : sql`insert into ${target} (${namesSql(columns)}) values (${values})${tail}`;
  const prepared = prepare(session.connection, fragment);
  return { columns, prepared, rest: prepared.values.slice(columns.length) };
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
  { set, add, values, where }: RowChange,
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
        coalesce(reference."to", (select "name" from pragma_table_info(reference."table", ${schema})
          where "pk" = reference."seq" + 1))
      from ${sql.id(schema, "sqlite_schema")} as entry
      join pragma_foreign_key_list(entry."name", ${schema}) as reference
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
