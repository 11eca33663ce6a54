/** An answer held against the one that is expected. */

import type { WholeAnswer } from "../upstream/ask-target.ts";
import {
  type Case,
  isObject,
  isSameNumber,
  type Json,
  JsonNumber,
  type JsonObject,
  writeJson,
} from "./cases.ts";

/** What came back. */
export interface Received extends WholeAnswer {
  /** The body; undefined if it is no JSON. */
  readonly body: Json | undefined;
}

/** Members that an answer may have though none is expected: what they say is the database's own. */
const free: ReadonlySet<string> = new Set(["message", "affected", "request_id"]);

/** How an answer differs from what is expected, in a sentence; undefined if it does not. */
export function differenceOf(expected: Case, { status, type, body }: Received): string | undefined {
  if (status !== expected.status) return `the status is ${status}, not ${expected.status}`;
  if (!/^application\/json\s*(?:;|$)/i.test(type)) {
    return `the Content-Type is ${JSON.stringify(type)}, not application/json`;
  }
  if (body === undefined) return "the body is no JSON";
  if (!isObject(body)) return "the body is no JSON object";
  const { message, ...others } = expected.answer;
  if (message !== undefined && (typeof body.message !== "string" || body.message === "")) {
    return "message is no text";
  }
  for (const name of Object.keys(body)) {
    if (!(name in expected.answer) && !free.has(name)) return `${name} is not expected`;
  }
  for (const [name, value] of Object.entries(others)) {
    const found =
      name === "data" ? dataDifference(expected, value, body) : differs(value, body[name], name);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Rows of a Select without `order_by` may come in any order; what an element of a Batch says in words is free. */
function dataDifference({ send }: Case, expected: Json, { data }: JsonObject): string | undefined {
  const elements = send.Batch;
  if (!Array.isArray(elements)) return rowsDifference(send, expected, data, "data");
  if (!Array.isArray(expected) || !Array.isArray(data)) return differs(expected, data, "data");
  if (data.length !== expected.length) return lengths(expected, data, "data");
  for (const [index, wanted] of expected.entries()) {
    const [got, path] = [data[index], `data[${index}]`];
    if (typeof wanted === "string") {
      if (typeof got !== "string") return `${path} is no text`;
      continue;
    }
    const found = rowsDifference(elements[index], wanted, got, path);
    if (found !== undefined) return found;
  }
  return undefined;
}

function rowsDifference(
  send: Json | undefined,
  expected: Json,
  got: Json | undefined,
  path: string,
): string | undefined {
  const select = isObject(send) ? send.Select : undefined;
  const isFreeOrder = isObject(select) && select.order_by === undefined;
  if (!isFreeOrder || !Array.isArray(expected) || !Array.isArray(got) || expected.length < 2) {
    return differs(expected, got, path);
  }
  if (got.length !== expected.length) return lengths(expected, got, path);
  const left = [...got];
  for (const row of expected) {
    const at = left.findIndex((candidate) => differs(row, candidate, path) === undefined);
    if (at < 0) return `${path} has no row ${writeJson(row)}`;
    left.splice(at, 1);
  }
  return undefined;
}

function lengths(expected: Json[], got: Json[], path: string): string {
  return `${path} has ${got.length} elements, not ${expected.length}`;
}

/** The first difference; members of objects are compared in their order too. */
function differs(expected: Json, got: Json | undefined, path: string): string | undefined {
  if (got === undefined) return `${path} is missing`;
  if (Array.isArray(expected) && Array.isArray(got)) {
    if (got.length !== expected.length) return lengths(expected, got, path);
    return first(
      expected.map((value, index) => () => differs(value, got[index], `${path}[${index}]`)),
    );
  }
  if (isObject(expected) && isObject(got)) {
    const [names, others] = [Object.keys(expected), Object.keys(got)];
    if (names.join("\0") !== others.join("\0")) {
      return `${path} has the keys ${others.join(", ")}, not ${names.join(", ")}`;
    }
    return first(
      names.map((name) => () => differs(expected[name] ?? null, got[name], `${path}.${name}`)),
    );
  }
  const isSame =
    expected instanceof JsonNumber && got instanceof JsonNumber
      ? isSameNumber(expected, got)
      : expected === got;
  return isSame ? undefined : `${path} is ${writeJson(got)}, not ${writeJson(expected)}`;
}

function first(comparisons: readonly (() => string | undefined)[]): string | undefined {
  for (const compare of comparisons) {
    const found = compare();
    if (found !== undefined) return found;
  }
  return undefined;
}
