import { isDeepStrictEqual } from "node:util";
import { isObject } from "../src/core/json/exact.ts";
import { batchKey, createGrammar, type Grammar } from "../src/core/query/grammar.ts";
import {
  type Fields,
  fieldsAt,
  type Level,
  type MakeSchema,
  objectSchema,
  type Reference,
  type Schema,
} from "../src/core/query/kind.ts";
import {
  configuredFields,
  definitions,
  isOperationName,
  type OperationDefinition,
  permissionsOfAll,
} from "../src/core/query/operations.ts";
import type { OperationName } from "../src/core/query/tree.ts";
import {
  batchField,
  countFields,
  MAX_DESCRIBED_TABLES,
  operationTool,
  propertiesOf,
  type ToolDefinition,
} from "../src/features/mcp/tool-definitions.ts";

/** The MCP tools, with schemas that are short enough for the context of a model. */

/** Keywords that are left out to keep schemas short. Error messages explain them. */
const omittedKeywords: ReadonlySet<string> = new Set([
  "pattern",
  "propertyNames",
  "minimum",
  "maximum",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
  "minProperties",
  "not",
  "dependentRequired",
]);

function mapProperties(schema: Schema, change: (property: Schema, name: string) => Schema): Schema {
  const entries = Object.entries(propertiesOf(schema) ?? {});
  return Object.fromEntries(
    entries.map(([name, value]) => [name, isObject(value) ? change(value, name) : value]),
  );
}

/** The schema of a property that two alternatives have. */
function mergeProperty(one: unknown, other: unknown): unknown {
  if (isDeepStrictEqual(one, other)) return one;
  if (!isObject(one) || !isObject(other)) return {};
  const { enum: words, description } = one;
  if (Array.isArray(words) && Array.isArray(other.enum)) {
    return { enum: [...new Set([...words, ...other.enum])] };
  }
  return description === undefined ? {} : { description };
}

/** Merges two object schemas. Undefined if one of them has no properties. */
function mergeObjects(one: Schema, other: Schema): Schema | undefined {
  const [fields, others] = [propertiesOf(one), propertiesOf(other)];
  if (fields === undefined || others === undefined) return undefined;
  const shared = Object.keys(fields).filter((name) => name in others);
  const both = Object.fromEntries(
    shared.map((name) => [name, mergeProperty(fields[name], others[name])]),
  );
  const isSame = [fields, others].every((of) => Object.keys(of).length === shared.length);
  if (isSame) return { ...one, properties: both };
  const properties = { ...fields, ...others, ...both };
  return { type: "object", properties, additionalProperties: false };
}

/** Any string covers a constant, and a list covers its single item. */
function isCovered(schema: Schema, other: Schema): boolean {
  if (typeof schema.const === "string" && isDeepStrictEqual(other, { type: "string" })) return true;
  return other.type === "array" && isDeepStrictEqual(other.items, schema);
}

/** Merges all object alternatives and drops those that another one covers. */
function mergeAlternatives(alternatives: readonly Schema[]): Schema {
  const kept: Schema[] = [];
  for (const schema of alternatives) {
    const at = kept.findIndex((other) => mergeObjects(other, schema) !== undefined);
    if (at < 0) kept.push(schema);
    else kept[at] = mergeObjects(kept[at] ?? {}, schema) ?? schema;
  }
  const oneOf = kept.filter((schema) => !kept.some((other) => isCovered(schema, other)));
  const type = oneOf.map((schema) => schema.type);
  const isByType =
    new Set(type).size === type.length && type.every((one) => typeof one === "string");
  // Some clients keep only the objects of alternatives, and refuse the name of a table.
  if (isByType && type.length > 1) return Object.assign({}, ...oneOf, { type });
  return oneOf.length === 1 ? (oneOf[0] ?? {}) : { oneOf };
}

function shorten(schema: Schema): Schema {
  const { oneOf, ...others } = schema;
  const entries = Object.entries(others).flatMap(([keyword, value]): [string, unknown][] => {
    if (omittedKeywords.has(keyword) || (keyword === "additionalProperties" && value === true))
      return [];
    if (keyword === "properties") return [[keyword, mapProperties(schema, shortenPart)]];
    return [[keyword, isObject(value) ? shortenPart(value) : value]];
  });
  const alternatives = Array.isArray(oneOf)
    ? mergeAlternatives(oneOf.filter(isObject).map(shortenPart))
    : {};
  return { ...alternatives, ...Object.fromEntries(entries) };
}

/** Also drops `additionalProperties: false`, which error messages explain. */
function shortenPart(schema: Schema): Schema {
  const made = shorten(schema);
  const { additionalProperties, ...others } = made;
  const isNeeded = additionalProperties !== false || (schema.oneOf !== undefined && !others.oneOf);
  return isNeeded ? made : others;
}

/** Their descriptions suffice. */
const opaque: ReadonlySet<string> = new Set(["NestedSelect", "InnerSelect", "Include"]);

/** Used several times in select. */
const shared: ReadonlySet<string> = new Set(["Item"]);

/** Inlines named schemas. Only recursive and shared ones go into `definitions`. */
function inlining(definitions: Map<string, Schema>, level: Level): Reference {
  const open = new Set<string>();
  const recursive = new Set<string>();
  const refer = (name: string, make: MakeSchema): Schema => {
    if (opaque.has(name)) return { type: "object" };
    const known = { $ref: `#/$defs/${name}` };
    if (definitions.has(name)) return known;
    if (open.has(name)) {
      recursive.add(name);
      return known;
    }
    open.add(name);
    const schema = make(reference);
    open.delete(name);
    if (!recursive.has(name) && !shared.has(name)) return schema;
    const { description: _, ...unnamed } = shortenPart(schema);
    definitions.set(name, unnamed);
    return known;
  };
  const reference: Reference = Object.assign(refer, { level, inBatch: false });
  return reference;
}

function describedFields(fields: Fields, asInSelect: readonly string[]): Fields {
  const entries = Object.entries(fields).map(([name, field]): [string, typeof field] => {
    if (name === "database" || name === "table")
      return [name, { ...field, description: undefined }];
    if (asInSelect.includes(name)) {
      const own = field.required ? `${field.description} ` : "";
      return [name, { ...field, schema: () => ({}), description: `${own}As in select.` }];
    }
    if (name === batchKey) {
      return [name, { ...field, schema: () => ({ type: "array", items: { type: "object" } }) }];
    }
    if (!isOperationName(name)) return [name, field];
    const description = `As in ${operationTool(name)}.`;
    return [name, { ...field, schema: () => ({ type: "object" }), description }];
  });
  return Object.fromEntries(entries);
}

/** Drops null from the schemas of optional fields, such as `where`. */
function withoutNull(schema: Schema): Schema {
  const { required } = schema;
  const properties = mapProperties(schema, (of, name) => {
    const { oneOf, ...others } = of;
    const isRequired = Array.isArray(required) && required.includes(name);
    if (isRequired || !Array.isArray(oneOf) || oneOf.length !== 2) return of;
    const [value, none]: unknown[] = oneOf;
    const isNullable = isObject(value) && isDeepStrictEqual(none, { type: "null" });
    return isNullable ? { ...value, ...others } : of;
  });
  return { ...schema, properties };
}

/** @param asInSelect fields that the tool select describes */
function inputSchema(fields: Fields, level: Level, asInSelect: readonly string[] = []): Schema {
  const definitions = new Map<string, Schema>();
  const make = objectSchema(describedFields(fields, asInSelect));
  const schema = withoutNull(shorten(make(inlining(definitions, level))));
  return definitions.size === 0 ? schema : { ...schema, $defs: Object.fromEntries(definitions) };
}

const narrowed = { type: "string" };

function rowsSchema(level: Level): Schema {
  const next_after = {
    type: "array",
    description: "Send as after for the next page, instead of an offset.",
  };
  const description = "Integers beyond 2^53 - 1 are strings of digits.";
  const items = { type: "object", description };
  return {
    type: "object",
    properties: {
      rows: { type: "array", items },
      truncated: { type: "boolean" },
      narrowed,
      ...(level === "full" ? { next_after } : {}),
      next_offset: { type: "integer", description: "Send as offset for the next page." },
    },
    required: ["rows"],
  };
}

const rows = { type: "array", items: { type: "object" } };
const countSchema: Schema = {
  type: "object",
  properties: { count: { type: "integer" }, rows, truncated: { type: "boolean" }, narrowed },
};

type Arguments = Readonly<Record<string, unknown>>;

const main = { database: "main" };
const orders = { ...main, table: "orders" };
const ofOrder = { column: "id", cmp: "=", value: 7 };
const ofThisYear = { column: "day", cmp: ">=", value: "2026-01-01" };

const examples: Readonly<Record<string, Arguments>> = {
  list_databases: {},
  list_tables: main,
  describe_table: { ...main, tables: ["orders", "customers"] },
  whoami: {},
  select: {
    ...main,
    from: "orders",
    group_by: ["country"],
    aggregate: [
      { fn: "count", as: "n" },
      { fn: "sum", column: "total", as: "revenue" },
    ],
    where: ofThisYear,
    order_by: [{ column: "revenue", direction: "DESC" }],
  },
  count: {
    ...main,
    from: "orders",
    where: { column: "paid", cmp: "=", value: false },
    group_by: ["country"],
  },
  insert: { ...orders, values: [{ customer_id: 3, total: 12.5 }], returning: ["id"] },
  update: { ...orders, set: { paid: true }, where: ofOrder },
  delete: { ...orders, where: ofOrder },
  upsert: {
    ...main,
    table: "stock",
    values: [{ sku: "a1", left: 5 }],
    on_conflict: ["sku"],
    update: ["left"],
  },
  preview: { Delete: { ...orders, where: ofOrder } },
  batch: {
    operations: [
      { Update: { ...orders, set: { paid: true }, where: ofOrder } },
      { Insert: { ...main, table: "payments", values: [{ order_id: 7 }] } },
    ],
  },
  create_table: {
    ...main,
    table: "notes",
    columns: [
      { name: "id", type: "serial", primary_key: true },
      { name: "text", type: "text" },
    ],
  },
  drop_table: { ...main, table: "notes" },
};

const coreExamples: Readonly<Record<string, Arguments>> = {
  ...examples,
  select: {
    ...main,
    from: "orders",
    columns: ["id", "total"],
    where: ofThisYear,
    order_by: { column: "total", direction: "DESC" },
    limit: 10,
  },
  insert: { ...orders, values: [{ id: 7, total: 12.5 }] },
};

function toolExample(tool: string, level: Level): Arguments {
  return (level === "core" ? coreExamples : examples)[tool] ?? {};
}

function toolAnnotations(effect: OperationDefinition["effect"]): ToolDefinition["annotations"] {
  const readOnlyHint = effect === "reads" || effect === "previews";
  const openWorldHint = false;
  if (readOnlyHint) return { readOnlyHint, openWorldHint };
  const isAdding = effect === "adds";
  return { readOnlyHint, destructiveHint: !isAdding, idempotentHint: !isAdding, openWorldHint };
}

function queryTool(operation: OperationName, level: Level): ToolDefinition {
  const { title, description, effect, fields } = definitions[operation];
  const name = operationTool(operation);
  const asInSelect = effect === "reads" ? [] : ["where"];
  // Adding to a number is not idempotent.
  const isAdding = "add" in fieldsAt(fields, level);
  return {
    name,
    title,
    description,
    permissions: [...permissionsOfAll(definitions[operation])],
    inputSchema: {
      ...inputSchema(fields, level, asInSelect),
      examples: [toolExample(name, level)],
    },
    ...(effect === "reads" ? { outputSchema: rowsSchema(level) } : {}),
    annotations: { ...toolAnnotations(effect), ...(isAdding ? { idempotentHint: false } : {}) },
  };
}

/** Operations on whole databases are left out because people create and drop them. */
function queryTools({ operations, level }: Grammar): readonly ToolDefinition[] {
  return [...operations.keys()]
    .filter(isOperationName)
    .filter((name) => Object.keys(definitions[name].fields).some((field) => field !== "database"))
    .map((name) => queryTool(name, level));
}

type ToolText = readonly [name: string, title: string, description: string];

/** A tool that is not a query operation. It only reads, unless `more` overrides that. */
function ownTool(
  [name, title, description]: ToolText,
  input: Schema,
  more: Partial<Pick<ToolDefinition, "outputSchema" | "permissions" | "annotations">> = {},
): ToolDefinition {
  return {
    name,
    title,
    description,
    permissions: ["SELECT"],
    inputSchema: { ...input, examples: [toolExample(name, "full")] },
    annotations: toolAnnotations("reads"),
    ...more,
  };
}

function countTool({ level }: Grammar): ToolDefinition[] {
  if (level === "core") return [];
  const description =
    "Counts rows. With group_by or having, returns rows with the groups and their count, largest first. If a table has a column count, use select.";
  const text: ToolText = ["count", "Count rows", description];
  const described = new Set(["database", "group_by"]);
  const asInSelect = Object.keys(countFields).filter((name) => !described.has(name));
  const input = inputSchema(countFields, level, asInSelect);
  return [ownTool(text, input, { outputSchema: countSchema })];
}

const ofBatches =
  ' Changes also take "expect": 1, the rows they must affect, and insert and update "bind": {"order_id": {"element": 0, "column": "id"}}, a value of the one row that an earlier element affects.';

function batchTool({ inOrder, level }: Grammar): ToolDefinition {
  const keys = inOrder.filter(({ inBatch }) => inBatch).map(({ name }) => name);
  const list = {
    type: "array",
    items: { type: "object" },
    description: `Objects with one key and the arguments of that tool: ${keys.join(", ")}.${level === "full" ? ofBatches : ""}`,
  };
  const description =
    "Runs operations in order. If one fails, none takes effect. Not supported: a Batch in a Batch, creating and dropping databases.";
  const input = { ...inputSchema({}, "core"), properties: { [batchField]: list } };
  return ownTool(
    ["batch", "Several operations", description],
    { ...input, required: [batchField] },
    { annotations: { ...toolAnnotations("removes"), idempotentHint: false } },
  );
}

const { database, table } = configuredFields;

const whoAmITool = ownTool(
  [
    "whoami",
    "Who am I",
    "Returns your roles and rights on each database, and the limits of a call.",
  ],
  inputSchema({}, "core"),
  { permissions: [] },
);

const one = inputSchema({ database, table }, "core");
const tables = {
  type: "array",
  items: { type: "string" },
  maxItems: MAX_DESCRIBED_TABLES,
};
const describeSchema: Schema = {
  ...one,
  properties: { ...propertiesOf(one), tables },
  required: ["database"],
};

const schemaTools = [
  ownTool(
    ["list_databases", "List databases", "Lists the databases that you may read."],
    inputSchema({}, "core"),
  ),
  ownTool(
    ["list_tables", "List tables", "Lists the tables of a database."],
    inputSchema({ database }, "core"),
  ),
  ownTool(
    [
      "describe_table",
      "Describe a table",
      "Returns columns with types, enum labels, defaults and references (foreign keys), keys (primary key first), comments, whether it is a view, and an approximate row count. Describe all tables of a question in one call, with tables instead of table.",
    ],
    describeSchema,
  ),
];

function toolsAt(level: Level): readonly ToolDefinition[] {
  const grammar = createGrammar({ extraFields: [], operations: {}, level });
  return [
    whoAmITool,
    ...schemaTools,
    ...queryTools(grammar),
    ...countTool(grammar),
    batchTool(grammar),
  ];
}

/** The tools at each level of the grammar. */
export function mcpTools(): Readonly<Record<Level, readonly ToolDefinition[]>> {
  return { core: toolsAt("core"), full: toolsAt("full") };
}
