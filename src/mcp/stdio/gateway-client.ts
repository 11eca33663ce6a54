import { randomUUID } from "node:crypto";
import {
  isJSONRPCResponse,
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  type JSONRPCRequest,
  type JSONRPCResponse,
  type StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import type { MessageId } from "../json-rpc.ts";
import type { McpMessage } from "../message.ts";
import { isHeaderMismatch, isSessionLost } from "./gateway-http.ts";
import { type SendRequest, ToolHeaders } from "./tool-headers.ts";

/** True for a refusal after which a request may be sent once more: a retry. */
export function isMendable(error: unknown): boolean {
  return isSessionLost(error) || isHeaderMismatch(error);
}

/** Of a handshake that nobody gives up. */
const unlimited = new AbortController().signal;

/**
 * Does for a client that speaks lines what clients of Streamable HTTP have to do themselves: knows
 * whose each answer is, begins a lost session anew, and sets the headers that tools ask for.
 */
export class GatewayClient {
  readonly #transport: StreamableHTTPClientTransport;
  readonly #toolHeaders: ToolHeaders;
  /** Requests that are under way. */
  readonly #waiting = new Map<MessageId, (answer: JSONRPCResponse) => void>();
  /** The client's own handshake, once it was answered. */
  #handshake: JSONRPCRequest | undefined;
  #renewal: Promise<void> | undefined;

  /** @param onError told of tools that cannot be called */
  constructor(transport: StreamableHTTPClientTransport, onError: (error: unknown) => void) {
    this.#transport = transport;
    this.#toolHeaders = new ToolHeaders(onError);
  }

  /** Hands an answer to whoever waits for it; false for every other message. */
  settle(message: JSONRPCMessage): boolean {
    if (!isJSONRPCResponse(message) || message.id === undefined) return false;
    const answer = this.#waiting.get(message.id);
    answer?.(message);
    return answer !== undefined;
  }

  /**
   * Sends a request and gives its answer. It is sent once more if its session was lost, or if it
   * lacked headers of which only the list of tools tells: neither was carried out then.
   *
   * @param signal gives the request up; from 2026-07-28 on, that cancels it
   * @throws GatewayRefused for an HTTP error
   * @throws Error if no answer came, or half of one
   */
  async request(
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
        await this.#toolHeaders.relearn(this.#send, request, signal);
      } else {
        throw error;
      }
      return await send();
    }
  }

  readonly #send: SendRequest = async (request, signal, headers = {}) => {
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
  };

  /** Takes from an answer what later requests need. */
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
   * Begins another session in the place of the one that was lost, unless somebody has done so: over
   * stdio, a client of the revisions before 2026-07-28 does not know that there are any.
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
}
