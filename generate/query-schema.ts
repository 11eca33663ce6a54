import { batchKey, LARGEST_BATCH } from "../src/core/query/grammar.ts";
import {
  type Level,
  type MakeSchema,
  named,
  objectSchema,
  type Reference,
  type Schema,
} from "../src/core/query/kind.ts";
import { definitions } from "../src/core/query/operations.ts";
import type { QueryRefusalCode } from "../src/core/query/refusal.ts";

/** Collects each named schema once in `definitions`, whose place in the document is `prefix`. */
function collectInto(
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

/** Queries that fit the schema, but that the scanner refuses with this code. */
export const beyondSchema = {
  duplicate_key: "a repeated key in an object",
  invalid_column:
    "a column or an `on` of a table that the operation does not use; a name in `having` or `order_by` that is neither an alias nor grouped; two columns with one name in a new table",
  duplicate_column: "an `as` that is already used",
  invalid_value:
    "a whole number with a point or an exponent; `columns` that differ from `group_by`; an `after` with more or fewer values than `order_by`, or with a computed name there; a join whose `on` names no table before it; a `bind` to an `element` that is not an earlier change",
  nesting_too_deep: "arrays and objects nested deeper than 64",
  lone_surrogate: "half of a surrogate pair in a string",
} as const satisfies Partial<Record<QueryRefusalCode, string>>;

function keyed(name: string, schema: Schema): Schema {
  return {
    type: "object",
    properties: { [name]: schema },
    required: [name],
    additionalProperties: false,
  };
}

/**
 * The grammar of a level without the additions of `[query]` in the configuration.
 *
 * @param prefix JSON Pointer of the named schemas in the document
 * @returns the schema of a body, and the named schemas that it refers to
 */
export function querySchema(
  level: Level,
  prefix: string,
): { body: Schema; definitions: Readonly<Record<string, Schema>> } {
  const schemas = new Map<string, Schema>();
  const reference = collectInto(schemas, prefix, level);
  const inBatch = collectInto(schemas, prefix, level, true);
  const included = Object.entries(definitions).filter(
    ([, { level: least = "core" }]) => level === "full" || least === level,
  );
  const operationSchema = (
    [name, { fields, description, rules }]: (typeof included)[number],
    refer: Reference,
  ) => {
    const isExtended =
      refer.inBatch && level === "full" && Object.values(fields).some((field) => field.isOfBatch);
    const make = named(isExtended ? `${name}Element` : name, (own) => ({
      description,
      ...objectSchema(fields)(own),
      ...rules?.(own),
    }));
    return keyed(name, make(refer));
  };
  const operations = included.map((one) => operationSchema(one, reference));
  const elements = included
    .filter(([, definition]) => definition.inBatch)
    .map((one) => operationSchema(one, inBatch));
  const batch = { type: "array", minItems: 1, maxItems: LARGEST_BATCH, items: { oneOf: elements } };
  const body = {
    description: `One operation, as an object with one key. The gateway also refuses what a schema cannot express: ${Object.values(beyondSchema).join("; ")}.`,
    oneOf: [...operations, keyed(batchKey, batch)],
  };
  return { body, definitions: Object.fromEntries(schemas) };
}
