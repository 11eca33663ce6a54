import {
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  type JSONRPCRequest,
  type JSONRPCResponse,
  type StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import type { McpMessage } from "../body.ts";
import { isHeaderMismatch, isSessionLost } from "./failure.ts";
import { Requests } from "./requests.ts";
import { Session } from "./session.ts";
import { ToolHeaders } from "./tool-headers.ts";

/** True for a refusal after which a request may be sent once more. */
export function isMendable(error: unknown): boolean {
  return isSessionLost(error) || isHeaderMismatch(error);
}

/** Does for a client that speaks lines what clients of Streamable HTTP have to do themselves. */
export class Courier {
  readonly #requests: Requests;
  readonly #session: Session;
  readonly #toolHeaders: ToolHeaders;

  /** @param onError told of tools that cannot be called */
  constructor(transport: StreamableHTTPClientTransport, onError: (error: unknown) => void) {
    this.#requests = new Requests(transport);
    this.#session = new Session(transport, this.#requests);
    this.#toolHeaders = new ToolHeaders(onError);
  }

  /** Hands an answer to whoever waits for it; false for every other message. */
  settle(message: JSONRPCMessage): boolean {
    return this.#requests.settle(message);
  }

  /**
   * Sends a request and gives its answer. It is sent once more if its session was lost, or if it
   * lacked headers of which only the list of tools tells: neither was carried out then.
   *
   * @throws GatewayRefused for an HTTP error
   * @throws Error if no answer came, or half of one
   */
  async carry(
    request: JSONRPCRequest,
    read: McpMessage,
    signal: AbortSignal,
  ): Promise<JSONRPCResponse> {
    const session = this.#session.id;
    const send = () => this.#requests.send(request, signal, this.#toolHeaders.of(read));
    try {
      return this.#learn(request, read, await send());
    } catch (error) {
      if (isSessionLost(error) && session !== undefined && read.method !== "initialize") {
        await this.#session.renew(session);
      } else if (isHeaderMismatch(error) && read.method === "tools/call") {
        await this.#toolHeaders.relearn(this.#requests, request, signal);
      } else {
        throw error;
      }
      return this.#learn(request, read, await send());
    }
  }

  /** Takes from an answer what later requests need. */
  #learn(request: JSONRPCRequest, read: McpMessage, answer: JSONRPCResponse): JSONRPCResponse {
    if (read.method === "initialize") this.#session.begin(request, answer);
    const isToolList = read.method === "tools/list" && read.protocolVersion !== undefined;
    if (!isToolList || !isJSONRPCResultResponse(answer)) return answer;
    return { ...answer, result: this.#toolHeaders.learn(answer.result) };
  }
}
