/** Pages: the rows that follow one in an order. */

import { sql } from "kysely";
import type { CellValue } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import { type ColumnReference, columnSql } from "./scope.ts";
import { comparedValue } from "./stored-values.ts";
import type { UniqueKey } from "./target.ts";

/** A column of an order, with what a page must know of it. */
export interface OrderTerm {
  readonly reference: ColumnReference;
  readonly direction: "ASC" | "DESC";
  /** True if it may be null, also since its table is joined from outside. */
  readonly hasNulls: boolean;
}

/** What tells the rows of a table apart. */
export interface TableKeys {
  /** The columns of the primary key; none if there is none. */
  readonly primary: readonly string[];
  /** The columns of which each row has a value of its own. */
  readonly unique: ReadonlySet<string>;
}

/** The same by what is known of the columns, in their order, and of the unique keys of a table. */
export function tableKeysOf(
  columns: readonly { name: string; isKey: boolean; isNullable: boolean }[],
  keys: readonly UniqueKey[],
): TableKeys {
  const primary = columns.filter(({ isKey }) => isKey);
  const required = new Set(columns.filter((one) => !one.isNullable).map(({ name }) => name));
  const alone = keys.flatMap((key) => (key.columns.length === 1 ? key.columns : []));
  return {
    primary: primary.some(({ isNullable }) => isNullable) ? [] : primary.map(({ name }) => name),
    unique: new Set(alone.filter((name) => required.has(name))),
  };
}

/**
 * Refuses an order in which two rows may be equal: a page that ends between them would lose one.
 *
 * @throws EngineRefusal `order_not_unique`
 */
export function requireUniqueOrder(
  terms: readonly OrderTerm[],
  tables: ReadonlyMap<string, TableKeys>,
): void {
  for (const [table, { primary, unique }] of tables) {
    const ordered = terms
      .filter(({ reference }) => reference.table.name === table)
      .map(({ reference }) => reference.column.name);
    if (primary.length > 0 && primary.every((name) => ordered.includes(name))) continue;
    if (ordered.some((name) => unique.has(name))) continue;
    const key = primary.length > 0 ? primary.join(", ") : "none";
    const remedy =
      primary.length > 0
        ? `add ${key} to order_by`
        : "order by a column that is unique and never null";
    const plain = "after needs an order in which no two rows are equal";
    const problem = `${plain}: ${remedy} (primary key of ${table}: ${key})`;
    throw new EngineRefusal("order_not_unique", problem, { plain });
  }
}

/** How a database finds pages by an index. */
export interface PageDialect {
  /** Whether it does so for `(a, b) > (1, 2)`; one that does not finds several ranges under `or`. */
  readonly comparesRows: boolean;
  /** That the first column equals a value, where `=` would have the database order by the others alone. */
  equalFirst?(column: Fragment, value: unknown): Fragment;
}

/**
 * The conditions that rows come after the one with these values, null being the smallest. Each is a
 * range of an index of the columns, and the rows of each come before those of the next.
 *
 * @throws EngineRefusal `invalid_value` for a value that does not fit its column
 */
export function rangesAfter(
  terms: readonly OrderTerm[],
  values: readonly CellValue[],
  dialect: PageDialect,
): Fragment[] {
  const directions = new Set(terms.map(({ direction }) => direction));
  const isPlain =
    directions.size === 1 && terms.every(({ hasNulls }, at) => !hasNulls && values[at] !== null);
  if (dialect.comparesRows && isPlain) return [rowComparison(terms, values)];
  const ranges = terms.map((last, at) => {
    const equal = terms.slice(0, at).map((term, place) => {
      return equalSql(term, values[place] ?? null, place === 0 ? dialect.equalFirst : undefined);
    });
    return beyondSql(last, values[at] ?? null).map(
      (beyond) => sql`(${sql.join([...equal, beyond], sql` and `)})`,
    );
  });
  // Rows that are equal in more of the columns come first.
  const inOrder = ranges.toReversed().flat();
  if (inOrder.length === 0) return [sql`false`];
  return dialect.comparesRows ? inOrder : [sql`(${sql.join(inOrder, sql` or `)})`];
}

function rowComparison(terms: readonly OrderTerm[], values: readonly CellValue[]): Fragment {
  const columns = terms.map(({ reference }) => columnSql(reference));
  const compared = terms.map(({ reference }, at) =>
    comparedValue(reference.column, values[at] ?? null),
  );
  const operator = terms[0]?.direction === "DESC" ? sql`<` : sql`>`;
  return sql`(${sql.join(columns)}) ${operator} (${sql.join(compared)})`;
}

function equalSql(
  { reference }: OrderTerm,
  value: CellValue,
  equal: PageDialect["equalFirst"] = (column, compared) => sql`${column} = ${compared}`,
): Fragment {
  const column = columnSql(reference);
  if (value === null) return sql`${column} is null`;
  return equal(column, comparedValue(reference.column, value));
}

/** The ranges of a column behind a value, in their order. */
function beyondSql({ reference, direction, hasNulls }: OrderTerm, value: CellValue): Fragment[] {
  const column = columnSql(reference);
  if (value === null) return direction === "DESC" ? [] : [sql`${column} is not null`];
  const compared = comparedValue(reference.column, value);
  if (direction === "ASC") return [sql`${column} > ${compared}`];
  return [sql`${column} < ${compared}`, ...(hasNulls ? [sql`${column} is null`] : [])];
}
