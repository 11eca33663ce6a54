import { sql } from "kysely";
import type { ColumnDefinition, CreateTable } from "../../query/operation-types.ts";
import { didYouMean } from "../../suggestion.ts";
import { EngineRefusal } from "../refusal.ts";
import { allowedForm } from "./form.ts";
import type { Fragment } from "./fragment.ts";
import { describeKeys, isKeyOf, type UniqueKey } from "./target.ts";

/** A table that a new one refers to. */
export interface Referred {
  readonly columns: ReadonlyMap<string, { readonly type: string }>;
  readonly keys: readonly UniqueKey[];
}

/** A column of a new table that refers to another one. */
export interface Reference {
  readonly column: ColumnDefinition;
  readonly table: string;
  readonly target: string;
}

/** The columns of a new table that refer to others. */
export function referencesOf({ columns }: CreateTable): Reference[] {
  return columns.flatMap((column) => {
    if (column.references === undefined) return [];
    const [table = "", target = ""] = column.references.split(".");
    return [{ column, table, target }];
  });
}

/** A new table as its own columns may refer to it. */
export function newTableAsReferred({ columns }: CreateTable): Referred {
  const primary = columns.filter((column) => column.primary_key === true);
  const unique = columns.filter((column) => column.unique === true);
  return {
    columns: new Map(columns.map((column) => [column.name, column])),
    keys: [
      { isPrimary: true, columns: primary.map(({ name }) => name) },
      ...unique.map(({ name }) => ({ isPrimary: false, columns: [name] })),
    ],
  };
}

/**
 * Refuses a reference to what is no column, no unique one, or one of another type than `type`.
 *
 * Throws `unknown_column`, `no_unique_key` or `invalid_type`.
 */
export function requireReferable(
  { column, table, target }: Reference,
  type: string,
  { columns, keys }: Referred,
): void {
  const refers = `Column "${column.name}" refers to ${table}.${target}`;
  const found = columns.get(target);
  if (found === undefined) {
    const near = didYouMean(target, [...columns.keys()]);
    throw new EngineRefusal("unknown_column", `${refers}, and ${table} has no such column${near}`);
  }
  if (!keys.some((key) => isKeyOf(key, [target]))) {
    throw new EngineRefusal(
      "no_unique_key",
      `${refers}, which is no primary or unique key of ${table}; ${describeKeys(keys)}`,
    );
  }
  if (allowedForm(type) === allowedForm(found.type)) return;
  throw new EngineRefusal(
    "invalid_type",
    `${refers}, which holds other values: ${column.type} is not ${found.type}`,
  );
}

/** The condition of a new table that a column refers to one of `name`, its table in SQL. */
export function referenceSql({ column, target }: Reference, name: Fragment): Fragment {
  return sql`foreign key (${sql.id(column.name)}) references ${name} (${sql.id(target)})`;
}

/** Refuses a default for a column that numbers itself. Throws `invalid_value`. */
export function takesNoDefault({ name, type }: ColumnDefinition): EngineRefusal {
  return new EngineRefusal(
    "invalid_value",
    `Column "${name}" is ${type}, which numbers itself and takes no default`,
  );
}
