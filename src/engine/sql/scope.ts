import { sql } from "kysely";
import type { CellValue, Row } from "../../query/operation-types.ts";
import { askWhether, didYouMean, suggestion } from "../../suggestion.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import type { PresentValue } from "./values.ts";

/** How the values of a column are stored and compared. */
export interface ColumnKind {
  /** What is bound, or put into the statement, to store the value; undefined if it is refused. */
  store(value: PresentValue): unknown;
  /** The same to compare with the value. */
  compare(value: PresentValue): unknown;
  /** The column as it is compared, where that is not the bare column. */
  compared?(column: Fragment): Fragment;
  /**
   * The condition that the column is like a pattern, where that is not the bare `like`. With
   * `foldsCase`, ASCII letters meet each other in either case.
   */
  like?(column: Fragment, pattern: string, foldsCase: boolean): Fragment;
  /** How values are told apart by their bytes, where the column's own comparison may take two for one. */
  readonly exact?: ExactComparison | undefined;
  /** What it can be summed up as; undefined for what has no order, or none that all databases share. */
  readonly measure?: Measure | undefined;
  /** The only texts that it takes, where its type lists them elsewhere than in its name. */
  readonly labels?: readonly string[] | undefined;
  /** The column plus a stored number; absent where the column holds no numbers. */
  sum?(column: Fragment, amount: unknown): Fragment;
}

/** Both sides of a comparison by bytes. */
export interface ExactComparison {
  /** With `isOrdered`, the column where it holds a number. */
  column(column: Fragment, isOrdered: boolean): Fragment;
  /** @param compared the value as the column itself compares with it */
  value(compared: unknown, value: PresentValue): unknown;
}

/** What values amount to: numbers are added up, all have a smallest and a largest one; `any` may be either. */
export type Measure = "integer" | "decimal" | "double" | "text" | "moment" | "any";

/** A column of an existing table. */
export interface Column<Kind extends ColumnKind = ColumnKind> {
  readonly name: string;
  /** As it was declared, for messages. */
  readonly type: string;
  readonly kind: Kind;
}

/** An existing table, its columns in their order. */
export interface Table<Found extends Column = Column> {
  readonly name: string;
  readonly columns: ReadonlyMap<string, Found>;
  /** Columns that are compared by bytes too. */
  readonly bytewise?: readonly string[];
}

/** The tables that the column names of one operation may mean: one, or the two of a join. */
export type Scope<Found extends Column = Column> = readonly Table<Found>[];

/** A column that a name was found to mean. */
export interface ColumnReference<Found extends Column = Column> {
  readonly table: Pick<Table, "name" | "bytewise">;
  readonly column: Found;
  /** What is computed in the place of a column of a table. */
  readonly expression?: Fragment;
}

/** Finds what a name means. @throws EngineRefusal `unknown_column` or `ambiguous_column` */
export type Resolve<Found extends Column = Column> = (name: string) => ColumnReference<Found>;

/** Finds the columns of these tables. */
export function columnsOf<Found extends Column>(scope: Scope<Found>): Resolve<Found> {
  return (name) => resolveColumn(scope, name);
}

/**
 * Finds the column that `column` or `table.column` means. Nothing that is not a declared column
 * gets into a statement, not even what the database would understand by itself, such as `rowid`.
 *
 * @throws EngineRefusal `unknown_column` or `ambiguous_column`
 */
export function resolveColumn<Found extends Column>(
  scope: Scope<Found>,
  name: string,
): ColumnReference<Found> {
  const dot = name.indexOf(".");
  const columnName = name.slice(dot + 1);
  const tables = dot < 0 ? scope : scope.filter((table) => table.name === name.slice(0, dot));
  const found = tables.flatMap((table) => {
    const column = table.columns.get(columnName);
    return column === undefined ? [] : [{ table, column }];
  });
  const [only, ...others] = found;
  if (only === undefined) {
    const places = scope.map((table) => table.name).join(" and ");
    const near = askWhether(nearest(dot < 0 ? [scope] : [tables, scope], columnName, dot >= 0));
    const hint = /^\w+\(/.test(name) ? "; counts and sums stand under aggregate" : "";
    const plain = `There is no column "${name}" in ${places}${hint}`;
    throw new EngineRefusal("unknown_column", plain + near, { plain });
  }
  if (others.length === 0) return only;
  const names = found.map(({ table }) => table.name);
  const which = scope.length === 2 ? "Both tables" : `The tables ${names.join(", ")}`;
  const full = names.map((table) => `${table}.${columnName}`).join(" or ");
  throw new EngineRefusal(
    "ambiguous_column",
    `${which} have a column "${name}"; write table.column: ${full}`,
  );
}

/** The column that was probably meant, in the first of these scopes that has one. */
function nearest(scopes: readonly Scope[], name: string, isQualified: boolean): string | undefined {
  for (const scope of scopes) {
    const meant = suggestion(
      name,
      scope.flatMap(({ columns }) => [...columns.keys()]),
    );
    const table = scope.find(({ columns }) => columns.has(meant ?? ""));
    if (table !== undefined) return isQualified ? `${table.name}.${meant}` : meant;
  }
  return undefined;
}

/**
 * The columns asked for, each once, with `*` standing for all of them.
 *
 * @throws EngineRefusal `unknown_column` or `ambiguous_column`
 */
export function selectedColumns<Found extends Column>(
  scope: Scope<Found>,
  names: readonly string[],
): ColumnReference<Found>[] {
  const references = names.flatMap((name) =>
    name === "*" ? everyColumn(scope) : [resolveColumn(scope, name)],
  );
  return [...new Map(references.map((reference) => [reference.column, reference])).values()];
}

function everyColumn<Found extends Column>(scope: Scope<Found>): ColumnReference<Found>[] {
  return scope.flatMap((table) => [...table.columns.values()].map((column) => ({ table, column })));
}

const namesInFull = new WeakMap<Column, Fragment>();

/** A column in SQL, named in full, or what is computed in its place. */
export function columnSql({ table, column, expression }: ColumnReference): Fragment {
  const known = expression ?? namesInFull.get(column);
  if (known !== undefined) return known;
  const name = sql.id(table.name, column.name);
  namesInFull.set(column, name);
  return name;
}

/** Refuses a column that is named twice, once alone and once with its table. @throws EngineRefusal `duplicate_column` */
export function requireDistinct(columns: readonly Column[]): void {
  const twice = columns.find((column, index) => columns.indexOf(column) !== index);
  if (twice === undefined) return;
  throw new EngineRefusal("duplicate_column", `Column "${twice.name}" is given twice`);
}

/** Does the work for one row of an Insert; a refusal then says which, counted from 0. */
export function inRow<Result>(index: () => number, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw error instanceof EngineRefusal ? error.at(`values[${index()}]`) : error;
  }
}

/** A cell; undefined for one that the row leaves out, also if all objects have such a member. */
export function cellIn(row: Row, name: string): CellValue | undefined {
  return Object.hasOwn(row, name) ? row[name] : undefined;
}

/** Tables that are looked through for one of a name like the one that is not there. */
export const MOST_COMPARED = 1000;

/** The refusal of a table that is not there; `others` are those that are. */
export function tableNotFound(
  name: string,
  database: string,
  others: readonly string[],
): EngineRefusal {
  const near = didYouMean(name, others);
  const plain = `There is no table ${name} in ${database}`;
  return new EngineRefusal("table_not_found", plain + near, { plain });
}
