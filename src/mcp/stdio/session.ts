import { randomUUID } from "node:crypto";
import {
  isJSONRPCResultResponse,
  type JSONRPCRequest,
  type JSONRPCResponse,
  type StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import type { Requests } from "./requests.ts";

/** Of a handshake that nobody gives up. */
const unlimited = new AbortController().signal;

/**
 * The session of a client of the revisions before 2026-07-28. One that is lost is begun again
 * behind the client's back, which over stdio could not know that there are any.
 */
export class Session {
  readonly #transport: StreamableHTTPClientTransport;
  readonly #requests: Requests;
  /** The client's own handshake, once it was answered. */
  #handshake: JSONRPCRequest | undefined;
  #renewal: Promise<void> | undefined;

  constructor(transport: StreamableHTTPClientTransport, requests: Requests) {
    this.#transport = transport;
    this.#requests = requests;
  }

  /** Names the session, if there is one. */
  get id(): string | undefined {
    return this.#transport.sessionId;
  }

  /** Takes a handshake and its answer: the revision agreed on is spoken from then on. */
  begin(request: JSONRPCRequest, answer: JSONRPCResponse): void {
    if (!isJSONRPCResultResponse(answer)) return;
    const { protocolVersion } = answer.result;
    if (typeof protocolVersion !== "string") return;
    this.#handshake = request;
    this.#transport.setProtocolVersion(protocolVersion);
  }

  /**
   * Begins another session in the place of the one that was lost, unless somebody has done so.
   *
   * @param lost the id of the one that was lost
   * @throws whatever a handshake throws
   */
  async renew(lost: string): Promise<void> {
    if (this.id !== lost) return;
    this.#renewal ??= this.#shakeHands().finally(() => {
      this.#renewal = undefined;
    });
    await this.#renewal;
  }

  async #shakeHands(): Promise<void> {
    if (this.#handshake === undefined) throw new Error("The session is lost");
    const request = { ...this.#handshake, id: randomUUID() };
    const answer = await this.#requests.send(request, unlimited);
    if (!isJSONRPCResultResponse(answer)) throw new Error(answer.error.message);
    this.begin(this.#handshake, answer);
    await this.#transport.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  }
}
