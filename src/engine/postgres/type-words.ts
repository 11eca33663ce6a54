import { sql } from "kysely";
import type { Fragment } from "../sql/fragment.ts";
import { readDeclaredType, typesByWord } from "../sql/new-table.ts";
import type { TypeDescription } from "./kinds.ts";

/** What the words that name a type in a CreateTable become. */
interface NewType {
  readonly name: string;
  /** The number of the type. */
  readonly id: number;
  /** True if a length or precision that follows the word is the type's own. */
  readonly isSized?: boolean;
  readonly isSerial?: boolean;
  readonly isText?: boolean;
}

const integer: NewType = { name: "bigint", id: 20 };
const serial: NewType = { name: "bigint", id: 20, isSerial: true };
const double: NewType = { name: "double precision", id: 701 };
const decimal: NewType = { name: "numeric", id: 1700, isSized: true };
const text: NewType = { name: "text", id: 25, isText: true };
const instant: NewType = { name: "timestamp with time zone", id: 1184 };
const bytes: NewType = { name: "bytea", id: 17 };

const types = typesByWord<NewType>({
  ...{ integer, serial, double, decimal, text, instant, bytes },
  uuid: { name: "uuid", id: 2950 },
  date: { name: "date", id: 1082 },
  time: { name: "time", id: 1083 },
  boolean: { name: "boolean", id: 16 },
  json: { name: "json", id: 114 },
  jsonb: { name: "jsonb", id: 3802 },
});

/** The words that name a column type, for messages. */
export const typeWords: readonly string[] = [...types.keys()];

/** A type of a CreateTable in PostgreSQL's words. */
export interface ColumnType {
  readonly sql: Fragment;
  readonly description: TypeDescription;
  /** Characters that a string has at the most. */
  readonly length: number;
  /** True for the type that numbers itself. */
  readonly isSerial: boolean;
  readonly isText: boolean;
}

/** The type that a word with its length or precision names; undefined if it is not known. */
export function columnType(type: string): ColumnType | undefined {
  const { word, size } = readDeclaredType(type);
  const found = types.get(word);
  if (found === undefined) return undefined;
  const { id, isText = false, isSerial = false } = found;
  // PostgreSQL's `char(n)` pads what it stores, and its `text` takes no length.
  const sized = isText && size !== "" ? `varchar${size}` : found.name;
  const name = found.isSized ? found.name + size : sized;
  const [, first, places = "0"] = /^\((\d+)(?:,(\d+))?/.exec(size) ?? [];
  const scale = found.isSized && first !== undefined ? Number(places) : undefined;
  // A cast to a shorter string would cut it off.
  const sqlName = isText ? found.name : name;
  return {
    sql: sql.raw(name),
    description: { id, elementId: 0, sqlName, scale },
    length: isText && first !== undefined ? Number(first) : Number.POSITIVE_INFINITY,
    isSerial,
    isText,
  };
}
