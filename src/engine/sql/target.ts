import { sql } from "kysely";
import type { Row } from "../../query/values.ts";
import type { BytewiseColumns } from "../limits.ts";
import { EngineRefusal } from "../refusal.ts";
import { conditionSql } from "./conditions.ts";
import type { Fragment } from "./fragment.ts";
import { type Column, type ColumnKind, columnsOf, selectedColumns, type Table } from "./scope.ts";
import { type ResultRow, rows, type Steps } from "./steps.ts";
import { createRowEncoder } from "./values.ts";

/** A column of a table that is changed; its values come out of the database as `Raw`. */
export interface TargetColumn<Raw> extends Column {
  readonly kind: ColumnKind & { encode(value: Raw): string };
  /** What is read in the place of the column: 1 if a written row is within the row filter. */
  readonly expression?: Fragment;
}

/** What a change did: how many rows it touched, and those that were asked for, as JSON texts. */
export interface Changed {
  /** Absent where tables are changed, not rows. */
  readonly affected?: number;
  /** Absent where none were asked for. */
  readonly data?: readonly string[];
}

/** What becomes of a row whose unique key is there already. */
export interface Conflict {
  readonly key: readonly Column[];
  /** Columns that are set; none leave the row as it is. */
  readonly update: readonly Column[];
}

/** How rows are inserted. */
export interface Insertion<Raw> {
  readonly conflict?: Conflict | undefined;
  /** Columns of each row that are answered. */
  readonly returning?: readonly TargetColumn<Raw>[] | undefined;
}

/** A table that is changed, and what its database does in its own way. */
export interface Target<Raw> {
  readonly table: Table<TargetColumn<Raw>>;
  /** The table in SQL, with its schema. */
  readonly name: Fragment;
  /**
   * Asks for the unique keys, the primary one first: rows of key, 1 for the primary one, and
   * column, in their order; null for what is no bare column.
   */
  readonly keys: Fragment;
  /** What keeps rows that are read as they are until the transaction ends. */
  readonly lock: Fragment;
  /** True if another unique key than that of a conflict could be taken for it. */
  readonly takesAnyKey: boolean;
  /** Inserts rows in their order. */
  insert(values: readonly Row[], how: Insertion<Raw>): Steps<Changed, Raw>;
  /** Adds the words that answer changed rows, by the key's order; absent if there are none. */
  readonly returning?: (
    change: Fragment,
    columns: readonly TargetColumn<Raw>[],
    key: readonly TargetColumn<Raw>[],
  ) => Steps<readonly ResultRow<Raw>[], Raw>;
  /** Tells of each written row whether it is within the row filter; absent if there is none. */
  readonly check?: TargetColumn<Raw>;
  /** The row filter as a condition; absent if there is none. */
  readonly within?: Fragment;
  /** A value that was read, to compare its column with. */
  bind(column: TargetColumn<Raw>, raw: Raw): unknown;
}

/** Unique columns of a table. */
export interface UniqueKey {
  readonly isPrimary: boolean;
  /** Empty for one that is not of columns alone. */
  readonly columns: readonly string[];
}

/** Reads the unique keys of a table, the primary one first. */
export function* readKeys<Raw>(keys: Fragment): Steps<UniqueKey[], Raw> {
  const found = new Map<string, { isPrimary: boolean; columns: (string | null)[] }>();
  for (const row of yield* rows<Raw>(keys)) {
    const [name, isPrimary, column] = [row[0], row[1], row[2] ?? null];
    const key = found.get(String(name)) ?? { isPrimary: String(isPrimary) === "1", columns: [] };
    key.columns.push(column === null ? null : String(column));
    found.set(String(name), key);
  }
  return Array.from(found.values(), ({ isPrimary, columns }) => {
    const names = columns.filter((column) => column !== null);
    return { isPrimary, columns: names.length === columns.length ? names : [] };
  });
}

/** The primary key's columns; none if there is no primary key. */
export function* readPrimaryKey<Raw>(target: Target<Raw>): Steps<TargetColumn<Raw>[], Raw> {
  const keys = yield* readKeys<Raw>(target.keys);
  const names = keys.find(({ isPrimary }) => isPrimary)?.columns ?? [];
  return names.flatMap((name) => target.table.columns.get(name) ?? []);
}

/** True for a key of exactly these columns, in whatever order. */
export function isKeyOf({ columns }: UniqueKey, names: readonly string[]): boolean {
  return columns.length === names.length && columns.every((column) => names.includes(column));
}

/** `(id), (email)` for the end of a message. */
export function describeKeys(keys: readonly UniqueKey[]): string {
  const known = keys.filter(({ columns }) => columns.length > 0);
  if (known.length === 0) return "it has none";
  return `it has ${known.map(({ columns }) => `(${columns.join(", ")})`).join(", ")}`;
}

/** The columns that `returning` names, each once, with `*` standing for all. @throws EngineRefusal `unknown_column` */
export function returnedColumns<Raw>(
  { table }: Target<Raw>,
  names: readonly string[],
): TargetColumn<Raw>[] {
  return selectedColumns([table], names).map(({ column }) => column);
}

/** Rows as JSON texts. @throws EngineRefusal `row_denied` for a written row that its check finds outside of the row filter */
export function encodeRows<Raw>(
  { table }: Pick<Target<Raw>, "table">,
  columns: readonly TargetColumn<Raw>[],
  found: readonly ResultRow<Raw>[],
): string[] {
  const check = columns.findIndex(({ expression }) => expression !== undefined);
  if (check >= 0 && found.some((row) => String(row[check]) !== "1")) throw rowDenied(table);
  const shown = check < 0 ? columns : columns.slice(0, check);
  return found.map(createRowEncoder(shown.map((column) => ({ table, column }))));
}

/** The refusal of a row that is written, or that cannot be found again to be checked. */
export function rowDenied({ name }: Pick<Table, "name">): EngineRefusal {
  const problem = `A row of ${name} as it would be stored is not within your row filter`;
  const remedy = "nothing was changed: write each value exactly as the filter has it";
  return new EngineRefusal("row_denied", `${problem}; ${remedy}`);
}

/** The columns that are read of written rows: those that are answered, and last the check of the row filter. */
export function writtenColumns<Raw>(
  { check }: Target<Raw>,
  answered: readonly TargetColumn<Raw>[] | undefined,
): readonly TargetColumn<Raw>[] | undefined {
  return check === undefined ? answered : [...(answered ?? []), check];
}

/** A target whose columns are compared, and whose written rows are checked, as the gateway says. */
export function narrowed<Raw>(
  target: Target<Raw>,
  { bytewise, written }: Partial<BytewiseColumns> = {},
): Target<Raw> {
  if (bytewise === undefined) return target;
  const table = { ...target.table, bytewise };
  if (written === undefined) return { ...target, table };
  const kind = { store: () => undefined, compare: () => undefined, encode: String };
  const within = conditionSql(columnsOf([table]), { and: written });
  const expression = sql`case when ${within} then 1 else 0 end`;
  return { ...target, table, within, check: { name: "", type: "", kind, expression } };
}

/** Columns by their names alone, as they stand in a list of columns. */
export function namesSql(columns: readonly (Column & { expression?: Fragment })[]): Fragment {
  return sql.join(columns.map(columnNameSql));
}

/** A column by its name alone, or what is read in its place. */
export function columnNameSql({ name, expression }: Column & { expression?: Fragment }): Fragment {
  return expression ?? sql.id(name);
}

/** The refusal where rows can only be told by a primary key, which the table lacks. */
export function needsPrimaryKey({ table }: { table: Table }, what: string): EngineRefusal {
  return new EngineRefusal(
    "not_supported",
    `Table ${table.name} has no primary key, by which this database could tell the rows of ${what}`,
  );
}

/** What stands behind the values of an insert, in SQLite's words and PostgreSQL's. */
export function conflictSql(conflict: Conflict | undefined): Fragment {
  if (conflict === undefined) return sql``;
  const { key, update } = conflict;
  if (update.length === 0) return sql` on conflict (${namesSql(key)}) do nothing`;
  const sets = update.map(({ name }) => sql`${sql.id(name)} = ${sql.id("excluded", name)}`);
  return sql` on conflict (${namesSql(key)}) do update set ${sql.join(sets)}`;
}

/** A column of an existing table, for whoever writes queries about it; what says nothing is left out. */
interface ColumnDescription {
  readonly name: string;
  /** As it was declared, or in the server's words. */
  readonly type: string;
  readonly primary_key: boolean;
  readonly nullable: boolean;
  /** True if no two rows hold the same value, null aside. */
  readonly unique?: true;
  /** True if a row that leaves it out gets the next number. */
  readonly serial?: true;
  /** What a row holds that leaves it out, in the database's words. */
  readonly default?: string;
  /** `table.column` of the same database, whose values it may hold. */
  readonly references?: string;
  readonly comment?: string;
}

/** An existing table. */
export interface TableDescription {
  readonly columns: readonly ColumnDescription[];
  /** Columns whose values, together, each row has alone: the primary key first. */
  readonly keys: readonly (readonly string[])[];
  /** About how many rows it has; absent where the database does not know. */
  readonly rows?: number;
  readonly comment?: string;
}

/** What a catalog tells of a column; empty or null where it tells nothing. */
export interface ColumnFacts {
  readonly name: string;
  readonly type: string;
  readonly isKey: boolean;
  readonly isNullable: boolean;
  readonly isSerial: boolean;
  readonly default?: string | null | undefined;
  readonly references?: string | null | undefined;
  readonly comment?: string | null | undefined;
}

/** What a catalog tells of a table; empty or null where it tells nothing. */
interface TableFacts {
  readonly rows?: number | null | undefined;
  readonly comment?: string | null | undefined;
}

function said<Name extends string>(
  name: Name,
  text: string | null | undefined,
): Partial<Record<Name, string>>;
function said(name: string, text: string | null | undefined): Record<string, string> {
  return text == null || text === "" ? {} : { [name]: text };
}

/** Describes a table by what its catalog tells. */
export function describe(
  columns: readonly ColumnFacts[],
  keys: readonly UniqueKey[],
  { rows, comment }: TableFacts,
): TableDescription {
  const known = keys.map((key) => key.columns).filter((names) => names.length > 0);
  const isAlone = (name: string) => known.some((names) => names.length === 1 && names[0] === name);
  return {
    columns: columns.map(({ name, type, isKey, isNullable, isSerial, ...facts }) => ({
      name,
      type,
      primary_key: isKey,
      nullable: isNullable,
      ...(isAlone(name) && !isKey ? { unique: true } : {}),
      ...(isSerial ? { serial: true } : {}),
      ...said("default", isSerial ? null : facts.default),
      ...said("references", facts.references),
      ...said("comment", facts.comment),
    })),
    keys: known,
    ...(rows == null || rows < 0 ? {} : { rows }),
    ...said("comment", comment),
  };
}
