import { IncomingMessage, type ServerResponse } from "node:http";
import { requireOneReading } from "../../json/document.ts";
import { JsonFault } from "../../json/fault.ts";

/** An OAuth error answer (RFC 6749, section 5.2). */
export class OAuthProblem extends Error {
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
    this.name = "OAuthProblem";
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

/** What may be asked again after so many seconds (RFC 6585, section 4). */
export function tooMany(description: string, seconds: number): OAuthProblem {
  const headers = { "Retry-After": String(seconds) };
  return new OAuthProblem(429, "temporarily_unavailable", description, headers);
}

/** Sends JSON that nobody keeps. */
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

/** Sends a browser elsewhere, by GET (RFC 9110, section 15.4.4). */
export function seeOther(response: ServerResponse, location: string): void {
  const headers = { Location: location, "Content-Length": "0", "Cache-Control": "no-store" };
  response.writeHead(303, headers).end();
}

/** Sends a problem in the shape that OAuth clients read. */
export function sendProblem(response: ServerResponse, problem: OAuthProblem): void {
  const { status, code, message, headers } = problem;
  sendJson(response, status, { error: code, error_description: message }, headers);
}

/** True if the client went away while its body was read: there is nobody to answer. */
export function isAbandoned({ destroyed, complete, socket }: IncomingMessage): boolean {
  return !complete && (destroyed || socket.destroyed);
}

/** True for a request that any web page may send and read: nothing here goes by cookies. */
export function allowAnyOrigin(request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader("Access-Control-Allow-Origin", "*");
  if (request.method !== "OPTIONS") return false;
  response.writeHead(204, {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Content-Type, MCP-Protocol-Version",
    "Access-Control-Max-Age": "3600",
  });
  response.end();
  return true;
}

/** The most bytes that a form or a registration may have. */
const MAX_BODY_BYTES = 16 * 1024;

function tooLarge(): OAuthProblem {
  return new OAuthProblem(413, "invalid_request", `the body has more than ${MAX_BODY_BYTES} bytes`);
}

/** @throws OAuthProblem for a body that says itself to be too large */
export function requireSmallBody({ headers }: IncomingMessage): void {
  if (Number(headers["content-length"] ?? 0) > MAX_BODY_BYTES) throw tooLarge();
}

/** The whole body. What is too large is left unread: its sender still gets an answer. */
async function readBytes(request: IncomingMessage): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const chunks: Buffer[] = [];
  let length = 0;
  const onData = (chunk: Buffer): void => {
    length += chunk.length;
    chunks.push(chunk);
    if (length <= MAX_BODY_BYTES) return;
    request.off("data", onData).pause();
    reject(tooLarge());
  };
  request.on("data", onData);
  request.once("end", () => resolve(Buffer.concat(chunks)));
  request.once("error", reject);
  return promise;
}

/**
 * The request with its whole body at hand, for a reader with bounds of its own.
 *
 * @throws OAuthProblem if that is too large
 */
export async function withWholeBody(request: IncomingMessage): Promise<IncomingMessage> {
  const body = await readBytes(request);
  const { method = "", url = "", headers, httpVersion } = request;
  const whole = Object.assign(new IncomingMessage(request.socket), {
    method,
    url,
    headers,
    httpVersion,
    complete: true,
  });
  whole.push(body);
  whole.push(null);
  return whole;
}

async function readTyped(request: IncomingMessage, type: string): Promise<Buffer> {
  const [given = ""] = (request.headers["content-type"] ?? "").split(";");
  if (given.trim().toLowerCase() !== type) {
    throw new OAuthProblem(415, "invalid_request", `the body must be ${type}`);
  }
  return readBytes(request);
}

/** Reads a form. @throws OAuthProblem if it is none, too large, or has a field twice */
export async function readForm(request: IncomingMessage): Promise<ReadonlyMap<string, string>> {
  const fields = new Map<string, string>();
  const bytes = await readTyped(request, "application/x-www-form-urlencoded");
  for (const [field, value] of new URLSearchParams(bytes.toString())) {
    if (fields.has(field))
      throw new OAuthProblem(400, "invalid_request", `${field} is given twice`);
    fields.set(field, value);
  }
  return fields;
}

/** Reads JSON. @throws OAuthProblem if it is none, too large, or could be read in two ways */
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
