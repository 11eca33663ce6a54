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
    throw new EngineRefusal(
      "order_not_unique",
      `after needs an order in which no two rows are equal: ${remedy} (primary key of ${table}: ${key})`,
    );
  }
}

/**
 * The condition that a row comes after the one with these values. Null is the smallest value.
 *
 * @throws EngineRefusal `invalid_value` for a value that does not fit its column
 *
 * @param comparesRows whether the database finds `(a, b) > (1, 2)` by an index
 */
export function afterSql(
  terms: readonly OrderTerm[],
  values: readonly CellValue[],
  comparesRows: boolean,
): Fragment {
  const directions = new Set(terms.map(({ direction }) => direction));
  const isPlain =
    directions.size === 1 && terms.every(({ hasNulls }, at) => !hasNulls && values[at] !== null);
  if (comparesRows && isPlain) return rowComparison(terms, values);
  const bound = comparesRows ? boundSql(terms[0], values[0] ?? null) : undefined;
  const chain = laterSql(terms, values, 0);
  return bound === undefined ? chain : sql`(${bound} and ${chain})`;
}

function rowComparison(terms: readonly OrderTerm[], values: readonly CellValue[]): Fragment {
  const columns = terms.map(({ reference }) => columnSql(reference));
  const compared = terms.map(({ reference }, at) =>
    comparedValue(reference.column, values[at] ?? null),
  );
  const operator = terms[0]?.direction === "DESC" ? sql`<` : sql`>`;
  return sql`(${sql.join(columns)}) ${operator} (${sql.join(compared)})`;
}

/** Where the first column begins, said alone, so that an index of it is used whatever follows. */
function boundSql(term: OrderTerm | undefined, value: CellValue): Fragment | undefined {
  if (term === undefined || value === null) return undefined;
  const { reference, direction, hasNulls } = term;
  if (direction === "DESC" && hasNulls) return undefined;
  const operator = direction === "DESC" ? sql`<=` : sql`>=`;
  return sql`${columnSql(reference)} ${operator} ${comparedValue(reference.column, value)}`;
}

/** Later in the column at an index, or equal in it and later in those that follow. */
function laterSql(terms: readonly OrderTerm[], values: readonly CellValue[], at: number): Fragment {
  const term = terms[at];
  if (term === undefined) return sql`false`;
  const value = values[at] ?? null;
  const beyond = beyondSql(term, value);
  if (at === terms.length - 1) return beyond;
  const column = columnSql(term.reference);
  const equal =
    value === null
      ? sql`${column} is null`
      : sql`${column} = ${comparedValue(term.reference.column, value)}`;
  return sql`(${beyond} or (${equal} and ${laterSql(terms, values, at + 1)}))`;
}

function beyondSql({ reference, direction, hasNulls }: OrderTerm, value: CellValue): Fragment {
  const column = columnSql(reference);
  if (value === null) return direction === "DESC" ? sql`false` : sql`${column} is not null`;
  const compared = comparedValue(reference.column, value);
  if (direction === "ASC") return sql`${column} > ${compared}`;
  if (!hasNulls) return sql`${column} < ${compared}`;
  return sql`(${column} < ${compared} or ${column} is null)`;
}
