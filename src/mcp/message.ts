import { runAtOnce, runCooperatively, type Steps } from "../cooperative-scheduling.ts";
import { JsonFault } from "../json/fault.ts";
import { beginsWith, readText, visitJudgedMembers, visitMembers } from "../json/members.ts";
import { memoize } from "../memoize.ts";
import { isPlainName } from "../query/names.ts";
import { McpRefused, type MessageId } from "./json-rpc.ts";

/** Member of `params._meta` with the protocol version, in 2026-07-28 and later. */
const versionKey = "io.modelcontextprotocol/protocolVersion";

/** The parts of one JSON-RPC message that the gateway needs. */
export interface McpMessage {
  readonly kind: "request" | "notification" | "response";
  readonly id: MessageId | undefined;
  readonly method: string;
  /** Name of the tool, prompt, resource or task, for methods that have one. */
  readonly name: string | undefined;
  /** The version in `params._meta`, undefined for clients before 2026-07-28. */
  readonly protocolVersion: string | undefined;
  /** The bytes of `params.arguments`: a slice of the body. */
  readonly arguments: Buffer | undefined;
}

/** Bytes of a protocol string, such as a method or an id. */
const LONGEST_TEXT = 8 * 1024;

const messageMembers = ["jsonrpc", "id", "method", "params", "result", "error"];
const guardedParams = ["name", "uri", "taskId", "arguments", "_meta"];

/** Member of `params` that names the target, by method. */
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

/** Folds a key like parsers that ignore case. */
const fold = memoize((key) => key.toUpperCase().toLowerCase());

/** No protocol key is longer, in whatever case. In bytes. */
const LONGEST_KEY = 256;

/**
 * True for a key that equals a known key except for case. The caller has excluded exact matches.
 */
function isMisspelt(key: string, known: readonly string[]): boolean {
  if (key.length > LONGEST_KEY) return false;
  const folded = fold(key);
  return known.some((one) => fold(one) === folded);
}

/**
 * Reads only the known members of an object.
 *
 * @throws McpRefused for a key that differs from a known one only by case: a server that ignores
 * case would take its value instead of the judged one
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

/** Bytes of a plain name in JSON, with every character escaped. */
const LONGEST_NAME = 6 * 63 + 2;

/** The value as a database or table name, undefined if it is not a valid one. */
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
 * @throws McpRefused `parseError` if the body is not JSON in UTF-8, `invalidRequest` if it is not a
 * single message or two parsers could read it differently, `invalidParams`
 */
export function readMessage(body: Buffer): McpMessage {
  return runAtOnce(messageIn(body));
}

/**
 * Like `readMessage`, but yields to other requests between slices. The bytes must not change until
 * it resolves.
 */
export function readMessageInSlices(body: Buffer): Promise<McpMessage> {
  return runCooperatively(messageIn(body));
}
