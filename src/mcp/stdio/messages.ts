/** The lines of a client over stdio, each a message (MCP, stdio transport). */
import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  type JSONRPCMessage,
} from "@modelcontextprotocol/client";
import { keepSpelling } from "../../json/exact-numbers.ts";
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
  const message: unknown = JSON.parse(line.toString("utf8"), keepSpelling);
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
