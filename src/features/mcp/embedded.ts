import type { IncomingMessage, ServerResponse } from "node:http";
import { finished } from "node:stream/promises";
import {
  createMcpHandler,
  type ListResourcesResult,
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceTemplate,
} from "@modelcontextprotocol/server";
import { version } from "../../core/base/product.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { commonHeaders } from "../../core/http/answer.ts";
import type { Exchange } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { countCall } from "../../core/http/query.ts";
import { quoteName } from "../../core/json/fault.ts";
import { isPlainName } from "../../core/query/names.ts";
import type { SchemaSource } from "../../core/upstream/schema-source.ts";
import { principalOf } from "./authenticate.ts";
import {
  answeringRefusals,
  checkHeaders,
  codeReason,
  errorCode,
  type McpMessage,
  McpRefused,
  readMessage,
  requireCallRate,
  requireMethod,
  setHeaders,
} from "./message.ts";
import { mayUse } from "./rights.ts";
import { withApproval } from "./tool-definitions.ts";
import { createTools, listTool, noteRefusal, registerTool } from "./tools.ts";

/** Tables listed in one response. Clients reach the others through the resource template. */
const MAX_LISTED_TABLES = 1000;
const scheme = "gatehouse:///";
const mimeType = "application/json";

function registerResources(
  server: McpServer,
  schema: SchemaSource<Exchange>,
  exchange: Exchange,
): void {
  const template = new ResourceTemplate(`${scheme}{database}/{table}`, {
    async list({ mcpReq: { signal } }) {
      const resources: ListResourcesResult["resources"] = [];
      for (const database of await schema.listDatabases(exchange, signal)) {
        const { tables } = await schema.listTables(exchange, database, signal).catch(noTables);
        for (const table of tables) {
          const name = `${database}/${table}`;
          resources.push({ uri: `${scheme}${name}`, name, mimeType });
          if (resources.length === MAX_LISTED_TABLES) return { resources };
        }
      }
      return { resources };
    },
  });
  const description = "Columns of a table, with their declared types.";
  const settings = { title: "Table schema", description, mimeType };
  server.registerResource("table", template, settings, async (url, _names, { mcpReq }) => {
    const uri = url.href;
    const [database = "", table = "", ...more] = uri.slice(scheme.length).split("/");
    const isTable = [database, table].every(isPlainName) && more.length === 0;
    try {
      if (!isTable) throw new Refusal("schema_not_found");
      const described = await schema.describeTable(exchange, database, table, mcpReq.signal);
      const text = JSON.stringify({ database, table, ...described });
      return { contents: [{ uri, mimeType, text }] };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { code, message } = error;
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, message, { uri, code });
    }
  });
}

/** Of a database that the list has and that cannot be opened. */
function noTables(error: unknown): { readonly tables: readonly string[] } {
  if (error instanceof Refusal && error.code === "schema_not_found") return { tables: [] };
  throw error;
}

const forwardedHeader = /^(?:accept|content-type|last-event-id|mcp-.*)$/;

class WebRequest extends Request {
  /** Creating the Fetch API's own copy costs more than the rest of a request. */
  override readonly signal: AbortSignal;

  constructor(url: string, init: RequestInit, signal: AbortSignal) {
    super(url, init);
    this.signal = signal;
  }
}

/** The request's signal aborts when the connection closes before the response is complete. */
export function toWebRequest(request: IncomingMessage, response: ServerResponse): WebRequest {
  const client = new AbortController();
  response.once("close", () => response.writableFinished || client.abort());
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (forwardedHeader.test(name) && value !== undefined) headers.set(name, String(value));
  }
  const { method = "" } = request;
  // The library does not use the URL.
  return new WebRequest("http://localhost/mcp", { method, headers }, client.signal);
}

async function sendWebResponse(answer: Response, exchange: Exchange): Promise<void> {
  const { response } = exchange;
  try {
    const body = Buffer.from(await answer.arrayBuffer());
    if (response.destroyed) return;
    for (const [name, value] of answer.headers) {
      // Whether the connection is kept is between the client and the HTTP server.
      if (name !== "connection") response.setHeader(name, value);
    }
    if (!response.hasHeader("cache-control")) response.setHeader("Cache-Control", "no-store");
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Content-Length", body.length);
    setHeaders(response, commonHeaders(exchange));
    response.writeHead(answer.status);
    response.end(body);
    await finished(response);
  } catch {
    // The client has disconnected. A partial response must not look complete.
    response.destroy();
  }
}

function reportFailures(server: McpServer, onFailure: (reason: string) => void): void {
  const connect = server.connect.bind(server);
  // Named first, or V8 keeps the request for long (upstream/answer-stream.ts).
  const connectWatched: typeof connect = (transport) => {
    const send = transport.send.bind(transport);
    const sendWatched: typeof send = (message, options) => {
      if ("error" in message) onFailure(codeReason(message.error.code));
      else if ("result" in message && message.result.isError === true) {
        onFailure(codeReason(errorCode("invalidParams")));
      }
      return send(message, options);
    };
    transport.send = sendWatched;
    return connect(transport);
  };
  server.connect = connectWatched;
}

/** For a message without the tool's arguments. */
const MAX_ENVELOPE_BYTES = 16 * 1024;

/** Shared caches must not keep what depends on the caller's grants. */
const perCaller = { ttlMs: 0, cacheScope: "private" } as const;
const cacheHints = {
  "tools/list": perCaller,
  "prompts/list": perCaller,
  "resources/list": perCaller,
  "resources/templates/list": perCaller,
  "resources/read": perCaller,
  "server/discover": perCaller,
};

const instructions =
  "Tools and resources of a database, with access control. Each call is limited by the caller's " +
  "role on the database that it names. A denied call names the rule that denied it; retrying " +
  "does not help.";

function isToolCall({ kind, method }: McpMessage): boolean {
  return kind === "request" && method === "tools/call";
}

/**
 * The message for the MCP library, without a tool's arguments. The library would process those
 * without a pause, and only the query parser judges them. @throws McpRefused if the rest is too large
 */
function parseEnvelope(body: Buffer, message: McpMessage): unknown {
  const args = isToolCall(message) ? message.arguments : undefined;
  const at = args === undefined ? body.length : args.byteOffset - body.byteOffset;
  const rest = body.subarray(at + (args?.length ?? 0));
  const noArguments = Buffer.from(args === undefined ? "" : "{}");
  const length = at + noArguments.length + rest.length;
  if (length <= MAX_ENVELOPE_BYTES) {
    return JSON.parse(Buffer.concat([body.subarray(0, at), noArguments, rest]).toString("utf8"));
  }
  const problem = `the message without tool arguments has ${length} bytes; allowed: ${MAX_ENVELOPE_BYTES}`;
  throw new McpRefused("invalidRequest", `Invalid request: ${problem}`, { id: message.id });
}

/** The gateway's own MCP server: database operations as tools, without sessions. */
export function createEmbeddedMcp(gateway: Gateway, schema: SchemaSource<Exchange>) {
  const currentTools = createTools(gateway, schema);

  /** The server for one request. @throws McpRefused for a call of an unknown tool */
  async function createServer(
    message: McpMessage | undefined,
    exchange: Exchange,
    signal: AbortSignal,
  ): Promise<McpServer> {
    const tools = currentTools();
    const isCall = message !== undefined && isToolCall(message);
    const called = tools.find(({ definition }) => isCall && definition.name === message.name);
    const concernsSchema = isCall ? called?.isOfSchema === true : message !== undefined;
    // If availability is unknown, a later call for the schema fails with the reason.
    const hasSchema = concernsSchema && (await schema.isOffered(exchange, signal)) !== false;
    const isKnown = called !== undefined && (hasSchema || called.isOfSchema !== true);
    if (isCall && message.name !== undefined && !isKnown) {
      const refusal = { status: 200, code: "unknown_tool", id: message.id };
      throw new McpRefused("invalidParams", `Unknown tool: ${quoteName(message.name)}`, refusal);
    }

    /** Lists show only tools that the caller may use. */
    function listTools(server: McpServer): void {
      const mayWait = gateway.admission.mayWait(gateway, exchange);
      for (const { definition, isOfSchema, takesApproval } of tools) {
        const isUsable = definition.permissions.every((right) => mayUse(gateway, exchange, right));
        if ((isOfSchema && !hasSchema) || !isUsable) continue;
        listTool(server, mayWait && takesApproval ? withApproval(definition) : definition);
      }
    }

    const server = new McpServer(
      { name: "gatehouse", title: "Gatehouse", version },
      { capabilities: { tools: { listChanged: false } }, instructions, cacheHints },
    );
    reportFailures(server, (reason) => noteRefusal(exchange, reason));
    if (called !== undefined) {
      registerTool(server, called, exchange, gateway.log, message?.arguments);
    } else if (message?.method === "tools/list") listTools(server);
    if (hasSchema && !isCall) {
      server.server.registerCapabilities({ resources: { listChanged: false } });
      registerResources(server, schema, exchange);
    }
    return server;
  }

  async function handle(exchange: Exchange, body: Buffer | undefined): Promise<void> {
    const { request, response } = exchange;
    const webRequest = toWebRequest(request, response);
    let message: McpMessage | undefined;
    let parsed = {};
    if (body !== undefined) {
      message = await readMessage(body);
      const era = checkHeaders(request.headers, message);
      requireMethod(message, principalOf(exchange), era);
      parsed = { parsedBody: parseEnvelope(body, message) };
      if (isToolCall(message)) await requireCallRate(message, countCall(gateway, exchange));
    }
    const server = await createServer(message, exchange, webRequest.signal);
    const answer = await createMcpHandler(() => server).fetch(webRequest, parsed);
    // A request that the library refuses before it uses the server gets only a status.
    const reason = answer.status === 405 ? "method_not_allowed" : "bad_request";
    if (answer.status >= 400) noteRefusal(exchange, reason, answer.status);
    await sendWebResponse(answer, exchange);
  }

  return answeringRefusals(handle);
}
