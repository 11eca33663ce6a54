import { sql } from "kysely";
import type { ColumnDefinition, CreateTable } from "../../query/operation-types.ts";
import { askWhether, suggestion } from "../../suggestion.ts";
import { foldCase } from "../fold-case.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Fragment } from "./fragment.ts";
import { describeKeys, isKeyOf, type UniqueKey } from "./target.ts";
import { allowedForm } from "./values.ts";

export interface Referred {
  readonly columns: ReadonlyMap<string, { readonly type: string }>;
  readonly keys: readonly UniqueKey[];
}

export interface Reference {
  readonly column: ColumnDefinition;
  readonly table: string;
  readonly target: string;
}

export function referencesOf({ columns }: CreateTable): Reference[] {
  return columns.flatMap((column) => {
    if (column.references === undefined) return [];
    const [table = "", target = ""] = column.references.split(".");
    return [{ column, table, target }];
  });
}

export function newTableAsReferred({ columns }: CreateTable): Referred {
  const unique = columns.filter((column) => column.unique === true);
  return {
    columns: new Map(columns.map((column) => [column.name, column])),
    keys: [
      { isPrimary: true, columns: primaryKeyOf(columns).map(({ name }) => name) },
      ...unique.map(({ name }) => ({ isPrimary: false, columns: [name] })),
    ],
  };
}

/**
 * Refuses a reference to an unknown column, to one that is not unique, or to one of another type
 * than `type`.
 *
 * @throws EngineRefusal `unknown_column`, `no_unique_key` or `invalid_type`
 */
function requireReferable(
  { column, table, target }: Reference,
  type: string,
  { columns, keys }: Referred,
): void {
  const refers = `Column "${column.name}" refers to ${table}.${target}`;
  const found = columns.get(target);
  if (found === undefined) {
    const meant = suggestion(target, columns.keys());
    const near = askWhether(meant && `${table}.${meant}`);
    const plain = `${refers}, and ${table} has no such column`;
    throw new EngineRefusal("unknown_column", plain + near, { plain });
  }
  if (!keys.some((key) => isKeyOf(key, [target]))) {
    const plain = `${refers}, which is no primary or unique key of ${table}`;
    throw new EngineRefusal("no_unique_key", `${plain}; ${describeKeys(keys)}`, { plain });
  }
  if (allowedForm(type) === allowedForm(found.type)) return;
  throw new EngineRefusal(
    "invalid_type",
    `${refers}, which holds other values: ${column.type} is not ${found.type}`,
  );
}

/** The foreign key constraint of a column. @throws as `requireReferable` does */
export function referenceSql(
  reference: Reference,
  type: string,
  referred: Referred,
  name: Fragment,
): Fragment {
  requireReferable(reference, type, referred);
  const { column, target } = reference;
  return sql`foreign key (${sql.id(column.name)}) references ${name} (${sql.id(target)})`;
}

export function primaryKeyOf(columns: readonly ColumnDefinition[]): ColumnDefinition[] {
  return columns.filter((column) => column.primary_key === true);
}

export function primaryKeySql(key: readonly ColumnDefinition[]): Fragment[] {
  if (key.length === 0) return [];
  return [sql`primary key (${sql.join(key.map(({ name }) => sql.id(name)))})`];
}

/** Another table has this name, ignoring case. */
export function tableExists(taken: unknown, database: string): EngineRefusal {
  return new EngineRefusal("table_exists", `Table ${taken} exists already in ${database}`);
}

/** Refusal `invalid_value` of a default for a column that numbers itself. */
export function takesNoDefault({ name, type }: ColumnDefinition): EngineRefusal {
  return new EngineRefusal(
    "invalid_value",
    `Column "${name}" is ${type}, which numbers itself and takes no default`,
  );
}

/** A type in CreateTable: its word in lower case, with `(n)` or `(n,m)` if given. */
export interface DeclaredType {
  readonly word: string;
  readonly size: string;
}

export function readDeclaredType(type: string): DeclaredType {
  const [, word = "", size = ""] = /^(\w+)(\(\d+(?:,\d+)?\))?$/.exec(type) ?? [];
  return { word: word.toLowerCase(), size };
}

/** The type words of CreateTable by meaning, in the order used by messages. */
const vocabulary = {
  integer: ["int", "integer", "bigint", "smallint", "tinyint"],
  serial: ["serial", "bigserial"],
  double: ["float", "double", "real"],
  decimal: ["numeric", "decimal"],
  text: ["string", "text", "varchar", "char"],
  uuid: ["uuid"],
  date: ["date"],
  time: ["time"],
  instant: ["timestamp", "datetime"],
  boolean: ["bool", "boolean"],
  json: ["json"],
  jsonb: ["jsonb"],
  bytes: ["blob", "bytes"],
} as const;

type Meaning = keyof typeof vocabulary;

function isMeaning(name: string): name is Meaning {
  return name in vocabulary;
}

export function typesByWord<Type>(
  types: Readonly<Record<Meaning, Type>>,
): ReadonlyMap<string, Type> {
  const meanings = Object.keys(vocabulary).filter(isMeaning);
  return new Map(
    meanings.flatMap((meaning) => vocabulary[meaning].map((word) => [word, types[meaning]])),
  );
}

export function unknownType(name: string, known: readonly string[]): EngineRefusal {
  return new EngineRefusal(
    "invalid_type",
    `Column "${name}" has an unknown type; known are ${known.join(", ")}`,
  );
}

/**
 * Refuses a self-numbering column that is not the only primary key column. @throws EngineRefusal
 * `invalid_type`
 */
export function requireSoleKey(column: ColumnDefinition, key: readonly ColumnDefinition[]): void {
  if (key.length === 1 && key.includes(column)) return;
  throw new EngineRefusal(
    "invalid_type",
    `Column "${column.name}" is ${column.type}, which only a sole primary key can be`,
  );
}

/**
 * Refuses columns that differ only by case, and names that a query would read as something other
 * than a column.
 *
 * @throws EngineRefusal `invalid_name` or `duplicate_column`
 */
export function requireDistinctNames(columns: readonly ColumnDefinition[]): void {
  const seen = new Set<string>();
  for (const { name } of columns) {
    requireColumnName(name);
    if (seen.has(foldCase(name))) {
      throw new EngineRefusal("duplicate_column", `There are two columns "${name}" in any case`);
    }
    seen.add(foldCase(name));
  }
}

function requireColumnName(name: string): void {
  if (name !== "*" && !name.includes(".")) return;
  throw new EngineRefusal("invalid_name", `A column cannot be named "${name}"`);
}
