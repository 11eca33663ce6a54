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
import { keepSpelling } from "../json/document.ts";
import { errorCode, type McpMessage, McpRefused, type MessageId, readMessage } from "./message.ts";
import { encodeHeaderValue } from "./protocol-headers.ts";

/** A tool argument that the server also requires as a header. */
interface HeaderDeclaration {
  /** Path of the value in the call's arguments. */
  readonly path: readonly string[];
  /** Header name after `Mcp-Param-`. */
  readonly header: string;
}

const annotation = "x-mcp-header";
/** A header name (RFC 9110, section 5.1). */
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const primitives: ReadonlySet<unknown> = new Set(["string", "integer", "boolean"]);
/** JSON Schema keywords whose values are data. */
const dataKeywords: ReadonlySet<string> = new Set(["const", "default", "enum", "examples"]);
/** JSON Schema keywords whose values map names to schemas. */
const namingKeywords: ReadonlySet<string> = new Set([
  ...["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"],
]);

function membersOf(value: unknown): Readonly<Record<string, unknown>> | undefined {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? { ...value } : undefined;
}

function declarationOf(
  schema: Readonly<Record<string, unknown>>,
  path: readonly string[] | undefined,
): HeaderDeclaration[] {
  if (!Object.hasOwn(schema, annotation)) return [];
  const header = schema[annotation];
  if (path === undefined || path.length === 0) {
    throw new Error(`${annotation} stands where no argument is`);
  }
  if (typeof header !== "string" || !token.test(header)) {
    throw new Error(`${annotation} of ${path.join(".")} is no name of a header`);
  }
  if (primitives.has(schema.type)) return [{ path, header }];
  throw new Error(`${annotation} of ${path.join(".")} is not on a string, integer or boolean`);
}

function visit(node: unknown, path: readonly string[] | undefined): HeaderDeclaration[] {
  if (Array.isArray(node)) return node.flatMap((element) => visit(element, undefined));
  const schema = membersOf(node);
  if (schema === undefined) return [];
  const below = Object.entries(schema).flatMap(([keyword, value]) => {
    if (keyword === annotation || dataKeywords.has(keyword)) return [];
    if (!namingKeywords.has(keyword)) return visit(value, undefined);
    return Object.entries(membersOf(value) ?? {}).flatMap(([name, member]) =>
      visit(member, keyword === "properties" && path !== undefined ? [...path, name] : undefined),
    );
  });
  return [...declarationOf(schema, path), ...below];
}

/**
 * The arguments that a tool's input schema declares as headers (MCP 2026-07-28, Streamable HTTP,
 * Custom Headers from Tool Parameters).
 *
 * @throws Error naming the rule that the schema breaks. Such a tool must not be called.
 */
export function readHeaderDeclarations(inputSchema: unknown): readonly HeaderDeclaration[] {
  const declarations = visit(inputSchema, []);
  const names = new Set(declarations.map(({ header }) => header.toLowerCase()));
  if (names.size < declarations.length) throw new Error(`two arguments share one ${annotation}`);
  return declarations;
}

const toolList = z.looseObject({
  tools: z.array(z.looseObject({ name: z.string(), inputSchema: z.unknown().optional() })),
  nextCursor: z.string().optional(),
});

function valueAt(value: unknown, path: readonly string[]): unknown {
  let found = value;
  for (const key of path) {
    const members = membersOf(found) ?? {};
    found = Object.hasOwn(members, key) ? members[key] : undefined;
  }
  return found;
}

/** The value as header text, undefined if headers cannot carry it. */
function headerText(value: unknown): string | undefined {
  if (typeof value === "string") return encodeHeaderValue(value);
  if (typeof value === "boolean") return String(value);
  if (typeof value !== "number") return undefined;
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? undefined : String(value);
}

/** Tracks which tool arguments are also sent as `Mcp-Param-*` headers, learned from tool lists. */
class ToolHeaders {
  readonly #declarations = new Map<string, readonly HeaderDeclaration[]>();
  readonly #leftOut = new Set<string>();
  readonly #onError: (error: unknown) => void;

  /** @param onError called once for each tool with invalid declarations */
  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  /**
   * Learns from a `tools/list` result.
   *
   * @returns the result without the tools that cannot be called over HTTP
   */
  learn(result: JSONRPCResultResponse["result"]): JSONRPCResultResponse["result"] {
    const { data } = toolList.safeParse(result);
    if (data === undefined) return result;
    const usable = data.tools.filter(({ name, inputSchema }) => this.#note(name, inputSchema));
    return usable.length === data.tools.length ? result : { ...result, tools: usable };
  }

  of({ method, name, protocolVersion, arguments: args }: McpMessage): Record<string, string> {
    const isCall = method === "tools/call" && protocolVersion !== undefined;
    const declared = isCall && args ? this.#declarations.get(name ?? "") : undefined;
    if (args === undefined || declared === undefined) return {};
    const values: unknown = JSON.parse(args.toString("utf8"));
    const entries = declared.flatMap(({ path, header }) => {
      const text = headerText(valueAt(values, path));
      return text === undefined ? [] : [[`Mcp-Param-${header}`, text] as const];
    });
    return Object.fromEntries(entries);
  }

  #note(name: string, inputSchema: unknown): boolean {
    try {
      this.#declarations.set(name, readHeaderDeclarations(inputSchema));
      return true;
    } catch (error) {
      this.#declarations.delete(name);
      const reason = error instanceof Error ? error.message : "its schema cannot be read";
      if (!this.#leftOut.has(name)) {
        this.#onError(new Error(`The tool ${name} is left out: ${reason}`));
      }
      this.#leftOut.add(name);
      return false;
    }
  }
}

/** Error of a JSON-RPC response (JSON-RPC 2.0, section 5.1). */
const rpcError = z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() });
type RpcError = z.infer<typeof rpcError>;

class GatewayRefused extends Error {
  override readonly name = "GatewayRefused";
  readonly status: number;
  readonly error: RpcError;

  constructor(status: number, body: string) {
    const error = readError(status, body);
    super(error.message);
    this.status = status;
    this.error = error;
  }
}

/** A 404 means a lost session, unless its error says that the method is unknown. */
function isSessionLost(error: unknown): boolean {
  if (!(error instanceof GatewayRefused) || error.status !== 404) return false;
  return error.error.code !== errorCode("methodNotFound");
}

export function isTokenRefused(error: unknown): boolean {
  return error instanceof GatewayRefused && error.status === 401;
}

function isHeaderMismatch(error: unknown): boolean {
  return error instanceof GatewayRefused && error.error.code === errorCode("headerMismatch");
}

const refusal = z.object({
  message: z.string(),
  code: z.string(),
  request_id: z.string().optional(),
});

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function readError(status: number, body: string): RpcError {
  const answer = parsed(body);
  const inProtocol = z.object({ error: rpcError }).safeParse(answer);
  if (inProtocol.success) return inProtocol.data.error;
  const { data } = refusal.safeParse(answer);
  if (data === undefined) {
    const message = `The gateway answered with the HTTP status ${status}`;
    return { code: errorCode("internalError"), message, data: { status } };
  }
  const { message, ...others } = data;
  return { code: errorCode("internalError"), message, data: { status, ...others } };
}

function systemCode(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  return "code" in error ? String(error.code) : systemCode(error.cause);
}

/** Converts any failure of a request to `url` to a JSON-RPC error. */
export function rpcErrorOf(error: unknown, url: URL): RpcError {
  if (error instanceof GatewayRefused) return error.error;
  const code = errorCode("internalError");
  // fetch throws a TypeError if no response came. The cause holds the reason.
  if (error instanceof TypeError) {
    const reason = systemCode(error) ?? "no connection";
    return { code, message: `${url} cannot be reached (${reason})` };
  }
  return { code, message: error instanceof Error ? error.message : "unknown error" };
}

const CONNECT_TIMEOUT_MS = 10_000;

/**
 * Removes the response timeouts of every `fetch` in this process. Calls may take any time and
 * streams may be silent, because the client decides when to give up.
 */
export function allowSilence(): void {
  const connect = { timeout: CONNECT_TIMEOUT_MS };
  setGlobalDispatcher(new Agent({ connect, headersTimeout: 0, bodyTimeout: 0 }));
}

/** True for a 405 to a GET or DELETE, which servers may leave unsupported. */
function isOptional(status: number, method: string | undefined): boolean {
  return status === 405 && method !== "POST";
}

/**
 * `fetch` for the library's transport, which would hide the text of an error.
 *
 * @throws GatewayRefused for every HTTP error except a 405 from a server without streams or
 * sessions
 * @throws TypeError if no response came
 */
async function fetchFromGateway(url: string | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  if (response.status < 400 || isOptional(response.status, init?.method)) return response;
  throw new GatewayRefused(response.status, await response.text());
}

function isMendable(error: unknown): boolean {
  return isSessionLost(error) || isHeaderMismatch(error);
}

/** Milliseconds for ending the session, so that closing stays prompt. */
const GOODBYE_MS = 1000;
/** Milliseconds to wait for the last responses after the input ends. */
const LAST_ANSWERS_MS = 5000;

/** Pages of the list of tools that are read for their headers. */
const MOST_PAGES = 64;
const unlimited = new AbortController().signal;

interface BridgeOptions {
  readonly url: URL;
  readonly token: string;
  /** Receives each message for the client as one line of JSON, without a line break. */
  readonly write: (line: string) => void;
  readonly onError: (error: unknown) => void;
}

interface Pending {
  /** True from 2026-07-28 on, where closing the connection cancels a request. */
  readonly isStateless: boolean;
  readonly abort: AbortController;
}

/**
 * Connects a stdio client to a gateway that speaks Streamable HTTP, in every protocol revision.
 * Every request gets a response, if only an error.
 */
export class StdioBridge {
  readonly #options: BridgeOptions;
  readonly #transport: StreamableHTTPClientTransport;
  readonly #toolHeaders: ToolHeaders;
  /** Requests that the client has not cancelled. */
  readonly #pending = new Map<MessageId, Pending>();
  /** Requests to the gateway, the bridge's own included. */
  readonly #waiting = new Map<MessageId, (answer: JSONRPCResponse) => void>();
  #handshake: JSONRPCRequest | undefined;
  #renewal: Promise<void> | undefined;
  /** Resolves when all messages that must keep their order were sent. */
  #sent = Promise.resolve();
  #answered = Promise.resolve();

  constructor(options: BridgeOptions) {
    this.#options = options;
    this.#transport = new StreamableHTTPClientTransport(options.url, {
      fetch: fetchFromGateway,
      requestInit: { headers: { Authorization: `Bearer ${options.token}` } },
    });
    this.#toolHeaders = new ToolHeaders(options.onError);
    this.#transport.onmessage = (message) => {
      const isAnswer = isJSONRPCResponse(message);
      const settle = isAnswer && message.id !== undefined && this.#waiting.get(message.id);
      if (isAnswer && settle) settle(message);
      else this.#write(message);
    };
    this.#transport.onerror = (error) => {
      // The request is retried after these errors. Only a failed retry is reported.
      if (!isMendable(error)) options.onError(error);
    };
  }

  /** Must be called once, before anything else. */
  async start(): Promise<void> {
    await this.#transport.start();
  }

  /**
   * Handles input lines until they end, then waits up to `LAST_ANSWERS_MS` for the last responses.
   */
  async takeAll(input: AsyncIterable<Buffer>): Promise<void> {
    for await (const line of readLines(input)) {
      if (line.toString("latin1").trim() !== "") this.take(line);
    }
    await Promise.race([this.#sent.then(() => this.#answered), delay(LAST_ANSWERS_MS)]);
  }

  /**
   * Handles one input line. Lines are sent in order, each after the gateway has accepted the
   * previous one. Requests do not wait for earlier responses.
   */
  take(line: Buffer): void {
    this.#sent = this.#sent.then(() => this.#pass(line));
  }

  /** Drops pending requests and ends the session, if there is one. */
  async close(): Promise<void> {
    this.#pending.clear();
    this.#transport.onmessage = () => {};
    this.#transport.onerror = () => {};
    const limit = setTimeout(() => void this.#transport.close(), GOODBYE_MS);
    // An unreachable gateway has no session to end.
    await this.#transport.terminateSession().catch(() => {});
    clearTimeout(limit);
    await this.#transport.close();
  }

  async #pass(line: Buffer): Promise<void> {
    try {
      const { read, message } = readLine(line);
      const cancelled = cancelledId(message);
      if (isJSONRPCRequest(message)) {
        const asked = this.#ask(message, read);
        this.#answered = this.#answered.then(() => asked);
      } else if (cancelled === undefined || !this.#hangUp(cancelled)) await this.#tell(message);
    } catch (error) {
      if (!(error instanceof McpRefused)) throw error;
      const { id = null, rpcCode: code, message } = error;
      this.#write({ jsonrpc: "2.0", id, error: { code, message } });
    }
  }

  /** Forwards a request and writes its response, unless the client has cancelled it. */
  async #ask(request: JSONRPCRequest, read: McpMessage): Promise<void> {
    const { id } = request;
    const pending = {
      isStateless: read.protocolVersion !== undefined,
      abort: new AbortController(),
    };
    this.#pending.set(id, pending);
    const isWanted = () => this.#pending.get(id) === pending;
    try {
      const answer = await this.#request(request, read, pending.abort.signal);
      if (isWanted()) this.#write(answer);
    } catch (error) {
      if (!isWanted()) return;
      if (isMendable(error)) this.#options.onError(error);
      this.#write({ jsonrpc: "2.0", id, error: rpcErrorOf(error, this.#options.url) });
    } finally {
      if (isWanted()) this.#pending.delete(id);
    }
  }

  /**
   * Sends a request and returns its response. Retries once if the session was lost or headers were
   * missing that only the tool list declares. In both cases the gateway has not executed the
   * request.
   *
   * @param signal aborts the request, which cancels it from 2026-07-28 on
   * @throws GatewayRefused for an HTTP error
   * @throws Error if no response came, or an incomplete one
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
      if (isSessionLost(error) && sessionId !== undefined && read.method !== "initialize") {
        await this.#renewSession(sessionId);
      } else if (isHeaderMismatch(error) && read.method === "tools/call") {
        await this.#learnTools(request, signal);
      } else {
        throw error;
      }
      return await send();
    }
  }

  async #send(
    request: JSONRPCRequest,
    signal: AbortSignal,
    headers: Record<string, string> = {},
  ): Promise<JSONRPCResponse> {
    const { promise, resolve, reject } = Promise.withResolvers<JSONRPCResponse>();
    const giveUp = () => reject(new Error("The request was given up"));
    const onRequestStreamEnd = () => reject(new Error("The answer broke off"));
    signal.addEventListener("abort", giveUp, { once: true });
    this.#waiting.set(request.id, resolve);
    const options = { requestSignal: signal, onRequestStreamEnd, headers };
    this.#transport.send(request, options).catch(reject);
    try {
      return await promise;
    } finally {
      signal.removeEventListener("abort", giveUp);
      if (this.#waiting.get(request.id) === resolve) this.#waiting.delete(request.id);
    }
  }

  /** Learns from the list of tools, asked for with the `_meta` of a call: client and version. */
  async #learnTools({ params }: JSONRPCRequest, signal: AbortSignal): Promise<void> {
    const { progressToken: _, ..._meta } = params?._meta ?? {};
    let place = {};
    for (let page = 0; page < MOST_PAGES; page++) {
      const list = { jsonrpc: "2.0", id: randomUUID(), method: "tools/list" } as const;
      const answer = await this.#send({ ...list, params: { ...place, _meta } }, signal);
      if (!isJSONRPCResultResponse(answer)) return;
      this.#toolHeaders.learn(answer.result);
      const cursor = toolList.safeParse(answer.result).data?.nextCursor;
      if (cursor === undefined) return;
      place = { cursor };
    }
  }

  #learn(request: JSONRPCRequest, read: McpMessage, answer: JSONRPCResponse): JSONRPCResponse {
    if (!isJSONRPCResultResponse(answer)) return answer;
    if (read.method === "initialize") {
      const { protocolVersion } = answer.result;
      if (typeof protocolVersion !== "string") return answer;
      this.#handshake = request;
      this.#transport.setProtocolVersion(protocolVersion);
    }
    const isToolList = read.method === "tools/list" && read.protocolVersion !== undefined;
    return isToolList ? { ...answer, result: this.#toolHeaders.learn(answer.result) } : answer;
  }

  /**
   * Replaces a lost session, once for all requests that lost it. A stdio client of a revision
   * before 2026-07-28 does not know about sessions.
   */
  async #renewSession(lost: string): Promise<void> {
    if (this.#transport.sessionId !== lost) return;
    this.#renewal ??= this.#shakeHands().finally(() => {
      this.#renewal = undefined;
    });
    await this.#renewal;
  }

  async #shakeHands(): Promise<void> {
    if (this.#handshake === undefined) throw new Error("The session is lost");
    const answer = await this.#send({ ...this.#handshake, id: randomUUID() }, unlimited);
    if (!isJSONRPCResultResponse(answer)) throw new Error(answer.error.message);
    const { protocolVersion } = answer.result;
    if (typeof protocolVersion === "string") this.#transport.setProtocolVersion(protocolVersion);
    await this.#transport.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  }

  async #tell(message: JSONRPCMessage): Promise<void> {
    try {
      await this.#transport.send(message);
    } catch (error) {
      // The transport itself has reported all other errors.
      if (isMendable(error)) this.#options.onError(error);
    }
  }

  /** Cancels a request. False if the client's own message must be forwarded. */
  #hangUp(id: MessageId): boolean {
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

const NEWLINE = 0x0a;

/**
 * Splits a byte stream into lines (MCP, stdio transport). Only a line feed ends a line: other
 * Unicode line separators may stand in a JSON string. An incomplete last line is dropped.
 */
async function* readLines(input: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let begun: Buffer[] = [];
  for await (const chunk of input) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      yield Buffer.concat([...begun, chunk.subarray(start, end)]);
      begun = [];
      start = end + 1;
    }
    if (start < chunk.length) begun.push(chunk.subarray(start));
  }
}

interface ReadLine {
  readonly read: McpMessage;
  readonly message: JSONRPCMessage;
}

/** Applies the gateway's own rules. @throws McpRefused */
function readLine(line: Buffer): ReadLine {
  const read = readMessage(line);
  const message: unknown = JSON.parse(line.toString("utf8"), keepSpelling);
  const isMessage =
    isJSONRPCRequest(message) || isJSONRPCNotification(message) || isJSONRPCResponse(message);
  if (isMessage) return { read, message };
  const problem = "Invalid request: it has not the shape of a message";
  throw new McpRefused("invalidRequest", problem, { id: read.id });
}

function cancelledId(message: JSONRPCMessage): MessageId | undefined {
  if (!("method" in message) || message.method !== "notifications/cancelled") return undefined;
  const id = message.params?.requestId;
  return typeof id === "string" || typeof id === "number" ? id : undefined;
}
