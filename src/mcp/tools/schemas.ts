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
  ...["minItems", "maxItems", "minProperties", "anyOf", "dependentRequired"],
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

/** One object in the place of two that have the same fields; undefined for any other two. */
function joined(one: Schema, other: Schema): Schema | undefined {
  const [fields, others] = [propertiesOf(one), propertiesOf(other)];
  if (fields === undefined || others === undefined) return undefined;
  const names = Object.keys(fields);
  if (!isDeepStrictEqual(names, Object.keys(others))) return undefined;
  const properties = names.map((name) => [name, either(fields[name], others[name])]);
  return { ...one, properties: Object.fromEntries(properties) };
}

/** True if the other one says all that this one does: any text for a word, or a list of such. */
function isCovered(schema: Schema, other: Schema): boolean {
  if (typeof schema.const === "string" && isDeepStrictEqual(other, { type: "string" })) return true;
  return other.type === "array" && isDeepStrictEqual(other.items, schema);
}

/** Alternatives, those of the same fields as one, and none that another one covers. */
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
  return additionalProperties === false ? others : short(schema);
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

/** The fields; one that holds an operation is told of by that one's own tool. */
function shownFields(fields: Fields<OperationDraft>): Fields<OperationDraft> {
  const entries = Object.entries(fields).map(([name, field]): [string, typeof field] => {
    if (!isOperationName(name)) return [name, field];
    const description = `The arguments of ${toolNameOf(name)}.`;
    return [name, { ...field, schema: () => ({ type: "object" }), description }];
  });
  return Object.fromEntries(entries);
}

/** The schema of a tool's arguments: the fields that this level of the grammar has, and no other. */
export function inputSchema(fields: Fields<OperationDraft>, level: Level): Schema {
  const definitions = new Map<string, Schema>();
  const schema = short(objectSchema(shownFields(fields))(inlining(definitions, level)));
  return definitions.size === 0 ? schema : { ...schema, $defs: Object.fromEntries(definitions) };
}

const truncated = { type: "boolean" };

function listOf(key: string, items: Schema, more: Schema = {}): Schema {
  const properties = { [key]: { type: "array", items }, truncated, ...more };
  return { type: "object", properties, required: [key] };
}

/** What the tools answer in `structuredContent`. */
export const outputSchemas = {
  rows: listOf(
    "rows",
    {
      type: "object",
      description: "Values by column; an integer beyond 2^53 - 1 is a string of its digits.",
    },
    {
      next_offset: {
        type: "integer",
        description: "The offset that goes on. Use order_by, so that rows keep their order.",
      },
    },
  ),
  done: {
    type: "object",
    properties: {
      message: { type: "string" },
      affected: { type: "integer" },
      rows: { type: "array" },
    },
  },
  preview: {
    type: "object",
    properties: {
      affected: { type: "integer" },
      before: { type: "array" },
      after: { type: "array" },
      truncated,
    },
  },
  databases: listOf("databases", { type: "string" }),
  tables: listOf("tables", { type: "string" }),
  columns: listOf("columns", {
    type: "object",
    properties: {
      name: { type: "string" },
      type: { type: "string", description: "As it was declared." },
      primary_key: { type: "boolean" },
      nullable: { type: "boolean" },
    },
  }),
} as const satisfies Record<string, Schema>;
