import type { ToolAnnotations } from "@modelcontextprotocol/server";
import type { Grammar } from "../../query/grammar.ts";
import { fieldsAt, type Level, type Schema } from "../../query/kind.ts";
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
import { countSchema, inputSchema, rowsSchema, toolNameOf } from "./schemas.ts";

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
