import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  type JSONRPCRequest,
  type JSONRPCResponse,
  type JSONRPCResultResponse,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { Agent, setGlobalDispatcher } from "undici";
import { z } from "zod";
import { errorMessage, systemCode } from "../../core/base/client-error.ts";
import { readLines } from "../../core/base/read-stream.ts";
import { isObject, type JsonObject, parseIfJson, parseUnrounded } from "../../core/json/exact.ts";
import {
  encodeHeaderValue,
  errorCode,
  type McpMessage,
  McpRefused,
  type MessageId,
  readMessage,
} from "./message.ts";

/** A tool argument that the server also requires as the header `Mcp-Param-<header>`. */
interface HeaderDeclaration {
  readonly path: readonly string[];
  readonly header: string;
}

const annotation = "x-mcp-header";
/** A header name (RFC 9110, section 5.1). */
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const primitives: ReadonlySet<unknown> = new Set(["string", "integer", "boolean"]);
const dataKeywords: ReadonlySet<string> = new Set(["const", "default", "enum", "examples"]);
const namingKeywords: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "dependentSchemas",
  "$defs",
  "definitions",
]);

function readDeclaration(
  schema: JsonObject,
  path: readonly string[] | undefined,
): HeaderDeclaration {
  const header = schema[annotation];
  if (path === undefined || path.length === 0) {
    throw new Error(`${annotation} is not on an argument`);
  }
  if (typeof header !== "string" || !token.test(header)) {
    throw new Error(`${annotation} of ${path.join(".")} is not a valid header name`);
  }
  if (primitives.has(schema.type)) return { path, header };
  throw new Error(`${annotation} of ${path.join(".")} is not on a string, integer or boolean`);
}

/**
 * The arguments that a tool declares as headers (MCP 2026-07-28, Streamable HTTP, Custom Headers
 * from Tool Parameters). @throws Error for an invalid declaration: such a tool must not be called
 */
export function readHeaderDeclarations(inputSchema: unknown): readonly HeaderDeclaration[] {
  const declarations: HeaderDeclaration[] = [];
  const visit = (node: unknown, path?: readonly string[]): void => {
    if (Array.isArray(node)) for (const element of node) visit(element);
    if (!isObject(node)) return;
    if (Object.hasOwn(node, annotation)) declarations.push(readDeclaration(node, path));
    for (const [keyword, value] of Object.entries(node)) {
      if (keyword === annotation || dataKeywords.has(keyword)) continue;
      if (!namingKeywords.has(keyword)) visit(value);
      else if (isObject(value)) {
        const isPath = keyword === "properties" && path !== undefined;
        for (const [name, member] of Object.entries(value)) {
          visit(member, isPath ? [...path, name] : undefined);
        }
      }
    }
  };
  visit(inputSchema, []);
  const names = new Set(declarations.map(({ header }) => header.toLowerCase()));
  if (names.size < declarations.length) throw new Error(`two arguments share an ${annotation}`);
  return declarations;
}

const toolList = z.looseObject({
  tools: z.array(z.looseObject({ name: z.string(), inputSchema: z.unknown().optional() })),
  nextCursor: z.string().optional(),
});

/** The argument as header text. Undefined if no header can carry it. */
function headerTextAt(args: unknown, path: readonly string[]): string | undefined {
  let value = args;
  for (const key of path) {
    value = isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
  }
  if (typeof value === "string") return encodeHeaderValue(value);
  if (typeof value === "boolean") return String(value);
  if (typeof value !== "number") return undefined;
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? undefined : String(value);
}

/** Learns from tool lists which arguments are also sent as `Mcp-Param-*` headers. */
function trackToolHeaders(onError: (error: unknown) => void) {
  const declarations = new Map<string, readonly HeaderDeclaration[]>();
  const reported = new Set<string>();

  function isUsable({ name, inputSchema }: { name: string; inputSchema?: unknown }): boolean {
    try {
      declarations.set(name, readHeaderDeclarations(inputSchema));
      return true;
    } catch (error) {
      declarations.delete(name);
      const reason = error instanceof Error ? error.message : "unreadable schema";
      if (!reported.has(name)) onError(new Error(`The tool ${name} is unavailable: ${reason}`));
      reported.add(name);
      return false;
    }
  }

  return {
    /** Returns the `tools/list` result without the tools that cannot be called over HTTP. */
    learn(result: JSONRPCResultResponse["result"]): JSONRPCResultResponse["result"] {
      const { tools = [] } = toolList.safeParse(result).data ?? {};
      const usable = tools.filter(isUsable);
      return usable.length === tools.length ? result : { ...result, tools: usable };
    },
    of({ method, name, protocolVersion, arguments: args }: McpMessage): Record<string, string> {
      const headers: Record<string, string> = {};
      if (method !== "tools/call" || protocolVersion === undefined) return headers;
      const declared = declarations.get(name ?? "");
      if (args === undefined || declared === undefined) return headers;
      const values: unknown = JSON.parse(args.toString("utf8"));
      for (const { path, header } of declared) {
        const text = headerTextAt(values, path);
        if (text !== undefined) headers[`Mcp-Param-${header}`] = text;
      }
      return headers;
    },
  };
}

const rpcError = z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() });
type RpcError = z.infer<typeof rpcError>;

class GatewayRefused extends Error {
  readonly status: number;
  readonly error: RpcError;

  constructor(status: number, body: string) {
    const error = readError(status, body);
    super(error.message);
    this.status = status;
    this.error = error;
  }

  /** A 404 means a lost session, unless its error says that the method is unknown. */
  get isSessionLost(): boolean {
    return this.status === 404 && this.error.code !== errorCode("methodNotFound");
  }

  get isHeaderMismatch(): boolean {
    return this.error.code === errorCode("headerMismatch");
  }
}

export function isTokenRefused(error: unknown): boolean {
  return error instanceof GatewayRefused && error.status === 401;
}

function isRetried(error: unknown): boolean {
  return error instanceof GatewayRefused && (error.isSessionLost || error.isHeaderMismatch);
}

const refusal = z.object({
  message: z.string(),
  code: z.string(),
  request_id: z.string().optional(),
});

function readError(status: number, body: string): RpcError {
  const answer = parseIfJson(body);
  const inProtocol = z.object({ error: rpcError }).safeParse(answer);
  if (inProtocol.success) return inProtocol.data.error;
  const unknown = { message: `The gateway returned HTTP status ${status}` };
  const { message, ...others } = refusal.safeParse(answer).data ?? unknown;
  return { code: errorCode("internalError"), message, data: { status, ...others } };
}

export function toRpcError(error: unknown, url: URL): RpcError {
  if (error instanceof GatewayRefused) return error.error;
  const code = errorCode("internalError");
  // fetch throws a TypeError if no response came. The cause holds the reason.
  if (error instanceof TypeError) {
    const reason = systemCode(error.cause) || errorMessage(error.cause);
    return { code, message: `Cannot connect to ${url} (${reason})` };
  }
  return { code, message: errorMessage(error) };
}

const CONNECT_TIMEOUT_MS = 10_000;

/** Removes response timeouts. The client decides how long it waits for calls and silent streams. */
export function removeResponseTimeouts(): void {
  const connect = { timeout: CONNECT_TIMEOUT_MS };
  setGlobalDispatcher(new Agent({ connect, headersTimeout: 0, bodyTimeout: 0 }));
}

/** Keeps the text of an error, which the library's transport would hide. @throws GatewayRefused */
async function fetchFromGateway(url: string | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  // GET and DELETE are optional for servers.
  const isOptional = response.status === 405 && init?.method !== "POST";
  if (response.status < 400 || isOptional) return response;
  throw new GatewayRefused(response.status, await response.text());
}

const CLOSE_TIMEOUT_MS = 1000;
const LAST_RESPONSES_TIMEOUT_MS = 5000;

const MAX_LIST_PAGES = 64;

interface BridgeOptions {
  readonly url: URL;
  readonly token: string;
  /** Receives one line of JSON, without a line break. */
  readonly write: (line: string) => void;
  readonly onError: (error: unknown) => void;
}

/** Connects a stdio client to a gateway. Every request gets a response, if only an error. */
export class StdioBridge {
  readonly #options: BridgeOptions;
  readonly #transport: StreamableHTTPClientTransport;
  readonly #toolHeaders: ReturnType<typeof trackToolHeaders>;
  /** The client's requests. From 2026-07-28 on, closing the connection cancels a request. */
  readonly #pending = new Map<MessageId, { isStateless: boolean; abort: AbortController }>();
  /** All requests to the gateway, including the bridge's own. */
  readonly #sentRequests = new Map<MessageId, (answer: JSONRPCResponse) => void>();
  #handshake: JSONRPCRequest | undefined;
  #renewal: Promise<void> | undefined;
  /** Resolves when every line has been sent. */
  #sent = Promise.resolve();
  /** Resolves when every request has been answered. */
  #answered = Promise.resolve();

  constructor(options: BridgeOptions) {
    this.#options = options;
    this.#transport = new StreamableHTTPClientTransport(options.url, {
      fetch: fetchFromGateway,
      requestInit: { headers: { Authorization: `Bearer ${options.token}` } },
    });
    this.#toolHeaders = trackToolHeaders(options.onError);
    this.#transport.onmessage = (message) => {
      const answer = isJSONRPCResponse(message) ? message : undefined;
      const resolve = answer?.id === undefined ? undefined : this.#sentRequests.get(answer.id);
      if (answer && resolve) resolve(answer);
      else this.#write(message);
    };
    this.#transport.onerror = (error) => {
      // These errors cause a retry. Only a failed retry is reported.
      if (!isRetried(error)) options.onError(error);
    };
  }

  start(): Promise<void> {
    return this.#transport.start();
  }

  /** Forwards all lines, then waits a short time for the last responses. */
  async forwardAll(input: AsyncIterable<Buffer>): Promise<void> {
    for await (const line of readLines(input)) {
      if (line.toString("latin1").trim() !== "") this.forward(line);
    }
    await Promise.race([this.#sent.then(() => this.#answered), delay(LAST_RESPONSES_TIMEOUT_MS)]);
  }

  /** Sends lines in order. Does not wait for responses to requests. */
  forward(line: Buffer): void {
    this.#sent = this.#sent.then(() => this.#forwardLine(line));
  }

  async close(): Promise<void> {
    this.#pending.clear();
    this.#transport.onmessage = () => {};
    this.#transport.onerror = () => {};
    const limit = setTimeout(() => void this.#transport.close(), CLOSE_TIMEOUT_MS);
    // An unreachable gateway has no session to end.
    await this.#transport.terminateSession().catch(() => {});
    clearTimeout(limit);
    await this.#transport.close();
  }

  async #forwardLine(line: Buffer): Promise<void> {
    try {
      const { read, message } = await readLine(line);
      const cancelled = cancelledId(message);
      if (isJSONRPCRequest(message)) {
        const answered = this.#answer(message, read);
        this.#answered = this.#answered.then(() => answered);
      } else if (cancelled === undefined || !this.#cancel(cancelled)) await this.#notify(message);
    } catch (error) {
      if (!(error instanceof McpRefused)) throw error;
      const { id = null, rpcCode: code, message } = error;
      this.#write({ jsonrpc: "2.0", id, error: { code, message } });
    }
  }

  async #answer(request: JSONRPCRequest, read: McpMessage): Promise<void> {
    const { id } = request;
    const pending = {
      isStateless: read.protocolVersion !== undefined,
      abort: new AbortController(),
    };
    this.#pending.set(id, pending);
    const isPending = () => this.#pending.get(id) === pending;
    try {
      const answer = await this.#request(request, read, pending.abort.signal);
      if (isPending()) this.#write(answer);
    } catch (error) {
      if (!isPending()) return;
      if (isRetried(error)) this.#options.onError(error);
      this.#write({ jsonrpc: "2.0", id, error: toRpcError(error, this.#options.url) });
    } finally {
      if (isPending()) this.#pending.delete(id);
    }
  }

  /**
   * Sends a request. Retries once if the session was lost, or if headers were missing that the tool
   * list declares. In both cases the gateway has not executed the request.
   */
  async #request(
    request: JSONRPCRequest,
    read: McpMessage,
    signal: AbortSignal,
  ): Promise<JSONRPCResponse> {
    const { sessionId } = this.#transport;
    const send = async () => {
      const answer = await this.#send(request, signal, this.#toolHeaders.of(read));
      return this.#learn(request, read, answer);
    };
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof GatewayRefused)) throw error;
      if (error.isSessionLost && sessionId !== undefined && read.method !== "initialize") {
        await this.#renewSession(sessionId);
      } else if (error.isHeaderMismatch && read.method === "tools/call") {
        await this.#learnTools(request, signal);
      } else throw error;
      return await send();
    }
  }

  async #send(
    request: JSONRPCRequest,
    signal: AbortSignal,
    headers: Record<string, string> = {},
  ): Promise<JSONRPCResponse> {
    const { promise, resolve, reject } = Promise.withResolvers<JSONRPCResponse>();
    const cancel = () => reject(new Error("The request was cancelled"));
    const onRequestStreamEnd = () => reject(new Error("The response is incomplete"));
    signal.addEventListener("abort", cancel, { once: true });
    this.#sentRequests.set(request.id, resolve);
    const options = { requestSignal: signal, onRequestStreamEnd, headers };
    this.#transport.send(request, options).catch(reject);
    try {
      return await promise;
    } finally {
      signal.removeEventListener("abort", cancel);
      if (this.#sentRequests.get(request.id) === resolve) this.#sentRequests.delete(request.id);
    }
  }

  /** Reads the tool list with the call's `_meta`, which names client and version. */
  async #learnTools({ params }: JSONRPCRequest, signal: AbortSignal): Promise<void> {
    const { progressToken: _, ..._meta } = params?._meta ?? {};
    let position = {};
    for (let page = 0; page < MAX_LIST_PAGES; page++) {
      const list = { jsonrpc: "2.0", id: randomUUID(), method: "tools/list" } as const;
      const answer = await this.#send({ ...list, params: { ...position, _meta } }, signal);
      if (!isJSONRPCResultResponse(answer)) return;
      this.#toolHeaders.learn(answer.result);
      const cursor = toolList.safeParse(answer.result).data?.nextCursor;
      if (cursor === undefined) return;
      position = { cursor };
    }
  }

  #learn(request: JSONRPCRequest, read: McpMessage, answer: JSONRPCResponse): JSONRPCResponse {
    if (!isJSONRPCResultResponse(answer)) return answer;
    if (read.method === "initialize" && this.#noteVersion(answer)) this.#handshake = request;
    const isToolList = read.method === "tools/list" && read.protocolVersion !== undefined;
    return isToolList ? { ...answer, result: this.#toolHeaders.learn(answer.result) } : answer;
  }

  #noteVersion({ result: { protocolVersion } }: JSONRPCResultResponse): boolean {
    if (typeof protocolVersion !== "string") return false;
    this.#transport.setProtocolVersion(protocolVersion);
    return true;
  }

  /** Runs once for all requests that lost the session. Stdio clients know nothing of sessions. */
  async #renewSession(lost: string): Promise<void> {
    if (this.#transport.sessionId !== lost) return;
    this.#renewal ??= this.#repeatHandshake().finally(() => {
      this.#renewal = undefined;
    });
    await this.#renewal;
  }

  async #repeatHandshake(): Promise<void> {
    if (this.#handshake === undefined) throw new Error("The session is lost");
    const unlimited = new AbortController().signal;
    const answer = await this.#send({ ...this.#handshake, id: randomUUID() }, unlimited);
    if (!isJSONRPCResultResponse(answer)) throw new Error(answer.error.message);
    this.#noteVersion(answer);
    await this.#transport.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  }

  async #notify(message: JSONRPCMessage): Promise<void> {
    try {
      await this.#transport.send(message);
    } catch (error) {
      // The transport has reported all other errors itself.
      if (isRetried(error)) this.#options.onError(error);
    }
  }

  /** Returns false if the client's notification must be forwarded. */
  #cancel(id: MessageId): boolean {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (pending?.isStateless !== true) return false;
    pending.abort.abort();
    return true;
  }

  #write(message: object): void {
    this.#options.write(JSON.stringify(message));
  }
}

async function readLine(line: Buffer): Promise<{ read: McpMessage; message: JSONRPCMessage }> {
  const read = await readMessage(line);
  const message: unknown = parseUnrounded(line.toString("utf8"));
  const isMessage =
    isJSONRPCRequest(message) || isJSONRPCNotification(message) || isJSONRPCResponse(message);
  if (isMessage) return { read, message };
  throw new McpRefused("invalidRequest", "Invalid request: not a message", { id: read.id });
}

function cancelledId(message: JSONRPCMessage): MessageId | undefined {
  if (!("method" in message) || message.method !== "notifications/cancelled") return undefined;
  const id = message.params?.requestId;
  return typeof id === "string" || typeof id === "number" ? id : undefined;
}
