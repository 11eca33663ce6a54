import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { finished, pipeline } from "node:stream/promises";
import {
  createMcpHandler,
  type JSONRPCMessage,
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  type ReadResourceResult,
  ResourceTemplate,
  type ServerOptions,
  type Transport,
} from "@modelcontextprotocol/server";
import { quoteName } from "../json/fault.ts";
import { isPlainName } from "../query/names.ts";
import { Refusal } from "../refusal.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";
import type { Principal } from "./authenticate.ts";
import {
  type Answering,
  errorCode,
  McpRefused,
  reasonOf,
  requireMethod,
  sendMcpRefusal,
  setHeaders,
} from "./json-rpc.ts";
import { type McpMessage, readMessageInSlices } from "./message.ts";
import { judgeHeaders } from "./protocol-headers.ts";
import { registerTool, type Tool, type ToolContext, toolsOf, withApproval } from "./tools.ts";

/** Tables listed in one response. Clients reach the others through the resource template. */
const LARGEST_LIST = 1000;
const scheme = "gatehouse:///";
const mimeType = "application/json";

interface TableResource {
  readonly uri: string;
  readonly name: string;
  readonly mimeType: string;
}

async function listTables<Caller>(
  schema: SchemaSource<Caller>,
  caller: Caller,
  signal: AbortSignal,
): Promise<TableResource[]> {
  const found: TableResource[] = [];
  for (const database of await schema.listDatabases(caller, signal)) {
    for (const table of await schema.listTables(caller, database, signal)) {
      found.push({ uri: `${scheme}${database}/${table}`, name: `${database}/${table}`, mimeType });
      if (found.length === LARGEST_LIST) return found;
    }
  }
  return found;
}

function asProtocolError(error: unknown, uri: string): unknown {
  if (!(error instanceof Refusal)) return error;
  const data = { uri, code: error.code };
  return new ProtocolError(ProtocolErrorCode.InvalidParams, error.message, data);
}

async function readTable<Caller>(
  schema: SchemaSource<Caller>,
  caller: Caller,
  uri: string,
  signal: AbortSignal,
): Promise<ReadResourceResult> {
  const [database = "", table = "", ...more] = uri.slice(scheme.length).split("/");
  const isTable = [database, table].every(isPlainName) && more.length === 0;
  try {
    if (!isTable) throw new Refusal("schema_not_found");
    const description = await schema.describeTable(caller, database, table, signal);
    const text = JSON.stringify({ database, table, ...description });
    return { contents: [{ uri, mimeType, text }] };
  } catch (error) {
    throw asProtocolError(error, uri);
  }
}

function registerResources<Caller>(
  server: McpServer,
  schema: SchemaSource<Caller>,
  caller: Caller,
): void {
  const template = new ResourceTemplate(`${scheme}{database}/{table}`, {
    list: async ({ mcpReq }) => ({
      resources: await listTables(schema, caller, mcpReq.signal),
    }),
  });
  const description = "The columns of a table with their declared types.";
  const settings = { title: "Table schema", description, mimeType };
  server.registerResource("table", template, settings, (uri, _names, { mcpReq }) =>
    readTable(schema, caller, uri.href, mcpReq.signal),
  );
}

/** Request headers that the protocol uses. Credentials are left out. */
const passed = /^(?:accept|content-type|last-event-id|mcp-.*)$/;

class WebRequest extends Request {
  /** The library passes only the request to the server factory. */
  createServer: (() => McpServer) | undefined;
  /**
   * The original signal. Creating the Fetch API's own copy costs more than the rest of a request.
   */
  override readonly signal: AbortSignal;

  constructor(url: string, init: RequestInit, signal: AbortSignal) {
    super(url, init);
    this.signal = signal;
  }
}

/**
 * Converts the request, without its body. Its signal aborts when the connection closes before the
 * response is complete.
 */
export function toWebRequest(request: IncomingMessage, response: ServerResponse): WebRequest {
  const client = new AbortController();
  response.once("close", () => response.writableFinished || client.abort());
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (passed.test(name) && value !== undefined) headers.set(name, String(value));
  }
  // The library does not use the URL.
  const { method = "" } = request;
  return new WebRequest("http://localhost/mcp", { method, headers }, client.signal);
}

function writeHead(answer: Response, response: ServerResponse, added: readonly string[]): void {
  for (const [name, value] of answer.headers) response.setHeader(name, value);
  if (!response.hasHeader("cache-control")) response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  setHeaders(response, added);
  response.writeHead(answer.status);
}

/**
 * Sends a Fetch API response with backpressure. The head is sent with the first part of the body,
 * because the decision is known only then. Resolves when the response is sent or aborted.
 *
 * @param answerHeaders added headers: names and values in turn
 */
async function sendWebResponse(
  answer: Response,
  response: ServerResponse,
  answerHeaders: () => readonly string[],
): Promise<void> {
  if (response.destroyed) {
    await answer.body?.cancel();
    return;
  }
  if (answer.body === null) {
    writeHead(answer, response, answerHeaders());
    response.end();
    return;
  }
  async function* headed(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const part of parts) {
      if (!response.headersSent) writeHead(answer, response, answerHeaders());
      yield part;
    }
    if (!response.headersSent) writeHead(answer, response, answerHeaders());
  }
  try {
    await pipeline(Readable.fromWeb(answer.body), headed, response);
  } catch {
    // A partial response must not look complete. The pipeline has cut the connection.
  }
}

/** Sends the response to a tool call. Resolves when it is sent or aborted. */
async function sendWhole(
  answer: Response,
  response: ServerResponse,
  answerHeaders: () => readonly string[],
): Promise<void> {
  try {
    const body = Buffer.from(await answer.arrayBuffer());
    if (response.destroyed) return;
    response.setHeader("Content-Length", body.length);
    writeHead(answer, response, answerHeaders());
    response.end(body);
    await finished(response);
  } catch {
    // The client has disconnected. A partial response must not look complete.
    response.destroy();
  }
}

type Implementation = ConstructorParameters<typeof McpServer>[0];

/** The reason code of an error or a failed call, undefined for all other messages. */
function failureIn(message: JSONRPCMessage): string | undefined {
  if ("error" in message) return reasonOf(message.error.code);
  const isFailedCall = "result" in message && message.result.isError === true;
  return isFailedCall ? reasonOf(errorCode("invalidParams")) : undefined;
}

/** Reports each error response before it is sent. */
class ObservedServer extends McpServer {
  readonly #onFailure: (reason: string) => void;

  constructor(
    implementation: Implementation,
    options: ServerOptions,
    onFailure: (reason: string) => void,
  ) {
    super(implementation, options);
    this.#onFailure = onFailure;
  }

  override async connect(transport: Transport): Promise<void> {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      const reason = failureIn(message);
      if (reason !== undefined) this.#onFailure(reason);
      return send(message, options);
    };
    await super.connect(transport);
  }
}

interface EmbeddedMcpOptions<Caller> extends ToolContext<Caller> {
  readonly serverVersion: string;
  /** @throws Refusal `rate_limited` */
  countCall?(caller: Caller): Promise<void> | undefined;
}

interface McpCall<Caller> extends Answering {
  readonly caller: Caller;
  readonly principal: Principal;
}

/** What a request asks for, and the tools that are currently available. */
interface Opened<Caller> {
  readonly message: McpMessage | undefined;
  readonly tools: readonly Tool<Caller>[];
  readonly hasSchema: boolean;
}

/** Bytes of a message without the tool's arguments. */
const LARGEST_ENVELOPE = 16 * 1024;
const noArguments = Buffer.from("{}");

/**
 * Responses depend on the caller and become stale with a grant, so shared caches must not keep
 * them.
 */
const ownAnswer = { ttlMs: 0, cacheScope: "private" } as const;
const cacheHints = {
  "tools/list": ownAnswer,
  "prompts/list": ownAnswer,
  "resources/list": ownAnswer,
  "resources/templates/list": ownAnswer,
  "resources/read": ownAnswer,
  "server/discover": ownAnswer,
};

const instructions =
  "Tools and resources of a database behind an access-controlled gateway. What a call may do " +
  "depends on the caller's role on the database that it names; a denied call says which rule " +
  "denied it, and trying it again does not help.";

/**
 * Lists show only tools that the caller may use. A call of another tool gets the reason for its
 * denial.
 */
function visibleTools<Caller>(
  { mayUse, mayNeedApproval }: ToolContext<Caller>,
  { tools, message }: Opened<Caller>,
  caller: Caller,
): readonly Tool<Caller>[] {
  // Registering tools is expensive, so only those that the response needs are registered.
  if (message?.method === "tools/call") {
    return tools.filter(({ definition }) => definition.name === message.name);
  }
  if (message?.method !== "tools/list") return [];
  const visible = tools.filter(({ definition }) =>
    definition.permissions.every((permission) => mayUse(caller, permission)),
  );
  if (mayNeedApproval?.(caller) !== true) return visible;
  return visible.map((tool) =>
    tool.takesApproval ? { ...tool, definition: withApproval(tool.definition) } : tool,
  );
}

function createServer<Caller>(
  options: EmbeddedMcpOptions<Caller>,
  opened: Opened<Caller>,
  { caller, principal, onRefused }: McpCall<Caller>,
): ObservedServer {
  const { message, hasSchema } = opened;
  const server = new ObservedServer(
    { name: "gatehouse", title: "Gatehouse", version: options.serverVersion },
    { capabilities: { tools: { listChanged: false } }, instructions, cacheHints },
    onRefused,
  );
  const isCall = message !== undefined && isToolCall(message);
  const registration = { caller, principal, arguments: message?.arguments, onRefused };
  for (const tool of visibleTools(options, opened, caller)) {
    registerTool(server, tool, registration, isCall);
  }
  if (hasSchema && !isCall) {
    server.server.registerCapabilities({ resources: { listChanged: false } });
    registerResources(server, options.schema, caller);
  }
  return server;
}

function requireTool(
  tools: readonly Pick<Tool<never>, "definition" | "isOfSchema">[],
  message: McpMessage,
): void {
  const { name, id } = message;
  if (!isToolCall(message) || name === undefined) return;
  if (tools.some(({ definition }) => definition.name === name)) return;
  const options = { status: 200, reason: "unknown_tool", id };
  throw new McpRefused("invalidParams", `Unknown tool: ${quoteName(name)}`, options);
}

function isToolCall({ kind, method }: McpMessage): boolean {
  return kind === "request" && method === "tools/call";
}

/**
 * The message for the MCP library, without a tool's arguments. Only the scanner judges those, and
 * the library would process them without a pause.
 *
 * @throws McpRefused if the rest exceeds `LARGEST_ENVELOPE`
 */
function envelopeOf(body: Buffer, message: McpMessage): unknown {
  const args = isToolCall(message) ? message.arguments : undefined;
  const at = args === undefined ? body.length : args.byteOffset - body.byteOffset;
  const rest = body.subarray(at + (args?.length ?? 0));
  const envelope = [body.subarray(0, at), ...(args === undefined ? [] : [noArguments]), rest];
  const length = envelope.reduce((sum, part) => sum + part.length, 0);
  if (length <= LARGEST_ENVELOPE) return JSON.parse(Buffer.concat(envelope).toString("utf8"));
  const problem = `all but the arguments of a tool takes ${length} bytes; allowed: ${LARGEST_ENVELOPE}`;
  throw new McpRefused("invalidRequest", `Invalid request: ${problem}`, { id: message.id });
}

interface Sent {
  readonly message: McpMessage;
  readonly envelope: unknown;
}

/** @throws McpRefused, or Refusal `insufficient_scope` */
async function readCall(
  request: IncomingMessage,
  body: Buffer,
  principal: Principal,
): Promise<Sent | undefined> {
  if (request.method !== "POST") return undefined;
  const message = await readMessageInSlices(body);
  const era = judgeHeaders(request.headers, message);
  requireMethod(message, principal, era);
  return { message, envelope: envelopeOf(body, message) };
}

function concernsSchema(
  tools: readonly Pick<Tool<never>, "definition" | "isOfSchema">[],
  message: McpMessage | undefined,
): boolean {
  if (message?.method !== "tools/call") return message !== undefined;
  return tools.some(({ definition, isOfSchema }) => isOfSchema && definition.name === message.name);
}

/**
 * The gateway's own MCP server, which offers database operations as tools. It keeps no sessions:
 * each request is judged on its own, by the caller's current rights.
 */
export function createEmbeddedMcp<Caller>(options: EmbeddedMcpOptions<Caller>) {
  const toolsNow = toolsOf(options);
  const handler = createMcpHandler(({ requestInfo }) => {
    const server = requestInfo instanceof WebRequest ? requestInfo.createServer?.() : undefined;
    if (server === undefined) throw new Error("A request without its caller");
    return server;
  });

  async function open(
    message: McpMessage | undefined,
    caller: Caller,
    signal: AbortSignal,
  ): Promise<Opened<Caller>> {
    const tools = toolsNow();
    // If availability is unknown, a later call for the schema fails with the reason.
    const hasSchema =
      concernsSchema(tools, message) && (await options.schema.isOffered(caller, signal)) !== false;
    const available = hasSchema ? tools : tools.filter(({ isOfSchema }) => !isOfSchema);
    if (message !== undefined) requireTool(available, message);
    return { message, tools: available, hasSchema };
  }

  return {
    /**
     * Answers one request. Resolves when the response is sent or aborted.
     *
     * @param body empty for GET and DELETE
     * @throws Refusal `insufficient_scope`
     */
    async handle(
      request: IncomingMessage,
      response: ServerResponse,
      body: Buffer,
      exchange: McpCall<Caller>,
    ): Promise<void> {
      const { caller, principal, answerHeaders, onRefused } = exchange;
      const webRequest = toWebRequest(request, response);
      let sent: Sent | undefined;
      try {
        sent = await readCall(request, body, principal);
        if (sent !== undefined && isToolCall(sent.message)) await options.countCall?.(caller);
        const opened = await open(sent?.message, caller, webRequest.signal);
        webRequest.createServer = () => createServer(options, opened, exchange);
      } catch (error) {
        if (!(error instanceof McpRefused)) throw error;
        sendMcpRefusal(response, error, exchange);
        return;
      }
      const parsed = sent === undefined ? {} : { parsedBody: sent.envelope };
      const answer = await handler.fetch(webRequest, parsed);
      // Requests that the library refuses before it creates a server carry only a status.
      const reason = answer.status === 405 ? "method_not_allowed" : "bad_request";
      if (answer.status >= 400) onRefused(reason);
      const isWhole = sent !== undefined && isToolCall(sent.message);
      if (isWhole) await sendWhole(answer, response, answerHeaders);
      else await sendWebResponse(answer, response, answerHeaders);
    },
    close: (): Promise<void> => handler.close(),
  };
}
