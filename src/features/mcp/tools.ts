import type {
  CallToolResult,
  InputRequiredResult,
  McpServer,
  StandardSchemaWithJSON,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { lowest } from "../../core/access/grant.ts";
import { boundariesFor, decidingEntry, mayBeNarrowed } from "../../core/access/rights.ts";
import { ClientError } from "../../core/base/client-error.ts";
import { runCooperatively, type Steps } from "../../core/base/cooperative-scheduling.ts";
import { memoizeLast } from "../../core/base/memoize.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { type Exchange, queryOrigin } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { ask as askDatabase, type FilteredAnswer } from "../../core/http/query.ts";
import { visitCheckedMembers, writeMembers } from "../../core/json/members.ts";
import { type Mode, SKIPPED, TOKENS, Word } from "../../core/json/tape.ts";
import type { Log } from "../../core/observe/log.ts";
import { batchKey, type Grammar } from "../../core/query/grammar.ts";
import {
  type Field,
  type Kind,
  ObjectShape,
  optional,
  required,
  type Schema,
} from "../../core/query/kind.ts";
import { OperationNode } from "../../core/query/node.ts";
import { definitions, operationNames } from "../../core/query/operations.ts";
import { parseQueryInSlices } from "../../core/query/parse.ts";
import { QueryRefused } from "../../core/query/refusal.ts";
import { anyText } from "../../core/query/select.ts";
import { QueryTape } from "../../core/query/tape.ts";
import type { OperationName } from "../../core/query/tree.ts";
import { list, plainName } from "../../core/query/values.ts";
import type { SchemaSource } from "../../core/upstream/schema-source.ts";
import { principalOf } from "./authenticate.ts";
import { plainNameIn } from "./message.ts";
import { whoIs } from "./rights.ts";
import {
  approvalField,
  batchField,
  countFields,
  MAX_DESCRIBED_TABLES,
  operationTool,
  type ToolDefinition,
  toolDefinitions,
} from "./tool-definitions.ts";
import {
  batchResult,
  changeResult,
  countIn,
  countResult,
  countRowsIn,
  failed,
  findNextPage,
  listResult,
  rowsResult,
  ToolFailure,
  type ToolResult,
  toToolResult,
} from "./tool-results.ts";

/** The code of a tool. */
interface Performer {
  readonly isOfSchema?: boolean;
  readonly takesApproval?: boolean;
  readonly perform: (call: {
    readonly exchange: Exchange;
    readonly arguments: Buffer;
    readonly signal: AbortSignal;
    readonly approval: string | undefined;
  }) => Promise<ToolResult>;
}

interface Tool extends Performer {
  readonly definition: ToolDefinition;
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

/**
 * The tables that a select reads, with the most included rows of each for each outer row. A malformed
 * select is refused later.
 */
async function tablesIn(select: Buffer, grammar: Grammar): Promise<ReadonlyMap<string, number>> {
  const query = writeMembers(new Map([["Select", select]]));
  const found = await parseQueryInSlices(query, grammar).catch(() => undefined);
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

/** The highest limit of a select that the caller's grants allow. Undefined if unlimited. */
async function maxRows(
  gateway: Gateway,
  exchange: Exchange,
  args: ReadonlyMap<string, Buffer>,
  grammar: Grammar,
): Promise<number | undefined> {
  const { snapshot } = gateway.access;
  const { subject } = principalOf(exchange);
  const origin = queryOrigin(exchange);
  const isKnown = gateway.configuration.auth.enabled;
  if (!isKnown || !mayBeNarrowed(snapshot, subject, origin)) return undefined;
  const now = Date.now();
  const database = plainNameIn(args.get("database")) ?? "";
  const included = await tablesIn(writeMembers(args), grammar);
  const boundaries = boundariesFor(snapshot, subject, database, origin);
  // A grant counts the included rows of its own tables, and a boundary those of any table.
  const most = Array.from(included, ([table, rows]) => {
    const grant = decidingEntry(snapshot, subject, database, table, now)?.grant;
    return [grant, ...boundaries].flatMap((limits) => {
      if (limits?.maxRows === undefined) return [];
      // If one outer row already has too many, the denial says which limits to lower.
      const least = Math.min(1, limits.maxRows);
      return Math.max(least, Math.floor(limits.maxRows / Math.max(1, rows)));
    });
  }).flat();
  return lowest(most);
}

/**
 * Makes a select request one row more than the result shows, to detect whether rows were cut off.
 * If the grants leave no room for it, the limit is capped and there may be more rows.
 */
async function limitRows(
  gateway: Gateway,
  exchange: Exchange,
  args: Map<string, Buffer>,
  grammar: Grammar,
): Promise<{ readonly most: number; readonly isCapped: boolean }> {
  const { row_limit: rowLimit } = gateway.configuration.mcp;
  const allowed = (await maxRows(gateway, exchange, args, grammar)) ?? Number.POSITIVE_INFINITY;
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

type Ask = (operation: OperationName | typeof batchKey, content: Buffer) => Promise<FilteredAnswer>;

function createQueryTool(
  gateway: Gateway,
  perform: (
    args: Map<string, Buffer>,
    ask: Ask,
    exchange: Exchange,
    signal: AbortSignal,
  ) => Promise<ToolResult>,
  shape?: ObjectShape,
): Performer {
  return {
    takesApproval: true,
    async perform({ exchange, arguments: sent, signal, approval }) {
      const args = await readArguments(sent);
      const own = new Map([...args].filter(([name]) => name === approvalField));
      const { approval: given = approval } = await readNames(writeMembers(own), shapes.approval);
      // The rest is the call that was approved.
      args.delete(approvalField);
      if (shape !== undefined) await readNames(writeMembers(args), shape);
      const { result_bytes: largest } = gateway.configuration.mcp;
      const options = { signal, largest, approval: given };
      const ask: Ask = (operation, content) =>
        askDatabase(gateway, exchange, writeMembers(new Map([[operation, content]])), options);
      return perform(args, ask, exchange, signal);
    },
  };
}

function createOperationTool(
  gateway: Gateway,
  schema: SchemaSource<Exchange>,
  operation: OperationName,
  grammar: Grammar,
): Performer {
  const { effect } = definitions[operation];
  return createQueryTool(gateway, async (args, ask, exchange, signal) => {
    const { result_bytes: bytes } = gateway.configuration.mcp;
    if (effect !== "reads") {
      const answer = await ask(operation, writeMembers(args));
      const done = effect === "previews" ? "Previewed, nothing changed" : "Done";
      return changeResult(answer, bytes, done);
    }
    const limit = await limitRows(gateway, exchange, args, grammar);
    const answer = await ask(operation, writeMembers(args));
    const nextPage = findNextPage(args, grammar.level, async (order) => {
      const joined = joinedTables(args);
      if (joined === undefined) return false;
      const database = plainNameIn(args.get("database")) ?? "";
      return schema.isUniqueOrder(exchange, database, joined, order, signal);
    });
    return rowsResult(answer, { ...limit, bytes, nextPage });
  });
}

/** No table has a column of this name. */
const countName = "_gatehouse_count";
const groupCountName = "count";
const largestFirst = Buffer.from(`{"column":"${groupCountName}","direction":"DESC"}`);

function createQueryTools(
  gateway: Gateway,
  schema: SchemaSource<Exchange>,
  grammar: Grammar,
): Readonly<Record<string, Performer>> {
  const count = async (args: Map<string, Buffer>, ask: Ask, exchange: Exchange) => {
    const { result_bytes: bytes } = gateway.configuration.mcp;
    const isGrouped = args.has("group_by") || args.has("having");
    const as = isGrouped ? groupCountName : countName;
    args.set("aggregate", Buffer.from(`[{"fn":"count","as":"${as}"}]`));
    if (!isGrouped) return countResult(await ask("Select", writeMembers(args)), countName);
    args.set("order_by", largestFirst);
    const limit = await limitRows(gateway, exchange, args, grammar);
    const answer = await ask("Select", writeMembers(args));
    return rowsResult(answer, { ...limit, bytes });
  };
  const runBatch = async (args: Map<string, Buffer>, ask: Ask) => {
    const answer = await ask(batchKey, args.get(batchField) ?? Buffer.from("[]"));
    const { row_limit: most, result_bytes: bytes } = gateway.configuration.mcp;
    return batchResult(answer, { most, bytes });
  };
  const ofOperations = operationNames.map((name) => [
    operationTool(name),
    createOperationTool(gateway, schema, name, grammar),
  ]);
  return {
    ...Object.fromEntries(ofOperations),
    count: createQueryTool(gateway, count, shapes.count),
    batch: createQueryTool(gateway, runBatch, shapes.batch),
  };
}

interface Names {
  readonly database: string;
  readonly table?: string;
  readonly tables?: readonly string[];
  readonly approval?: string;
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
  approval: new ObjectShape({ [approvalField]: optional(anyText) }),
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

function createSchemaTools(
  gateway: Gateway,
  schema: SchemaSource<Exchange>,
): Readonly<Record<string, Performer>> {
  async function listContent(key: string, elements: readonly unknown[], more: object = {}) {
    const { result_bytes: bytes } = gateway.configuration.mcp;
    const whole = toToolResult({ [key]: elements, ...more });
    if (2 * whole.text.length <= bytes) return whole;
    return listResult(key, elements, false, { most: elements.length, bytes });
  }

  function schemaTool(
    shape: ObjectShape,
    describe: (exchange: Exchange, names: Names, signal: AbortSignal) => Promise<ToolResult>,
  ): Performer {
    return {
      isOfSchema: true,
      perform: async ({ exchange, arguments: args, signal }) =>
        describe(exchange, await readNames(args, shape), signal),
    };
  }

  async function describe(
    exchange: Exchange,
    database: string,
    table: string,
    signal: AbortSignal,
  ) {
    try {
      return await schema.describeTable(exchange, database, table, signal);
    } catch (error) {
      const isMissing = error instanceof Refusal && error.code === "schema_not_found";
      if (!isMissing) throw error;
      throw new Refusal(error.code, { message: `${error.message}: ${database}.${table}` });
    }
  }

  return {
    whoami: {
      async perform({ exchange, arguments: args }) {
        await readNames(args, shapes.nothing);
        // JSON numbers beyond a double become strings.
        const text = JSON.stringify(whoIs(gateway, exchange), (_, value: unknown) =>
          typeof value === "bigint" ? String(value) : value,
        );
        return toToolResult(JSON.parse(text));
      },
    },
    list_databases: schemaTool(shapes.nothing, async (exchange, _, signal) =>
      listContent("databases", await schema.listDatabases(exchange, signal)),
    ),
    list_tables: schemaTool(shapes.database, async (exchange, { database }, signal) =>
      listContent("tables", (await schema.listTables(exchange, database, signal)).tables),
    ),
    describe_table: schemaTool(shapes.tables, async (exchange, names, signal) => {
      const { database, table, tables = [] } = names;
      if ((table === undefined) === (tables.length === 0)) {
        const found = table === undefined ? "neither was found" : "both were found";
        const problem = `either table or tables is expected, ${found}`;
        throw new QueryRefused("missing_field", problem, { path: "", offset: 0 });
      }
      if (table !== undefined) {
        const { columns, ...more } = await describe(exchange, database, table, signal);
        return listContent("columns", columns, more);
      }
      const described: object[] = [];
      for (const table of new Set(tables)) {
        described.push({ table, ...(await describe(exchange, database, table, signal)) });
      }
      return listContent("tables", described);
    }),
  };
}

export function createTools(
  gateway: Gateway,
  schema: SchemaSource<Exchange>,
): () => readonly Tool[] {
  const schemaTools = createSchemaTools(gateway, schema);
  const toolsFor = memoizeLast((grammar: Grammar) => {
    const performers = { ...schemaTools, ...createQueryTools(gateway, schema, grammar) };
    return toolDefinitions(grammar.level).flatMap((definition): Tool[] => {
      const performer = performers[definition.name];
      return performer === undefined ? [] : [{ definition, ...performer }];
    });
  });
  return () => toolsFor(gateway.queries.grammar);
}

/** A schema that clients see but that validates nothing. The query parser checks the arguments. */
function displaySchema(schema: Schema): StandardSchemaWithJSON {
  const write = () => ({ ...schema });
  const jsonSchema = { input: write, output: write };
  const validate = (value: unknown) => ({ value });
  return { "~standard": { version: 1, vendor: "gatehouse", validate, jsonSchema } };
}

/** Records a refusal, unless queries to the database were already decided and recorded. */
export function noteRefusal({ verdict }: Exchange, reason: string, status = 400): void {
  if (verdict.count === 0 && verdict.reason === undefined) verdict.deny(reason, status);
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

/** Registers a tool for one call, which needs no real schema. */
export function registerTool(
  server: McpServer,
  { definition: { name }, perform }: Tool,
  exchange: Exchange,
  log: Log,
  args: Buffer = Buffer.from("{}"),
): void {
  type Result = CallToolResult | InputRequiredResult;
  const settings = { inputSchema: displaySchema({ type: "object" }) };
  server.registerTool(name, settings, async (_parsed, { mcpReq }): Promise<Result> => {
    const { signal, inputResponses } = mcpReq;
    // An approval id, which the client received with the page. It is as untrusted as an argument.
    const state: unknown = mcpReq.requestState();
    const approval = typeof state === "string" ? state : undefined;
    principalOf(exchange).noteCall?.(name);
    try {
      const { text, structured } = await perform({ exchange, arguments: args, signal, approval });
      const rows = countRowsIn(structured);
      if (rows !== undefined) exchange.verdict.noteShownRows(rows);
      return { content: [{ type: "text", text }], structuredContent: structured };
    } catch (error) {
      if (error instanceof QueryRefused) noteRefusal(exchange, error.code);
      const isKnown = error instanceof ClientError || error instanceof ToolFailure;
      if (!isKnown && !signal.aborted) {
        log.error({ requestId: exchange.requestId, err: error }, "unexpected error");
      }
      // The rows were read, but no result has them.
      if (exchange.verdict.report?.rows !== undefined) exchange.verdict.noteShownRows(0);
      const isFirst = inputResponses === undefined && approval === undefined;
      const opensUrls = isFirst && server.server.getClientCapabilities()?.elicitation?.url;
      return failed(error, Boolean(opensUrls));
    }
  });
}
