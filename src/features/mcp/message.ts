import { isUtf8 } from "node:buffer";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { foldName } from "../../core/access/entries.ts";
import { ClientError } from "../../core/base/client-error.ts";
import { runCooperatively, type Steps } from "../../core/base/cooperative-scheduling.ts";
import { memoize } from "../../core/base/memoize.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { foldHeader } from "../../core/config/kinds.ts";
import { commonHeaders } from "../../core/http/answer.ts";
import type { Exchange } from "../../core/http/exchange.ts";
import type { JsonObject } from "../../core/json/exact.ts";
import { JsonFault } from "../../core/json/fault.ts";
import {
  beginsWith,
  readText,
  visitCheckedMembers,
  visitMembers,
} from "../../core/json/members.ts";
import { isPlainName } from "../../core/query/names.ts";
import type { McpScope } from "../oauth/server/protocol.ts";
import type { Principal } from "./authenticate.ts";

/** `stateless`: 2026-07-28 and later. Earlier revisions begin with a handshake. */
export type Era = "stateless" | "handshake";

const errors = {
  // JSON-RPC 2.0, section 5.1
  parseError: [-32700, "parse_error"],
  invalidRequest: [-32600, "invalid_request"],
  methodNotFound: [-32601, "method_not_found"],
  invalidParams: [-32602, "invalid_params"],
  internalError: [-32603, "internal_error"],
  sessionNotFound: [-32001, "session_not_found"],
  denied: [-32010, "denied"],
  tooManyStreams: [-32011, "too_many_streams"],
  // MCP 2026-07-28
  headerMismatch: [-32020, "header_mismatch"],
  unsupportedVersion: [-32022, "unsupported_version"],
} as const satisfies Record<string, readonly [code: number, reason: string]>;

type ErrorName = keyof typeof errors;

const reasons: ReadonlyMap<number, string> = new Map(Object.values(errors));

export function errorCode(name: ErrorName): number {
  return errors[name][0];
}

export function codeReason(code: number): string {
  return reasons.get(code) ?? "bad_request";
}

/** Numbers are integers up to 2^53 - 1. */
export type MessageId = string | number;

export class McpRefused extends ClientError {
  /** Stable code of the rule that refused the message. Default: the error's own code. */
  readonly code: string;
  readonly status: number;
  readonly rpcCode: number;
  /** Additional members of the error, safe to show to the client. */
  readonly data: JsonObject | undefined;
  readonly id: MessageId | undefined;
  /** Sent instead of a JSON-RPC error. */
  readonly result: JsonObject | undefined;

  constructor(
    error: ErrorName,
    message: string,
    options: {
      status?: number;
      code?: string;
      data?: JsonObject;
      id?: MessageId | undefined;
      result?: JsonObject;
    } = {},
  ) {
    super(message);
    const [rpcCode, code] = errors[error];
    this.rpcCode = rpcCode;
    this.code = options.code ?? code;
    this.status = options.status ?? 400;
    this.data = options.data;
    this.id = options.id;
    this.result = options.result;
  }
}

export function setHeaders(response: ServerResponse, headers: readonly string[]): void {
  for (let at = 0; at + 1 < headers.length; at += 2) {
    response.setHeader(headers[at] ?? "", headers[at + 1] ?? "");
  }
}

/**
 * Answers a refused message as JSON-RPC.
 *
 * @param handle gets no body for GET and DELETE. @throws any other error of `handle`
 */
export function answeringRefusals(
  handle: (exchange: Exchange, body: Buffer | undefined) => Promise<void>,
): typeof handle {
  return async (exchange, body) => {
    try {
      await handle(exchange, body);
    } catch (error) {
      if (!(error instanceof McpRefused)) throw error;
      sendRefusal(exchange, error);
    }
  };
}

/** The id is null if the request's id could not be read (JSON-RPC 2.0, section 5). */
function sendRefusal(exchange: Exchange, refused: McpRefused): void {
  const { response, verdict } = exchange;
  verdict.deny(refused.code, 400);
  if (response.headersSent || response.destroyed) return;
  const { id = null, rpcCode: code, message, data, status, result } = refused;
  const outcome = result === undefined ? { error: { code, message, data } } : { result };
  // An accepted notification has no response body, not even for a refusal.
  const hasBody = status !== 202;
  const bytes = Buffer.from(hasBody ? JSON.stringify({ jsonrpc: "2.0", id, ...outcome }) : "");
  setHeaders(response, commonHeaders(exchange));
  if (hasBody) response.setHeader("Content-Type", "application/json");
  response.setHeader("Content-Length", bytes.length);
  response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  response.writeHead(status);
  response.end(bytes);
}

const versionKey = "io.modelcontextprotocol/protocolVersion";

export interface McpMessage {
  readonly kind: "request" | "notification" | "response";
  readonly id: MessageId | undefined;
  readonly method: string;
  readonly name: string | undefined;
  /** The version in `params._meta`, undefined for clients before 2026-07-28. */
  readonly protocolVersion: string | undefined;
  readonly arguments: Buffer | undefined;
  /** Tasks and resources on which `subscriptions/listen` reports. */
  readonly taskIds?: readonly string[];
  readonly resourceSubscriptions?: readonly string[];
}

/** For a protocol string, such as a method or an id. */
const MAX_TEXT_BYTES = 8 * 1024;

const messageMembers = ["jsonrpc", "id", "method", "params", "result", "error"];
const guardedParams = ["name", "uri", "taskId", "arguments", "notifications", "_meta"];
const listsOfSubscription = ["taskIds", "resourceSubscriptions"];

const nameMembers: ReadonlyMap<string, string> = new Map([
  ...each(["tools/call", "prompts/get"], "name"),
  ...each(["resources/read", "resources/subscribe", "resources/unsubscribe"], "uri"),
  ...each(["tasks/get", "tasks/result", "tasks/update", "tasks/cancel"], "taskId"),
]);

function each<Value>(methods: readonly string[], value: Value) {
  return methods.map((method) => [method, value] as const);
}

function invalid(problem: string, id?: MessageId): McpRefused {
  return new McpRefused("invalidRequest", `Invalid request: ${problem}`, { id });
}

/** Servers may ignore case, or take `task_id` for `taskId`. */
const fold = memoize((key) => foldName(key).replaceAll("_", ""));

const MAX_KEY_BYTES = 256;

/** @throws McpRefused for a key that servers may take for a known one */
export function* readKnownMembers(
  value: Buffer | undefined,
  known: readonly string[],
  id?: MessageId,
): Steps<Map<string, Buffer>> {
  const members = new Map<string, Buffer>();
  if (value === undefined) return members;
  yield* visitCheckedMembers(value, (key, member) => {
    if (known.includes(key)) members.set(key, member);
    else if (key.length <= MAX_KEY_BYTES && known.some((one) => fold(one) === fold(key))) {
      throw invalid("a member differs from a protocol member only by its spelling", id);
    }
  });
  return members;
}

function requireShort(key: string, value: Buffer | undefined, id?: MessageId): void {
  if (value === undefined || value.length <= MAX_TEXT_BYTES) return;
  throw invalid(`${key} has ${value.length} bytes; allowed: ${MAX_TEXT_BYTES}`, id);
}

function readId(value: Buffer | undefined): MessageId | undefined {
  if (value === undefined) return undefined;
  requireShort("the id", value);
  const id: unknown = beginsWith(value, "{") ? undefined : JSON.parse(value.toString("utf8"));
  if (typeof id === "string") return id;
  if (typeof id === "number" && Number.isSafeInteger(id)) return id;
  throw invalid("the id is not a string or an integer");
}

function* readTop(body: Buffer): Steps<Map<string, Buffer>> {
  const top = new Map<string, Buffer>();
  try {
    yield* visitMembers(body, (key, value) => {
      if (!messageMembers.includes(key))
        throw invalid(`unknown member; allowed: ${messageMembers.join(", ")}`);
      top.set(key, value);
    });
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    if (error.isSyntax) throw new McpRefused("parseError", `Parse error: ${error.message}`);
    throw invalid(error.message);
  }
  return top;
}

function readObject(members: ReadonlyMap<string, Buffer>, key: string, id?: MessageId) {
  const value = members.get(key);
  if (value === undefined || beginsWith(value, "{")) return value;
  throw new McpRefused("invalidParams", `Invalid params: ${key} is not an object`, { id });
}

function readString(members: ReadonlyMap<string, Buffer>, key: string, id?: MessageId) {
  const value = members.get(key);
  if (value === undefined) return undefined;
  requireShort(key, value, id);
  const text = readText(value);
  if (text !== undefined) return text;
  throw new McpRefused("invalidParams", `Invalid params: ${key} is not a string`, { id });
}

function readTexts(members: ReadonlyMap<string, Buffer>, key: string, id?: MessageId): string[] {
  const list: unknown = JSON.parse(members.get(key)?.toString("utf8") ?? "[]");
  if (Array.isArray(list) && list.every((one) => typeof one === "string")) return list;
  throw new McpRefused("invalidParams", `Invalid params: ${key} is not a list of strings`, { id });
}

/** For a plain name in JSON, with every character escaped. */
const MAX_NAME_BYTES = 6 * 63 + 2;

/** The value as a database or table name, undefined if it is not a valid one. */
export function plainNameIn(value: Buffer | undefined): string | undefined {
  const name = value === undefined || value.length > MAX_NAME_BYTES ? undefined : readText(value);
  return name !== undefined && isPlainName(name) ? name : undefined;
}

function* messageIn(body: Buffer): Steps<McpMessage> {
  const top = yield* readTop(body);
  const id = readId(top.get("id"));
  const [jsonrpc, methodValue] = [top.get("jsonrpc"), top.get("method")];
  requireShort("jsonrpc", jsonrpc, id);
  requireShort("the method", methodValue, id);
  if (readText(jsonrpc) !== "2.0") throw invalid('jsonrpc is not "2.0"', id);
  if (top.has("result") || top.has("error")) {
    if (top.has("method") || top.has("params") || (top.has("result") && top.has("error"))) {
      throw invalid("it mixes members of a request and of a response", id);
    }
    const noParams = { name: undefined, protocolVersion: undefined, arguments: undefined };
    return { kind: "response", id, method: "", ...noParams };
  }
  const method = readText(methodValue);
  if (method === undefined) throw invalid("the method is missing or not a string", id);
  const kind = top.has("id") ? "request" : "notification";
  const params = yield* readKnownMembers(readObject(top, "params", id), guardedParams, id);
  const meta = yield* readKnownMembers(readObject(params, "_meta", id), [versionKey], id);
  const nameMember = nameMembers.get(method);
  const isSubscription = method === "subscriptions/listen";
  const filter = isSubscription ? readObject(params, "notifications", id) : undefined;
  const lists = yield* readKnownMembers(filter, listsOfSubscription, id);
  return {
    kind,
    id,
    method,
    name: nameMember === undefined ? undefined : readString(params, nameMember, id),
    protocolVersion: readString(meta, versionKey, id),
    arguments: readObject(params, "arguments", id),
    taskIds: readTexts(lists, "taskIds", id),
    resourceSubscriptions: readTexts(lists, "resourceSubscriptions", id),
  };
}

/**
 * Reads one JSON-RPC 2.0 message. The bytes must not change until it resolves.
 *
 * @throws McpRefused `parseError`, `invalidParams`, or `invalidRequest`, also for a body that two
 * parsers could read differently
 */
export function readMessage(body: Buffer): Promise<McpMessage> {
  return runCooperatively(messageIn(body));
}

const tools = ["tools/list", "tools/call"];
const tasks = ["tasks/get", "tasks/list", "tasks/result", "tasks/update", "tasks/cancel"];
const prompts = ["prompts/list", "prompts/get", "completion/complete"];
const resources = ["list", "templates/list", "read", "subscribe", "unsubscribe"];

/** The scope of each protocol method. Others are refused, because their effects are unknown. */
const scopes: ReadonlyMap<string, McpScope | undefined> = new Map([
  ...each(["initialize", "ping", "server/discover", "logging/setLevel"], undefined),
  ...each(["subscriptions/listen"], undefined),
  ...each([...tools, ...tasks], "mcp:tools" as const),
  ...each([...prompts, ...resources.map((name) => `resources/${name}`)], "mcp:resources" as const),
]);

const notifications: ReadonlySet<string> = new Set([
  "notifications/initialized",
  "notifications/cancelled",
  "notifications/progress",
  "notifications/roots/list_changed",
  "notifications/tasks/status",
]);

/** @throws McpRefused `methodNotFound`, or Refusal `insufficient_scope` */
export function requireMethod(message: McpMessage, principal: Principal, era: Era): void {
  const { kind, method, id, taskIds = [], resourceSubscriptions = [] } = message;
  if (kind === "response") return;
  const isKnown = kind === "request" ? scopes.has(method) : notifications.has(method);
  if (!isKnown) {
    // In revisions with sessions, a 404 would mean a lost session.
    const inSession = kind === "notification" ? 202 : 200;
    const status = era === "stateless" ? 404 : inSession;
    throw new McpRefused("methodNotFound", "Method not found", { status, id });
  }
  const needed = new Set([scopes.get(method)]);
  if (taskIds.length > 0) needed.add("mcp:tools");
  if (resourceSubscriptions.length > 0) needed.add("mcp:resources");
  needed.delete(undefined);
  if (needed.isSubsetOf(principal.scopes)) return;
  // Some clients request exactly what the challenge names and would lose their other scopes.
  const all = [...principal.scopes.union(needed)].sort().join(" ");
  throw new Refusal("insufficient_scope", { scope: all });
}

/**
 * Counts a tool call. An exceeded limit is a tool error, which models read and can wait for; some
 * clients end the session at a 429.
 *
 * @throws McpRefused `rate_limited`, or another Refusal of `count`
 */
export async function requireCallRate(
  { id, protocolVersion }: McpMessage,
  count: Promise<unknown> | undefined,
): Promise<void> {
  try {
    await count;
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "rate_limited") throw error;
    const text = `Failed: ${error.message} (${error.code})`;
    const version = protocolVersion === undefined ? {} : { resultType: "complete" };
    const result = { ...version, isError: true, content: [{ type: "text", text }] };
    throw new McpRefused("denied", text, { status: 200, code: error.code, id, result });
  }
}

/** Newest first. */
const protocolVersions = [
  "2026-07-28",
  "2025-11-25",
  "2025-06-18",
  "2025-03-26",
  "2024-11-05",
] as const;

/** The first revision without a handshake. Its headers mirror the body. */
const firstStateless = "2026-07-28";

/** Methods that require `Mcp-Name`. The task methods come from the tasks extension. */
const namedMethods: ReadonlySet<string> = new Set([
  "tools/call",
  "resources/read",
  "prompts/get",
  "tasks/get",
  "tasks/update",
  "tasks/cancel",
]);

const plainValue = /^[\t\x20-\x7e]*$/;
const encodedValue = /^=\?base64\?(?<base64>.*)\?=$/;

/**
 * Decodes plain text, or UTF-8 in base64 between `=?base64?` and `?=` (MCP 2026-07-28, Streamable
 * HTTP, Value Encoding). Undefined if it is malformed.
 */
export function decodeHeaderValue(value: string): string | undefined {
  if (!plainValue.test(value)) return undefined;
  const base64 = encodedValue.exec(value)?.groups?.base64;
  if (base64 === undefined) return value;
  const bytes = Buffer.from(base64, "base64");
  // Only the canonical base64 form is accepted (RFC 4648, section 3.5).
  if (bytes.toString("base64") !== base64 || !isUtf8(bytes)) return undefined;
  return bytes.toString("utf8");
}

/** Text that a header cannot carry, or that looks encoded, becomes UTF-8 in base64. */
export function encodeHeaderValue(text: string): string {
  const isPlain = plainValue.test(text) && !encodedValue.test(text);
  // Recipients may drop empty values and surrounding whitespace (RFC 9110, section 5.5).
  if (isPlain && text !== "" && text === text.trim()) return text;
  return `=?base64?${Buffer.from(text).toString("base64")}?=`;
}

function mismatch(message: McpMessage, problem: string): McpRefused {
  return new McpRefused("headerMismatch", `Header mismatch: ${problem}`, { id: message.id });
}

function requireSame(
  message: McpMessage,
  name: string,
  header: string | undefined,
  expected: string | undefined,
): void {
  if (header === undefined) return;
  const value = decodeHeaderValue(header);
  if (value === undefined) throw mismatch(message, `${name} is malformed`);
  if (value !== expected) throw mismatch(message, `${name} differs from the body`);
}

function readVersion(headers: IncomingHttpHeaders, message: McpMessage): string | undefined {
  const header = headers["mcp-protocol-version"]?.toString();
  const claimed = message.protocolVersion;
  if (claimed !== undefined && header !== claimed) {
    const problem = header === undefined ? "is missing" : "differs from the body";
    throw mismatch(message, `MCP-Protocol-Version ${problem}`);
  }
  if (header === undefined || protocolVersions.some((version) => version === header)) return header;
  // A client that names its version in each request can only use revisions without a handshake.
  const isUsable = (version: string) => claimed === undefined || version >= firstStateless;
  const data = { supported: protocolVersions.filter(isUsable), requested: header };
  const options = { id: message.id, data };
  throw new McpRefused("unsupportedVersion", "Unsupported protocol version", options);
}

/** Compares headers with the argument that they mirror, in every spelling that servers may fold. */
export function checkMirroredArgument(
  headers: IncomingHttpHeaders,
  message: McpMessage,
  argument: string,
  value: string,
): void {
  const mirrored = foldHeader(`mcp-param-${argument}`);
  for (const [name, header] of Object.entries(headers)) {
    if (foldHeader(name) !== mirrored) continue;
    requireSame(message, `Mcp-Param-${argument}`, header?.toString(), value);
  }
}

/**
 * Compares `MCP-Protocol-Version`, `Mcp-Method` and `Mcp-Name` with the body. Clients before
 * 2026-07-28 may omit the last two. Any that they send must match, since a server or proxy after
 * the gateway may trust them.
 */
export function checkHeaders(headers: IncomingHttpHeaders, message: McpMessage): Era {
  const version = readVersion(headers, message);
  const isStateless = version !== undefined && version >= firstStateless;
  const isRequest = message.kind === "request";
  const isRequired = isStateless && isRequest;
  const method = headers["mcp-method"]?.toString();
  const name = headers["mcp-name"]?.toString();
  const isNamed = namedMethods.has(message.method) && message.name !== undefined;
  const expected = message.kind === "response" ? undefined : message.method;
  requireSame(message, "Mcp-Method", method, expected);
  if (isRequired && method === undefined) throw mismatch(message, "Mcp-Method is missing");
  requireSame(message, "Mcp-Name", name, message.name);
  if (isRequired && isNamed && name === undefined) throw mismatch(message, "Mcp-Name is missing");
  if (!isStateless) return "handshake";
  if (message.kind === "response") {
    throw new McpRefused(
      "invalidRequest",
      "Invalid request: revision 2026-07-28 has no responses from clients",
    );
  }
  if (isRequest && message.protocolVersion === undefined) {
    const problem = "Invalid params: _meta has no protocol version";
    throw new McpRefused("invalidParams", problem, { id: message.id });
  }
  return "stateless";
}
