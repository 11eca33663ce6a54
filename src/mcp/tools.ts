import type {
  CallToolResult,
  InputRequiredResult,
  McpServer,
  StandardSchemaWithJSON,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { runCooperatively } from "../cooperative-scheduling.ts";
import { readText, visitJudgedMembers, writeMembers } from "../json/members.ts";
import { memoizeLast } from "../memoize.ts";
import { BodyReader } from "../query/body-reader.ts";
import { batchKey, type Grammar } from "../query/grammar.ts";
import { type Kind, optional, required, type Schema } from "../query/kind.ts";
import { ObjectShape } from "../query/object-shape.ts";
import { definitions, type OperationName } from "../query/operations.ts";
import type { PermissionClass } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { plainName } from "../query/values.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";
import type { Principal } from "./authenticate.ts";
import { plainNameIn } from "./message.ts";
import {
  approvalField,
  batchField,
  batchTool,
  countTool,
  type QueryTool,
  queryTools,
  schemaTools,
  type ToolDefinition,
  whoAmITool,
} from "./tool-definitions.ts";
import {
  batchResult,
  changeOf,
  countIn,
  countResult,
  failed,
  goOnBehind,
  listResult,
  type QueryAnswer,
  resultOf,
  rowsOf,
  type ToolResult,
} from "./tool-results.ts";

/** What the tools need of the gateway. `Caller` is whoever the gateway judges. */
export interface ToolContext<Caller> {
  readonly grammar: Grammar;
  /**
   * Judges, audits and runs a query, as on `/query`.
   *
   * @throws Refusal, or QueryRefused
   */
  readonly ask: (
    caller: Caller,
    query: Buffer,
    options: {
      readonly signal: AbortSignal;
      readonly largest: number;
      readonly approval?: string | undefined;
    },
  ) => Promise<QueryAnswer>;
  /** If it offers no schema, the schema tools are absent. */
  readonly schema: SchemaSource<Caller>;
  /** Row limit of the caller's entries for these tables. Undefined if there is none. */
  readonly mostRows: (
    caller: Caller,
    database: string,
    tables: readonly string[],
  ) => number | undefined;
  readonly mayNeedApproval?: (caller: Caller) => boolean;
  readonly rowLimit: number;
  readonly resultBytes: number;
  /** The caller, the current rights, and the limits of a call. */
  readonly whoIs: (caller: Caller) => object;
  readonly mayUse: (caller: Caller, permission: PermissionClass) => boolean;
}

interface ToolCall<Caller> {
  readonly caller: Caller;
  /** JSON as the client sent it. */
  readonly arguments: Buffer;
  readonly signal: AbortSignal;
  readonly approval?: string | undefined;
}

export interface Tool<Caller> {
  readonly definition: ToolDefinition;
  readonly isOfSchema?: boolean;
  readonly takesApproval?: boolean;
  readonly perform: (call: ToolCall<Caller>) => Promise<ToolResult>;
}

/** More than any operation has fields. */
const MOST_FIELDS = 256;

/**
 * The members of a call's arguments. Their values stay bytes, so that no digit is lost and a long
 * list does not block the event loop. The query parser judges the grammar.
 *
 * @throws QueryRefused `unknown_field` if there are more than any operation has
 */
async function readArguments(args: Buffer): Promise<Map<string, Buffer>> {
  const members = new Map<string, Buffer>();
  const visit = (key: string, value: Buffer): void => {
    members.set(key, value);
    if (members.size <= MOST_FIELDS) return;
    const problem = `there are more than ${MOST_FIELDS} fields`;
    throw new QueryRefused("unknown_field", problem, { path: "", offset: 0 });
  };
  await runCooperatively(visitJudgedMembers(args, visit));
  return members;
}

function queryOf(operation: OperationName | typeof batchKey, content: Buffer): Buffer {
  return writeMembers(new Map([[operation, content]]));
}

const joined = z.object({ table: z.string() });
const joins = z.union([joined.transform((only) => [only]), z.array(joined)]);
const LONGEST_JOIN = 8 * 1024;

/** The tables that a select reads, as far as its arguments are well-formed. */
function readTables(args: ReadonlyMap<string, Buffer>): string[] {
  const from = plainNameIn(args.get("from"));
  const join = args.get("join");
  const isShort = join !== undefined && join.length <= LONGEST_JOIN;
  const others = joins.safeParse(isShort ? JSON.parse(join.toString("utf8")) : []);
  const names = others.success ? others.data.map(({ table }) => table) : [];
  return from === undefined ? names : [from, ...names];
}

interface RowLimit {
  readonly most: number;
  /**
   * True if the limit left no room for an extra row, so that there may be more rows than are shown.
   */
  readonly isCapped: boolean;
}

/**
 * Makes a select request one row more than is shown, to detect whether rows were cut off.
 *
 * @param allowed rows that may be requested
 */
function limitRows(
  args: Map<string, Buffer>,
  rowLimit: number,
  allowed = Number.POSITIVE_INFINITY,
): RowLimit {
  const limit = countIn(args.get("limit")) ?? (args.has("limit") ? Number.NaN : allowed);
  // An invalid or too high limit is refused later.
  if (!(limit <= allowed)) return { most: rowLimit, isCapped: false };
  const most = Math.min(limit, rowLimit);
  const asked = Math.min(most + 1, allowed);
  args.set("limit", Buffer.from(String(asked)));
  return { most, isCapped: asked === most };
}

/** A call whose arguments have become a query, or most of one. */
interface QueryCall<Caller> {
  readonly args: Map<string, Buffer>;
  readonly caller: Caller;
  readonly signal: AbortSignal;
  readonly ask: (
    operation: OperationName | typeof batchKey,
    content: Buffer,
  ) => Promise<QueryAnswer>;
}

function askingTool<Caller>(
  context: ToolContext<Caller>,
  definition: ToolDefinition,
  perform: (call: QueryCall<Caller>) => Promise<ToolResult>,
  shape?: ObjectShape<Names>,
): Tool<Caller> {
  return {
    definition,
    takesApproval: true,
    async perform({ caller, arguments: sent, signal, approval }) {
      const args = await readArguments(sent);
      const given = readText(args.get(approvalField));
      // What remains is the call that requested the approval. Any other value is refused later.
      if (given !== undefined) args.delete(approvalField);
      if (shape !== undefined) await readNames(writeMembers(args), shape);
      const options = { signal, largest: context.resultBytes, approval: given ?? approval };
      return perform({
        ...{ args, caller, signal },
        ask: (operation, content) => context.ask(caller, queryOf(operation, content), options),
      });
    },
  };
}

function operationTool<Caller>(
  context: ToolContext<Caller>,
  definition: QueryTool,
  { level }: Grammar,
): Tool<Caller> {
  const { operation, reads } = definition;
  return askingTool(context, definition, async ({ args, caller, signal, ask }) => {
    if (!reads) {
      const answer = await ask(operation, writeMembers(args));
      const isKept = definitions[operation].effect !== "previews";
      return changeOf(answer, context.resultBytes, isKept ? "Done" : "Nothing is kept");
    }
    const database = plainNameIn(args.get("database")) ?? "";
    const tables = readTables(args);
    const allowed = context.mostRows(caller, database, tables);
    const limit = limitRows(args, context.rowLimit, allowed);
    const answer = await ask(operation, writeMembers(args));
    const goOn = goOnBehind(args, level, (order) =>
      context.schema.isUniqueOrder(caller, database, tables, order, signal),
    );
    return rowsOf(answer, { ...limit, bytes: context.resultBytes, goOn });
  });
}

/** No table has a column of this name, so the result cannot collide with one. */
const countName = "_gatehouse_count";
const counting = Buffer.from(`[{"fn":"count","as":"${countName}"}]`);

function queryingTools<Caller>(
  context: ToolContext<Caller>,
  grammar: Grammar,
): readonly Tool<Caller>[] {
  const ofOperations = queryTools(grammar).map((one) => operationTool(context, one, grammar));
  const counters = countTool(grammar).map((definition) =>
    askingTool(
      context,
      definition,
      async ({ args, ask }) =>
        countResult(await ask("Select", writeMembers(args.set("aggregate", counting))), countName),
      shapes.count,
    ),
  );
  const batch = askingTool(
    context,
    batchTool(grammar),
    async ({ args, ask }) => {
      const answer = await ask(batchKey, args.get(batchField) ?? noOperations);
      return batchResult(answer, { most: context.rowLimit, bytes: context.resultBytes });
    },
    shapes.batch,
  );
  return [...ofOperations, ...counters, batch];
}

const noOperations = Buffer.from("[]");

/** The names in the arguments of a tool that is no operation. */
interface Names {
  database: string;
  table: string;
}

const database = required(
  plainName<Names>((names, name) => {
    names.database = name;
  }),
);
const table = required(
  plainName<Names>((names, name) => {
    names.table = name;
  }),
);
/** Judged by the query parser. */
const ofQuery: Kind<unknown, Names> = {
  read: (reader) => reader.skipValue(),
  schema: () => ({}),
};

const shapes = {
  nothing: new ObjectShape<Names>({}, "none"),
  database: new ObjectShape<Names>({ database }),
  table: new ObjectShape<Names>({ database, table }),
  count: new ObjectShape<Names>({
    ...{ database, from: table, where: optional(ofQuery), join: optional(ofQuery) },
  }),
  batch: new ObjectShape<Names>({ [batchField]: required(ofQuery) }),
} as const;

const BYTES_PER_STEP = 32 * 1024;

/** @throws QueryRefused */
async function readNames(args: Buffer, shape: ObjectShape<Names>): Promise<Names> {
  const names: Names = { database: "", table: "" };
  const reader = new BodyReader(args, true);
  reader.pauseEvery(BYTES_PER_STEP);
  // As in a query, where the operation's name comes first.
  reader.path.push("");
  try {
    const rest = shape.read(reader, names);
    if (rest !== undefined) await runCooperatively(rest);
    return names;
  } catch (error) {
    throw reader.asRefusal(error);
  }
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
      async perform({ caller, arguments: args, signal }) {
        await readNames(args, shapes.nothing);
        return listOf("databases", await schema.listDatabases(caller, signal));
      },
    },
    {
      definition: schemaTools.listTables,
      async perform({ caller, arguments: args, signal }) {
        const { database } = await readNames(args, shapes.database);
        return listOf("tables", await schema.listTables(caller, database, signal));
      },
    },
    {
      definition: schemaTools.describeTable,
      async perform({ caller, arguments: args, signal }) {
        const { database, table } = await readNames(args, shapes.table);
        const found = await schema.describeTable(caller, database, table, signal);
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
    async perform({ caller, arguments: args }) {
      await readNames(args, shapes.nothing);
      return resultOf(JSON.parse(JSON.stringify(context.whoIs(caller), writeDigits)));
    },
  };
}

/** Returns the current tools, rebuilt when the grammar changes. */
export function toolsOf<Caller>(context: ToolContext<Caller>): () => readonly Tool<Caller>[] {
  const telling = [whoAmI(context), ...tellingTools(context)];
  const toolsFor = memoizeLast((grammar: Grammar) => [
    ...telling,
    ...queryingTools(context, grammar),
  ]);
  return () => toolsFor(context.grammar);
}

/** A schema for display that validates nothing: the query parser judges the arguments. */
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

export interface Registration<Caller> {
  readonly caller: Caller;
  readonly principal: Principal;
  /** Undefined unless the request is a call of this tool. */
  readonly arguments: Buffer | undefined;
  readonly onRefused: (reason: string) => void;
}

export function registerTool<Caller>(
  server: McpServer,
  { definition, perform }: Tool<Caller>,
  { caller, principal, arguments: args = Buffer.from("{}"), onRefused }: Registration<Caller>,
  isCall: boolean,
): void {
  type Result = CallToolResult | InputRequiredResult;
  const settings = isCall ? called : listed(definition);
  server.registerTool(definition.name, settings, async (_parsed, { mcpReq }): Promise<Result> => {
    const { signal, inputResponses } = mcpReq;
    // The approval id that the client received with the page. It counts no more than an argument
    // would.
    const state: unknown = mcpReq.requestState();
    const approval = typeof state === "string" ? state : undefined;
    principal.noteCall?.(definition.name);
    try {
      const { text, structured } = await perform({ caller, arguments: args, signal, approval });
      return { content: [{ type: "text", text }], structuredContent: structured };
    } catch (error) {
      if (error instanceof QueryRefused) onRefused(error.code);
      const isFirst = inputResponses === undefined && approval === undefined;
      const opensUrls = isFirst && server.server.getClientCapabilities()?.elicitation?.url;
      return failed(error, Boolean(opensUrls));
    }
  });
}
