import type {
  CallToolResult,
  McpServer,
  StandardSchemaWithJSON,
} from "@modelcontextprotocol/server";
import { readText } from "../../json/members.ts";
import { memoizeLast } from "../../memoize.ts";
import type { Grammar } from "../../query/grammar.ts";
import type { Schema } from "../../query/kind.ts";
import { isPlainName } from "../../query/names.ts";
import { definitions, type OperationName } from "../../query/operations.ts";
import type { PermissionClass } from "../../query/permissions.ts";
import type { SchemaSource } from "../../upstream/schema-source.ts";
import type { Principal } from "../principal.ts";
import {
  argumentsNamed,
  askedShapes,
  countIn,
  queryOf,
  readAsked,
  withRowLimit,
} from "./call-arguments.ts";
import { type QueryTool, queryTools, schemaTools, type ToolDefinition } from "./definitions.ts";
import {
  changeOf,
  listResult,
  type QueryAnswer,
  resultOf,
  rowsOf,
  type ToolResult,
} from "./result.ts";
import { failed } from "./tool-failure.ts";

/** What a call asks for, as far as its right can be judged ahead of its arguments. */
export interface AskedRight {
  readonly operation: OperationName;
  readonly permissions: readonly PermissionClass[];
  /** Undefined if the arguments name none: then the right is needed anywhere at all. */
  readonly database: string | undefined;
  readonly tables: readonly string[];
}

/** What the tools work on. */
export interface ToolContext<Caller> {
  /** The operations that there are. */
  readonly grammar: Grammar;
  /** Judges the right of a call, and notes a denial. @throws Refusal */
  readonly requireRight: (principal: Caller, asked: AskedRight) => void;
  /**
   * Judges a query, notes it in the audit, and carries it out, as on `/query`.
   *
   * @throws Refusal, or QueryRefused
   */
  readonly ask: (
    principal: Caller,
    query: Buffer,
    options: { readonly signal: AbortSignal; readonly largest: number },
  ) => Promise<QueryAnswer>;
  /** What there is; where nothing is told, the tools that tell it are absent. */
  readonly schema: SchemaSource<Caller>;
  /** Rows that one call returns at most. */
  readonly rowLimit: number;
  /** Bytes that one call returns at most. */
  readonly resultBytes: number;
  /** True if the principal has the right on any database at all. */
  readonly mayUse: (principal: Caller, permission: PermissionClass) => boolean;
}

/** One call: by whom, and its arguments as they were sent. */
export interface ToolCall<Caller> {
  readonly principal: Caller;
  readonly arguments: Buffer;
  readonly signal: AbortSignal;
}

/** A tool and how it is carried out. */
export interface Tool<Caller> {
  readonly definition: ToolDefinition;
  /** True if it tells what there is. */
  readonly isOfSchema: boolean;
  readonly perform: (call: ToolCall<Caller>) => Promise<ToolResult>;
}

/** Bytes of a plain name in JSON, however it is escaped. */
const LONGEST_NAME = 6 * 63 + 2;

function nameIn(value: Buffer | undefined): string | undefined {
  const name = value === undefined || value.length > LONGEST_NAME ? undefined : readText(value);
  return name !== undefined && isPlainName(name) ? name : undefined;
}

const named = ["database", "table", "from", "limit", "offset"];

function fromQuery<Caller>(context: ToolContext<Caller>, definition: QueryTool): Tool<Caller> {
  const { ask, requireRight } = context;
  const { operation, permissions, reads } = definition;
  return {
    definition,
    isOfSchema: false,
    async perform({ principal, arguments: args, signal }) {
      const found = await argumentsNamed(args, named);
      const table = nameIn(found.get("from") ?? found.get("table"));
      const tables = table === undefined ? [] : [table];
      const database = nameIn(found.get("database"));
      // A Preview names its database further in: it is judged with the query that it is.
      if (definitions[operation].effect !== "previews") {
        requireRight(principal, { operation, permissions, database, tables });
      }
      if (!reads) {
        const { resultBytes } = context;
        const query = queryOf(operation, args);
        return changeOf(await ask(principal, query, { signal, largest: resultBytes }), resultBytes);
      }
      // Read for each call: they may have changed.
      const { rowLimit, resultBytes } = context;
      const query = queryOf(operation, ...withRowLimit(args, found.get("limit"), rowLimit));
      const answer = await ask(principal, query, { signal, largest: resultBytes });
      const offset = countIn(found.get("offset")) ?? 0;
      return rowsOf(answer, { most: rowLimit, bytes: resultBytes, offset });
    },
  };
}

function fromSchema<Caller>(
  schema: SchemaSource<Caller>,
  context: ToolContext<Caller>,
): Tool<Caller>[] {
  const listOf = (key: string, elements: readonly unknown[], more: object = {}): ToolResult => {
    const { resultBytes: bytes } = context;
    const whole = resultOf({ [key]: elements, ...more });
    if (2 * whole.text.length <= bytes) return whole;
    const rows = elements.map((element) => Buffer.from(JSON.stringify(element)));
    return listResult(key, { rows, isCut: false }, { most: rows.length, bytes, offset: undefined });
  };
  const tools: Omit<Tool<Caller>, "isOfSchema">[] = [
    {
      definition: schemaTools.listDatabases,
      async perform({ principal, arguments: args, signal }) {
        readAsked(args, askedShapes.everything);
        return listOf("databases", await schema.listDatabases(principal, signal));
      },
    },
    {
      definition: schemaTools.listTables,
      async perform({ principal, arguments: args, signal }) {
        const { database } = readAsked(args, askedShapes.database);
        return listOf("tables", await schema.listTables(principal, database, signal));
      },
    },
    {
      definition: schemaTools.describeTable,
      async perform({ principal, arguments: args, signal }) {
        const { database, table } = readAsked(args, askedShapes.table);
        const found = await schema.describeTable(principal, database, table, signal);
        const { columns, ...more } = found;
        return listOf("columns", columns, more);
      },
    },
  ];
  return tools.map((tool) => ({ ...tool, isOfSchema: true }));
}

/** Gives the tools that there are now: others once the grammar is another one. */
export function toolsOf<Caller>(context: ToolContext<Caller>): () => readonly Tool<Caller>[] {
  const ofSchema = fromSchema(context.schema, context);
  const toolsFor = memoizeLast((grammar: Grammar) => [
    ...ofSchema,
    ...queryTools(grammar).map((definition) => fromQuery(context, definition)),
  ]);
  return () => toolsFor(context.grammar);
}

/** Takes the result of the call of this request. */
export type TakeResult = (result: ToolResult) => CallToolResult;

async function carryOut<Caller extends Principal>(
  tool: Tool<Caller>,
  call: ToolCall<Caller>,
  take: TakeResult,
): Promise<CallToolResult> {
  call.principal.noteCall?.(tool.definition.name);
  try {
    return take(await tool.perform(call));
  } catch (error) {
    return failed(error);
  }
}

/** A schema that a list shows, and that judges nothing: what is sent is judged by the scanner. */
function shown(schema: Schema): StandardSchemaWithJSON {
  const write = () => ({ ...schema });
  const jsonSchema = { input: write, output: write };
  const validate = (value: unknown) => ({ value });
  return { "~standard": { version: 1, vendor: "gatehouse", validate, jsonSchema } };
}

/** Registers a tool on the server of one request. */
export function registerTool<Caller extends Principal>(
  server: McpServer,
  tool: Tool<Caller>,
  { principal, arguments: args }: Omit<ToolCall<Caller>, "signal">,
  take: TakeResult,
): void {
  const { name, title, description, annotations } = tool.definition;
  const inputSchema = shown(tool.definition.inputSchema);
  const outputSchema = shown(tool.definition.outputSchema);
  const settings = { title, description, inputSchema, outputSchema, annotations };
  server.registerTool(name, settings, (_parsed, { mcpReq }) =>
    carryOut(tool, { principal, arguments: args, signal: mcpReq.signal }, take),
  );
}
