import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { parse } from "content-type";
import * as z from "zod";
import { issueCode } from "../administration/actions.ts";
import { Sums } from "../base/queues.ts";
import { Refusal } from "../base/refusal.ts";
import { keepDigits, parseUnrounded } from "../json/exact.ts";
import { JsonFault, quoteName } from "../json/fault.ts";
import { requireOneReading } from "../json/one-reading.ts";
import { freeMemory } from "../upstream/http1/connection.ts";
import { type Exchange, fairnessKey, hasBody } from "./exchange.ts";

/**
 * Limits the memory that request bodies take. All bodies together stay within `limit`, and one
 * user's bodies never take more than they leave free for everyone else.
 */
export class BodyBudget {
  limit: number;
  readonly #heldBy = new Sums();
  #held = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** @throws Refusal `busy` if the bytes exceed the limit or the sender's share */
  take(exchange: Exchange, bytes: number): void {
    if (exchange.body.heldBytes === 0) exchange.body.chargedTo = fairnessKey(exchange);
    const own = this.#heldBy.of(exchange.body.chargedTo);
    const left = this.limit - this.#held - bytes;
    // A sender's only body may use all free memory. Only its own size limit applies.
    const isOnly = own === exchange.body.heldBytes;
    if (left < 0 || (!isOnly && own + bytes > left)) {
      throw new Refusal("busy", { detail: "max_buffered_bytes", retryAfter: 1 });
    }
    this.#held += bytes;
    this.#heldBy.add(exchange.body.chargedTo, bytes);
    exchange.body.heldBytes += bytes;
  }

  release(exchange: Exchange): void {
    const { heldBytes, chargedTo } = exchange.body;
    if (heldBytes === 0) return;
    this.#heldBy.add(chargedTo, -heldBytes);
    this.#held -= heldBytes;
    exchange.body.heldBytes = 0;
  }
}

export function bodyTooLarge(limit: number): Refusal {
  return new Refusal("body_too_large", {
    message: `Request body too large: the limit is ${limit} bytes`,
  });
}

/** Unneeded bodies up to this size are read so that the connection can be kept. */
export const SMALL_BODY_BYTES = 16 * 1024;

/** `application/json` with parameters (RFC 9110, section 8.3.1). */
const jsonType =
  /^application\/json[ \t]*(?:;[ \t]*(?:[\w!#$%&'*+.^`|~-]+=(?:[\w!#$%&'*+.^`|~-]+|"[^"\\]*")[ \t]*)?)*$/i;

function isJsonType(header: string | undefined): boolean {
  if (header === undefined) return false;
  if (header === "application/json") return true;
  // Other parsers find a charset also in `charset*` (RFC 8187), within quotes, or twice.
  const charsets = header.match(/charset/gi)?.length ?? 0;
  if (!jsonType.test(header) || charsets > 1) return false;
  return charsets === 0 || /^utf-?8$/i.test(parse(header).parameters.charset ?? "");
}

export function requireJson({ headers }: IncomingMessage): void {
  const encoding = headers["content-encoding"];
  const isPlain = encoding === undefined || encoding.toLowerCase() === "identity";
  if (!isPlain || !isJsonType(headers["content-type"])) throw new Refusal("unsupported_media_type");
}

export function requireLength({ headers }: IncomingMessage, limit: number): void {
  if (Number(headers["content-length"] ?? 0) > limit) throw bodyTooLarge(limit);
}

const FIRST_CAPACITY_BYTES = 4096;
/** The largest ratio of allocated bytes to received bytes, if the length is not declared. */
const GROWTH = 8;
const nothing = Buffer.alloc(0);

/**
 * Reads the whole body into one buffer, so a body in a million pieces uses no more memory than the
 * budget counts. If the client disconnects first, the promise stays pending, and the exchange ends
 * as usual.
 *
 * A declared length is reserved before the first byte is read. Otherwise many bodies could each
 * hold a part of the budget, and none could be read to its end.
 *
 * @param limit in bytes
 * @throws Refusal `body_too_large` if the head announces more, `busy` if there is no room for it
 */
export function readBody(exchange: Exchange, limit: number, budget: BodyBudget): Promise<Buffer> {
  const { request } = exchange;
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  requireLength(request, limit);
  const declared = request.headers["content-length"];
  const expected = Number(declared ?? limit);
  let reserved = 0;
  if (declared !== undefined) reserve(expected);
  exchange.sendContinue();
  let buffer: Buffer<ArrayBuffer> = nothing;
  let length = 0;

  function reserve(bytes: number): void {
    if (bytes <= reserved) return;
    budget.take(exchange, bytes - reserved);
    reserved = bytes;
  }

  function add(piece: Buffer<ArrayBuffer>): void {
    const needed = length + piece.length;
    if (needed > limit) throw bodyTooLarge(limit);
    if (piece.length === expected) {
      // A body that arrives in one piece is used without copying.
      buffer = piece;
    } else {
      if (needed > buffer.length) grow(needed);
      piece.copy(buffer, length);
      freeMemory(piece);
    }
    length = needed;
  }

  function grow(needed: number): void {
    const ready = Math.min(Math.max(GROWTH * length, FIRST_CAPACITY_BYTES), limit);
    const capacity = declared === undefined ? Math.max(needed, ready) : expected;
    reserve(capacity);
    const grown = Buffer.allocUnsafeSlow(capacity);
    buffer.copy(grown, 0, 0, length);
    freeMemory(buffer);
    buffer = grown;
  }

  const onData = (piece: Buffer<ArrayBuffer>): void => {
    try {
      add(piece);
    } catch (error) {
      request.off("data", onData).off("end", onEnd).pause();
      // The rest of the body may arrive for a long time, and others need the room now.
      budget.release(exchange);
      freeMemory(buffer);
      reject(error);
    }
  };
  const onEnd = (): void => resolve(buffer.subarray(0, length));
  request.on("data", onData).on("end", onEnd);
  return promise;
}

function describe(issues: readonly z.core.$ZodIssue[], shape: z.ZodType): string {
  const unknown = issues.find((issue) => issue.code === "unrecognized_keys");
  if (unknown !== undefined) {
    const whole = shape instanceof z.ZodPipe ? shape.in : shape;
    const isOfBody = unknown.path.length === 0 && whole instanceof z.ZodObject;
    const hint = isOfBody ? `; allowed: ${Object.keys(whole.shape).join(", ")}` : "";
    return `unknown field ${unknown.keys.map(quoteName).join(", ")}${hint}`;
  }
  const [issue] = issues;
  if (issue === undefined) return "not as expected";
  const field = issue.path.join(".");
  if (issue.code !== "invalid_type")
    return field === "" ? issue.message : `${field}: ${issue.message}`;
  if (field === "") return `${issue.expected} expected`;
  if (issue.input === undefined) return `${field} is missing`;
  return `${field} must be ${/^[ao]/.test(issue.expected) ? "an" : "a"} ${issue.expected}`;
}

/** @throws Refusal `invalid_body` with the validation errors, JsonFault `duplicate_key` */
export function parseBody<Shape extends z.ZodType>(body: Buffer, shape: Shape): z.output<Shape> {
  try {
    requireOneReading(body);
  } catch (error) {
    if (!(error instanceof JsonFault) || error.code === "duplicate_key") throw error;
    const message = `Request body is not valid JSON: ${error.message}`;
    throw new Refusal("invalid_body", { message, cause: error });
  }
  const parsed = shape.safeParse(parseUnrounded(body.toString(), keepDigits), {
    reportInput: true,
  });
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  const refused = issues.map(issueCode);
  // A field of the wrong type is named before any whose text does not fit.
  if (refused[0] !== undefined && !refused.includes(undefined)) throw new Refusal(refused[0]);
  const others = issues.filter((_, at) => refused[at] === undefined);
  throw new Refusal("invalid_body", {
    message: `Invalid request body: ${describe(others, shape)}`,
  });
}

/** The rest of a body is read up to this limit, so that the sender gets to see the response. */
const DROPPED_BYTES = 64 * 1024 * 1024;
/** For bodies that announce more than `DROPPED_BYTES`, whose end is never reached. */
const BEGUN_BYTES = 1024 * 1024;
const DROPPING_MS = 10_000;
const UNREAD_LINGER_MS = 1000;

/** True if an unneeded body is still arriving and is too long to wait for. */
export function leavesBodyUnread({ request, body }: Exchange): boolean {
  const { headers, complete } = request;
  if (complete || !hasBody(headers)) return false;
  if (body.isLost) return true;
  // A client that sent `Expect` may send the body or not, so the start of the next request is
  // unknown.
  if (headers.expect !== undefined && !body.continueSent) return true;
  return !(Number(headers["content-length"]) <= SMALL_BODY_BYTES);
}

/**
 * Discards the rest of a body, within limits. Some clients read the response only after they have
 * sent everything, and closing earlier could lose it (RFC 9112, section 9.6).
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
  // The forwarding stream would pause the request when that stream ends.
  request.unpipe().resume();
}

/** Ends a response once its request has arrived, or after a short time. */
export function endBeforeBody(exchange: Exchange, answer: string | Buffer | undefined): void {
  const { request, response, body } = exchange;
  if (body.isLost || (request.headers.expect !== undefined && !body.continueSent)) {
    response.end(answer);
    return;
  }
  body.isDropped = true;
  if (answer === undefined) response.flushHeaders();
  else response.write(answer);
  dropRest(request, () => response.end());
}

export function closeAfterResponse({ request }: Exchange): void {
  const { complete, headers, socket } = request;
  if (complete || !hasBody(headers)) return;
  if (Number(headers["content-length"]) <= SMALL_BODY_BYTES) {
    request.resume();
    return;
  }
  socket.end();
  dropRest(request, () => endConnection(socket));
}

/** Ends a connection. If the client does not close it too, it is destroyed after a short time. */
export function endConnection(socket: Duplex): void {
  socket.end();
  closeSoon(socket);
}

export function closeSoon(socket: Duplex): void {
  const timer = setTimeout(() => socket.destroy(), UNREAD_LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}
