import type { IncomingMessage, ServerResponse } from "node:http";
import { finished } from "node:stream/promises";
import {
  createMcpHandler,
  type JSONRPCMessage,
  type ListResourcesResult,
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceTemplate,
} from "@modelcontextprotocol/server";
import { quoteName } from "../json/fault.ts";
import { isPlainName } from "../query/names.ts";
import { Refusal } from "../refusal.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";
import type { Principal } from "./authenticate.ts";
import {
  type Answering,
  errorCode,
  type McpMessage,
  McpRefused,
  readMessageInSlices,
  reasonOf,
  requireMethod,
  sendMcpRefusal,
  setHeaders,
} from "./message.ts";
import { judgeHeaders } from "./protocol-headers.ts";
import { withApproval } from "./tool-definitions.ts";
import { registerTool, type Tool, type ToolContext, toolsOf } from "./tools.ts";

/** Tables listed in one response. Clients reach the others through the resource template. */
const LARGEST_LIST = 1000;
const scheme = "gatehouse:///";
const mimeType = "application/json";

function registerResources<Caller>(
  server: McpServer,
  schema: SchemaSource<Caller>,
  caller: Caller,
): void {
  const template = new ResourceTemplate(`${scheme}{database}/{table}`, {
    async list({ mcpReq: { signal } }) {
      const resources: ListResourcesResult["resources"] = [];
      for (const database of await schema.listDatabases(caller, signal)) {
        for (const table of await schema.listTables(caller, database, signal)) {
          const name = `${database}/${table}`;
          resources.push({ uri: `${scheme}${name}`, name, mimeType });
          if (resources.length === LARGEST_LIST) return { resources };
        }
      }
      return { resources };
    },
  });
  const description = "The columns of a table with their declared types.";
  const settings = { title: "Table schema", description, mimeType };
  server.registerResource("table", template, settings, async (url, _names, { mcpReq }) => {
    const uri = url.href;
    const [database = "", table = "", ...more] = uri.slice(scheme.length).split("/");
    const isTable = [database, table].every(isPlainName) && more.length === 0;
    try {
      if (!isTable) throw new Refusal("schema_not_found");
      const described = await schema.describeTable(caller, database, table, mcpReq.signal);
      const text = JSON.stringify({ database, table, ...described });
      return { contents: [{ uri, mimeType, text }] };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { code, message } = error;
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, message, { uri, code });
    }
  });
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

/**
 * Sends a Fetch API response. Resolves when it is sent or aborted.
 *
 * @param answerHeaders added headers: names and values in turn. The decision is known only once the
 * library has answered.
 */
async function sendWebResponse(
  answer: Response,
  response: ServerResponse,
  answerHeaders: () => readonly string[],
): Promise<void> {
  try {
    const body = Buffer.from(await answer.arrayBuffer());
    if (response.destroyed) return;
    for (const [name, value] of answer.headers) response.setHeader(name, value);
    if (!response.hasHeader("cache-control")) response.setHeader("Cache-Control", "no-store");
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Content-Length", body.length);
    setHeaders(response, answerHeaders());
    response.writeHead(answer.status);
    response.end(body);
    await finished(response);
  } catch {
    // The client has disconnected. A partial response must not look complete.
    response.destroy();
  }
}

/** The reason code of an error or a failed call, undefined for all other messages. */
function failureIn(message: JSONRPCMessage): string | undefined {
  if ("error" in message) return reasonOf(message.error.code);
  const isFailedCall = "result" in message && message.result.isError === true;
  return isFailedCall ? reasonOf(errorCode("invalidParams")) : undefined;
}

/** Reports each error response of a server before it is sent. */
function reportFailures(server: McpServer, onFailure: (reason: string) => void): void {
  const connect = server.connect.bind(server);
  server.connect = (transport) => {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      const reason = failureIn(message);
      if (reason !== undefined) onFailure(reason);
      return send(message, options);
    };
    return connect(transport);
  };
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

function isNamed({ definition }: Pick<Tool<never>, "definition">, name: string | undefined) {
  return definition.name === name;
}

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
    return tools.filter((tool) => isNamed(tool, message.name));
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
): McpServer {
  const { message, hasSchema } = opened;
  const server = new McpServer(
    { name: "gatehouse", title: "Gatehouse", version: options.serverVersion },
    { capabilities: { tools: { listChanged: false } }, instructions, cacheHints },
  );
  reportFailures(server, onRefused);
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

  /** @throws McpRefused for a call of an unknown tool */
  async function open(
    message: McpMessage | undefined,
    caller: Caller,
    signal: AbortSignal,
  ): Promise<Opened<Caller>> {
    const tools = toolsNow();
    const isCall = message !== undefined && isToolCall(message);
    const called = isCall ? tools.find((tool) => isNamed(tool, message.name)) : undefined;
    const concernsSchema = isCall ? called?.isOfSchema === true : message !== undefined;
    // If availability is unknown, a later call for the schema fails with the reason.
    const hasSchema = concernsSchema && (await options.schema.isOffered(caller, signal)) !== false;
    const isKnown = called !== undefined && (hasSchema || called.isOfSchema !== true);
    if (isCall && message.name !== undefined && !isKnown) {
      const refusal = { status: 200, code: "unknown_tool", id: message.id };
      throw new McpRefused("invalidParams", `Unknown tool: ${quoteName(message.name)}`, refusal);
    }
    const available = hasSchema ? tools : tools.filter(({ isOfSchema }) => !isOfSchema);
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
      let parsed = {};
      try {
        let message: McpMessage | undefined;
        if (request.method === "POST") {
          message = await readMessageInSlices(body);
          requireMethod(message, principal, judgeHeaders(request.headers, message));
          parsed = { parsedBody: envelopeOf(body, message) };
          if (isToolCall(message)) await options.countCall?.(caller);
        }
        const opened = await open(message, caller, webRequest.signal);
        webRequest.createServer = () => createServer(options, opened, exchange);
      } catch (error) {
        if (!(error instanceof McpRefused)) throw error;
        sendMcpRefusal(response, error, exchange);
        return;
      }
      const answer = await handler.fetch(webRequest, parsed);
      // Requests that the library refuses before it creates a server carry only a status.
      const reason = answer.status === 405 ? "method_not_allowed" : "bad_request";
      if (answer.status >= 400) onRefused(reason);
      await sendWebResponse(answer, response, answerHeaders);
    },
    close: (): Promise<void> => handler.close(),
  };
}
