import { isDeepStrictEqual } from "node:util";
import type { ToolAnnotations } from "@modelcontextprotocol/server";
import type { Grammar } from "../../query/grammar.ts";
import {
  type Fields,
  fieldsAt,
  type Level,
  type MakeSchema,
  objectSchema,
  type Reference,
  type Schema,
} from "../../query/kind.ts";
import type { OperationDraft } from "../../query/operation-draft.ts";
import {
  configuredFields,
  definitions,
  isOperationName,
  type OperationDefinition,
  type OperationName,
  operations,
  permissionsOfAll,
} from "../../query/operations.ts";
import type { PermissionClass } from "../../query/permissions.ts";

/** JSON Schemas of the tools, for a model to read: the query grammar, in as few bytes as say it. */

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
function inputSchema(
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
function rowsSchema(level: Level): Schema {
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
const countSchema: Schema = {
  type: "object",
  properties: { count: { type: "integer" }, narrowed },
  required: ["count"],
};

/** One call of each tool, for a model that learns by examples. */

type Arguments = Readonly<Record<string, unknown>>;

const orders = { database: "main", table: "orders" };
const ofOrder = { column: "id", cmp: "=", value: 7 };

const examples: Readonly<Record<string, Arguments>> = {
  list_databases: {},
  list_tables: { database: "main" },
  describe_table: orders,
  whoami: {},
  select: {
    database: "main",
    from: "orders",
    group_by: ["country"],
    aggregate: [
      { fn: "count", as: "n" },
      { fn: "sum", column: "total", as: "revenue" },
    ],
    where: { column: "day", cmp: ">=", value: "2026-01-01" },
    order_by: [{ column: "revenue", direction: "DESC" }],
  },
  count: {
    database: "main",
    from: "orders",
    where: { column: "paid", cmp: "=", value: false },
  },
  insert: { ...orders, values: [{ customer_id: 3, total: 12.5 }], returning: ["id"] },
  update: { ...orders, set: { paid: true }, where: ofOrder },
  delete: { ...orders, where: ofOrder },
  upsert: {
    database: "main",
    table: "stock",
    values: [{ sku: "a1", left: 5 }],
    on_conflict: ["sku"],
    update: ["left"],
  },
  preview: { Delete: { ...orders, where: ofOrder } },
  batch: {
    operations: [
      { Update: { ...orders, set: { paid: true }, where: ofOrder } },
      { Insert: { database: "main", table: "payments", values: [{ order_id: 7 }] } },
    ],
  },
  create_table: {
    database: "main",
    table: "notes",
    columns: [
      { name: "id", type: "serial", primary_key: true },
      { name: "text", type: "text" },
    ],
  },
  drop_table: { database: "main", table: "notes" },
};

/** The same where only the core of the grammar is there. */
const coreExamples: Readonly<Record<string, Arguments>> = {
  ...examples,
  select: {
    database: "main",
    from: "orders",
    columns: ["id", "total"],
    where: { column: "day", cmp: ">=", value: "2026-01-01" },
    order_by: { column: "total", direction: "DESC" },
    limit: 10,
  },
  insert: { ...orders, values: [{ id: 7, total: 12.5 }] },
};

/** A call of the tool that this level of the grammar takes. */
function exampleOf(tool: string, level: Level): Arguments {
  return (level === "core" ? coreExamples : examples)[tool] ?? {};
}

/** What a tool is, apart from how it is carried out. */
export interface ToolDefinition {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  /** The rights without which a caller does not see it. */
  readonly permissions: readonly PermissionClass[];
  readonly inputSchema: Schema;
  /** Absent where what it answers is what a query answers. */
  readonly outputSchema: Schema | undefined;
  readonly annotations: ToolAnnotations;
}

/** A tool that is one operation of the query grammar. */
export interface QueryTool extends ToolDefinition {
  readonly operation: OperationName;
  readonly reads: boolean;
}

type Effect = OperationDefinition["effect"];

function annotationsOf(effect: Effect): ToolAnnotations {
  const readOnlyHint = effect === "reads" || effect === "previews";
  const openWorldHint = false;
  if (readOnlyHint) return { readOnlyHint, openWorldHint };
  const isAdding = effect === "adds";
  return { readOnlyHint, destructiveHint: !isAdding, idempotentHint: !isAdding, openWorldHint };
}

function queryTool(operation: OperationName, level: Level): QueryTool {
  const { title, description, effect, fields } = definitions[operation];
  const reads = effect === "reads";
  const name = toolNameOf(operation);
  // What is added to a number is added again by another call.
  const isAdding = "add" in fieldsAt(fields, level);
  return {
    operation,
    reads,
    name,
    title,
    description,
    permissions: permissionsOfAll(definitions[operation]),
    inputSchema: { ...inputSchema(fields, level), examples: [exampleOf(name, level)] },
    outputSchema: reads ? rowsSchema(level) : undefined,
    annotations: { ...annotationsOf(effect), ...(isAdding ? { idempotentHint: false } : {}) },
  };
}

/** Whole databases are made and dropped by people. */
function concernsTables(operation: OperationName): boolean {
  return Object.keys(definitions[operation].fields).some((name) => name !== "database");
}

/** The tools that are operations of this grammar; what an added operation does, nobody here knows. */
export function queryTools({ operations, level }: Grammar): readonly QueryTool[] {
  const names = [...operations.keys()].filter(isOperationName).filter(concernsTables);
  return names.map((name) => queryTool(name, level));
}

/** The fields that counting shares with reading. */
const { database: ofDatabase, from, where, join } = operations.Select.fields;
const countFields = { database: ofDatabase, from, where, join };
/** The names of the fields of `count`. */
export const countFieldNames: readonly string[] = Object.keys(countFields);

type Words = readonly [name: string, title: string, description: string];

/** A tool that is no operation, and reads unless it says otherwise. */
function ownTool(
  [name, title, description]: Words,
  input: Schema,
  more: Partial<Pick<ToolDefinition, "outputSchema" | "permissions" | "annotations">> = {},
): ToolDefinition {
  return {
    ...{ name, title, description, outputSchema: undefined, permissions: ["SELECT"] },
    inputSchema: { ...input, examples: [exampleOf(name, "full")] },
    annotations: annotationsOf("reads"),
    ...more,
  };
}

/** The tool that counts, where the grammar can. */
export function countTool({ level }: Grammar): ToolDefinition[] {
  if (level === "core") return [];
  const words: Words = ["count", "Count rows", "Counts rows; those of each group select counts."];
  const input = inputSchema(countFields, level, ["where", "join"]);
  return [ownTool(words, input, { outputSchema: countSchema })];
}

/** The tool that carries out several operations. */
export function batchTool({ inOrder }: Grammar): ToolDefinition {
  const keys = inOrder.filter(({ inBatch }) => inBatch).map(({ name }) => name);
  const list = {
    type: "array",
    items: { type: "object" },
    description: `Objects of one key, with the arguments of that tool: ${keys.join(", ")}.`,
  };
  const description = "Carries out operations in their order: all of them, or none.";
  const input = { ...inputSchema({}, "core"), properties: { [batchField]: list } };
  return ownTool(
    ["batch", "Several operations", description],
    { ...input, required: [batchField] },
    { annotations: { ...annotationsOf("removes"), idempotentHint: false } },
  );
}

/** The one argument of `batch`. */
export const batchField = "operations";

const { database, table } = configuredFields;

/** The tool that tells who calls. */
export const whoAmITool = ownTool(
  ["whoami", "Who am I", "Tells your roles and rights on each database, and the limits of a call."],
  inputSchema({}, "core"),
  { permissions: [] },
);

/** The tools that tell what there is. */
export const schemaTools = {
  listDatabases: ownTool(
    ["list_databases", "List databases", "Lists the databases that you may read."],
    inputSchema({}, "core"),
  ),
  listTables: ownTool(
    ["list_tables", "List tables", "Lists the tables of a database."],
    inputSchema({ database }, "core"),
  ),
  describeTable: ownTool(
    [
      "describe_table",
      "Describe a table",
      "Tells columns with types, defaults and references, the keys (the primary one first), comments, and about how many rows there are.",
    ],
    inputSchema({ database, table }, "core"),
  ),
} as const;
