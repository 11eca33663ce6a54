import type {
  CallToolResult,
  InputRequiredResult,
  McpServer,
  StandardSchemaWithJSON,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { runCooperatively, type Steps } from "../cooperative-scheduling.ts";
import { readText, visitCheckedMembers, writeMembers } from "../json/members.ts";
import { type Mode, SKIPPED, TOKENS, Word } from "../json/tape.ts";
import { memoizeLast } from "../memoize.ts";
import { batchKey, type Grammar } from "../query/grammar.ts";
import { type Field, type Kind, optional, required, type Schema } from "../query/kind.ts";
import { OperationNode } from "../query/node.ts";
import { ObjectShape } from "../query/object-shape.ts";
import { definitions, type OperationName } from "../query/operations.ts";
import type { PermissionClass } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { scanInSlices } from "../query/scan.ts";
import { QueryTape } from "../query/tape.ts";
import { list, plainName } from "../query/values.ts";
import { Refusal } from "../refusal.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";
import type { Principal } from "./authenticate.ts";
import { plainNameIn } from "./message.ts";
import {
  approvalField,
  batchField,
  batchTool,
  countFields,
  countTool,
  MAX_DESCRIBED_TABLES,
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
  listResult,
  nextPageOf,
  type QueryAnswer,
  resultOf,
  rowsOf,
  type ToolResult,
} from "./tool-results.ts";

export interface ToolContext<Caller> {
  readonly grammar: Grammar;
  /** Judges, audits and runs a query, as on `/query`. @throws Refusal, or QueryRefused */
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
  /**
   * The highest limit of a select that the caller's grants allow.
   *
   * @param tables called only if grants may set a limit; returns the tables that the select reads,
   * with the most included rows of each for each outer row
   */
  readonly maxRows: (
    caller: Caller,
    database: string,
    tables: () => Promise<ReadonlyMap<string, number>>,
  ) => Promise<number | undefined>;
  readonly mayNeedApproval?: (caller: Caller) => boolean;
  readonly rowLimit: number;
  readonly resultBytes: number;
  readonly whoIs: (caller: Caller) => object;
  readonly mayUse: (caller: Caller, permission: PermissionClass) => boolean;
}

interface Tool<Caller> {
  readonly definition: ToolDefinition;
  readonly isOfSchema?: boolean;
  readonly takesApproval?: boolean;
  readonly perform: (call: {
    readonly caller: Caller;
    readonly arguments: Buffer;
    readonly signal: AbortSignal;
    readonly approval: string | undefined;
  }) => Promise<ToolResult>;
}

/** More than any operation has. */
const MAX_FIELDS = 256;

/** Values stay bytes, so that no digit is lost and long lists do not block the event loop. */
async function readArguments(args: Buffer): Promise<Map<string, Buffer>> {
  const members = new Map<string, Buffer>();
  const visit = (key: string, value: Buffer): void => {
    members.set(key, value);
    if (members.size <= MAX_FIELDS) return;
    const problem = `there are more than ${MAX_FIELDS} fields`;
    throw new QueryRefused("unknown_field", problem, { path: "", offset: 0 });
  };
  await runCooperatively(visitCheckedMembers(args, visit));
  return members;
}

const namedTable = z.object({ table: z.string(), as: z.string().optional() });
const fromShape = z.union([z.string().transform((table) => ({ table })), namedTable]);
const joinsShape = z.union([namedTable.transform((only) => [only]), z.array(namedTable)]);
const MAX_JOIN_BYTES = 8 * 1024;

/** The tables whose rows a select combines. Undefined if they are not all tables. */
function joinedTables(args: ReadonlyMap<string, Buffer>) {
  const parts = [args.get("from"), args.get("join")];
  if (parts.some((part) => part !== undefined && part.length > MAX_JOIN_BYTES)) return undefined;
  const [from, join = []] = parts.map((part) => part && JSON.parse(part.toString("utf8")));
  const shape = z.tuple([fromShape, joinsShape]).safeParse([from, join]);
  return shape.success ? [shape.data[0], ...shape.data[1]] : undefined;
}

/** The tables for `ToolContext.maxRows`. A malformed select is refused later. */
async function tablesIn(select: Buffer, grammar: Grammar): Promise<ReadonlyMap<string, number>> {
  const query = writeMembers(new Map([["Select", select]]));
  const found = await scanInSlices(query, grammar).catch(() => undefined);
  const rows = new Map<string, number>();
  for (const { tables, node } of found?.accesses ?? []) {
    for (const table of tables) rows.set(table, 0);
    for (const { nesting, tables, rowsPerRow } of node.nested) {
      const added = nesting === "include" ? rowsPerRow : 0;
      for (const table of tables) rows.set(table, (rows.get(table) ?? 0) + added);
    }
  }
  return rows;
}

/**
 * Makes a select request one row more than the result shows, to detect whether rows were cut off.
 * If `allowed` leaves no room for it, the limit is capped and there may be more rows.
 */
function limitRows(
  args: Map<string, Buffer>,
  rowLimit: number,
  allowed = Number.POSITIVE_INFINITY,
): { readonly most: number; readonly isCapped: boolean } {
  const limit = countIn(args.get("limit")) ?? (args.has("limit") ? Number.NaN : allowed);
  // An invalid or too high limit is refused later.
  if (!(limit <= allowed)) return { most: rowLimit, isCapped: false };
  const most = Math.min(limit, rowLimit);
  // One more outer row could exceed what is allowed of included rows.
  const isExact = args.has("include") && Number.isFinite(allowed);
  const requested = isExact ? most : Math.min(most + 1, allowed);
  args.set("limit", Buffer.from(String(requested)));
  return { most, isCapped: requested === most };
}

type Ask = (operation: OperationName | typeof batchKey, content: Buffer) => Promise<QueryAnswer>;

function createQueryTool<Caller>(
  context: ToolContext<Caller>,
  definition: ToolDefinition,
  perform: (
    args: Map<string, Buffer>,
    ask: Ask,
    caller: Caller,
    signal: AbortSignal,
  ) => Promise<ToolResult>,
  shape?: ObjectShape,
): Tool<Caller> {
  return {
    definition,
    takesApproval: true,
    async perform({ caller, arguments: sent, signal, approval }) {
      const args = await readArguments(sent);
      const given = readText(args.get(approvalField));
      // The rest is the call that was approved. A value that is not a string is refused later.
      if (given !== undefined) args.delete(approvalField);
      if (shape !== undefined) await readNames(writeMembers(args), shape);
      const options = { signal, largest: context.resultBytes, approval: given ?? approval };
      const ask: Ask = (operation, content) =>
        context.ask(caller, writeMembers(new Map([[operation, content]])), options);
      return perform(args, ask, caller, signal);
    },
  };
}

function createOperationTool<Caller>(
  context: ToolContext<Caller>,
  definition: QueryTool,
  grammar: Grammar,
): Tool<Caller> {
  const { operation, reads } = definition;
  return createQueryTool(context, definition, async (args, ask, caller, signal) => {
    if (!reads) {
      const answer = await ask(operation, writeMembers(args));
      const isKept = definitions[operation].effect !== "previews";
      return changeOf(answer, context.resultBytes, isKept ? "Done" : "Previewed, nothing changed");
    }
    const database = plainNameIn(args.get("database")) ?? "";
    const tables = () => tablesIn(writeMembers(args), grammar);
    const allowed = await context.maxRows(caller, database, tables);
    const limit = limitRows(args, context.rowLimit, allowed);
    const answer = await ask(operation, writeMembers(args));
    const nextPage = nextPageOf(args, grammar.level, async (order) => {
      const joined = joinedTables(args);
      if (joined === undefined) return false;
      return context.schema.isUniqueOrder(caller, database, joined, order, signal);
    });
    return rowsOf(answer, { ...limit, bytes: context.resultBytes, nextPage });
  });
}

/** No table has a column of this name. */
const countName = "_gatehouse_count";
const groupCountName = "count";
const largestFirst = Buffer.from(`{"column":"${groupCountName}","direction":"DESC"}`);

function countAs(name: string): Buffer {
  return Buffer.from(`[{"fn":"count","as":"${name}"}]`);
}

function createQueryTools<Caller>(
  context: ToolContext<Caller>,
  grammar: Grammar,
): readonly Tool<Caller>[] {
  const count = async (args: Map<string, Buffer>, ask: Ask, caller: Caller) => {
    const isGrouped = args.has("group_by") || args.has("having");
    args.set("aggregate", countAs(isGrouped ? groupCountName : countName));
    if (!isGrouped) return countResult(await ask("Select", writeMembers(args)), countName);
    args.set("order_by", largestFirst);
    const database = plainNameIn(args.get("database")) ?? "";
    const tables = () => tablesIn(writeMembers(args), grammar);
    const allowed = await context.maxRows(caller, database, tables);
    const limit = limitRows(args, context.rowLimit, allowed);
    const answer = await ask("Select", writeMembers(args));
    return rowsOf(answer, { ...limit, bytes: context.resultBytes });
  };
  const runBatch = async (args: Map<string, Buffer>, ask: Ask) => {
    const answer = await ask(batchKey, args.get(batchField) ?? Buffer.from("[]"));
    return batchResult(answer, { most: context.rowLimit, bytes: context.resultBytes });
  };
  return [
    ...queryTools(grammar).map((one) => createOperationTool(context, one, grammar)),
    ...countTool(grammar).map((one) => createQueryTool(context, one, count, shapes.count)),
    createQueryTool(context, batchTool(grammar), runBatch, shapes.batch),
  ];
}

interface Names {
  readonly database: string;
  readonly table?: string;
  readonly tables?: readonly string[];
}

const database = required(plainName);
const table = optional(plainName);
const tables = optional(list(plainName, { most: MAX_DESCRIBED_TABLES }));

/** Any value. The query parser checks it. */
const unparsed: Kind<undefined> = { parse: () => undefined, schema: () => ({}) };

function unread({ required: isRequired }: Field<unknown>) {
  return isRequired ? required(unparsed) : optional(unparsed);
}

const shapes = {
  nothing: new ObjectShape({}, "none"),
  database: new ObjectShape({ database }),
  tables: new ObjectShape({ database, table, tables }),
  count: new ObjectShape(
    Object.fromEntries(Object.entries(countFields).map(([name, field]) => [name, unread(field)])),
  ),
  batch: new ObjectShape({ [batchField]: required(unparsed) }),
} as const;

const BYTES_PER_STEP = 32 * 1024;
const tablesWord = new Word("tables");

const noQuery = { level: "full", inOrder: [], extraFields: new Set<string>() } as const;

/** The tokens of a tool's arguments, of which all values but a list of tables are skipped. */
class ArgumentsTape extends QueryTape {
  protected override modeOf(key: number): Mode {
    return this.is(key, tablesWord) ? TOKENS : SKIPPED;
  }
}

function* parseNames(args: Buffer, shape: ObjectShape): Steps<Names> {
  const tape = new ArgumentsTape(args, false, noQuery);
  try {
    while (!tape.run(BYTES_PER_STEP)) yield;
    const node = new OperationNode({ changes: new Map(), deferred: [] });
    return shape.parse(tape, 0, node);
  } catch (error) {
    const refusal = tape.asRefusal(error);
    if (!(refusal instanceof QueryRefused)) throw refusal;
    // As in a query, where the operation's name comes first.
    const { code, problem, location } = refusal;
    const path = location.path === "" ? "" : `.${location.path}`;
    throw new QueryRefused(code, problem, { ...location, path });
  }
}

function readNames(args: Buffer, shape: ObjectShape): Promise<Names> {
  return runCooperatively(parseNames(args, shape));
}

function createSchemaTools<Caller>(context: ToolContext<Caller>): readonly Tool<Caller>[] {
  const { schema } = context;

  async function listOf(key: string, elements: readonly unknown[], more: object = {}) {
    const { resultBytes: bytes } = context;
    const whole = resultOf({ [key]: elements, ...more });
    if (2 * whole.text.length <= bytes) return whole;
    return listResult(key, elements, false, { most: elements.length, bytes });
  }

  function schemaTool(
    definition: ToolDefinition,
    shape: ObjectShape,
    describe: (caller: Caller, names: Names, signal: AbortSignal) => Promise<ToolResult>,
  ): Tool<Caller> {
    return {
      definition,
      isOfSchema: true,
      perform: async ({ caller, arguments: args, signal }) =>
        describe(caller, await readNames(args, shape), signal),
    };
  }

  async function describe(caller: Caller, database: string, table: string, signal: AbortSignal) {
    try {
      return await schema.describeTable(caller, database, table, signal);
    } catch (error) {
      const isMissing = error instanceof Refusal && error.code === "schema_not_found";
      if (!isMissing) throw error;
      throw new Refusal(error.code, { message: `${error.message}: ${database}.${table}` });
    }
  }

  return [
    {
      definition: whoAmITool,
      async perform({ caller, arguments: args }) {
        await readNames(args, shapes.nothing);
        // JSON numbers beyond a double become strings.
        const text = JSON.stringify(context.whoIs(caller), (_, value: unknown) =>
          typeof value === "bigint" ? String(value) : value,
        );
        return resultOf(JSON.parse(text));
      },
    },
    schemaTool(schemaTools.listDatabases, shapes.nothing, async (caller, _, signal) =>
      listOf("databases", await schema.listDatabases(caller, signal)),
    ),
    schemaTool(schemaTools.listTables, shapes.database, async (caller, { database }, signal) =>
      listOf("tables", (await schema.listTables(caller, database, signal)).tables),
    ),
    schemaTool(schemaTools.describeTable, shapes.tables, async (caller, names, signal) => {
      const { database, table, tables = [] } = names;
      if ((table === undefined) === (tables.length === 0)) {
        const found = table === undefined ? "neither was found" : "both were found";
        const problem = `either table or tables is expected, ${found}`;
        throw new QueryRefused("missing_field", problem, { path: "", offset: 0 });
      }
      if (table !== undefined) {
        const { columns, ...more } = await describe(caller, database, table, signal);
        return listOf("columns", columns, more);
      }
      const described: object[] = [];
      for (const table of new Set(tables)) {
        described.push({ table, ...(await describe(caller, database, table, signal)) });
      }
      return listOf("tables", described);
    }),
  ];
}

export function toolsOf<Caller>(context: ToolContext<Caller>): () => readonly Tool<Caller>[] {
  const schemaTools = createSchemaTools(context);
  const toolsFor = memoizeLast((grammar: Grammar) => [
    ...schemaTools,
    ...createQueryTools(context, grammar),
  ]);
  return () => toolsFor(context.grammar);
}

/** A schema that clients see but that validates nothing. The query parser checks the arguments. */
function displaySchema(schema: Schema): StandardSchemaWithJSON {
  const write = () => ({ ...schema });
  const jsonSchema = { input: write, output: write };
  const validate = (value: unknown) => ({ value });
  return { "~standard": { version: 1, vendor: "gatehouse", validate, jsonSchema } };
}

/** Registers a tool for a list, where it cannot be called. */
export function listTool(
  server: McpServer,
  { name, title, description, annotations, ...schemas }: ToolDefinition,
): void {
  const inputSchema = displaySchema(schemas.inputSchema);
  const output = schemas.outputSchema;
  const outputSchema = output === undefined ? {} : { outputSchema: displaySchema(output) };
  const settings = { title, description, inputSchema, annotations, ...outputSchema };
  server.registerTool(name, settings, () => ({ content: [] }));
}

interface ToolCall<Caller> {
  readonly caller: Caller;
  readonly principal: Principal;
  readonly arguments: Buffer | undefined;
  readonly onRefused: (reason: string) => void;
}

/** Registers a tool for one call, which needs no real schema. */
export function registerTool<Caller>(
  server: McpServer,
  { definition: { name }, perform }: Tool<Caller>,
  { caller, principal, arguments: args = Buffer.from("{}"), onRefused }: ToolCall<Caller>,
): void {
  type Result = CallToolResult | InputRequiredResult;
  const settings = { inputSchema: displaySchema({ type: "object" }) };
  server.registerTool(name, settings, async (_parsed, { mcpReq }): Promise<Result> => {
    const { signal, inputResponses } = mcpReq;
    // An approval id, which the client received with the page. It is as untrusted as an argument.
    const state: unknown = mcpReq.requestState();
    const approval = typeof state === "string" ? state : undefined;
    principal.noteCall?.(name);
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
