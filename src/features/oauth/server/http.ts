import { IncomingMessage, type ServerResponse } from "node:http";
import type { CountRequests } from "../../../core/access/rights.ts";
import { ClientError } from "../../../core/base/client-error.ts";
import { addressKey, type LoginOrigin } from "../../../core/identity/throttle.ts";
import { JsonFault } from "../../../core/json/fault.ts";
import { requireOneReading } from "../../../core/json/one-reading.ts";

/** An OAuth error response (RFC 6749, section 5.2). */
export class OAuthProblem extends ClientError {
  readonly status: number;
  readonly code: string;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    code: string,
    description: string,
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(description);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

/** A 429 with `Retry-After` (RFC 6585, section 4). */
export function tooMany(description: string, seconds: number): OAuthProblem {
  const headers = { "Retry-After": String(seconds) };
  return new OAuthProblem(429, "temporarily_unavailable", description, headers);
}

/**
 * Limits requests per address, with ten times the limit for a reverse proxy that all clients share.
 *
 * @returns a function that counts a request and returns the seconds until a retry, 0 if allowed
 */
export function addressLimit(
  countRequests: CountRequests,
  name: string,
  perAddress: number,
  windowSeconds: number,
): (origin: LoginOrigin) => Promise<number> {
  return async ({ address, isShared }) => {
    const limit = {
      count: isShared ? perAddress * 10 : perAddress,
      windowMs: windowSeconds * 1000,
    };
    const key = `${name} ${isShared ? "shared " : ""}${addressKey(address)}`;
    return (await countRequests({ key, limit, points: 1 })).retryAfter;
  };
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, {
    "Content-Type": "application/json; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    ...headers,
  });
  response.end(JSON.stringify(body));
}

/** Redirects a browser with 303, so that it uses GET (RFC 9110, section 15.4.4). */
export function seeOther(response: ServerResponse, location: string): void {
  const headers = { Location: location, "Content-Length": "0", "Cache-Control": "no-store" };
  response.writeHead(303, headers).end();
}

/** True if the client disconnected before its body was complete. */
export function isAbandoned({ destroyed, complete, socket }: IncomingMessage): boolean {
  return !complete && (destroyed || socket.destroyed);
}

const MAX_BODY_BYTES = 16 * 1024;

function requireAtMost(bytes: number, maxBytes: number): void {
  if (bytes <= maxBytes) return;
  throw new OAuthProblem(413, "invalid_request", `the body is larger than ${maxBytes} bytes`);
}

/** @throws OAuthProblem if Content-Length exceeds the limit */
export function requireSmallBody({ headers }: IncomingMessage, maxBytes = MAX_BODY_BYTES): void {
  requireAtMost(Number(headers["content-length"] ?? 0), maxBytes);
}

/** Leaves the rest of a body that is too large unread, so that the sender gets a response. */
async function readBytes(request: IncomingMessage, maxBytes = MAX_BODY_BYTES): Promise<Buffer> {
  requireSmallBody(request, maxBytes);
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    length += chunk.length;
    requireAtMost(length, maxBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Buffers the body for the library. @throws OAuthProblem if it is too large */
export async function withWholeBody(request: IncomingMessage): Promise<IncomingMessage> {
  const body = await readBytes(request);
  const { method = "", url = "", headers, httpVersion } = request;
  const head = { method, url, headers, httpVersion, complete: true };
  const whole = Object.assign(new IncomingMessage(request.socket), head);
  whole.push(body);
  whole.push(null);
  return whole;
}

async function readTyped(
  request: IncomingMessage,
  type: string,
  maxBytes?: number,
): Promise<Buffer> {
  const [given = ""] = (request.headers["content-type"] ?? "").split(";");
  if (given.trim().toLowerCase() !== type) {
    throw new OAuthProblem(415, "invalid_request", `the body must be ${type}`);
  }
  return readBytes(request, maxBytes);
}

/** @throws OAuthProblem if the body is not a form, is too large, or repeats a field */
export async function readForm(
  request: IncomingMessage,
  maxBytes?: number,
): Promise<ReadonlyMap<string, string>> {
  const fields = new Map<string, string>();
  const bytes = await readTyped(request, "application/x-www-form-urlencoded", maxBytes);
  for (const [field, value] of new URLSearchParams(bytes.toString())) {
    if (fields.has(field)) throw new OAuthProblem(400, "invalid_request", `${field} is repeated`);
    fields.set(field, value);
  }
  return fields;
}

/** @throws OAuthProblem if the body is not JSON, is too large, or is ambiguous */
export async function readJson(request: IncomingMessage): Promise<unknown> {
  const bytes = await readTyped(request, "application/json");
  try {
    requireOneReading(bytes);
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    throw new OAuthProblem(400, "invalid_request", `the body is not JSON: ${error.message}`);
  }
  return JSON.parse(bytes.toString());
}
