import { McpRefused, type MessageId } from "./json-rpc.ts";
import { beginsWith, JsonRefused, type Members, readMembers, readText } from "./strict-json.ts";

/** Where a request of 2026-07-28 and later names its protocol version, in `params._meta`. */
const versionKey = "io.modelcontextprotocol/protocolVersion";

/** One JSON-RPC message, read as far as a gateway has to know it. */
export interface McpMessage {
  readonly kind: "request" | "notification" | "response";
  /** Of a request, and of a response the request's that it answers. */
  readonly id: MessageId | undefined;
  /** Empty for a response. */
  readonly method: string;
  /** What the message is about: a tool, a prompt, a resource or a task, if its method is of one. */
  readonly name: string | undefined;
  /** What `params._meta` claims; undefined for clients before 2026-07-28. */
  readonly protocolVersion: string | undefined;
  /** The members of `params.arguments`, as they were sent. */
  readonly arguments: Members | undefined;
}

const messageMembers = ["jsonrpc", "id", "method", "params", "result", "error"];
const guardedParams = ["name", "uri", "taskId", "arguments", "_meta"];

/** Which member of `params` says what a message is about, by its method. */
const nameMembers: ReadonlyMap<string, string> = new Map([
  ["tools/call", "name"],
  ["prompts/get", "name"],
  ["resources/read", "uri"],
  ["resources/subscribe", "uri"],
  ["resources/unsubscribe", "uri"],
  ["tasks/get", "taskId"],
  ["tasks/result", "taskId"],
  ["tasks/update", "taskId"],
  ["tasks/cancel", "taskId"],
]);

function invalid(problem: string, id?: MessageId): McpRefused {
  return new McpRefused("invalidRequest", `Invalid request: ${problem}`, { id });
}

/** A key as parsers see it that match members without regard to case. */
function fold(key: string): string {
  return key.toUpperCase().toLowerCase();
}

/**
 * Refuses keys that differ only by case from one that counts: a server that folds case would
 * take its value instead of the one that was judged.
 *
 * @throws McpRefused
 */
export function requireExactKeys(members: Members, known: readonly string[], id?: MessageId): void {
  const folded = new Set(known.map(fold));
  for (const key of members.keys()) {
    if (!folded.has(fold(key)) || known.includes(key)) continue;
    throw invalid("a member differs only by case from one of the protocol", id);
  }
}

function readId(value: Buffer | undefined): MessageId | undefined {
  if (value === undefined) return undefined;
  const id: unknown = JSON.parse(value.toString("utf8"));
  if (typeof id === "string") return id;
  if (typeof id === "number" && Number.isSafeInteger(id)) return id;
  throw invalid("the id is neither a string nor an integer");
}

function readTop(body: Buffer): Members {
  try {
    return readMembers(body);
  } catch (error) {
    if (!(error instanceof JsonRefused)) throw error;
    if (error.isSyntax) throw new McpRefused("parseError", `Parse error: ${error.message}`);
    throw invalid(error.message);
  }
}

/** The member's own members; undefined if it is left out. @throws McpRefused for no object */
function readInner(members: Members, key: string, id?: MessageId): Members | undefined {
  const value = members.get(key);
  if (value === undefined) return undefined;
  if (beginsWith(value, "{")) return readMembers(value);
  throw new McpRefused("invalidParams", `Invalid params: ${key} is not an object`, { id });
}

function readString(members: Members, key: string, id?: MessageId): string | undefined {
  const value = members.get(key);
  if (value === undefined) return undefined;
  const text = readText(value);
  if (text !== undefined) return text;
  throw new McpRefused("invalidParams", `Invalid params: ${key} is not a string`, { id });
}

function readParams(
  top: Members,
  method: string,
  id: MessageId | undefined,
): Pick<McpMessage, "name" | "protocolVersion" | "arguments"> {
  const params = readInner(top, "params", id);
  if (params === undefined) {
    return { name: undefined, protocolVersion: undefined, arguments: undefined };
  }
  requireExactKeys(params, guardedParams, id);
  const meta = readInner(params, "_meta", id);
  if (meta !== undefined) requireExactKeys(meta, [versionKey], id);
  const nameMember = nameMembers.get(method);
  return {
    name: nameMember === undefined ? undefined : readString(params, nameMember, id),
    protocolVersion: meta === undefined ? undefined : readString(meta, versionKey, id),
    arguments: readInner(params, "arguments", id),
  };
}

/**
 * Reads one JSON-RPC 2.0 message.
 *
 * @throws McpRefused `parseError` for what is no JSON in UTF-8; `invalidRequest` for what is no
 *   single message, or one that two parsers could read differently; `invalidParams`
 */
export function readMessage(body: Buffer): McpMessage {
  const top = readTop(body);
  for (const key of top.keys()) {
    if (!messageMembers.includes(key)) throw invalid("a member is not one of JSON-RPC's");
  }
  const id = readId(top.get("id"));
  if (readText(top.get("jsonrpc")) !== "2.0") throw invalid('jsonrpc is not "2.0"', id);
  const isAnswer = top.has("result") || top.has("error");
  const method = readText(top.get("method"));
  if (isAnswer) {
    if (top.has("method") || top.has("params") || (top.has("result") && top.has("error"))) {
      throw invalid("it is a request and a response at once", id);
    }
    const nothing = { name: undefined, protocolVersion: undefined, arguments: undefined };
    return { kind: "response", id, method: "", ...nothing };
  }
  if (method === undefined) throw invalid("the method is missing or no string", id);
  const kind = top.has("id") ? "request" : "notification";
  return { kind, id, method, ...readParams(top, method, id) };
}
