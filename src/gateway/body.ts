import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { parse } from "content-type";
import type * as z from "zod";
import { keepDigits, requireOneReading } from "../json/document.ts";
import { JsonFault } from "../json/fault.ts";
import { Refusal } from "../refusal.ts";
import { type Exchange, hasBody, payerOf } from "./exchange.ts";

/**
 * Counts the request bodies that are held in memory, so that together they stay within a bound,
 * and that nobody's bodies take more of it than they leave to all others.
 */
export class BodyBudget {
  /** Bytes, no fewer than the largest body may have. */
  limit: number;
  readonly #heldFor = new Map<string, number>();
  #held = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** @throws Refusal `busy` if the bytes would exceed the bound, or the share of who sends them */
  take(exchange: Exchange, bytes: number): void {
    if (exchange.body.heldBytes === 0) exchange.body.heldFor = payerOf(exchange);
    const own = this.#heldFor.get(exchange.body.heldFor) ?? 0;
    const left = this.limit - this.#held - bytes;
    // A single body may have all that is free: nothing but its size limits it.
    const isAlone = own === exchange.body.heldBytes;
    if (left < 0 || (!isAlone && own + bytes > left)) {
      throw new Refusal("busy", { detail: "max_buffered_bytes", retryAfter: 1 });
    }
    this.#held += bytes;
    this.#heldFor.set(exchange.body.heldFor, own + bytes);
    exchange.body.heldBytes += bytes;
  }

  /** Gives back what the exchange holds. */
  release(exchange: Exchange): void {
    const { heldBytes, heldFor } = exchange.body;
    if (heldBytes === 0) return;
    const rest = (this.#heldFor.get(heldFor) ?? 0) - heldBytes;
    if (rest > 0) this.#heldFor.set(heldFor, rest);
    else this.#heldFor.delete(heldFor);
    this.#held -= heldBytes;
    exchange.body.heldBytes = 0;
  }
}

const nothing = Buffer.alloc(0);
/** Bytes of the first buffer for a body that comes in pieces. */
const FIRST_BYTES = 4096;
/** Bytes that are held ready for each that has come, at most. */
const GROWTH = 8;
/** Bytes of a piece whose memory is given back at once. */
const LARGE_PIECE = 16 * 1024;

/**
 * Gives memory back that nobody looks at any more. Left to the collector it would count until that
 * goes through the whole heap, and have it do so after every few large bodies.
 */
function giveBack(piece: Buffer): void {
  const { buffer: memory, length } = piece;
  if (length < LARGE_PIECE || memory.byteLength !== length) return;
  if (memory instanceof ArrayBuffer) memory.transfer(0);
}

/**
 * Gathers a body in one buffer that grows as needed, so that a body in a million pieces costs no
 * more memory than the budget is told.
 */
class BodyCollector {
  readonly #exchange: Exchange;
  readonly #limit: number;
  readonly #budget: BodyBudget;
  /** Bytes that the body will have, as far as it is told: no more is ever held ready. */
  readonly #expected: number;
  #buffer: Buffer = nothing;
  #length = 0;

  /** @param limit bytes that the body may have at most */
  constructor(exchange: Exchange, limit: number, budget: BodyBudget) {
    this.#exchange = exchange;
    this.#limit = limit;
    this.#budget = budget;
    this.#expected = Number(exchange.request.headers["content-length"] ?? limit);
  }

  /** Adds a piece. @throws Refusal `body_too_large` or `busy` */
  add(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#limit) throw bodyTooLarge(this.#limit);
    if (piece.length === this.#expected) {
      // A body in one piece is taken as it is.
      this.#budget.take(this.#exchange, length);
      this.#buffer = piece;
      this.#length = length;
      return;
    }
    if (length > this.#buffer.length) this.#grow(length);
    piece.copy(this.#buffer, this.#length);
    this.#length = length;
    giveBack(piece);
  }

  #grow(needed: number): void {
    const ready = Math.max(GROWTH * this.#length, 2 * this.#buffer.length, FIRST_BYTES);
    const capacity = Math.max(needed, Math.min(ready, this.#expected));
    this.#budget.take(this.#exchange, capacity - this.#buffer.length);
    const grown = Buffer.allocUnsafeSlow(capacity);
    this.#buffer.copy(grown, 0, 0, this.#length);
    giveBack(this.#buffer);
    this.#buffer = grown;
  }

  /** The whole body so far. */
  get body(): Buffer {
    const isFull = this.#length === this.#buffer.length;
    return isFull ? this.#buffer : this.#buffer.subarray(0, this.#length);
  }
}

/** The refusal of a body that is larger than `limit` bytes, which it names. */
function bodyTooLarge(limit: number): Refusal {
  return new Refusal("body_too_large", {
    message: `Request body too large: the limit is ${limit} bytes`,
  });
}

/** Bytes that a body may have on routes that the gateway answers itself. */
export const SMALL_BODY_BYTES = 16 * 1024;

/** `application/json` with parameters as RFC 9110, section 8.3.1, writes them. */
const jsonType =
  /^application\/json[ \t]*(?:;[ \t]*(?:[\w!#$%&'*+.^`|~-]+=(?:[\w!#$%&'*+.^`|~-]+|"[^"\\]*")[ \t]*)?)*$/i;

/** True for `application/json`, in UTF-8 if it says a charset. */
function isJsonType(header: string | undefined): boolean {
  if (header === undefined) return false;
  if (header === "application/json") return true;
  // The parser forgives what another one may read differently, such as a second charset.
  const charsets = header.match(/;[ \t]*charset=/gi)?.length ?? 0;
  if (!jsonType.test(header) || charsets > 1) return false;
  const { charset } = parse(header).parameters;
  return charset === undefined || /^utf-?8$/i.test(charset);
}

/** @throws Refusal `unsupported_media_type` unless the body is plain JSON in UTF-8 */
export function requireJson({ headers }: IncomingMessage): void {
  const encoding = headers["content-encoding"];
  const isPlain = encoding === undefined || encoding.toLowerCase() === "identity";
  if (!isPlain || !isJsonType(headers["content-type"])) throw new Refusal("unsupported_media_type");
}

/** @throws Refusal `body_too_large` if the head tells of more bytes */
export function requireLength({ headers }: IncomingMessage, limit: number): void {
  if (Number(headers["content-length"] ?? 0) > limit) throw bodyTooLarge(limit);
}

/** Who wants a body. */
interface BodyReceiver {
  /** The body is there, whole. */
  take(body: Buffer): void;
  /** Refusal `body_too_large` or `busy`. */
  fail(error: unknown): void;
}

/**
 * Reads the whole body. If the client goes away before its end, the receiver is told nothing: its
 * exchange ends like any other.
 *
 * @param limit bytes
 * @throws Refusal `body_too_large` if the head says so
 */
export function readBody(
  exchange: Exchange,
  limit: number,
  budget: BodyBudget,
  receiver: BodyReceiver,
): void {
  const { request } = exchange;
  requireLength(request, limit);
  exchange.inviteBody();
  const collector = new BodyCollector(exchange, limit, budget);
  const onData = (piece: Buffer): void => {
    try {
      collector.add(piece);
    } catch (error) {
      request.off("data", onData).off("end", onEnd).pause();
      receiver.fail(error);
    }
  };
  const onEnd = (): void => receiver.take(collector.body);
  request.on("data", onData).on("end", onEnd);
}

/** What is wrong with a body, in the terms of its fields; an unknown field is named first. */
function describe(issues: readonly z.core.$ZodIssue[]): string {
  const unknown = issues.find((issue) => issue.code === "unrecognized_keys");
  if (unknown !== undefined)
    return `unknown field ${unknown.keys.map((key) => JSON.stringify(key)).join(", ")}`;
  const [issue] = issues;
  if (issue === undefined) return "not as expected";
  const field = issue.path.join(".");
  if (issue.code !== "invalid_type")
    return field === "" ? issue.message : `${field}: ${issue.message}`;
  if (field === "") return `${issue.expected} expected`;
  return issue.input === undefined ? `${field} is missing` : `${field} must be a ${issue.expected}`;
}

/**
 * Reads a small JSON body into the shape that the route expects.
 *
 * @throws Refusal `invalid_body` saying what is wrong, JsonFault `duplicate_key`
 */
export function parseBody<Shape extends z.ZodType>(body: Buffer, shape: Shape): z.output<Shape> {
  try {
    requireOneReading(body);
  } catch (error) {
    if (!(error instanceof JsonFault) || error.code === "duplicate_key") throw error;
    const message = `Request body is not valid JSON: ${error.message}`;
    throw new Refusal("invalid_body", { message, cause: error });
  }
  const parsed = shape.safeParse(JSON.parse(body.toString(), keepDigits), { reportInput: true });
  if (parsed.success) return parsed.data;
  const message = `Invalid request body: ${describe(parsed.error.issues)}`;
  throw new Refusal("invalid_body", { message });
}

/** Bytes of a body that is of no use which are read all the same, to keep the connection. */
const SMALL_BYTES = 16 * 1024;
/** Bytes of a larger one that are read so that its sender gets to see the answer. */
const DROPPED_BYTES = 64 * 1024 * 1024;
/** As many of one that says to be longer than that: its end is never seen. */
const BEGUN_BYTES = 1024 * 1024;
/** Milliseconds for which such bytes are read. */
const DROPPING_MS = 10_000;
/** Milliseconds of silence after which the sender is taken to have the answer. */
const UNREAD_LINGER_MS = 1000;

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
  const timer = setTimeout(done, UNREAD_LINGER_MS);
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
  const timer = setTimeout(() => socket.destroy(), UNREAD_LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}
