/** Kinds of values in the grammar: parser, schema and type. */

import { formatHint } from "../base/suggestion.ts";
import { Deferred, type Parsed } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { STRIDE, Word } from "../json/tape.ts";
import type { OperationNode, Position } from "./node.ts";
import { meantField } from "./synonyms.ts";
import type { QueryTape } from "./tape.ts";

export interface Kind<Value> {
  /**
   * Makes the value of a token, and reports to `node` the tables and columns that it names.
   *
   * @throws QueryRefused
   */
  readonly parse: (tape: QueryTape, token: number, node: OperationNode) => Value;
  readonly schema: MakeSchema;
}

/** @param check throws QueryRefused, or notes the value */
export function checked<Value>(
  { parse, schema }: Kind<Value>,
  check: (value: Value, node: OperationNode, token: number, tape: QueryTape) => void,
): Kind<Value> {
  return {
    parse(tape, token, node) {
      const value = parse(tape, token, node);
      check(value, node, token, tape);
      return value;
    },
    schema,
  };
}

/** Columns within the value are at this position. */
export function at<Value>(position: Position, { parse, schema }: Kind<Value>): Kind<Value> {
  return {
    parse(tape, token, node) {
      node.position = position;
      return parse(tape, token, node);
    },
    schema,
  };
}

export interface Field<Value, Required extends boolean = boolean> extends Kind<Value> {
  readonly required: Required;
  readonly description: string | undefined;
  /** The lowest level of the grammar that has the field. */
  readonly level: Level;
  /** True for a field that only elements of a Batch have. */
  readonly isOfBatch?: true;
}

/** The fields of a closed object, in their usual order. */
export type Fields = Readonly<Record<string, Field<unknown>>>;

type ValueOf<Of> = Of extends Kind<infer Value> ? Value : never;
type RequiredNames<Of> = {
  [Name in keyof Of]: Of[Name] extends { readonly required: true } ? Name : never;
}[keyof Of];

export type ObjectOf<Of> = { [Name in RequiredNames<Of>]: ValueOf<Of[Name]> } & {
  [Name in Exclude<keyof Of, RequiredNames<Of>>]?: ValueOf<Of[Name]>;
};

export function required<Value>(
  { parse, schema }: Kind<Value>,
  description?: string,
): Field<Value, true> {
  return { parse, schema, required: true, description, level: "core" };
}

export function optional<Value>(
  { parse, schema }: Kind<Value>,
  description?: string,
): Field<Value, false> {
  return { parse, schema, required: false, description, level: "core" };
}

/** An optional field that only the full grammar has. */
export function extra<Value>(kind: Kind<Value>, description?: string): Field<Value, false> {
  return { ...optional(kind, description), level: "full" };
}

/** An extra field that only an element of a Batch may have. */
export function ofBatch<Value>(
  { parse, schema }: Kind<Value>,
  description: string,
): Field<Value, false> {
  const kind: Kind<Value> = {
    parse(tape, token, node) {
      if (node.element !== undefined) return parse(tape, token, node);
      const name = tape.name(token - STRIDE);
      const problem = `the field "${name}" is allowed only in an element of a Batch`;
      throw tape.refusal("unknown_field", problem, token);
    },
    schema,
  };
  return { ...extra(kind, description), isOfBatch: true };
}

export function fieldsAt(fields: Fields, level: Level): Fields {
  if (level === "full") return fields;
  return Object.fromEntries(Object.entries(fields).filter(([, field]) => field.level === level));
}

/** Type generators turn an `anyOf` without types into `unknown`, hence the double `not`. */
export function eitherOf(alternatives: readonly Schema[]): Schema {
  return { not: { not: { anyOf: alternatives } } };
}

/** Requires at least one of these fields. */
export function oneNeeded(fields: Fields, names: readonly string[]): MakeSchema {
  return (reference) => {
    const there = fieldsAllowed(fields, reference);
    return eitherOf(names.filter((name) => name in there).map((name) => ({ required: [name] })));
  };
}

function fieldsAllowed(fields: Fields, { level, inBatch }: Reference): Fields {
  const there = Object.entries(fieldsAt(fields, level));
  return Object.fromEntries(there.filter(([, { isOfBatch }]) => inBatch || !isOfBatch));
}

export function objectSchema(fields: Fields): MakeSchema {
  return (reference) => {
    const entries = Object.entries(fieldsAllowed(fields, reference));
    const properties = entries.map(([name, { schema, description }]): [string, Schema] => [
      name,
      { ...schema(reference), ...(description === undefined ? {} : { description }) },
    ]);
    const needed = entries.filter(([, field]) => field.required).map(([name]) => name);
    return {
      type: "object",
      properties: Object.fromEntries(properties),
      ...(needed.length === 0 ? {} : { required: needed }),
      additionalProperties: false,
    };
  };
}

/** `core` is what every database that speaks the grammar must support. */
export type Level = "core" | "full";

/** Ends the refusal of a full-grammar word at the level `core`. */
export const fullOnly = '; it is in the full grammar ([query] level = "full")';

/** JSON Schema, draft 2020-12. */
export interface Schema {
  readonly [keyword: string]: unknown;
}

export type MakeSchema = (reference: Reference) => Schema;

/** Returns the stand-in for a named schema, such as a `$ref` to its single definition. */
export interface Reference {
  (name: string, make: MakeSchema): Schema;
  readonly level: Level;
  /** True for the schemas of a Batch's elements. */
  readonly inBatch: boolean;
}

/** A schema that a document defines once under this name. */
export function named(name: string, make: MakeSchema): MakeSchema {
  return (reference) => reference(name, make);
}

interface KnownField {
  readonly name: string;
  readonly required: boolean;
  readonly parse: Kind<unknown>["parse"];
  readonly index: number;
  readonly word: Word;
}

/** An object of exactly these fields, in any order, each at most once. */
export class ObjectShape {
  readonly #fields: readonly KnownField[];
  readonly #allowed: string;
  readonly #needed: string;
  /** The same object in the core grammar. */
  readonly #core: ObjectShape;
  readonly #instead: readonly string[];
  readonly #ofFull: readonly string[];

  /**
   * @param alternative for messages: what may replace these fields
   * @param instead the names of those alternatives
   * @param ofFull names of fields that only the full grammar has here
   */
  constructor(
    fields: Fields,
    alternative = "",
    instead: readonly string[] = [],
    ofFull: readonly string[] = [],
  ) {
    this.#instead = instead;
    this.#ofFull = ofFull;
    this.#fields = Object.entries(fields).map(([name, { required, parse }], index) => {
      return { name, required, parse, index, word: new Word(name) };
    });
    this.#allowed = joinNames(this.#fields) + alternative;
    this.#needed = joinNames(this.#fields.filter((field) => field.required)) + alternative;
    const names = Object.keys(fields);
    const core = fieldsAt(fields, "core");
    const others = names.filter((name) => !(name in core));
    this.#core = others.length === 0 ? this : new ObjectShape(core, alternative, instead, others);
  }

  /** The object of the fields. @throws QueryRefused */
  parse(tape: QueryTape, object: number, node: OperationNode): Parsed {
    return (tape.isFull ? this : this.#core).#parse(tape, object, node);
  }

  #parse(tape: QueryTape, object: number, node: OperationNode): Parsed {
    tape.expect(object, "an object");
    const parsed: Parsed = {};
    const seen: KnownField[] = [];
    const end = tape.next(object);
    let likely = 0;
    for (let key = object + STRIDE; key < end; key = tape.next(key + STRIDE)) {
      const field = this.#fieldOf(tape, key, likely);
      likely = field.index + 1;
      if (seen.includes(field)) {
        const problem = `the field ${quoteName(field.name)} is given twice; each field is allowed once`;
        throw tape.refusal("duplicate_key", problem, key);
      }
      seen.push(field);
      const value = field.parse(tape, key + STRIDE, node);
      if (value === undefined) continue;
      parsed[field.name] = value;
      if (value instanceof Deferred) value.belongTo(parsed, field.name);
    }
    const missing = this.#fields.find((field) => field.required && !seen.includes(field));
    if (missing === undefined) return parsed;
    throw tape.missing(missing.name, `required: ${this.#needed}`, object);
  }

  /** @param likely index of the field to try first, since bodies tend to keep the order */
  #fieldOf(tape: QueryTape, key: number, likely: number): KnownField {
    const first = this.#fields[likely];
    if (first !== undefined && tape.is(key, first.word)) return first;
    for (const field of this.#fields) if (tape.is(key, field.word)) return field;
    const name = tape.name(key);
    const meant = meantField(name, [...this.#fields.map((known) => known.name), ...this.#instead]);
    const alone = `; ${name} must be the only field: put the others into it, or both into and`;
    const others = this.#instead.includes(name) ? alone : formatHint(meant);
    const hint = this.#ofFull.includes(name) ? fullOnly : others;
    const problem = `the field ${quoteName(name)} is unknown; allowed: ${this.#allowed}${hint}`;
    throw tape.refusal("unknown_field", problem, key);
  }
}

function joinNames(fields: readonly { readonly name: string }[]): string {
  return fields.map((field) => field.name).join(", ");
}

export function object<Of extends Fields>(fields: Of): Kind<ObjectOf<Of>> {
  const shape = new ObjectShape(fields);
  return {
    parse: (tape, token, node) => shape.parse(tape, token, node),
    schema: objectSchema(fields),
  };
}
