import { isUtf8 } from "node:buffer";
import type { IncomingMessage } from "node:http";
import { parse } from "content-type";
import type * as z from "zod";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";

/** Bytes that a body may have on routes that the gateway answers itself. */
export const SMALL_BODY_BYTES = 16 * 1024;

/** Counts the request bodies that are held in memory, so that together they stay within a bound. */
export class BodyBudget {
  readonly #limit: number;
  #held = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** @throws Refusal `busy` if the bytes would exceed the bound */
  take(exchange: Exchange, bytes: number): void {
    if (this.#held + bytes > this.#limit) {
      throw new Refusal("busy", { detail: "max_buffered_bytes", retryAfter: 1 });
    }
    this.#held += bytes;
    exchange.heldBytes += bytes;
  }

  /** Gives back what the exchange holds. */
  release(exchange: Exchange): void {
    this.#held -= exchange.heldBytes;
    exchange.heldBytes = 0;
  }
}

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

function tooLarge(limit: number): Refusal {
  return new Refusal("body_too_large", {
    message: `Request body too large: the limit is ${limit} bytes`,
  });
}

/**
 * Reads the whole body.
 *
 * @param limit bytes
 * @throws Refusal `body_too_large` or `busy`; an error without an answer if the client goes away
 */
export async function readBody(
  exchange: Exchange,
  limit: number,
  budget: BodyBudget,
): Promise<Buffer> {
  const { request, response } = exchange;
  if (Number(request.headers["content-length"] ?? 0) > limit) throw tooLarge(limit);
  if (request.headers.expect !== undefined) response.writeContinue();
  const chunks: Buffer[] = [];
  let length = 0;
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const onData = (chunk: Buffer): void => {
    length += chunk.length;
    try {
      if (length > limit) throw tooLarge(limit);
      budget.take(exchange, chunk.length);
      chunks.push(chunk);
    } catch (error) {
      request.off("data", onData);
      // The rest is read and dropped, so that the client gets to see the answer.
      request.resume();
      reject(error);
    }
  };
  request.on("data", onData);
  request.once("end", () => {
    const [only] = chunks;
    resolve(chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, length));
  });
  request.once("error", reject);
  return promise;
}

function describe(issue: z.core.$ZodIssue | undefined): string {
  const where = issue?.path.join(".") ?? "";
  return where === "" ? (issue?.message ?? "") : `${where}: ${issue?.message ?? ""}`;
}

/**
 * Reads a small JSON body into the shape that the route expects.
 *
 * @throws Refusal `invalid_body` saying what is wrong
 */
export function parseBody<Shape extends z.ZodType>(body: Buffer, shape: Shape): z.output<Shape> {
  let content: unknown;
  try {
    if (!isUtf8(body)) throw new SyntaxError("not UTF-8");
    content = JSON.parse(body.toString());
  } catch (cause) {
    throw new Refusal("invalid_body", { message: "Request body is not valid JSON", cause });
  }
  const parsed = shape.safeParse(content);
  if (parsed.success) return parsed.data;
  const message = `Invalid request body: ${describe(parsed.error.issues[0])}`;
  throw new Refusal("invalid_body", { message });
}
