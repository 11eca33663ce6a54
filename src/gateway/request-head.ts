import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { Refusal } from "../refusal.ts";

/** Headers that a request may have; how many bytes they may take, the parser says. */
const MAX_HEADERS = 128;

/** A host and perhaps a port (RFC 9110, section 7.2), of those names that DNS and addresses have. */
const authority = /^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i;

/** A length in its one plain spelling, and no larger than every reader can count. */
const plainLength = /^(?:0|[1-9]\d{0,14})$/;

function refused(message: string): Refusal {
  return new Refusal("bad_request", { message: `Bad request: ${message}` });
}

/**
 * How often a header stands in a head.
 *
 * @param name in lower case
 */
export function occurrences({ rawHeaders }: IncomingMessage, name: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const found = rawHeaders[at];
    if (found?.length === name.length && found.toLowerCase() === name) count++;
  }
  return count;
}

/** RFC 9112, section 3.2. */
function requireOneHost(request: IncomingMessage): void {
  const { httpVersion, headers } = request;
  const count = occurrences(request, "host");
  if (count === 0 && httpVersion === "1.0") return;
  if (count !== 1 || !authority.test(headers.host ?? "")) throw refused("Host must name one host");
}

/**
 * The parser takes more than one way to tell a length; a server behind might take one of them for
 * another (RFC 9112, section 6).
 */
function requirePlainFraming({ httpVersion, headers }: IncomingMessage): void {
  const { "transfer-encoding": encoding, "content-length": length } = headers;
  const isPlainEncoding = encoding?.toLowerCase() === "chunked" && httpVersion === "1.1";
  if (encoding !== undefined && !isPlainEncoding) {
    throw refused("the only Transfer-Encoding is chunked, in HTTP/1.1");
  }
  if (length !== undefined && !plainLength.test(length)) {
    throw refused("Content-Length must be a plain number");
  }
}

/**
 * Refuses a head that keeps the letter of HTTP but that two readers could read differently.
 *
 * @throws Refusal `bad_request` or `headers_too_large`
 */
export function requirePlainHead(request: IncomingMessage): void {
  const { httpVersion, rawHeaders } = request;
  if (httpVersion !== "1.1" && httpVersion !== "1.0") throw refused("HTTP/1.1 is spoken here");
  if (rawHeaders.length > 2 * MAX_HEADERS) throw new Refusal("headers_too_large");
  requireOneHost(request);
  requirePlainFraming(request);
}

/** A request's path as sent, without its query string. */
export function pathOf({ url: target = "" }: IncomingMessage): string {
  const query = target.indexOf("?");
  return query === -1 ? target : target.slice(0, query);
}

/** True if the head tells of a body (RFC 9112, section 6). */
export function hasBody(headers: IncomingHttpHeaders): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}
