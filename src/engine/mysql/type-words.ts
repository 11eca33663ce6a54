import { readDeclaredType, typesByWord } from "../sql/new-table.ts";

/**
 * What MySQL has no type for is remembered in the comment of the column: JSON whose digits are
 * kept, UUIDs, instants beyond the year 2038, and decimals of no declared length.
 */
export type Mark = "json" | "uuid" | "timestamp" | "numeric";

/** What the words that name a type in a CreateTable become. */
export interface NewType {
  readonly name: string;
  /** The same where the column is a key or unique, which takes 3,072 bytes: `n` bytes of them. */
  keyName?(bytes: number): string;
  readonly mark?: Mark;
  readonly isText?: boolean;
  readonly isSerial?: boolean;
}

/** The bytes of a character in a key. */
const CHARACTER_BYTES = 4;

const integer: NewType = { name: "bigint" };
const serial: NewType = { name: "bigint", isSerial: true };
const double: NewType = { name: "double" };
const decimal: NewType = { name: "decimal(65,30)", mark: "numeric" };
const text: NewType = {
  name: "longtext",
  isText: true,
  keyName: (bytes) => `varchar(${Math.floor(bytes / CHARACTER_BYTES)})`,
};
const instant: NewType = { name: "datetime(6)", mark: "timestamp" };
const json: NewType = { name: "longtext", mark: "json", isText: true };
const bytes: NewType = { name: "longblob", keyName: (bytes) => `varbinary(${bytes})` };

const types = typesByWord<NewType>({
  ...{ integer, serial, double, decimal, text, instant, json, jsonb: json, bytes },
  uuid: { name: "char(36)", mark: "uuid", isText: true },
  date: { name: "date" },
  time: { name: "time(6)" },
  boolean: { name: "boolean" },
});

/** The words that name a column type, for messages. */
export const typeWords: readonly string[] = [...types.keys()];

/** The type that a word with its length or precision names; undefined if it is not known. */
export function newType(type: string): NewType | undefined {
  const { word, size } = readDeclaredType(type);
  const found = types.get(word);
  if (found === undefined || size === "") return found;
  // MySQL's `char(n)` cuts the spaces at the end off, and its `text` takes no length.
  if (found === text) return { name: `varchar${size}`, isText: true };
  return found === decimal ? { name: `decimal${size}` } : found;
}

/** The same as the catalog will describe it. */
export function descriptionOf({ name, mark }: NewType): TypeDescription {
  const columnType = name === "boolean" ? "tinyint(1)" : name;
  const [, dataType = "", first, scale] = /^(\w+)(?:\((\d+)(?:,(\d+))?\))?$/.exec(columnType) ?? [];
  return {
    dataType,
    columnType,
    mark,
    length: Number(first ?? Number.POSITIVE_INFINITY),
    scale: Number(scale ?? 0),
    precision: Number(first ?? 0),
  };
}

const markPrefix = "gatehouse:";

/** The comment that remembers a mark. */
export function commentOf(mark: Mark): string {
  return markPrefix + mark;
}

/** The mark that a column's comment holds, if it does. */
export function markOf(comment: string): Mark | undefined {
  const marks = ["json", "uuid", "timestamp", "numeric"] as const;
  return marks.find((mark) => comment === commentOf(mark));
}

/** What the catalog says about the type of a column. */
export interface TypeDescription {
  /** The word of the type, without length and the like. */
  readonly dataType: string;
  /** The whole type, as in `enum('a','b')`. */
  readonly columnType: string;
  /** What the engine has remembered of the type, if it made the column. */
  readonly mark: Mark | undefined;
  /** Of strings, in characters; of bytes, in bytes. */
  readonly length: number;
  /** Places behind the point of a decimal. */
  readonly scale: number;
  /** Places of a second. */
  readonly precision: number;
}
