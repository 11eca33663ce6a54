import type {
  CallToolResult,
  InputRequiredResult,
  McpServer,
  StandardSchemaWithJSON,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { readText } from "../../json/members.ts";
import { memoizeLast } from "../../memoize.ts";
import { BodyReader } from "../../query/body-reader.ts";
import { batchKey, type Grammar } from "../../query/grammar.ts";
import { required, type Schema } from "../../query/kind.ts";
import { ObjectShape } from "../../query/object-shape.ts";
import { definitions, type OperationName } from "../../query/operations.ts";
import { QueryRefused } from "../../query/refusal.ts";
import { plainName } from "../../query/values.ts";
import type { Principal } from "../authenticate.ts";
import { plainNameIn } from "../message.ts";
import {
  batchField,
  batchTool,
  countFieldNames,
  countTool,
  type QueryTool,
  queryTools,
  schemaTools,
  type ToolDefinition,
  whoAmITool,
} from "./definitions.ts";
import {
  batchResult,
  changeOf,
  countResult,
  failed,
  goOnBehind,
  listResult,
  pageNames,
  resultOf,
  rowsOf,
  type ToolResult,
} from "./result.ts";
import {
  argumentsNamed,
  queryOf,
  requireFields,
  type Tool,
  type ToolCall,
  type ToolContext,
  withMember,
  withRowLimit,
} from "./tool.ts";

const NAME = "approval";
const key = Buffer.from(`"${NAME}"`);

interface ApprovalArgument {
  readonly arguments: Buffer;
  readonly approval?: string;
}

/**
 * Removes the member `approval` from a call's arguments. What remains are the bytes of the call
 * that requested the approval. A value that is not a string stays and is refused later.
 */
export async function takeApproval(args: Buffer): Promise<ApprovalArgument> {
  // A fast check, because few calls have an approval.
  if (!args.includes(key)) return { arguments: args };
  const value = (await argumentsNamed(args, [NAME])).get(NAME);
  const approval = readText(value);
  if (value === undefined || approval === undefined) return { arguments: args };
  const start = args.lastIndexOf(key, value.byteOffset - args.byteOffset - 1);
  const end = value.byteOffset - args.byteOffset + value.length;
  const isKey = /^\s*:\s*$/.test(args.toString("latin1", start + key.length, end - value.length));
  if (start < 0 || !isKey) return { arguments: args };
  const [before, behind] = [neighbour(args, start - 1, -1), neighbour(args, end, 1)];
  const [from, to] =
    args[before] === comma ? [before, end] : [start, args[behind] === comma ? behind + 1 : end];
  return { arguments: Buffer.concat([args.subarray(0, from), args.subarray(to)]), approval };
}

const comma = 0x2c;
/** JSON white space (RFC 8259, section 2). */
const space: ReadonlySet<number | undefined> = new Set([0x20, 0x09, 0x0a, 0x0d]);

function neighbour(bytes: Buffer, at: number, step: 1 | -1): number {
  let next = at;
  while (space.has(bytes[next])) next += step;
  return next;
}

function propertiesOf({ properties }: Schema): object {
  return typeof properties === "object" && properties !== null ? properties : {};
}

/** The tool for a caller who may need approvals: its result can also say that one is pending. */
export function withApproval<Tool extends ToolDefinition>(definition: Tool): Tool {
  const { inputSchema, outputSchema } = definition;
  const description = "The id of an approval of this very call, once it was given.";
  const properties = { ...propertiesOf(inputSchema), [NAME]: { type: "string", description } };
  const { required: _, ...open } = outputSchema ?? {};
  return {
    ...definition,
    inputSchema: { ...inputSchema, properties },
    outputSchema: outputSchema && open,
  };
}

/**
 * Checks the right that a call needs by the names in its arguments, before they are parsed further.
 */
function judge<Caller>(
  { requireRight }: ToolContext<Caller>,
  principal: Caller,
  operation: OperationName,
  found: ReadonlyMap<string, Buffer>,
): void {
  const { permissions, effect } = definitions[operation];
  // A Preview names its database deeper inside. It is judged with the query itself.
  if (effect === "previews") return;
  const table = plainNameIn(found.get("from") ?? found.get("table"));
  const tables = table === undefined ? [] : [table];
  requireRight(principal, {
    operation,
    permissions,
    database: plainNameIn(found.get("database")),
    tables,
  });
}

const placeNames = ["database", "table", "from"];

const readNames = [...placeNames, ...pageNames, "join"];

const joined = z.object({ table: z.string() });
const joins = z.union([joined.transform((only) => [only]), z.array(joined)]);
const LONGEST_JOIN = 8 * 1024;

/** The tables that a select reads, as far as its arguments are well-formed. */
function readTables(found: ReadonlyMap<string, Buffer>): string[] {
  const from = plainNameIn(found.get("from"));
  const join = found.get("join");
  const isShort = join !== undefined && join.length <= LONGEST_JOIN;
  const others = joins.safeParse(isShort ? JSON.parse(join.toString("utf8")) : []);
  const names = others.success ? others.data.map(({ table }) => table) : [];
  return from === undefined ? names : [from, ...names];
}

function fromQuery<Caller>(context: ToolContext<Caller>, definition: QueryTool): Tool<Caller> {
  const { operation, reads } = definition;
  return {
    definition,
    async perform({ principal, arguments: args, signal, approval }) {
      const found = await argumentsNamed(args, reads ? readNames : placeNames);
      judge(context, principal, operation, found);
      // Read on every call, because they may change.
      const { ask, rowLimit, resultBytes, grammar } = context;
      const options = { signal, largest: resultBytes, approval };
      if (!reads) {
        const answer = await ask(principal, queryOf(operation, args), options);
        const isKept = definitions[operation].effect !== "previews";
        return changeOf(answer, resultBytes, isKept ? "Done" : "Nothing is kept");
      }
      const database = plainNameIn(found.get("database")) ?? "";
      const tables = readTables(found);
      const allowed = context.mostRows(principal, database, tables);
      const limited = withRowLimit(args, found.get("limit"), rowLimit, allowed);
      const answer = await ask(principal, queryOf(operation, ...limited.query), options);
      const goOn = goOnBehind(found, grammar.level, (order) =>
        context.schema.isUniqueOrder(principal, database, tables, order, signal),
      );
      return rowsOf(answer, { ...limited, bytes: resultBytes, goOn });
    },
  };
}

/** No table has a column of this name, so the result cannot collide with one. */
const countName = "_gatehouse_count";
const counting = `"aggregate":[{"fn":"count","as":"${countName}"}]`;

function counter<Caller>(context: ToolContext<Caller>, definition: ToolDefinition): Tool<Caller> {
  return {
    definition,
    async perform({ principal, arguments: args, signal, approval }) {
      const found = await argumentsNamed(args, placeNames);
      judge(context, principal, "Select", found);
      await requireFields(args, countFieldNames);
      const query = queryOf("Select", ...withMember(args, counting));
      const options = { signal, largest: context.resultBytes, approval };
      const answer = await context.ask(principal, query, options);
      return countResult(answer, countName);
    },
  };
}

function batcher<Caller>(context: ToolContext<Caller>, definition: ToolDefinition): Tool<Caller> {
  return {
    definition,
    async perform({ principal, arguments: args, signal, approval }) {
      const found = await requireFields(args, [batchField], [batchField]);
      const query = queryOf(batchKey, found.get(batchField) ?? noOperations);
      const { ask, rowLimit, resultBytes } = context;
      const answer = await ask(principal, query, { signal, largest: resultBytes, approval });
      return batchResult(answer, { most: rowLimit, bytes: resultBytes });
    },
  };
}

const noOperations = Buffer.from("[]");

function askingTools<Caller>(
  context: ToolContext<Caller>,
  grammar: Grammar,
): readonly Tool<Caller>[] {
  const ofOperations = queryTools(grammar).map((definition) => fromQuery(context, definition));
  const counters = countTool(grammar).map((definition) => counter(context, definition));
  const tools = [...ofOperations, ...counters, batcher(context, batchTool(grammar))];
  return tools.map((tool) => ({
    ...tool,
    takesApproval: true,
    async perform(call) {
      return tool.perform({ ...call, ...(await takeApproval(call.arguments)) });
    },
  }));
}

interface Asked {
  database: string;
  table: string;
}

const database = required(
  plainName<Asked>((asked, name) => {
    asked.database = name;
  }),
);
const table = required(
  plainName<Asked>((asked, name) => {
    asked.table = name;
  }),
);

const askedShapes = {
  everything: new ObjectShape<Asked>({}, "none"),
  database: new ObjectShape<Asked>({ database }),
  table: new ObjectShape<Asked>({ database, table }),
} as const;

function readAsked(args: Buffer, shape: ObjectShape<Asked>): Asked {
  const asked: Asked = { database: "", table: "" };
  const reader = new BodyReader(args, true);
  // As in a query, where the operation's name comes first.
  reader.path.push("Schema");
  try {
    shape.read(reader, asked);
  } catch (error) {
    throw reader.asRefusal(error);
  }
  return asked;
}

function tellingTools<Caller>(context: ToolContext<Caller>): readonly Tool<Caller>[] {
  const { schema } = context;
  const listOf = async (
    key: string,
    elements: readonly unknown[],
    more: object = {},
  ): Promise<ToolResult> => {
    const { resultBytes: bytes } = context;
    const whole = resultOf({ [key]: elements, ...more });
    if (2 * whole.text.length <= bytes) return whole;
    return listResult(key, elements, false, { most: elements.length, bytes });
  };
  const tools: Tool<Caller>[] = [
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

/** JSON numbers beyond a double become strings. */
function writeDigits(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? String(value) : value;
}

function whoAmI<Caller>(context: ToolContext<Caller>): Tool<Caller> {
  return {
    definition: whoAmITool,
    async perform({ principal, arguments: args }) {
      readAsked(args, askedShapes.everything);
      return resultOf(JSON.parse(JSON.stringify(context.whoIs(principal), writeDigits)));
    },
  };
}

/** Returns the current tools, rebuilt when the grammar changes. */
export function toolsOf<Caller>(context: ToolContext<Caller>): () => readonly Tool<Caller>[] {
  const telling = [whoAmI(context), ...tellingTools(context)];
  const toolsFor = memoizeLast((grammar: Grammar) => [
    ...telling,
    ...askingTools(context, grammar),
  ]);
  return () => toolsFor(context.grammar);
}

export interface Taking {
  readonly onRefused: (reason: string) => void;
  readonly isCall: boolean;
}

async function carryOut<Caller extends Principal>(
  tool: Tool<Caller>,
  call: ToolCall<Caller>,
  { onRefused }: Taking,
  opensUrls: boolean,
): Promise<CallToolResult | InputRequiredResult> {
  call.principal.noteCall?.(tool.definition.name);
  try {
    const { text, structured } = await tool.perform(call);
    return { content: [{ type: "text", text }], structuredContent: structured };
  } catch (error) {
    if (error instanceof QueryRefused) onRefused(error.code);
    return failed(error, opensUrls);
  }
}

/** A schema for display that validates nothing: the scanner judges the arguments. */
function shown(schema: Schema): StandardSchemaWithJSON {
  const write = () => ({ ...schema });
  const jsonSchema = { input: write, output: write };
  const validate = (value: unknown) => ({ value });
  return { "~standard": { version: 1, vendor: "gatehouse", validate, jsonSchema } };
}

/** A call needs no real schema, because only lists show it. */
const called = { inputSchema: shown({ type: "object" }) };

function listed({ title, description, annotations, ...schemas }: ToolDefinition) {
  const inputSchema = shown(schemas.inputSchema);
  const settings = { title, description, inputSchema, annotations };
  const output = schemas.outputSchema;
  return output === undefined ? settings : { ...settings, outputSchema: shown(output) };
}

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
    // The approval id that the client received with the page. It counts no more than an argument
    // would.
    const state: unknown = mcpReq.requestState();
    const approval = typeof state === "string" ? state : undefined;
    const isFirst = inputResponses === undefined && approval === undefined;
    const opensUrls = isFirst && server.server.getClientCapabilities()?.elicitation?.url;
    const call = { principal, arguments: args, signal, approval };
    return carryOut(tool, call, taking, Boolean(opensUrls));
  });
}
