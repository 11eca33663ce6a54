/** HTTP to the gateway, and what goes wrong on the way. */
import { Agent, setGlobalDispatcher } from "undici";
import { z } from "zod";
import { errorCode } from "../json-rpc.ts";

/** The error of a JSON-RPC response (JSON-RPC 2.0, section 5.1). */
const rpcError = z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() });
type RpcError = z.infer<typeof rpcError>;

/** The gateway has answered with an HTTP error; the message is what it says. */
export class GatewayRefused extends Error {
  override readonly name = "GatewayRefused";
  readonly status: number;
  /** What the client is to be told. */
  readonly error: RpcError;

  constructor(status: number, body: string) {
    const error = readError(status, body);
    super(error.message);
    this.status = status;
    this.error = error;
  }
}

/** True for what a client of a lost session meets; a method that nobody knows is another 404. */
export function isSessionLost(error: unknown): boolean {
  if (!(error instanceof GatewayRefused) || error.status !== 404) return false;
  return error.error.code !== errorCode("methodNotFound");
}

/** True if the gateway does not accept the token. */
export function isTokenRefused(error: unknown): boolean {
  return error instanceof GatewayRefused && error.status === 401;
}

/** True if the headers of a request were not those that the server wants. */
export function isHeaderMismatch(error: unknown): boolean {
  return error instanceof GatewayRefused && error.error.code === errorCode("headerMismatch");
}

/** An answer in the terms of the gateway's HTTP interface. */
const refusal = z.object({
  message: z.string(),
  code: z.string(),
  request_id: z.string().optional(),
});

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function readError(status: number, body: string): RpcError {
  const answer = parsed(body);
  const inProtocol = z.object({ error: rpcError }).safeParse(answer);
  if (inProtocol.success) return inProtocol.data.error;
  const { data } = refusal.safeParse(answer);
  if (data === undefined) {
    const message = `The gateway answered with the HTTP status ${status}`;
    return { code: errorCode("internalError"), message, data: { status } };
  }
  const { message, ...others } = data;
  return { code: errorCode("internalError"), message, data: { status, ...others } };
}

function systemCode(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  return "code" in error ? String(error.code) : systemCode(error.cause);
}

/** What went wrong on the way to `url` and back, as a JSON-RPC error. */
export function rpcErrorOf(error: unknown, url: URL): RpcError {
  if (error instanceof GatewayRefused) return error.error;
  const code = errorCode("internalError");
  // That is how fetch says that no answer came; the reason is beneath.
  if (error instanceof TypeError) {
    const reason = systemCode(error) ?? "no connection";
    return { code, message: `${url} cannot be reached (${reason})` };
  }
  return { code, message: error instanceof Error ? error.message : "unknown error" };
}

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
