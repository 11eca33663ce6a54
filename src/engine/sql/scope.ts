import { sql } from "kysely";
import { memoize } from "../../core/base/memoize.ts";
import { didYouMean, formatHint, suggestion } from "../../core/base/suggestion.ts";
import type { CellValue, Exists, InnerSelect, Row } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment, SizeBudget } from "./fragment.ts";

export type PresentValue = Exclude<CellValue, null>;

/** The length or range of a column that is narrower than its values. */
export interface Bounds {
  readonly code: "invalid_value" | "number_out_of_range";
  /** For messages. */
  readonly allowed: string;
  /** The length of a text. */
  readonly characters?: number;
  exceeds(value: PresentValue): boolean;
}

export interface ColumnKind {
  /** The bound value or fragment to store; undefined if the column does not take the value. */
  store(value: PresentValue): unknown;
  compare(value: PresentValue): unknown;
  /** All stored values that are returned like this one, for `=` and lists, if not one as `compare`. */
  forms?(value: PresentValue): readonly unknown[] | undefined;
  /** The test for null, if `is null` finds other values too. */
  isNull?(column: Fragment): Fragment;
  /** The column in comparisons, if not the bare column. */
  compared?(column: Fragment): Fragment;
  /**
   * The `like` condition, if not the plain one.
   *
   * @param pattern with `\\` before each literal `%`, `_` and `\\`
   * @param folds ignores the case of these letters; the pattern is folded already
   */
  like?(column: Fragment, pattern: string, folds: FoldedLetters | undefined): Fragment;
  /** The meaning of the values, independent of the database's own types. */
  readonly family?: Family | undefined;
  /** The column where it is compared with another one, as a value of `family`, if not the bare column. */
  asFamily?(column: Fragment, family: Family): Fragment;
  /** Of texts, if the database may refuse to compare them with those of another one. */
  readonly collation?: string | undefined;
  /** True if the database compares texts of both collations as they are. */
  meets?(collation: string): boolean;
  /** The column, and a value as `compare` makes it, if values are not sorted as they compare. */
  readonly sorted?:
    | { column(column: Fragment): Fragment; value(compared: unknown): unknown }
    | undefined;
  /** True if values are sorted by a text that clients may write in another way. */
  readonly sortsSpellings?: boolean;
  /** The column where values are grouped or sorted, if not the bare column. */
  readonly grouped?: ((column: Fragment) => Fragment) | undefined;
  /** True if `compared` or `asFamily` fails for some values. */
  readonly castFails?: boolean;
  /**
   * A short value in place of the column, different for different values. Set where the database
   * could not store the values of a Select with an index.
   */
  digest?(column: Fragment): Fragment;
  /** The column in computed expressions, if not the bare column. */
  operand?(column: Fragment): Fragment;
  /** True for floats of 32 bits, where a double would have more digits. */
  readonly isFloat?: boolean;
  /** Compares by bytes, where the column's own comparison may treat different values as equal. */
  readonly exact?: ExactComparison | undefined;
  /** How values are aggregated; undefined without an order that all databases share. */
  readonly measure?: Measure | undefined;
  /** The only allowed texts, also of an array, if the type name does not list them. */
  readonly labels?: readonly string[] | undefined;
  /** If the column is narrower than its type. `store` ignores it. */
  readonly bounds?: Bounds | undefined;
  /** The column plus an amount, for numeric columns. */
  sum?(column: Fragment, amount: unknown): Fragment;
  /** The bound amount for `sum`, if it is not stored as a value is. */
  amount?(value: PresentValue): unknown;
}

/** A kind that writes values other than null, which the database returns as `Raw`, as JSON. */
export type Encoded<Raw> = ColumnKind & { encode(raw: Raw): string };

export type FoldedLetters = "ascii" | "unicode";

export type Family =
  | ("integer" | "decimal" | "double" | "text" | "date" | "time" | "instant")
  | ("boolean" | "bytes" | "json")
  /** Each value has its own type, in SQLite. */
  | "any";

export interface ExactComparison {
  /** With `isOrdered`, the column only where it holds a number. */
  column(column: Fragment, isOrdered: boolean): Fragment;
  /** @param compared the value in the column's own comparison */
  value(compared: unknown, value: PresentValue): unknown;
}

export type Measure = "integer" | "decimal" | "double" | "text" | "moment" | "any";

export interface Column<Kind extends ColumnKind = ColumnKind> {
  readonly name: string;
  /** As declared. */
  readonly type: string;
  readonly kind: Kind;
  /** True if the database computes the values, so that no query sets them. */
  readonly isComputed?: boolean;
  /** True for a column that generates its numbers but also accepts them. */
  readonly isIdentity?: boolean;
}

export interface Table<Found extends Column = Column> {
  readonly name: string;
  readonly columns: ReadonlyMap<string, Found>;
  readonly bytewise?: readonly string[];
  readonly nesting?: Nesting | undefined;
  /**
   * Whether an index begins with a column. Set by databases that need to be told to use it: otherwise
   * they read all rows, for `exists` even once for each outer row.
   */
  isIndexed?(column: string): boolean;
}

/** Makes SQL of what conditions contain, with the tables that it needs. */
export interface Nesting {
  /** For the names that all parts of an operation use. */
  readonly budget: SizeBudget;
  exists(outer: Scope, query: Exists): Fragment;
  /** The columns that `exists` compares. */
  link(outer: Scope, query: Exists): [left: ColumnReference, right: ColumnReference];
  /** @param compared the column that the values are compared with */
  select(query: InnerSelect, compared?: Column): NestedSelect;
}

export interface NestedSelect {
  readonly column: Column;
  /** Selects the values that are not null. */
  statement(side: (column: Fragment) => Fragment): Fragment;
  /** The condition of NOT IN, if not the plain one. */
  excludes(left: Fragment, side: (column: Fragment) => Fragment): Fragment | undefined;
}

export type Scope<Found extends Column = Column> = readonly Table<Found>[];

export interface ColumnReference<Found extends Column = Column> {
  readonly table: Pick<Table, "name" | "bytewise">;
  readonly column: Found;
  readonly expression?: Fragment;
}

export type Resolve<Found extends Column = Column> = (name: string) => ColumnReference<Found>;

export function columnsOf<Found extends Column>(scope: Scope<Found>): Resolve<Found> {
  return memoize((name) => resolveColumn(scope, name));
}

/**
 * Resolves `column` or `table.column`. Only declared columns get into a statement, not names such as
 * `rowid` that the database itself would accept.
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
    const near = formatHint(nearest(dot < 0 ? [scope] : [tables, scope], columnName, dot >= 0));
    const hint = /^\w+\(/.test(name) ? "; use aggregate for counts and sums" : "";
    const plain = `There is no column "${name}" in ${places}${hint}`;
    const given = near === "" ? scope.map(formatColumns).join("") : "";
    throw new EngineRefusal("unknown_column", plain + near + given, { plain, column: name });
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

const MOST_LISTED = 30;

function formatColumns({ name, columns }: Table): string {
  const names = [...columns.keys()].slice(0, MOST_LISTED).join(", ");
  return `; ${name} has ${names}${columns.size > MOST_LISTED ? ", ..." : ""}`;
}

function nearest(scopes: readonly Scope[], name: string, isQualified: boolean): string | undefined {
  for (const scope of scopes) {
    const similar = suggestion(
      name,
      scope.flatMap(({ columns }) => [...columns.keys()]),
    );
    const table = scope.find(({ columns }) => columns.has(similar ?? ""));
    if (table !== undefined) return isQualified ? `${table.name}.${similar}` : similar;
  }
  return undefined;
}

/** The selected columns without repeats; `*` means all. */
export function selectedColumns<Found extends Column>(
  scope: Scope<Found>,
  names: readonly string[],
  resolve: Resolve<Found> = columnsOf(scope),
): ColumnReference<Found>[] {
  const every = () =>
    scope.flatMap((table) => Array.from(table.columns.values(), (column) => ({ table, column })));
  return distinctColumns(names.flatMap((name) => (name === "*" ? every() : [resolve(name)])));
}

export function distinctColumns<Found extends Column>(
  references: readonly ColumnReference<Found>[],
): ColumnReference<Found>[] {
  return [...new Map(references.map((reference) => [reference.column, reference])).values()];
}

const namesInFull = new WeakMap<Column, Fragment>();

export function columnSql({ table, column, expression }: ColumnReference): Fragment {
  const known = expression ?? namesInFull.get(column);
  if (known !== undefined) return known;
  const name = sql.id(table.name, column.name);
  namesInFull.set(column, name);
  return name;
}

/**
 * The name of a column of a derived table. As every name that the engine makes, it has a character
 * that queries cannot write: a table of the same name would take its place in a nested query.
 */
export function columnAlias(index: number): string {
  return `.${index + 1}`;
}

/** A column of which the database cannot group or sort the values themselves. */
export function asGrouped<Found extends Column>(
  reference: ColumnReference<Found>,
): ColumnReference<Found> {
  const { grouped } = reference.column.kind;
  return grouped ? { ...reference, expression: grouped(columnSql(reference)) } : reference;
}

export function setSqlName(column: Column, name: Fragment): void {
  namesInFull.set(column, name);
}

export function requireDistinct(columns: readonly Column[]): void {
  const twice = columns.find((column, index) => columns.indexOf(column) !== index);
  if (twice === undefined) return;
  throw new EngineRefusal("duplicate_column", `Column "${twice.name}" is given twice`);
}

/** Runs `work` for one row and adds the row's index, from 0, to a refusal. */
export function inRow<Result>(index: () => number, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw error instanceof EngineRefusal ? error.at(`values[${index()}]`) : error;
  }
}

/** Undefined if the row omits the cell. Inherited members of objects do not count. */
export function cellIn(row: Row, name: string): CellValue | undefined {
  return Object.hasOwn(row, name) ? row[name] : undefined;
}

/** Limit of the names that are compared to suggest a similar one. */
export const MAX_NAMES_COMPARED = 1000;

export function tableNotFound(
  name: string,
  database: string,
  existing: readonly string[],
): EngineRefusal {
  const near = didYouMean(name, existing);
  const plain = `There is no table ${name} in ${database}`;
  return new EngineRefusal("table_not_found", plain + near, { plain });
}
