import { sql } from "kysely";
import type { CellValue, Update } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import { type Column, requireDistinct, resolveColumn, type Table } from "./scope.ts";
import { rows, type Steps } from "./steps.ts";
import { storedValue } from "./stored-values.ts";
import { encodeRows, namesSql, rowDenied, type Target, type TargetColumn } from "./target.ts";

/** A column, and what becomes of it. */
interface Assignment {
  readonly column: Column;
  readonly value: unknown;
}

/**
 * What an Update makes of columns.
 *
 * @throws EngineRefusal for an unknown column, for one that is given twice, and for unfit values
 */
export function assignmentsOf(
  table: Table,
  { set, add }: Pick<Update, "set" | "add">,
): Assignment[] {
  const changes = entriesOf(table, set);
  const additions = entriesOf(table, add);
  const both = additions.find(({ column }) => changes.some((change) => change.column === column));
  if (both !== undefined) {
    throw new EngineRefusal(
      "duplicate_column",
      `Column "${both.column.name}" stands in set and in add; allowed: in one of them`,
    );
  }
  return [
    ...changes.map(({ column, value }) => ({ column, value: storedValue(column, value) })),
    ...additions.map(({ column, value }) => ({ column, value: sumSql(column, value) })),
  ];
}

/** The same as it stands behind `set`. */
export function assignmentsSql(assignments: readonly Assignment[]): Fragment {
  return sql.join(assignments.map(({ column, value }) => sql`${sql.id(column.name)} = ${value}`));
}

function entriesOf(
  table: Table,
  cells: Readonly<Record<string, CellValue>> = {},
): { column: Column; value: CellValue }[] {
  const entries = Object.entries(cells).map(([name, value]) => ({
    column: resolveColumn([table], name).column,
    value,
  }));
  requireDistinct(entries.map(({ column }) => column));
  return entries;
}

/** A column plus a number; null stays null. */
function sumSql(column: Column, amount: CellValue): Fragment {
  const { name, type, kind } = column;
  if (kind.sum !== undefined) return kind.sum(sql.id(name), storedValue(column, amount));
  throw new EngineRefusal(
    "invalid_value",
    `Column "${name}" (${type}) holds no numbers, and add takes columns that do`,
  );
}

/** What the columns of a key are compared with, one row's. */
type KeyCells = readonly unknown[];

/** Rows that are asked for at a time. */
const KEYS_PER_STATEMENT = 200;

/** Reads rows and returns them as JSON texts, by the key's order if there is a key. */
export function* readInOrder<Raw>(
  target: Target<Raw>,
  columns: readonly TargetColumn<Raw>[],
  key: readonly TargetColumn<Raw>[],
  condition: Fragment,
  end: Fragment,
): Steps<string[], Raw> {
  const order = key.length === 0 ? sql`` : sql` order by ${namesSql(key)}`;
  const found = yield* rows<Raw>(
    sql`select ${namesSql(columns)} from ${target.name}${condition}${order}${end}`,
  );
  return encodeRows(target, columns, found);
}

/**
 * Reads the keys that the rows of an Update will have, by their order before it; the rows stay as
 * they are until the transaction ends.
 */
export function* readKeysToBe<Raw>(
  { table, name, lock, bind }: Target<Raw>,
  key: readonly TargetColumn<Raw>[],
  query: Update,
  condition: Fragment,
  limit = sql``,
): Steps<KeyCells[], Raw> {
  const { set = {} } = query;
  const changes = new Map(assignmentsOf(table, query).map(({ column, value }) => [column, value]));
  const isSet = (column: TargetColumn<Raw>) => Object.hasOwn(set, column.name);
  const cells = key.map((column) => {
    const own = sql.id(column.name);
    return isSet(column) ? own : (changes.get(column) ?? own);
  });
  const found = yield* rows<Raw>(
    sql`select ${sql.join(cells)} from ${name}${condition} order by ${namesSql(key)}${limit}${lock}`,
  );
  return found.map((row) =>
    key.map((column, index) => {
      const raw = row[index] ?? null;
      if (isSet(column)) return changes.get(column);
      return raw === null ? null : bind(column, raw);
    }),
  );
}

/** Reads rows by their keys and returns them as JSON texts, by the key's order among each few. */
export function* readByKeys<Raw>(
  target: Target<Raw>,
  columns: readonly TargetColumn<Raw>[],
  key: readonly TargetColumn<Raw>[],
  keys: readonly KeyCells[],
): Steps<string[], Raw> {
  const data: string[] = [];
  for (let start = 0; start < keys.length; start += KEYS_PER_STATEMENT) {
    const some = keys.slice(start, start + KEYS_PER_STATEMENT);
    const conditions = some.map((cells) => keyCondition(key, cells));
    const found = yield* rows<Raw>(
      sql`select ${namesSql(columns)} from ${target.name}
        where ${sql.join(conditions, sql` or `)} order by ${namesSql(key)}`,
    );
    data.push(...encodeRows(target, columns, found));
  }
  const isChecked = columns.some(({ expression }) => expression !== undefined);
  if (isChecked && data.length !== keys.length) throw rowDenied(target.table);
  return data;
}

/** The condition that a row has this key. */
export function keyCondition(key: readonly { name: string }[], cells: KeyCells): Fragment {
  const parts = key.map(({ name }, index) => sql`${sql.id(name)} = ${cells[index]}`);
  return sql`(${sql.join(parts, sql` and `)})`;
}
