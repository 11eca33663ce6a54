import type { Socket } from "node:net";
import type { Exchange } from "./exchange.ts";
import { hasBody } from "./request-head.ts";

/** Bytes of a body that is of no use which are read all the same, to keep the connection. */
const SMALL_BYTES = 16 * 1024;
/** Bytes of a larger one that are read so that its sender gets to see the answer. */
const DROPPED_BYTES = 1024 * 1024;
/** Milliseconds that the sender has to take the answer. */
const LINGER_MS = 1000;

/**
 * True if a body is still on its way that nobody wants, and that is too long, or of no known
 * length, to wait for its end: then the answer must be the connection's last.
 */
export function leavesBodyUnread({ request, isBodyInvited, isBodyLost }: Exchange): boolean {
  const { headers, complete } = request;
  if (complete || !hasBody(headers)) return false;
  if (isBodyLost) return true;
  // Who waits to be asked may send the body or not: nobody could tell where the next request is.
  if (headers.expect !== undefined && !isBodyInvited) return true;
  return !(Number(headers["content-length"]) <= SMALL_BYTES);
}

/**
 * Ends an answer whose request is still arriving. The connection is closed as soon as that is over,
 * and in any case soon: closing at once could take the answer away from a client that is sending
 * (RFC 9112, section 9.6).
 */
export function endBeforeBody(exchange: Exchange, answer: string | Buffer | undefined): void {
  const { request, response, isBodyInvited, isBodyLost } = exchange;
  if (isBodyLost || (request.headers.expect !== undefined && !isBodyInvited)) {
    response.end(answer);
    return;
  }
  exchange.isAnswered = true;
  if (answer === undefined) response.flushHeaders();
  else response.write(answer);
  let dropped = 0;
  const timer = setTimeout(() => response.end(), LINGER_MS);
  request.on("data", (piece: Buffer) => {
    dropped += piece.length;
    if (dropped > DROPPED_BYTES) request.pause();
  });
  request.once("end", () => response.end());
  response.once("close", () => clearTimeout(timer));
  request.resume();
}

/**
 * Closes the connection behind an answer that went out before its request had arrived whole, as an
 * upstream's may: the rest of the body would be read for nothing.
 */
export function closeBehindAnswer({ request }: Exchange): void {
  if (request.complete || !hasBody(request.headers)) return;
  if (Number(request.headers["content-length"]) <= SMALL_BYTES) {
    request.resume();
    return;
  }
  endConnection(request.socket);
}

/** Ends a connection, and closes it soon if the client does not. */
export function endConnection(socket: Socket): void {
  socket.end();
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}
