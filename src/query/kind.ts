/** Kinds of values in the grammar: reader, schema and type. */

import { andThen, type Rest } from "../json/reader.ts";
import type { BodyReader } from "./body-reader.ts";
import type { OperationDraft, Position } from "./operation-draft.ts";

/** A kind of value. `Draft` collects notes while it is read. */
export interface Kind<Value, Draft = OperationDraft> {
  /** Reads past a value and notes what matters. @throws QueryRefused for an invalid value */
  readonly read: (reader: BodyReader, draft: Draft) => Rest;
  readonly schema: MakeSchema;
  /** Never set. Carries the type of the parsed value. */
  readonly value?: Value;
}

/** Calls `note` with the start of a value when it has been read up to `reader.position`. */
export function whenRead<Value, Draft>(
  kind: Kind<Value, Draft>,
  note: (draft: Draft, reader: BodyReader, start: number) => void,
): Kind<Value, Draft> {
  return {
    read(reader, draft) {
      const start = reader.position;
      return andThen(kind.read(reader, draft), () => note(draft, reader, start));
    },
    schema: kind.schema,
  };
}

/** Reads a value into the draft of the operation that contains a smaller part. */
export function inside<Value, Draft extends { readonly operation: OperationDraft }>({
  read,
  schema,
}: Kind<Value>): Kind<Value, Draft> {
  return { read: (reader, { operation }) => read(reader, operation), schema };
}

/** Columns within the value are at this position. */
export function at<Value>(position: Position, { read, schema }: Kind<Value>): Kind<Value> {
  return {
    read(reader, draft) {
      draft.position = position;
      return read(reader, draft);
    },
    schema,
  };
}

export interface Field<Value, Draft, Required extends boolean = boolean>
  extends Kind<Value, Draft> {
  readonly required: Required;
  readonly description: string | undefined;
  /** The lowest level of the grammar that has the field. */
  readonly level: Level;
  /** True for a field that only elements of a Batch have. */
  readonly isOfBatch?: true;
}

/** The fields of a closed object, in their usual order. */
export type Fields<Draft> = Readonly<Record<string, Field<unknown, Draft>>>;

type ValueOf<Of> = Of extends { readonly value?: infer Value } ? Value : never;
type RequiredNames<Of> = {
  [Name in keyof Of]: Of[Name] extends { readonly required: true } ? Name : never;
}[keyof Of];

export type ObjectOf<Of> = { [Name in RequiredNames<Of>]: ValueOf<Of[Name]> } & {
  [Name in Exclude<keyof Of, RequiredNames<Of>>]?: ValueOf<Of[Name]>;
};

export function required<Value, Draft>(
  { read, schema }: Kind<Value, Draft>,
  description?: string,
): Field<Value, Draft, true> {
  return { read, schema, required: true, description, level: "core" };
}

export function optional<Value, Draft>(
  { read, schema }: Kind<Value, Draft>,
  description?: string,
): Field<Value, Draft, false> {
  return { read, schema, required: false, description, level: "core" };
}

/** An optional field that only the full grammar has. */
export function extra<Value, Draft>(
  kind: Kind<Value, Draft>,
  description?: string,
): Field<Value, Draft, false> {
  return { ...optional(kind, description), level: "full" };
}

/** An extra field that only an element of a Batch may have. */
export function ofBatch<Value>(
  { read, schema }: Kind<Value>,
  description: string,
): Field<Value, OperationDraft, false> {
  const kind: Kind<Value> = {
    read(reader, draft) {
      if (draft.element !== undefined) return read(reader, draft);
      const name = String(reader.path.at(-1));
      const problem = `the field "${name}" is allowed only in an element of a Batch`;
      throw reader.refusal("unknown_field", problem);
    },
    schema,
  };
  return { ...extra(kind, description), isOfBatch: true };
}

export function fieldsAt<Draft>(fields: Fields<Draft>, level: Level): Fields<Draft> {
  if (level === "full") return fields;
  return Object.fromEntries(Object.entries(fields).filter(([, field]) => field.level === level));
}

/** Type generators turn an `anyOf` without types into `unknown`, hence the double `not`. */
export function eitherOf(alternatives: readonly Schema[]): Schema {
  return { not: { not: { anyOf: alternatives } } };
}

/** Requires at least one of these fields. */
export function oneNeeded<Draft>(fields: Fields<Draft>, names: readonly string[]): MakeSchema {
  return (reference) => {
    const there = fieldsOf(fields, reference);
    return eitherOf(names.filter((name) => name in there).map((name) => ({ required: [name] })));
  };
}

function fieldsOf<Draft>(fields: Fields<Draft>, { level, inBatch }: Reference): Fields<Draft> {
  const there = Object.entries(fieldsAt(fields, level));
  return Object.fromEntries(there.filter(([, { isOfBatch }]) => inBatch || !isOfBatch));
}

export function objectSchema<Draft>(fields: Fields<Draft>): MakeSchema {
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
