import { sql } from "kysely";
import { readDeclaredType, typesByWord } from "../sql/declared-type.ts";
import type { Fragment } from "../sql/fragment.ts";

/** What the words that name a type in a CreateTable become. */
interface NewType {
  readonly name: string;
  /** True if a length or precision that follows the word is the type's own. */
  readonly isSized?: boolean;
  readonly isSerial?: boolean;
  readonly isText?: boolean;
}

const integer: NewType = { name: "bigint" };
const serial: NewType = { name: "bigint", isSerial: true };
const double: NewType = { name: "double precision" };
const decimal: NewType = { name: "numeric", isSized: true };
const text: NewType = { name: "text", isText: true };
const instant: NewType = { name: "timestamp with time zone" };
const bytes: NewType = { name: "bytea" };

const types = typesByWord<NewType>({
  ...{ integer, serial, double, decimal, text, instant, bytes },
  uuid: { name: "uuid" },
  date: { name: "date" },
  time: { name: "time" },
  boolean: { name: "boolean" },
  json: { name: "json" },
  jsonb: { name: "jsonb" },
});

/** The words that name a column type, for messages. */
export const typeWords: readonly string[] = [...types.keys()];

/** A type of a CreateTable in PostgreSQL's words. */
export interface ColumnType {
  readonly sql: Fragment;
  /** True for the type that numbers itself. */
  readonly isSerial: boolean;
  readonly isText: boolean;
}

/** The type that a word with its length or precision names; undefined if it is not known. */
export function columnType(type: string): ColumnType | undefined {
  const { word, size } = readDeclaredType(type);
  const found = types.get(word);
  if (found === undefined) return undefined;
  const { isText = false, isSerial = false } = found;
  // PostgreSQL's `char(n)` pads what it stores, and its `text` takes no length.
  const sized = isText && size !== "" ? `varchar${size}` : found.name;
  return { sql: sql.raw(found.isSized ? found.name + size : sized), isSerial, isText };
}
