import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  type JSONRPCMessage,
} from "@modelcontextprotocol/client";
import { type McpMessage, readMessage } from "../body.ts";
import { McpRefused, type MessageId } from "../json-rpc.ts";
import { parseExactly } from "./exact-json.ts";

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
