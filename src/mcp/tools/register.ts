import type { CallToolResult, McpServer } from "@modelcontextprotocol/server";
import type { PermissionClass } from "../../query/permissions.ts";
import type { SchemaSource } from "../../upstream/schema-source.ts";
import type { Principal } from "../principal.ts";
import { type Members, readText } from "../strict-json.ts";
import { type QueryTool, queryTools, schemaTools, type ToolDefinition } from "./definitions.ts";
import { failed, messageOf, type QueryAnswer, rowsOf, succeeded } from "./outcome.ts";
import { queryOf, withRowLimit } from "./query-text.ts";

/** What the tools work on. */
export interface ToolContext {
  /** Judges a query, notes it in the audit, and carries it out, as on `/query`. */
  readonly ask: (principal: Principal, query: Buffer, signal: AbortSignal) => Promise<QueryAnswer>;
  /** What there is; where nothing is told, the tools that tell it are absent. */
  readonly schema: SchemaSource<Principal>;
  /** Rows that one call returns at most. */
  readonly rowLimit: number;
  /** True if the principal has the right on any database at all. */
  readonly mayUse: (principal: Principal, permission: PermissionClass) => boolean;
}

/** One call: by whom, and its arguments as they were sent. */
export interface ToolCall {
  readonly principal: Principal;
  readonly arguments: Members;
  readonly signal: AbortSignal;
}

/** A tool and how it is carried out. */
export interface Tool {
  readonly definition: ToolDefinition;
  /** True if it tells what there is. */
  readonly isOfSchema: boolean;
  readonly perform: (call: ToolCall) => Promise<Record<string, unknown>>;
}

function fromQuery({ ask, rowLimit }: ToolContext, definition: QueryTool): Tool {
  const { operation } = definition;
  return {
    definition,
    isOfSchema: false,
    async perform({ principal, arguments: args, signal }) {
      if (operation !== "Select") {
        return messageOf(await ask(principal, queryOf(operation, args), signal));
      }
      const query = queryOf(operation, withRowLimit(args, rowLimit));
      return rowsOf(await ask(principal, query, signal), rowLimit);
    },
  };
}

/** A name among the arguments, which the schema has found to be a plain name. */
function nameIn(args: Members, key: string): string {
  return readText(args.get(key)) ?? "";
}

function fromSchema(schema: SchemaSource<Principal>): Tool[] {
  const tools: Omit<Tool, "isOfSchema">[] = [
    {
      definition: schemaTools.listDatabases,
      perform: async ({ principal, signal }) => ({
        databases: await schema.listDatabases(principal, signal),
      }),
    },
    {
      definition: schemaTools.listTables,
      perform: async ({ principal, arguments: args, signal }) => ({
        tables: await schema.listTables(principal, nameIn(args, "database"), signal),
      }),
    },
    {
      definition: schemaTools.describeTable,
      perform: async ({ principal, arguments: args, signal }) => ({
        columns: await schema.describeTable(
          principal,
          nameIn(args, "database"),
          nameIn(args, "table"),
          signal,
        ),
      }),
    },
  ];
  return tools.map((tool) => ({ ...tool, isOfSchema: true }));
}

/** Every tool. */
export function toolsOf(context: ToolContext): readonly Tool[] {
  return [
    ...fromSchema(context.schema),
    ...queryTools.map((definition) => fromQuery(context, definition)),
  ];
}

async function carryOut(tool: Tool, call: ToolCall): Promise<CallToolResult> {
  call.principal.noteCall?.(tool.definition.name);
  try {
    return succeeded(await tool.perform(call));
  } catch (error) {
    return failed(error);
  }
}

/** Registers a tool on the server of one request. */
export function registerTool(
  server: McpServer,
  tool: Tool,
  { principal, arguments: args }: Omit<ToolCall, "signal">,
): void {
  const { name, title, description, inputSchema, outputSchema, annotations } = tool.definition;
  const settings = { title, description, inputSchema, outputSchema, annotations };
  // The parsed arguments are for the schema's judgement alone: in them, numbers may be rounded.
  server.registerTool(name, settings, (_parsed, { mcpReq }) =>
    carryOut(tool, { principal, arguments: args, signal: mcpReq.signal }),
  );
}
