/** What a field of the grammar holds: how it is read, how a schema says it, which type it has. */

import type { Rest } from "../json/rest.ts";
import type { BodyReader } from "./body-reader.ts";
import type { OperationDraft } from "./operation-draft.ts";

/** A kind of value. `Draft` is what is noted while it is read. */
export interface Kind<Value, Draft = OperationDraft> {
  /** Reads past a value and notes what matters. @throws QueryRefused for any other */
  readonly read: (reader: BodyReader, draft: Draft) => Rest;
  readonly schema: MakeSchema;
  /** Never set: it carries the type of the value once parsed. */
  readonly value?: Value;
}

/** A field of a closed object. */
export interface Field<Value, Draft, Required extends boolean = boolean>
  extends Kind<Value, Draft> {
  readonly required: Required;
  /** One sentence for whoever writes the field. */
  readonly description: string | undefined;
  /** The least level of the grammar that has the field. */
  readonly level: Level;
}

/** The fields of a closed object, in the order in which they are usually written. */
export type Fields<Draft> = Readonly<Record<string, Field<unknown, Draft>>>;

type ValueOf<Held> = Held extends { readonly value?: infer Value } ? Value : never;
type RequiredNames<Of> = {
  [Name in keyof Of]: Of[Name] extends { readonly required: true } ? Name : never;
}[keyof Of];

/** The type of an object with these fields. */
export type ObjectOf<Of> = { [Name in RequiredNames<Of>]: ValueOf<Of[Name]> } & {
  [Name in Exclude<keyof Of, RequiredNames<Of>>]?: ValueOf<Of[Name]>;
};

/** A field that may not be left out. */
export function required<Value, Draft>(
  { read, schema }: Kind<Value, Draft>,
  description?: string,
): Field<Value, Draft, true> {
  return { read, schema, required: true, description, level: "core" };
}

/** A field that may be left out. */
export function optional<Value, Draft>(
  { read, schema }: Kind<Value, Draft>,
  description?: string,
): Field<Value, Draft, false> {
  return { read, schema, required: false, description, level: "core" };
}

/** A field that may be left out, and is of the full grammar alone. */
export function extra<Value, Draft>(
  kind: Kind<Value, Draft>,
  description?: string,
): Field<Value, Draft, false> {
  return { ...optional(kind, description), level: "full" };
}

/** The fields that this level of the grammar has. */
export function fieldsAt<Draft>(fields: Fields<Draft>, level: Level): Fields<Draft> {
  if (level === "full") return fields;
  return Object.fromEntries(Object.entries(fields).filter(([, field]) => field.level === level));
}

/** Alternatives in a schema. Generators of types make `unknown` of an `anyOf` that names no types. */
export function eitherOf(alternatives: readonly Schema[]): Schema {
  return { not: { not: { anyOf: alternatives } } };
}

/** What a schema says of an object of which at least one of these fields is there. */
export function oneNeeded<Draft>(fields: Fields<Draft>, names: readonly string[]): MakeSchema {
  return ({ level }) => {
    const there = fieldsAt(fields, level);
    return eitherOf(names.filter((name) => name in there).map((name) => ({ required: [name] })));
  };
}

/** The schema of an object with those of these fields that the level has, and no other. */
export function objectSchema<Draft>(fields: Fields<Draft>): MakeSchema {
  return (reference) => {
    const entries = Object.entries(fieldsAt(fields, reference.level));
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

/** How much of the grammar there is: `core` is what every database that speaks it must know. */
export type Level = "core" | "full";

/** What a refusal at the level `core` says of a word of the full grammar, behind what is allowed. */
export const fullAlone = '; it is of the full grammar ([query] level = "full")';

/** A JSON Schema (draft 2020-12). */
export interface Schema {
  readonly [keyword: string]: unknown;
}

/** Makes a schema; what has a name of its own is written through `reference`. */
export type MakeSchema = (reference: Reference) => Schema;

/** Gives the schema that stands for a named one, such as a `$ref` to where it is written once. */
export interface Reference {
  (name: string, make: MakeSchema): Schema;
  /** How much of the grammar is told. */
  readonly level: Level;
}

/** A schema that a document writes once, under this name. */
export function named(name: string, make: MakeSchema): MakeSchema {
  return (reference) => reference(name, make);
}

/**
 * A reference that collects what it is asked for: `definitions` holds each named schema once, and
 * `prefix` is where they stand in the document.
 */
export function collectInto(
  definitions: Map<string, Schema>,
  prefix: string,
  level: Level,
): Reference {
  const refer = (name: string, make: MakeSchema): Schema => {
    if (!definitions.has(name)) {
      // Noted before it is made, since a schema may hold itself.
      definitions.set(name, {});
      definitions.set(name, make(reference));
    }
    return { $ref: `${prefix}${name}` };
  };
  const reference: Reference = Object.assign(refer, { level });
  return reference;
}
