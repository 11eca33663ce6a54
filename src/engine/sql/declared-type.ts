import type { ColumnDefinition } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";

/** A type of a CreateTable: its word in lower case, and `(n)` or `(n,m)` if that follows it. */
export interface DeclaredType {
  readonly word: string;
  readonly size: string;
}

/** Takes a type apart. */
export function readDeclaredType(type: string): DeclaredType {
  const [, word = "", size = ""] = /^(\w+)(\(\d+(?:,\d+)?\))?$/.exec(type) ?? [];
  return { word: word.toLowerCase(), size };
}

/** The words of a CreateTable that name a type, by what they mean; their order is that of messages. */
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

/** What each word becomes, by what is given for its meaning. */
export function typesByWord<Type>(
  types: Readonly<Record<Meaning, Type>>,
): ReadonlyMap<string, Type> {
  const meanings = Object.keys(vocabulary).filter(isMeaning);
  return new Map(
    meanings.flatMap((meaning) => vocabulary[meaning].map((word) => [word, types[meaning]])),
  );
}

/** The refusal of a type that is not known; `known` are the words that are. */
export function unknownType(name: string, known: readonly string[]): EngineRefusal {
  return new EngineRefusal(
    "invalid_type",
    `Column "${name}" has an unknown type; known are ${known.join(", ")}`,
  );
}

/** Refuses a column that numbers itself and is not the sole primary key. Throws `invalid_type`. */
export function requireSoleKey(column: ColumnDefinition, key: readonly ColumnDefinition[]): void {
  if (key.length === 1 && key.includes(column)) return;
  throw new EngineRefusal(
    "invalid_type",
    `Column "${column.name}" is ${column.type}, which only a sole primary key can be`,
  );
}
