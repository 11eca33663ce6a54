import { sql } from "kysely";
import { formatHint, suggestion } from "../../core/base/suggestion.ts";
import { foldCase } from "../../core/query/names.ts";
import type { ColumnDefinition, CreateTable } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import type { PresentValue } from "./scope.ts";
import { describeKeys, isKeyIn, type UniqueKey } from "./target.ts";
import { allowedForm } from "./values.ts";

export interface Declaration {
  readonly type: Fragment;
  readonly isSerial: boolean;
  literal(value: PresentValue): Fragment | Promise<Fragment>;
  readonly constraint?: Fragment | undefined;
  /** The catalog's name of the type, if it differs. */
  readonly catalogType?: string;
}

interface ReferencedTable {
  readonly columns: ReadonlyMap<string, { readonly type: string }>;
  readonly keys: readonly UniqueKey[];
}

interface NewTableDialect {
  readonly typeWords: readonly string[];
  /** Refuses a column name that the database cannot store. */
  requireName?(name: string): void;
  /** Ignores case. */
  findExisting(): unknown;
  declare(column: ColumnDefinition, key: readonly ColumnDefinition[]): Declaration | undefined;
  readReferenced(table: string): ReferencedTable | Promise<ReferencedTable>;
  nameOf(table: string): Fragment;
}

export async function newTableSql(query: CreateTable, dialect: NewTableDialect): Promise<Fragment> {
  const { database, table, columns } = query;
  requireNames(columns, dialect);
  const existing = (await dialect.findExisting()) ?? undefined;
  if (existing !== undefined) {
    throw new EngineRefusal("table_exists", `Table ${existing} already exists in ${database}`);
  }
  const key = columns.filter((column) => column.primary_key === true);
  const parts = await Array.fromAsync(columns, (column) => columnSql(column, key, dialect));
  if (key.length > 0) {
    parts.push(sql`primary key (${sql.join(key.map(({ name }) => sql.id(name)))})`);
  }
  for (const column of columns) {
    if (column.references === undefined) continue;
    const [other = "", target = ""] = column.references.split(".");
    const isOwn = other === table;
    const referred = isOwn ? ownReference(columns, key) : await dialect.readReferenced(other);
    const type = isOwn ? undefined : dialect.declare(column, key)?.catalogType;
    requireReferenceTarget(column, type ?? column.type, other, target, referred);
    parts.push(
      sql`foreign key (${sql.id(column.name)}) references ${dialect.nameOf(other)} (${sql.id(target)})`,
    );
  }
  return sql.join(parts);
}

async function columnSql(
  column: ColumnDefinition,
  key: readonly ColumnDefinition[],
  dialect: NewTableDialect,
): Promise<Fragment> {
  const { name, type, default: value = null } = column;
  const declared = dialect.declare(column, key);
  if (declared === undefined) {
    const known = dialect.typeWords.join(", ");
    const problem = `Column "${name}" has an unknown type; use one of ${known}`;
    throw new EngineRefusal("invalid_type", problem);
  }
  const isInKey = key.includes(column);
  if (declared.isSerial && !(isInKey && key.length === 1)) {
    const problem = `Column "${name}" is ${type}, which is allowed only for a single-column primary key`;
    throw new EngineRefusal("invalid_type", problem);
  }
  if (declared.isSerial && value !== null) {
    const problem = `Column "${name}" is ${type}, which generates its numbers and allows no default`;
    throw new EngineRefusal("invalid_value", problem);
  }
  const words = [sql.id(name), declared.type];
  if (isInKey || column.nullable === false) words.push(sql`not null`);
  if (value !== null) words.push(sql`default ${await declared.literal(value)}`);
  if (column.unique === true) words.push(sql`unique`);
  if (declared.constraint !== undefined) words.push(declared.constraint);
  return sql.join(words, sql` `);
}

function ownReference(
  columns: readonly ColumnDefinition[],
  key: readonly ColumnDefinition[],
): ReferencedTable {
  const unique = columns.filter((column) => column.unique === true);
  return {
    columns: new Map(columns.map((column) => [column.name, column])),
    keys: [
      { isPrimary: true, columns: key.map(({ name }) => name) },
      ...unique.map(({ name }) => ({ isPrimary: false, columns: [name] })),
    ],
  };
}

function requireReferenceTarget(
  column: ColumnDefinition,
  type: string,
  table: string,
  target: string,
  { columns, keys }: ReferencedTable,
): void {
  const refers = `Column "${column.name}" refers to ${table}.${target}`;
  const found = columns.get(target);
  if (found === undefined) {
    const meant = suggestion(target, columns.keys());
    const near = formatHint(meant && `${table}.${meant}`);
    const plain = `${refers}, and ${table} has no such column`;
    throw new EngineRefusal("unknown_column", plain + near, { plain });
  }
  if (!keys.some((key) => isKeyIn(key, [target]))) {
    const plain = `${refers}, which is not a primary or unique key of ${table}`;
    throw new EngineRefusal("no_unique_key", `${plain}; ${describeKeys(keys)}`, { plain });
  }
  if (allowedForm(type) === allowedForm(found.type)) return;
  throw new EngineRefusal(
    "invalid_type",
    `${refers}, which has another type: ${column.type} is not ${found.type}`,
  );
}

/** Refuses names that differ only by case, and names that mean something else in a query. */
function requireNames(columns: readonly ColumnDefinition[], dialect: NewTableDialect): void {
  const seen = new Set<string>();
  for (const { name } of columns) {
    if (name === "*" || name.includes(".")) {
      throw new EngineRefusal("invalid_name", `A column cannot be named "${name}"`);
    }
    if (seen.has(foldCase(name))) {
      throw new EngineRefusal("duplicate_column", `Two columns are named "${name}", ignoring case`);
    }
    seen.add(foldCase(name));
    dialect.requireName?.(name);
  }
}

/** The word in lower case, and `(n)`, `(n,m)` or nothing. */
export function readDeclaredType(type: string) {
  const [, word = "", size = ""] = /^(\w+)(\(\d+(?:,\d+)?\))?$/.exec(type) ?? [];
  return { word: word.toLowerCase(), size };
}

/** The types of CreateTable by meaning, in the order of messages. */
const vocabulary = [
  ["integer", ["int", "integer", "bigint", "smallint", "tinyint"]],
  ["serial", ["serial", "bigserial"]],
  ["double", ["float", "double", "real"]],
  ["decimal", ["numeric", "decimal"]],
  ["text", ["string", "text", "varchar", "char"]],
  ["uuid", ["uuid"]],
  ["date", ["date"]],
  ["time", ["time"]],
  ["instant", ["timestamp", "datetime"]],
  ["boolean", ["bool", "boolean"]],
  ["json", ["json"]],
  ["jsonb", ["jsonb"]],
  ["bytes", ["blob", "bytes"]],
] as const;

type Meaning = (typeof vocabulary)[number][0];

export function typesByWord<Type>(
  types: Readonly<Record<Meaning, Type>>,
): ReadonlyMap<string, Type> {
  return new Map(
    vocabulary.flatMap(([meaning, words]) => words.map((word) => [word, types[meaning]])),
  );
}
