import type { ToolAnnotations } from "@modelcontextprotocol/server";
import type { z } from "zod";
import type { OperationName } from "../../query/operations.ts";
import { definitions } from "../../query/operations.ts";
import type { PermissionClass } from "../../query/permissions.ts";
import * as input from "./arguments.ts";
import * as output from "./results.ts";

/** What a tool is, apart from how it is carried out. */
export interface ToolDefinition {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  /** The right without which a caller does not see it. */
  readonly permission: PermissionClass;
  readonly inputSchema: z.ZodObject;
  readonly outputSchema: z.ZodObject;
  readonly annotations: ToolAnnotations;
}

/** A tool that is one operation of the query grammar. */
export interface QueryTool extends ToolDefinition {
  readonly operation: OperationName;
}

const reads: ToolAnnotations = { readOnlyHint: true, idempotentHint: true, openWorldHint: false };
const adds: ToolAnnotations = { readOnlyHint: false, destructiveHint: false, openWorldHint: false };
const destroys: ToolAnnotations = {
  readOnlyHint: false,
  destructiveHint: true,
  openWorldHint: false,
};

function queryTool(
  operation: OperationName,
  definition: Omit<QueryTool, "operation" | "permission">,
): QueryTool {
  return { operation, permission: definitions[operation].permission, ...definition };
}

/** The tools that are operations of the query grammar. */
export const queryTools: readonly QueryTool[] = [
  queryTool("Select", {
    name: "select",
    title: "Read rows",
    description: "Reads rows of a table, or of two that are joined.",
    inputSchema: input.select,
    outputSchema: output.rows,
    annotations: reads,
  }),
  queryTool("Insert", {
    name: "insert",
    title: "Add rows",
    description: "Adds rows to a table.",
    inputSchema: input.insert,
    outputSchema: output.done,
    annotations: { ...adds, idempotentHint: false },
  }),
  queryTool("Update", {
    name: "update",
    title: "Change rows",
    description: "Changes the rows of a table that fulfil a condition.",
    inputSchema: input.update,
    outputSchema: output.done,
    annotations: { ...destroys, idempotentHint: true },
  }),
  queryTool("Delete", {
    name: "delete",
    title: "Delete rows",
    description: "Deletes the rows of a table that fulfil a condition. They cannot be got back.",
    inputSchema: input.remove,
    outputSchema: output.done,
    annotations: { ...destroys, idempotentHint: true },
  }),
  queryTool("CreateTable", {
    name: "create_table",
    title: "Create a table",
    description: "Creates an empty table.",
    inputSchema: input.createTable,
    outputSchema: output.done,
    annotations: { ...adds, idempotentHint: false },
  }),
  queryTool("DropTable", {
    name: "drop_table",
    title: "Drop a table",
    description: "Drops a table with all its rows. They cannot be got back.",
    inputSchema: input.ofTable,
    outputSchema: output.done,
    annotations: { ...destroys, idempotentHint: false },
  }),
];

/** The tools that tell what there is. */
export const schemaTools = {
  listDatabases: {
    name: "list_databases",
    title: "List databases",
    description: "Lists the databases that the caller may read.",
    permission: "SELECT",
    inputSchema: input.nothing,
    outputSchema: output.databases,
    annotations: reads,
  },
  listTables: {
    name: "list_tables",
    title: "List tables",
    description: "Lists the tables of a database.",
    permission: "SELECT",
    inputSchema: input.ofDatabase,
    outputSchema: output.tables,
    annotations: reads,
  },
  describeTable: {
    name: "describe_table",
    title: "Describe a table",
    description: "Lists the columns of a table with their declared types.",
    permission: "SELECT",
    inputSchema: input.ofTable,
    outputSchema: output.columns,
    annotations: reads,
  },
} as const satisfies Record<string, ToolDefinition>;
