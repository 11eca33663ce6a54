import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Exchange } from "./exchange.ts";
import { hasBody } from "./request-head.ts";

/** Bytes of a body that is of no use which are read all the same, to keep the connection. */
const SMALL_BYTES = 16 * 1024;
/** Bytes of a larger one that are read so that its sender gets to see the answer. */
const DROPPED_BYTES = 64 * 1024 * 1024;
/** As many of one that says to be longer than that: its end is never seen. */
const BEGUN_BYTES = 1024 * 1024;
/** Milliseconds for which such bytes are read. */
const DROPPING_MS = 10_000;
/** Milliseconds of silence after which the sender is taken to have the answer. */
const LINGER_MS = 1000;

/**
 * True if a body is still on its way that nobody wants, and that is too long, or of no known
 * length, to wait for its end: then the answer must be the connection's last.
 */
export function leavesBodyUnread({ request, body }: Exchange): boolean {
  const { headers, complete } = request;
  if (complete || !hasBody(headers)) return false;
  if (body.isLost) return true;
  // Who waits to be asked may send the body or not: nobody could tell where the next request is.
  if (headers.expect !== undefined && !body.isInvited) return true;
  return !(Number(headers["content-length"]) <= SMALL_BYTES);
}

/**
 * Reads a body for nothing, within bounds: some clients look for an answer only when they have sent
 * all, and to close before that could take it away from them (RFC 9112, section 9.6).
 *
 * @param done called once, when all has come, nothing comes any more, or it is too much
 */
function dropRest(request: IncomingMessage, done: () => void): void {
  const startedAt = performance.now();
  const isEndless = Number(request.headers["content-length"]) > DROPPED_BYTES;
  const limit = isEndless ? BEGUN_BYTES : DROPPED_BYTES;
  let dropped = 0;
  const timer = setTimeout(done, LINGER_MS);
  request.on("data", (piece: Buffer) => {
    dropped += piece.length;
    const isTooMuch = dropped > limit || performance.now() - startedAt > DROPPING_MS;
    if (isTooMuch) request.pause();
    else timer.refresh();
  });
  request.once("end", () => {
    clearTimeout(timer);
    done();
  });
  request.socket.once("close", () => clearTimeout(timer));
  // What it went up to would pause it when that is ended.
  request.unpipe().resume();
}

/**
 * Ends an answer whose request is still arriving. The connection is closed as soon as that is over,
 * and in any case soon.
 */
export function endBeforeBody(exchange: Exchange, answer: string | Buffer | undefined): void {
  const { request, response, body } = exchange;
  if (body.isLost || (request.headers.expect !== undefined && !body.isInvited)) {
    response.end(answer);
    return;
  }
  body.isDropped = true;
  if (answer === undefined) response.flushHeaders();
  else response.write(answer);
  dropRest(request, () => response.end());
}

/**
 * Closes the connection behind an answer that went out before its request had arrived whole, as an
 * upstream's may. What comes behind the body is not taken for a request.
 */
export function closeBehindAnswer({ request }: Exchange): void {
  const { complete, headers, socket } = request;
  if (complete || !hasBody(headers)) return;
  if (Number(headers["content-length"]) <= SMALL_BYTES) {
    request.resume();
    return;
  }
  socket.end();
  dropRest(request, () => endConnection(socket));
}

/** Ends a connection, and closes it soon if the client does not. */
export function endConnection(socket: Socket): void {
  socket.end();
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}
