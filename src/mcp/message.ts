import { runAtOnce, runCooperatively, type Steps } from "../cooperative-scheduling.ts";
import { JsonFault } from "../json/fault.ts";
import { beginsWith, readText, visitJudgedMembers, visitMembers } from "../json/members.ts";
import { memoize } from "../memoize.ts";
import { isPlainName } from "../query/names.ts";
import { McpRefused, type MessageId } from "./json-rpc.ts";

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
  /** The object `params.arguments`, as it was sent: a part of the body. */
  readonly arguments: Buffer | undefined;
}

/** Bytes of a string of the protocol's own, such as a method or an id. */
const LONGEST_TEXT = 8 * 1024;

const messageMembers = ["jsonrpc", "id", "method", "params", "result", "error"];
const guardedParams = ["name", "uri", "taskId", "arguments", "_meta"];

/** Which member of `params` says what a message is about, by its method. */
const nameMembers: ReadonlyMap<string, string> = new Map([
  ...ofMember("name", "tools/call", "prompts/get"),
  ...ofMember("uri", "resources/read", "resources/subscribe", "resources/unsubscribe"),
  ...ofMember("taskId", "tasks/get", "tasks/result", "tasks/update", "tasks/cancel"),
]);

function ofMember(member: string, ...methods: readonly string[]) {
  return methods.map((method) => [method, member] as const);
}

function invalid(problem: string, id?: MessageId): McpRefused {
  return new McpRefused("invalidRequest", `Invalid request: ${problem}`, { id });
}

/** A key as parsers see it that match members without regard to case. */
const fold = memoize((key) => key.toUpperCase().toLowerCase());

/** Bytes of a key after which it is none of the protocol's, in whatever case. */
const LONGEST_KEY = 256;

/** True for a key that differs only by case from one that counts. */
function isMisspelt(key: string, known: readonly string[]): boolean {
  if (key.length > LONGEST_KEY) return false;
  const folded = fold(key);
  return known.some((one) => fold(one) === folded);
}

/**
 * The members that count of an object that was judged, and no others.
 *
 * @throws McpRefused for a key that differs only by case from one that counts: a server that folds
 *   case would take its value instead of the one that was judged
 */
export function* readKnownMembers(
  value: Buffer,
  known: readonly string[],
  id?: MessageId,
): Steps<Map<string, Buffer>> {
  const members = new Map<string, Buffer>();
  yield* visitJudgedMembers(value, (key, member) => {
    if (known.includes(key)) members.set(key, member);
    else if (isMisspelt(key, known)) {
      throw invalid("a member differs only by case from one of the protocol", id);
    }
  });
  return members;
}

/** @throws McpRefused for a text of the protocol's own that is longer than any has to be */
function requireShort(key: string, value: Buffer | undefined, id?: MessageId): void {
  if (value === undefined || value.length <= LONGEST_TEXT) return;
  throw invalid(`${key} takes ${value.length} bytes; allowed: ${LONGEST_TEXT}`, id);
}

function readId(value: Buffer | undefined): MessageId | undefined {
  if (value === undefined) return undefined;
  requireShort("the id", value);
  const id: unknown = beginsWith(value, "{") ? undefined : JSON.parse(value.toString("utf8"));
  if (typeof id === "string") return id;
  if (typeof id === "number" && Number.isSafeInteger(id)) return id;
  throw invalid("the id is neither a string nor an integer");
}

function* readTop(body: Buffer): Steps<Map<string, Buffer>> {
  const top = new Map<string, Buffer>();
  try {
    yield* visitMembers(body, (key, value) => {
      if (!messageMembers.includes(key)) throw invalid("a member is not one of JSON-RPC's");
      top.set(key, value);
    });
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    if (error.isSyntax) throw new McpRefused("parseError", `Parse error: ${error.message}`);
    throw invalid(error.message);
  }
  return top;
}

/** The member, if it is there. @throws McpRefused for no object */
function readObject(
  members: ReadonlyMap<string, Buffer>,
  key: string,
  id?: MessageId,
): Buffer | undefined {
  const value = members.get(key);
  if (value === undefined || beginsWith(value, "{")) return value;
  throw new McpRefused("invalidParams", `Invalid params: ${key} is not an object`, { id });
}

function readString(
  members: ReadonlyMap<string, Buffer>,
  key: string,
  id?: MessageId,
): string | undefined {
  const value = members.get(key);
  if (value === undefined) return undefined;
  requireShort(key, value, id);
  const text = readText(value);
  if (text !== undefined) return text;
  throw new McpRefused("invalidParams", `Invalid params: ${key} is not a string`, { id });
}

/** Bytes of a plain name in JSON, however it is escaped. */
const LONGEST_NAME = 6 * 63 + 2;

/** The name of a database or a table that a JSON value is; undefined if it is none. */
export function plainNameIn(value: Buffer | undefined): string | undefined {
  const name = value === undefined || value.length > LONGEST_NAME ? undefined : readText(value);
  return name !== undefined && isPlainName(name) ? name : undefined;
}

type Params = Pick<McpMessage, "name" | "protocolVersion" | "arguments">;
const noParams: Params = { name: undefined, protocolVersion: undefined, arguments: undefined };

function* readParams(
  top: ReadonlyMap<string, Buffer>,
  method: string,
  id: MessageId | undefined,
): Steps<Params> {
  const value = readObject(top, "params", id);
  if (value === undefined) return noParams;
  const params = yield* readKnownMembers(value, guardedParams, id);
  const metaValue = readObject(params, "_meta", id);
  const meta =
    metaValue === undefined ? undefined : yield* readKnownMembers(metaValue, [versionKey], id);
  const nameMember = nameMembers.get(method);
  return {
    name: nameMember === undefined ? undefined : readString(params, nameMember, id),
    protocolVersion: meta === undefined ? undefined : readString(meta, versionKey, id),
    arguments: readObject(params, "arguments", id),
  };
}

function* messageIn(body: Buffer): Steps<McpMessage> {
  const top = yield* readTop(body);
  const id = readId(top.get("id"));
  const [jsonrpc, methodValue] = [top.get("jsonrpc"), top.get("method")];
  requireShort("jsonrpc", jsonrpc, id);
  requireShort("the method", methodValue, id);
  if (readText(jsonrpc) !== "2.0") throw invalid('jsonrpc is not "2.0"', id);
  const isAnswer = top.has("result") || top.has("error");
  if (isAnswer) {
    if (top.has("method") || top.has("params") || (top.has("result") && top.has("error"))) {
      throw invalid("it is a request and a response at once", id);
    }
    return { kind: "response", id, method: "", ...noParams };
  }
  const method = readText(methodValue);
  if (method === undefined) throw invalid("the method is missing or no string", id);
  const kind = top.has("id") ? "request" : "notification";
  return { kind, id, method, ...(yield* readParams(top, method, id)) };
}

/**
 * Reads one JSON-RPC 2.0 message.
 *
 * @throws McpRefused `parseError` for what is no JSON in UTF-8; `invalidRequest` for what is no
 *   single message, or one that two parsers could read differently; `invalidParams`
 */
export function readMessage(body: Buffer): McpMessage {
  return runAtOnce(messageIn(body));
}

/** As `readMessage`, in slices, between which others are served. The bytes must not change. */
export function readMessageInSlices(body: Buffer): Promise<McpMessage> {
  return runCooperatively(messageIn(body));
}
