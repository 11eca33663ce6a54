/** JSON Schemas of what the grammar holds, for whoever describes it: OpenAPI, tools of models. */

import type { Level } from "./level.ts";

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
