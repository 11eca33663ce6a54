/** What groups of rows amount to. */

import { sql } from "kysely";
import type { Aggregate } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import {
  type Column,
  type ColumnKind,
  type ColumnReference,
  columnSql,
  type Measure,
  type Resolve,
  type Scope,
} from "./scope.ts";

/** What is computed, and how it is compared and written. */
export interface Computed<Kind> {
  readonly expression: Fragment;
  readonly kind: Kind;
}

/** How a database adds up and compares, so that all come to the same. */
export interface AggregateDialect<Kind extends ColumnKind> {
  /** The kind of a count. */
  readonly count: Kind;
  /** The kind of an average. */
  readonly double: Kind;
  /**
   * The sum of the numbers of a column: exact for whole numbers and decimals. The kind of a sum of
   * whole numbers throws `number_out_of_range` for one past 64 bits.
   */
  sum(column: Fragment, measure: Measure, kind: Kind): Computed<Kind>;
  /** A sum and a number of rows, divided as doubles. */
  average(sum: Fragment, count: Fragment): Fragment;
  /** The smallest or largest value; of text by its bytes. */
  extreme(fn: "min" | "max", column: Fragment, measure: Measure): Fragment;
}

/** What the aliases of `aggregate` stand for, by their names. */
export type Aliases<Kind extends ColumnKind> = ReadonlyMap<string, ColumnReference<Column<Kind>>>;

/**
 * Computes the aggregates of a Select.
 *
 * @throws EngineRefusal `duplicate_column` for an alias that is a column of a table, `invalid_value` for a column
 * that cannot be summed up so, `unknown_column` or `ambiguous_column`
 */
export function aliasesOf<Kind extends ColumnKind>(
  aggregates: readonly Aggregate[],
  scope: Scope<Column<Kind>>,
  resolve: Resolve<Column<Kind>>,
  dialect: AggregateDialect<Kind>,
): Aliases<Kind> {
  for (const { as: name } of aggregates) requireNewName(name, scope);
  return new Map(
    aggregates.map((aggregate) => {
      const { as: name, fn, column } = aggregate;
      const { expression, kind } = compute(aggregate, resolve, dialect);
      const type = `${fn} of ${column ?? "rows"}`;
      return [name, { table: { name: "" }, column: { name, type, kind }, expression }];
    }),
  );
}

/** An alias that is a column too would be read as the one or the other, by database and clause. */
function requireNewName(name: string, scope: Scope): void {
  const folded = name.toLowerCase();
  for (const { name: table, columns } of scope) {
    const taken = [...columns.keys()].find((column) => column.toLowerCase() === folded);
    if (taken === undefined) continue;
    const plain = `"as": "${name}" is taken`;
    const problem = `${plain}: table ${table} has a column "${taken}"`;
    throw new EngineRefusal("duplicate_column", problem, { plain });
  }
}

function compute<Kind extends ColumnKind>(
  { fn, column: name, distinct }: Aggregate,
  resolve: Resolve<Column<Kind>>,
  dialect: AggregateDialect<Kind>,
): Computed<Kind> {
  if (name === undefined) return { expression: sql`count(*)`, kind: dialect.count };
  const reference = resolve(name);
  const column = columnSql(reference);
  const { kind } = reference.column;
  const count = distinct === true ? sql`count(distinct ${column})` : sql`count(${column})`;
  if (fn === "count") return { expression: count, kind: dialect.count };
  const measure = requireMeasure(fn, reference.column);
  if (fn === "min" || fn === "max") {
    return { expression: dialect.extreme(fn, column, measure), kind };
  }
  const sum = dialect.sum(column, measure, kind);
  if (fn === "sum") return sum;
  return { expression: dialect.average(sum.expression, count), kind: dialect.double };
}

/** @throws EngineRefusal `invalid_value` for a column whose values do not amount to anything under this function */
function requireMeasure(fn: Aggregate["fn"], { name, type, kind }: Column): Measure {
  const { measure } = kind;
  const addsUp = fn === "sum" || fn === "avg";
  const isNumber = measure !== "text" && measure !== "moment";
  if (measure !== undefined && (isNumber || !addsUp)) return measure;
  const allowed = addsUp ? "numbers" : "numbers, text, dates and times";
  const problem = `Column "${name}" (${type}): ${fn} takes ${allowed}`;
  throw new EngineRefusal("invalid_value", problem);
}
