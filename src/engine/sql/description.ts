import type { UniqueKey } from "./target.ts";

/** A column of an existing table, for whoever writes queries about it; what says nothing is left out. */
export interface ColumnDescription {
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
export interface TableFacts {
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
