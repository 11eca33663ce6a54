import { Agent, setGlobalDispatcher } from "undici";
import { GatewayRefused } from "./failure.ts";

/** Milliseconds that a connection may take. */
const CONNECT_TIMEOUT_MS = 10_000;

/**
 * Lifts the time limits on answers for every `fetch` of this process: a call may take as long as it
 * likes, and a stream be silent. When to give up is the client's to say.
 */
export function allowSilence(): void {
  const connect = { timeout: CONNECT_TIMEOUT_MS };
  setGlobalDispatcher(new Agent({ connect, headersTimeout: 0, bodyTimeout: 0 }));
}

/** True for a request that only asks whether there is more than answers to POST. */
function isOptional(status: number, method: string | undefined): boolean {
  return status === 405 && method !== "POST";
}

/**
 * `fetch` for the library's transport, which would keep the text of an error to itself.
 *
 * @throws GatewayRefused for every HTTP error, but the 405 of a server that has no streams or
 *   sessions of their own
 * @throws TypeError if no answer came
 */
export async function fetchFromGateway(url: string | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  if (response.status < 400 || isOptional(response.status, init?.method)) return response;
  throw new GatewayRefused(response.status, await response.text());
}
