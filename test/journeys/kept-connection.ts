import { Agent, type IncomingMessage, request } from "node:http";
import { json } from "node:stream/consumers";
import { PATIENCE_MS } from "../kit/eventually.ts";

/** What came back on a kept connection. */
export interface KeptAnswer {
  readonly status: number;
  /** The refusal's code, if it is one. */
  readonly code: string | undefined;
  readonly requestId: string;
  /** True if no new connection was made for it. */
  readonly isReused: boolean;
}

function codeOf(body: unknown): string | undefined {
  const hasCode = typeof body === "object" && body !== null && "code" in body;
  return hasCode ? String(body.code) : undefined;
}

/** One connection that is kept open, on which requests go one after another. */
export class KeptConnection {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  async send(method: string, path: string, token: string, body?: string): Promise<KeptAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const sent = request(`${this.#url}${path}`, {
      method,
      agent: this.#agent,
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    sent.once("response", resolve).once("error", reject);
    sent.end(body);
    const answer = await promise;
    const code = codeOf(await json(answer));
    const { statusCode: status = 0, headers } = answer;
    const requestId = String(headers["x-request-id"]);
    return { status, code, requestId, isReused: sent.reusedSocket };
  }

  close(): void {
    this.#agent.destroy();
  }
}
