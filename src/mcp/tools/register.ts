import type {
  CallToolResult,
  InputRequiredResult,
  McpServer,
  StandardSchemaWithJSON,
} from "@modelcontextprotocol/server";
import { memoizeLast } from "../../memoize.ts";
import type { Grammar } from "../../query/grammar.ts";
import type { Schema } from "../../query/kind.ts";
import { QueryRefused } from "../../query/refusal.ts";
import type { Principal } from "../authenticate.ts";
import type { ToolDefinition } from "./definitions.ts";
import { askingTools } from "./query-tools.ts";
import type { ToolResult } from "./result.ts";
import { tellingTools, whoAmI } from "./schema-tools.ts";
import type { Tool, ToolCall, ToolContext } from "./tool.ts";
import { failed } from "./tool-failure.ts";

/** Gives the tools that there are now: others once the grammar is another one. */
export function toolsOf<Caller>(context: ToolContext<Caller>): () => readonly Tool<Caller>[] {
  const telling = [whoAmI(context), ...tellingTools(context)];
  const toolsFor = memoizeLast((grammar: Grammar) => [
    ...telling,
    ...askingTools(context, grammar),
  ]);
  return () => toolsFor(context.grammar);
}

/** Takes what the call of this request comes to. */
export interface Taking {
  readonly take: (result: ToolResult) => CallToolResult;
  /** Told why its arguments were refused. */
  readonly onRefused: (reason: string) => void;
  /** True if the tool is called, false if it is listed. */
  readonly isCall: boolean;
}

async function carryOut<Caller extends Principal>(
  tool: Tool<Caller>,
  call: ToolCall<Caller>,
  { take, onRefused }: Taking,
  opensUrls: boolean,
): Promise<CallToolResult | InputRequiredResult> {
  call.principal.noteCall?.(tool.definition.name);
  try {
    return take(await tool.perform(call));
  } catch (error) {
    if (error instanceof QueryRefused) onRefused(error.code);
    return failed(error, opensUrls);
  }
}

/** A schema that a list shows, and that judges nothing: what is sent is judged by the scanner. */
function shown(schema: Schema): StandardSchemaWithJSON {
  const write = () => ({ ...schema });
  const jsonSchema = { input: write, output: write };
  const validate = (value: unknown) => ({ value });
  return { "~standard": { version: 1, vendor: "gatehouse", validate, jsonSchema } };
}

/** What a call is registered with: nobody looks at the tool's own schemas then. */
const called = { inputSchema: shown({ type: "object" }) };

/** What a list shows of a tool. */
function listed({ title, description, annotations, ...schemas }: ToolDefinition) {
  const inputSchema = shown(schemas.inputSchema);
  const settings = { title, description, inputSchema, annotations };
  const output = schemas.outputSchema;
  return output === undefined ? settings : { ...settings, outputSchema: shown(output) };
}

/** Registers a tool on the server of one request. */
export function registerTool<Caller extends Principal>(
  server: McpServer,
  tool: Tool<Caller>,
  { principal, arguments: args }: Omit<ToolCall<Caller>, "signal">,
  taking: Taking,
): void {
  const { definition } = tool;
  const settings = taking.isCall ? called : listed(definition);
  server.registerTool(definition.name, settings, (_parsed, { mcpReq }) => {
    const { signal, inputResponses } = mcpReq;
    // What the client was given when it was sent to a page; it means no more than an argument does.
    const state: unknown = mcpReq.requestState();
    const approval = typeof state === "string" ? state : undefined;
    const isFirst = inputResponses === undefined && approval === undefined;
    const opensUrls = isFirst && server.server.getClientCapabilities()?.elicitation?.url;
    const call = { principal, arguments: args, signal, approval };
    return carryOut(tool, call, taking, Boolean(opensUrls));
  });
}
