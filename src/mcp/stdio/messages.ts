/** The lines of a client over stdio, each a message (MCP, stdio transport). */
import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  type JSONRPCMessage,
} from "@modelcontextprotocol/client";
import { McpRefused, type MessageId } from "../json-rpc.ts";
import { type McpMessage, readMessage } from "../message.ts";

const NEWLINE = 0x0a;

/**
 * The lines of a stream of bytes, without their ends, each as soon as it is whole. Only a line feed
 * ends one: what else editors take for a line's end may stand in a JSON string. What follows the
 * last line feed is no whole message and is dropped.
 */
export async function* readLines(input: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
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

/** `JSON` with ECMAScript's "JSON.parse source text access", which the library types lack. */
interface ExactJson extends JSON {
  /** A value that `JSON.stringify` writes as this very text. */
  rawJSON(text: string): object;
}

function isExact(json: JSON): json is ExactJson {
  return "rawJSON" in json;
}

function requireExact(json: JSON): ExactJson {
  if (isExact(json)) return json;
  throw new Error("this version of Node would round numbers");
}

const exact = requireExact(JSON);

/** Called for each value from the inside out, with the text that a primitive was spelled as. */
function keepSpelling(_key: string, value: unknown, context?: { readonly source?: string }) {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || String(value) === source) return value;
  return exact.rawJSON(source);
}

/**
 * Parses JSON so that writing it again keeps every number as it was spelled: one that a double
 * cannot hold, such as an integer of 64 bits, stays its own text.
 *
 * @throws SyntaxError
 */
function parseExactly(text: string): unknown {
  return exact.parse(text, keepSpelling);
}

/** A line of the client: what counts of it, and the message as the library takes it. */
export interface ReadLine {
  readonly read: McpMessage;
  readonly message: JSONRPCMessage;
}

/**
 * Reads a line by the rules of the gateway itself.
 *
 * @throws McpRefused
 */
export function readLine(line: Buffer): ReadLine {
  const read = readMessage(line);
  const message = parseExactly(line.toString("utf8"));
  const isMessage =
    isJSONRPCRequest(message) || isJSONRPCNotification(message) || isJSONRPCResponse(message);
  if (isMessage) return { read, message };
  const problem = "Invalid request: it has not the shape of a message";
  throw new McpRefused("invalidRequest", problem, { id: read.id });
}

/** The request that a `notifications/cancelled` is about; undefined for every other message. */
export function cancelledId(message: JSONRPCMessage): MessageId | undefined {
  if (!("method" in message) || message.method !== "notifications/cancelled") return undefined;
  const id = message.params?.requestId;
  return typeof id === "string" || typeof id === "number" ? id : undefined;
}
