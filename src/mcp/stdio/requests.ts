import {
  isJSONRPCResponse,
  type JSONRPCMessage,
  type JSONRPCRequest,
  type JSONRPCResponse,
  type StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import type { MessageId } from "../json-rpc.ts";

type Answer = (answer: JSONRPCResponse) => void;

/** Requests that are under way, and whose each answer is. */
export class Requests {
  readonly #transport: StreamableHTTPClientTransport;
  readonly #waiting = new Map<MessageId, Answer>();

  constructor(transport: StreamableHTTPClientTransport) {
    this.#transport = transport;
  }

  /**
   * Sends a request and waits for its answer.
   *
   * @param signal gives the request up; from 2026-07-28 on, that cancels it
   * @throws GatewayRefused for an HTTP error
   * @throws Error if no answer came, or half of one
   */
  async send(
    request: JSONRPCRequest,
    signal: AbortSignal,
    headers: Readonly<Record<string, string>> = {},
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

  /** Hands an answer to whoever waits for it; false for every other message. */
  settle(message: JSONRPCMessage): boolean {
    if (!isJSONRPCResponse(message) || message.id === undefined) return false;
    const answer = this.#waiting.get(message.id);
    answer?.(message);
    return answer !== undefined;
  }
}
