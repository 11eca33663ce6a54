import type { IncomingMessage } from "node:http";
import { parse } from "content-type";
import type * as z from "zod";
import { requireOneReading } from "../json/document.ts";
import { keepDigits } from "../json/exact-numbers.ts";
import { JsonFault } from "../json/fault.ts";
import { Refusal } from "../refusal.ts";
import { type BodyBudget, BodyCollector, bodyTooLarge } from "./body-collector.ts";
import type { Exchange } from "./exchange.ts";

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
export interface BodyReceiver {
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
