/** What a field of the grammar holds: how it is read, how a schema says it, which type it has. */

import type { Rest } from "../json/rest.ts";
import type { BodyReader } from "./body-reader.ts";
import type { Level } from "./level.ts";
import type { OperationDraft } from "./operation-draft.ts";
import type { MakeSchema, Schema } from "./schema.ts";

/** A kind of value. `Draft` is what is noted while it is read. */
export interface Kind<Value, Draft = OperationDraft> {
  /** Reads past a value and notes what matters. Throws `QueryRefused` for any other. */
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

/** What a schema says of an object of which at least one of these fields is there. */
export function oneNeeded<Draft>(fields: Fields<Draft>, names: readonly string[]): MakeSchema {
  return ({ level }) => {
    const there = fieldsAt(fields, level);
    return { anyOf: names.filter((name) => name in there).map((name) => ({ required: [name] })) };
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
