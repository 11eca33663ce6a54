import type { ToolAnnotations } from "@modelcontextprotocol/server";
import type { Grammar } from "../../query/grammar.ts";
import type { Level, Schema } from "../../query/kind.ts";
import {
  configuredFields,
  definitions,
  isOperationName,
  type OperationDefinition,
  type OperationName,
  permissionsOfAll,
} from "../../query/operations.ts";
import type { PermissionClass } from "../../query/permissions.ts";
import { inputSchema, outputSchemas, toolNameOf } from "./schemas.ts";

/** What a tool is, apart from how it is carried out. */
export interface ToolDefinition {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  /** The rights without which a caller does not see it. */
  readonly permissions: readonly PermissionClass[];
  readonly inputSchema: Schema;
  readonly outputSchema: Schema;
  readonly annotations: ToolAnnotations;
}

/** A tool that is one operation of the query grammar. */
export interface QueryTool extends ToolDefinition {
  readonly operation: OperationName;
  readonly reads: boolean;
}

function annotationsOf(effect: OperationDefinition["effect"]): ToolAnnotations {
  const readOnlyHint = effect === "reads" || effect === "previews";
  const hints = { idempotentHint: effect !== "adds", openWorldHint: false };
  if (readOnlyHint) return { readOnlyHint, ...hints };
  return { readOnlyHint, destructiveHint: effect !== "adds", ...hints };
}

function outputOf(effect: OperationDefinition["effect"]): Schema {
  if (effect === "reads") return outputSchemas.rows;
  return effect === "previews" ? outputSchemas.preview : outputSchemas.done;
}

function queryTool(operation: OperationName, level: Level): QueryTool {
  const { title, description, effect, fields } = definitions[operation];
  const reads = effect === "reads";
  return {
    operation,
    reads,
    name: toolNameOf(operation),
    title,
    description,
    permissions: permissionsOfAll(definitions[operation]),
    inputSchema: inputSchema(fields, level),
    outputSchema: outputOf(effect),
    annotations: annotationsOf(effect),
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

const { database, table } = configuredFields;

function schemaTool(
  name: string,
  title: string,
  description: string,
  fields: Parameters<typeof inputSchema>[0],
  outputSchema: Schema,
): ToolDefinition {
  const annotations = annotationsOf("reads");
  const schemas = { inputSchema: inputSchema(fields, "core"), outputSchema };
  return { name, title, description, permissions: ["SELECT"], ...schemas, annotations };
}

/** The tools that tell what there is. */
export const schemaTools = {
  listDatabases: schemaTool(
    "list_databases",
    "List databases",
    "Lists the databases that the caller may read.",
    {},
    outputSchemas.databases,
  ),
  listTables: schemaTool(
    "list_tables",
    "List tables",
    "Lists the tables of a database.",
    { database },
    outputSchemas.tables,
  ),
  describeTable: schemaTool(
    "describe_table",
    "Describe a table",
    "Lists the columns of a table with their declared types.",
    { database, table },
    outputSchemas.columns,
  ),
} as const;
