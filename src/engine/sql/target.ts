import { sql } from "kysely";
import type { BytewiseColumns } from "../../core/query/limits.ts";
import { isPlainName } from "../../core/query/names.ts";
import type { Row } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import { conditionSql } from "./conditions.ts";
import type { Fragment, ResultRow, StatementRunner } from "./fragment.ts";
import { type Column, columnsOf, type Encoded, selectedColumns, type Table } from "./scope.ts";
import { createRowEncoder } from "./values.ts";

export interface TargetColumn<Raw> extends Column<Encoded<Raw>> {
  /** Read instead of the column: 1 if a written row is within the row filter. */
  readonly expression?: Fragment;
}

export interface Changed {
  readonly affected?: number;
  readonly data?: readonly string[];
}

export interface Conflict {
  readonly key: readonly Column[];
  /** Columns to set; if empty, the row stays unchanged. */
  readonly update: readonly Column[];
  /** True if nulls in the key are equal. */
  readonly isNullEqual?: boolean;
}

export interface Insertion<Raw> {
  readonly conflict?: Conflict | undefined;
  readonly returning?: readonly TargetColumn<Raw>[] | undefined;
}

/** A table to change, with what depends on the database. */
export interface Target<Raw> {
  readonly session: StatementRunner<Raw>;
  readonly table: Table<TargetColumn<Raw>>;
  readonly name: Fragment;
  /**
   * Selects unique keys, primary key first. Each row holds the key's name, 1 for the primary key, a
   * column in key order, null for an expression, and perhaps `true` if nulls in it are equal.
   */
  readonly keys: Fragment;
  /** Locks the rows until the transaction ends. */
  readonly lock: Fragment;
  /** In place of `update`. */
  readonly updateWords?: Fragment;
  /** True if a conflict with any unique key counts. */
  readonly ignoresConflictKey: boolean;
  /** True if generated numbers follow those of an Update too. */
  readonly followsUpdates?: boolean;
  insert(values: readonly Row[], how: Insertion<Raw>): Promise<Changed>;
  /** Returns changed rows in key order, if the database can. */
  readonly returning?: (
    change: Fragment,
    columns: readonly TargetColumn<Raw>[],
    key: readonly TargetColumn<Raw>[],
    isDelete?: boolean,
  ) => Promise<readonly ResultRow<Raw>[]>;
  /** Whether a written row is within the row filter, if there is one. */
  readonly check?: TargetColumn<Raw>;
  /** The row filter as a condition. */
  readonly within?: Fragment;
  /** Binds a value that was read to compare its column with it. */
  bind(column: TargetColumn<Raw>, raw: Raw): unknown;
}

export interface UniqueKey {
  readonly isPrimary: boolean;
  /** Empty for a key with an expression or condition. */
  readonly columns: readonly string[];
  /** True if nulls in the key are equal. */
  readonly isNullEqual?: boolean;
}

export async function readKeys<Raw>(
  session: StatementRunner<Raw>,
  keys: Fragment,
): Promise<UniqueKey[]> {
  const byName = Map.groupBy(await session.rows(keys), (row) => String(row[0]));
  return Array.from(byName.values(), (rows) => {
    const columns = rows.flatMap((row) => (row[2] == null ? [] : String(row[2])));
    return {
      isPrimary: String(rows[0]?.[1]) === "1",
      columns: columns.length === rows.length ? columns : [],
      isNullEqual: String(rows[0]?.[3]) === "true",
    };
  });
}

export async function readPrimaryKey<Raw>(target: Target<Raw>): Promise<TargetColumn<Raw>[]> {
  const keys = await readKeys(target.session, target.keys);
  const names = keys.find(({ isPrimary }) => isPrimary)?.columns ?? [];
  const columns = names.flatMap((name) => target.table.columns.get(name) ?? []);
  // Without an invisible column, the others of the key may be those of several rows.
  return columns.length === names.length ? columns : [];
}

export function isKeyIn({ columns }: UniqueKey, names: readonly string[]): boolean {
  return columns.length === names.length && columns.every((column) => names.includes(column));
}

/** Formats keys as `(id), (email)` for the end of a message. */
export function describeKeys(keys: readonly UniqueKey[]): string {
  const known = keys.filter(({ columns }) => columns.length > 0);
  if (known.length === 0) return "it has none";
  return `it has ${known.map(({ columns }) => `(${columns.join(", ")})`).join(", ")}`;
}

export function returnedColumns<Raw>(
  { table }: Target<Raw>,
  names: readonly string[],
): TargetColumn<Raw>[] {
  return selectedColumns([table], names).map(({ column }) => column);
}

export function encodeRows<Raw>(
  { table }: Pick<Target<Raw>, "table">,
  columns: readonly TargetColumn<Raw>[],
  found: readonly ResultRow<Raw>[],
): string[] {
  const check = columns.findIndex(({ expression }) => expression !== undefined);
  if (check >= 0 && found.some((row) => String(row[check]) !== "1")) throw rowDenied(table);
  const returned = check < 0 ? columns : columns.slice(0, check);
  const encode = createRowEncoder<Raw>(returned.map((column) => ({ table, column })));
  return found.map((row) => encode(row));
}

/** For a row outside the row filter, or one that cannot be found again to check it. */
export function rowDenied({ name }: Pick<Table, "name">): EngineRefusal {
  const problem = `A row of ${name} as stored would be outside your row filter`;
  const remedy = "nothing was changed; write each value exactly as in the filter";
  return new EngineRefusal("row_denied", `${problem}; ${remedy}`);
}

/** The columns to read of written rows: those to return, and the check. */
export function writtenColumns<Raw>(
  target: Target<Raw>,
  returning: readonly string[] | undefined,
): readonly TargetColumn<Raw>[] | undefined {
  const returned = returning && returnedColumns(target, returning);
  return target.check === undefined ? returned : [...(returned ?? []), target.check];
}

/** Adds the gateway's limits: comparison by bytes, and the check of written rows. */
export function narrowed<Raw>(
  target: Target<Raw>,
  { bytewise, written }: Partial<BytewiseColumns> = {},
): Target<Raw> {
  if (bytewise === undefined) return target;
  const table = { ...target.table, bytewise };
  if (written === undefined) return { ...target, table };
  const kind = { store: () => undefined, compare: () => undefined, encode: String };
  const terms = written.map(({ value, ...term }) => ({
    ...term,
    value: typeof value === "object" ? [...value] : value,
  }));
  const within = conditionSql(columnsOf([table]), { and: terms }, [table]);
  const expression = sql`case when ${within} then 1 else 0 end`;
  return { ...target, table, within, check: { name: "", type: "", kind, expression } };
}

export function namesSql(columns: readonly (Column & { expression?: Fragment })[]): Fragment {
  return sql.join(columns.map(columnNameSql));
}

export function columnNameSql({ name, expression }: Column & { expression?: Fragment }): Fragment {
  return expression ?? sql.id(name);
}

export function needsPrimaryKey({ table }: { table: Table }): EngineRefusal {
  return new EngineRefusal(
    "not_supported",
    `Table ${table.name} has no primary key, which this database needs for returning`,
  );
}

/**
 * After the target of an insert with a conflict clause, where a table called `excluded` would hide
 * the rows of that name.
 */
export const existingRows = sql` as ${sql.id("existing rows")}`;

/** The conflict clause after the values of an insert, for SQLite and PostgreSQL. */
export function conflictSql(conflict: Conflict | undefined): Fragment {
  if (conflict === undefined) return sql``;
  const { key, update } = conflict;
  if (update.length === 0) return sql` on conflict (${namesSql(key)}) do nothing`;
  const sets = update.map(({ name }) => sql`${sql.id(name)} = ${sql.id("excluded", name)}`);
  return sql` on conflict (${namesSql(key)}) do update set ${sql.join(sets)}`;
}

/** The tables of a database. Queries cannot contain the names of the `unavailable` ones. */
export function tableList(names: readonly string[]) {
  const { tables = [], unavailable } = Object.groupBy([...names].sort(), (name) =>
    isPlainName(name) ? "tables" : "unavailable",
  );
  return { tables, ...(unavailable && { unavailable }) };
}

interface ColumnFacts {
  readonly name: string;
  readonly type: string;
  readonly isKey: boolean;
  readonly isNullable: boolean;
  readonly isIdentity?: boolean | undefined;
  /** The type that says how values are written, if `type` does not. */
  readonly valueType?: string | undefined;
  readonly isComputed?: boolean | undefined;
  /** The only allowed texts. */
  readonly labels?: readonly string[] | undefined;
  readonly default?: string | null | undefined;
  readonly references?: string | null | undefined;
  readonly comment?: string | null | undefined;
}

interface TableFacts {
  readonly isView?: boolean;
  readonly rows?: number | null | undefined;
  readonly comment?: string | null | undefined;
}

export type TableDescription = ReturnType<typeof describe>;

export function describe(
  columns: readonly ColumnFacts[],
  keys: readonly UniqueKey[],
  { isView = false, rows, comment }: TableFacts,
) {
  const visible = new Set(columns.map(({ name }) => name));
  const known = keys
    .map((key) => key.columns)
    .filter((names) => names.length > 0 && names.every((name) => visible.has(name)));
  const isUnique = (name: string) => known.some((names) => names.length === 1 && names[0] === name);
  return {
    columns: columns.map(({ name, type, isKey, isNullable, isIdentity, ...facts }) => ({
      name,
      type,
      primary_key: isKey,
      nullable: isNullable,
      ...(facts.valueType && { value_type: facts.valueType }),
      ...(facts.labels && { labels: facts.labels }),
      ...(isUnique(name) && !isKey && { unique: true }),
      ...(isIdentity && { serial: true }),
      ...(facts.isComputed && { computed: true }),
      ...(facts.default && !isIdentity && { default: facts.default }),
      ...(facts.references && { references: facts.references }),
      ...(facts.comment && { comment: facts.comment }),
    })),
    keys: known,
    ...(isView && { view: true }),
    ...(rows != null && rows >= 0 && { rows }),
    ...(comment && { comment }),
  };
}
