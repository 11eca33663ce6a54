import type { ColumnDefinition } from "../../query/shape.ts";
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

/** The same type under several words. */
export function words<Type>(type: Type, ...names: string[]): [string, Type][] {
  return names.map((name) => [name, type]);
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
