import type { EngineRefusal } from "../refusal.ts";

/** The ways in which a row breaks a rule; names are the schema's, never values. */
export const violations = {
  required: (place: string, column: string) => `${place} takes no null in column "${column}"`,
  reference: (place: string, named: string) =>
    `${place} and another one would no longer fit together${named}`,
  unique: (place: string, named: string) =>
    `${place} has such a value already where it may stand once${named}`,
  other: (place: string, named: string) => `${place} does not allow such a row${named}`,
};

/** A foreign key that a change breaks. */
export interface BrokenKey {
  /** The table whose rows refer to others. */
  readonly table: string;
  /** The table that lacks a row for these columns of `table`; absent: rows still refer to these columns. */
  readonly lackedBy?: string | undefined;
  readonly columns: readonly string[];
  /** The value of the only column, if it is known. */
  readonly value?: string | undefined;
  readonly constraint?: string | undefined;
}

/** What a refusal says of a foreign key. The value is only for those whose query holds it. */
export function brokenKey(broken: BrokenKey): ConstructorParameters<typeof EngineRefusal> {
  const { table, lackedBy, columns, value, constraint } = broken;
  const named = constraint === undefined ? "" : ` (foreign key ${constraint})`;
  const say = (key: string): string =>
    lackedBy === undefined
      ? `Rows of ${table} still refer to ${key}${named}`
      : `Table ${lackedBy} has no row for ${key} of ${table}${named}`;
  const [first = "", ...more] = columns;
  if (more.length > 0) return ["constraint_violation", say(`(${columns.join(", ")})`)];
  const quoting =
    value === undefined ? {} : { quoting: { value, message: say(`${first} ${value}`) } };
  return ["constraint_violation", say(first), quoting];
}
