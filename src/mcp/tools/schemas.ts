/** JSON Schemas of the tools, for a model to read: the query grammar, in as few bytes as say it. */
import { isDeepStrictEqual } from "node:util";
import {
  type Fields,
  type Level,
  type MakeSchema,
  objectSchema,
  type Reference,
  type Schema,
} from "../../query/kind.ts";
import type { OperationDraft } from "../../query/operation-draft.ts";
import { isOperationName, type OperationName } from "../../query/operations.ts";

/** Keywords of bounds and of fields that go together: whoever passes one learns of it from the complaint. */
const bounds: ReadonlySet<string> = new Set([
  ...["pattern", "propertyNames", "minimum", "maximum"],
  ...["minItems", "maxItems", "minProperties", "not", "dependentRequired"],
]);

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function propertiesOf({ properties }: Schema): Schema | undefined {
  return isSchema(properties) ? properties : undefined;
}

/** What fits a value of which either schema is true. */
function either(one: unknown, other: unknown): unknown {
  if (isDeepStrictEqual(one, other)) return one;
  if (!isSchema(one) || !isSchema(other)) return {};
  const { enum: words, description } = one;
  if (Array.isArray(words) && Array.isArray(other.enum)) {
    return { enum: [...words, ...other.enum] };
  }
  return description === undefined ? {} : { description };
}

/** One object that has the fields of two; undefined where one of the two is none. */
function joined(one: Schema, other: Schema): Schema | undefined {
  const [fields, others] = [propertiesOf(one), propertiesOf(other)];
  if (fields === undefined || others === undefined) return undefined;
  const shared = Object.keys(fields).filter((name) => name in others);
  const both = Object.fromEntries(shared.map((name) => [name, either(fields[name], others[name])]));
  const isSame = [fields, others].every((of) => Object.keys(of).length === shared.length);
  if (isSame) return { ...one, properties: both };
  const properties = { ...fields, ...others, ...both };
  return { type: "object", properties, additionalProperties: false };
}

/** True if the other one says all that this one does: any text for a word, or a list of such. */
function isCovered(schema: Schema, other: Schema): boolean {
  if (typeof schema.const === "string" && isDeepStrictEqual(other, { type: "string" })) return true;
  return other.type === "array" && isDeepStrictEqual(other.items, schema);
}

/** Alternatives, all objects as one, and none that another one covers. */
function fewer(alternatives: readonly Schema[]): Schema {
  const kept: Schema[] = [];
  for (const schema of alternatives) {
    const at = kept.findIndex((other) => joined(other, schema) !== undefined);
    if (at < 0) kept.push(schema);
    else kept[at] = joined(kept[at] ?? {}, schema) ?? schema;
  }
  const oneOf = kept.filter((schema) => !kept.some((other) => isCovered(schema, other)));
  return oneOf.length === 1 ? (oneOf[0] ?? {}) : { oneOf };
}

/** The schema without what a model does not need. */
function short(schema: Schema): Schema {
  const { oneOf, ...others } = schema;
  const entries = Object.entries(others).flatMap(([keyword, value]): [string, unknown][] => {
    if (bounds.has(keyword)) return [];
    if (keyword === "additionalProperties" && value === true) return [];
    if (keyword !== "properties") return [[keyword, isSchema(value) ? shorter(value) : value]];
    const fields = Object.entries(isSchema(value) ? value : {});
    return [
      [
        keyword,
        Object.fromEntries(fields.map(([name, of]) => [name, isSchema(of) && shorter(of)])),
      ],
    ];
  });
  const alternatives = Array.isArray(oneOf) ? fewer(oneOf.filter(isSchema).map(shorter)) : {};
  return { ...alternatives, ...Object.fromEntries(entries) };
}

/** As `short`, below the arguments themselves: what else may not stand there, a complaint says. */
function shorter(schema: Schema): Schema {
  const { additionalProperties, ...others } = short(schema);
  const isNeeded = additionalProperties !== false || (schema.oneOf !== undefined && !others.oneOf);
  return isNeeded ? short(schema) : others;
}

/** Writes a named schema where it is asked for; one that holds itself stands in `definitions`. */
function inlining(definitions: Map<string, Schema>, level: Level): Reference {
  const open = new Set<string>();
  const recursive = new Set<string>();
  const refer = (name: string, make: MakeSchema): Schema => {
    const known = { $ref: `#/$defs/${name}` };
    if (definitions.has(name)) return known;
    if (open.has(name)) {
      recursive.add(name);
      return known;
    }
    open.add(name);
    const schema = make(reference);
    open.delete(name);
    if (!recursive.has(name)) return schema;
    const { description: _, ...unnamed } = shorter(schema);
    definitions.set(name, unnamed);
    return known;
  };
  const reference: Reference = Object.assign(refer, { level });
  return reference;
}

/** What the tool of an operation is called. */
export function toolNameOf(operation: OperationName): string {
  return operation.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toLowerCase();
}

/** What a field is told by another tool. */
function toldBy(field: Fields<OperationDraft>[string], description: string): typeof field {
  return { ...field, schema: () => ({ type: "object" }), description };
}

/** Fields whose names say all. */
const clear: ReadonlySet<string> = new Set(["database", "table"]);

/** The fields as a model is told of them. */
function shownFields(
  fields: Fields<OperationDraft>,
  asInSelect: readonly string[],
): Fields<OperationDraft> {
  const entries = Object.entries(fields).map(([name, field]): [string, typeof field] => {
    if (clear.has(name)) return [name, { ...field, description: undefined }];
    if (asInSelect.includes(name)) {
      return [name, { ...field, schema: () => ({}), description: "As in select." }];
    }
    if (!isOperationName(name)) return [name, field];
    return [name, toldBy(field, `As in ${toolNameOf(name)}.`)];
  });
  return Object.fromEntries(entries);
}

/** A `where` that may be left out is not shown to take null, too. */
function withoutNull(schema: Schema): Schema {
  const { oneOf, ...others } = schema;
  if (!Array.isArray(oneOf) || oneOf.length !== 2) return schema;
  const [value, none]: unknown[] = oneOf;
  return isSchema(value) && isDeepStrictEqual(none, { type: "null" })
    ? { ...value, ...others }
    : schema;
}

function optionalWithoutNull(schema: Schema): Schema {
  const { required } = schema;
  const needed: readonly unknown[] = Array.isArray(required) ? required : [];
  const entries = Object.entries(propertiesOf(schema) ?? {}).map(([name, of]) => [
    name,
    isSchema(of) && !needed.includes(name) ? withoutNull(of) : of,
  ]);
  return { ...schema, properties: Object.fromEntries(entries) };
}

/**
 * The schema of a tool's arguments: the fields that this level of the grammar has, and no other.
 *
 * @param asInSelect fields that are told of by the tool select
 */
export function inputSchema(
  fields: Fields<OperationDraft>,
  level: Level,
  asInSelect: readonly string[] = [],
): Schema {
  const definitions = new Map<string, Schema>();
  const make = objectSchema(shownFields(fields, asInSelect));
  const schema = optionalWithoutNull(short(make(inlining(definitions, level))));
  return definitions.size === 0 ? schema : { ...schema, $defs: Object.fromEntries(definitions) };
}

/** Schemas of what tools answer in `structuredContent`, where that is not what queries answer. */

/** Set where row filters have narrowed the result. */
const narrowed = { type: "string" };

/** Rows, and how to go on behind them. */
export function rowsSchema(level: Level): Schema {
  const next_after = {
    type: "array",
    description: "The after that goes on, instead of an offset.",
  };
  const items = {
    type: "object",
    description: "An integer beyond 2^53 - 1 is a string of its digits.",
  };
  return {
    type: "object",
    properties: {
      rows: { type: "array", items },
      truncated: { type: "boolean" },
      narrowed,
      ...(level === "full" ? { next_after } : {}),
      next_offset: { type: "integer", description: "The offset that goes on." },
    },
    required: ["rows"],
  };
}

/** A number of rows. */
export const countSchema: Schema = {
  type: "object",
  properties: { count: { type: "integer" }, narrowed },
  required: ["count"],
};
