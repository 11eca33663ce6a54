/** Kinds of values in the grammar: parser, schema and type. */

import { STRIDE } from "../json/tape.ts";
import type { OperationNode, Position } from "./node.ts";
import type { QueryTape } from "./tape.ts";

/** A kind of value. */
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
    const there = fieldsOf(fields, reference);
    return eitherOf(names.filter((name) => name in there).map((name) => ({ required: [name] })));
  };
}

function fieldsOf(fields: Fields, { level, inBatch }: Reference): Fields {
  const there = Object.entries(fieldsAt(fields, level));
  return Object.fromEntries(there.filter(([, { isOfBatch }]) => inBatch || !isOfBatch));
}

export function objectSchema(fields: Fields): MakeSchema {
  return (reference) => {
    const entries = Object.entries(fieldsOf(fields, reference));
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

/** Collects each named schema once in `definitions`, whose place in the document is `prefix`. */
export function collectInto(
  definitions: Map<string, Schema>,
  prefix: string,
  level: Level,
  inBatch = false,
): Reference {
  const refer = (name: string, make: MakeSchema): Schema => {
    if (!definitions.has(name)) {
      // Set before the schema is made, since a schema may contain itself.
      definitions.set(name, {});
      definitions.set(name, make(reference));
    }
    return { $ref: `${prefix}${name}` };
  };
  const reference: Reference = Object.assign(refer, { level, inBatch });
  return reference;
}
