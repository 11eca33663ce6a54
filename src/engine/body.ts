import type { IncomingMessage } from "node:http";
import { createGrammar } from "../query/grammar.ts";
import { scan } from "../query/scan.ts";
import type { QueryBody } from "../query/shape.ts";
import { EngineRefusal } from "./refusal.ts";

/** The longest body that is read, in bytes. */
export const bodyLimit = 64 * 1024 * 1024;

const grammar = createGrammar({ extraFields: [], operations: {} });
const smallestInteger = -(2n ** 63n);
const largestInteger = 2n ** 63n - 1n;

/**
 * Reads a request's body.
 *
 * Throws `EngineRefusal` `body_too_large` as soon as the body is known to pass the limit.
 */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  if (Number(request.headers["content-length"] ?? 0) > bodyLimit) throw tooLarge();
  const chunks: Buffer[] = [];
  let length = 0;
  // Left open when this throws, the connection still carries the answer.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    length += chunk.length;
    if (length > bodyLimit) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

/**
 * Turns a body into a query. Integers that a double cannot hold become BigInt, so that every
 * 64-bit integer arrives as it was written.
 *
 * Throws `QueryRefused` for a body outside the grammar, and `EngineRefusal`
 * `number_out_of_range` for a number that neither a 64-bit integer nor a double can hold.
 */
export function parseBody(body: Buffer): QueryBody {
  scan(body, grammar);
  const query: QueryBody = JSON.parse(body.toString("utf8"), reviveNumber);
  return query;
}

function reviveNumber(_key: string, value: unknown, context?: { source?: string }): unknown {
  if (typeof value !== "number") return value;
  const source = context?.source ?? "";
  if (!/^-?\d+$/.test(source)) {
    if (!Number.isFinite(value)) throw outOfRange("a number");
    return value;
  }
  if (Number.isSafeInteger(value)) return value;
  if (source.length > 20) throw outOfRange("an integer");
  const integer = BigInt(source);
  if (integer < smallestInteger || integer > largestInteger) throw outOfRange("an integer");
  return integer;
}

function outOfRange(what: string): EngineRefusal {
  return new EngineRefusal(
    "number_out_of_range",
    `The body holds ${what} out of range: integers have 64 bits, other numbers are doubles`,
  );
}

function tooLarge(): EngineRefusal {
  return new EngineRefusal("body_too_large", `A query has at most ${bodyLimit} bytes`);
}
