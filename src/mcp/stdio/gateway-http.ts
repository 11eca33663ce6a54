import { Agent, setGlobalDispatcher } from "undici";
import { z } from "zod";
import { errorCode } from "../json-rpc.ts";

/** Error of a JSON-RPC response (JSON-RPC 2.0, section 5.1). */
const rpcError = z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() });
type RpcError = z.infer<typeof rpcError>;

export class GatewayRefused extends Error {
  override readonly name = "GatewayRefused";
  readonly status: number;
  readonly error: RpcError;

  constructor(status: number, body: string) {
    const error = readError(status, body);
    super(error.message);
    this.status = status;
    this.error = error;
  }
}

/** A 404 means a lost session, unless its error says that the method is unknown. */
export function isSessionLost(error: unknown): boolean {
  if (!(error instanceof GatewayRefused) || error.status !== 404) return false;
  return error.error.code !== errorCode("methodNotFound");
}

export function isTokenRefused(error: unknown): boolean {
  return error instanceof GatewayRefused && error.status === 401;
}

export function isHeaderMismatch(error: unknown): boolean {
  return error instanceof GatewayRefused && error.error.code === errorCode("headerMismatch");
}

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

/** Converts any failure of a request to `url` to a JSON-RPC error. */
export function rpcErrorOf(error: unknown, url: URL): RpcError {
  if (error instanceof GatewayRefused) return error.error;
  const code = errorCode("internalError");
  // fetch throws a TypeError if no response came. The cause holds the reason.
  if (error instanceof TypeError) {
    const reason = systemCode(error) ?? "no connection";
    return { code, message: `${url} cannot be reached (${reason})` };
  }
  return { code, message: error instanceof Error ? error.message : "unknown error" };
}

const CONNECT_TIMEOUT_MS = 10_000;

/**
 * Removes the response timeouts of every `fetch` in this process. Calls may take any time and
 * streams may be silent, because the client decides when to give up.
 */
export function allowSilence(): void {
  const connect = { timeout: CONNECT_TIMEOUT_MS };
  setGlobalDispatcher(new Agent({ connect, headersTimeout: 0, bodyTimeout: 0 }));
}

/** True for a 405 to a GET or DELETE, which servers may leave unsupported. */
function isOptional(status: number, method: string | undefined): boolean {
  return status === 405 && method !== "POST";
}

/**
 * `fetch` for the library's transport, which would hide the text of an error.
 *
 * @throws GatewayRefused for every HTTP error except a 405 from a server without streams or
 * sessions
 * @throws TypeError if no response came
 */
export async function fetchFromGateway(url: string | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  if (response.status < 400 || isOptional(response.status, init?.method)) return response;
  throw new GatewayRefused(response.status, await response.text());
}
