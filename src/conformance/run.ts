import { batchKey } from "../query/grammar.ts";
import type { Level } from "../query/kind.ts";
import { askTarget, type WholeAnswer } from "../upstream/health-check.ts";
import { parseTarget } from "../upstream/target.ts";
import {
  type Case,
  isObject,
  isSameNumber,
  type Json,
  JsonNumber,
  type JsonObject,
  parseJson,
  type Section,
  writeJson,
} from "./cases.ts";

interface Received extends WholeAnswer {
  /** Undefined if the body is not JSON. */
  readonly body: Json | undefined;
}

/** Members that an answer may always have; their content is up to the database. */
const free: ReadonlySet<string> = new Set(["message", "affected", "request_id"]);

function differenceOf(expected: Case, { status, type, body }: Received): string | undefined {
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

/**
 * Rows of a Select without `order_by` may come in any order. Messages in a Batch are not compared.
 */
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

/** The first difference; the order of object members counts. */
function differs(expected: Json, got: Json | undefined, path: string): string | undefined {
  if (got === undefined) return `${path} is missing`;
  if (Array.isArray(expected) && Array.isArray(got)) {
    if (got.length !== expected.length) return lengths(expected, got, path);
    for (const [index, value] of expected.entries()) {
      const found = differs(value, got[index], `${path}[${index}]`);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  if (isObject(expected) && isObject(got)) {
    const [names, others] = [Object.keys(expected), Object.keys(got)];
    if (names.join("\0") !== others.join("\0")) {
      return `${path} has the keys ${others.join(", ")}, not ${names.join(", ")}`;
    }
    for (const [name, value] of Object.entries(expected)) {
      const found = differs(value, got[name], `${path}.${name}`);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  const isSame =
    expected instanceof JsonNumber && got instanceof JsonNumber
      ? isSameNumber(expected, got)
      : expected === got;
  return isSame ? undefined : `${path} is ${writeJson(got)}, not ${writeJson(expected)}`;
}

/** Sends the cases to a database section by section, each with its own databases. */

interface Failure {
  readonly section: string;
  readonly name: string;
  readonly sent: string;
  readonly expected: { readonly status: number; readonly answer: string };
  readonly got: { readonly status: number; readonly answer: string };
  readonly difference: string;
}

export interface SectionResult {
  readonly name: string;
  readonly cases: number;
  readonly failures: readonly Failure[];
}

export function sectionsAt(level: Level, sections: readonly Section[]): readonly Section[] {
  return sections.filter((section) => level === "full" || section.level === level);
}

/** Runs one section in databases whose names begin with `prefix`, and drops them. */
export async function runSection(
  { name, cases }: Section,
  prefix: string,
  send: Send,
): Promise<SectionResult> {
  const others = new Set<string>();
  const nameOf = (database: string) => {
    if (database === "main") return prefix;
    others.add(`${prefix}_${database}`);
    return `${prefix}_${database}`;
  };
  const failures: Failure[] = [];
  const check = async (one: Case): Promise<boolean> => {
    const failure = await runCase(name, one, nameOf, send);
    if (failure !== undefined) failures.push(failure);
    return failure === undefined;
  };
  try {
    const isThere = await check(administration("CreateDatabase", "the section's database is made"));
    if (isThere) for (const one of cases) await check(one);
  } finally {
    await check(administration("DropDatabase", "the section's database is dropped"));
    for (const left of others) {
      await send(`{"DropDatabase": {"database": ${JSON.stringify(left)}}}`);
    }
  }
  return { name, cases: cases.length + 2, failures };
}

function administration(operation: string, name: string): Case {
  return {
    name,
    send: { [operation]: { database: "main" } },
    status: 200,
    answer: { status: "success", message: "" },
  };
}

async function runCase(
  section: string,
  one: Case,
  nameOf: (database: string) => string,
  send: Send,
): Promise<Failure | undefined> {
  const sent = writeJson(placed(one.send, nameOf));
  const received = await send(sent);
  const difference = differenceOf(one, received);
  if (difference === undefined) return undefined;
  const expected = { status: one.status, answer: writeJson(one.answer) };
  const got = { status: received.status, answer: received.text };
  return { section, name: one.name, sent, expected, got, difference };
}

function placed(body: JsonObject, nameOf: (database: string) => string): JsonObject {
  const [[key, value = null] = ["", null]] = Object.entries(body);
  if (key === batchKey && Array.isArray(value)) {
    return { [key]: value.map((one) => (isObject(one) ? placed(one, nameOf) : one)) };
  }
  if (!isObject(value)) return body;
  const { database } = value;
  // A Preview holds its operation where others have their fields.
  if (typeof database !== "string") return { [key]: placed(value, nameOf) };
  return { [key]: { ...value, database: nameOf(database) } };
}

const ANSWER_TIMEOUT_MS = 60_000;

/** Sends a body to `POST /query`. Rejects if there is no answer. */
export type Send = (body: string) => Promise<Received>;

/**
 * Connects to `http://host:port`, `https://host:port` or `unix:/path`.
 *
 * @param authorization the `Authorization` header of each request, if any
 */
export function connectTo(url: string, authorization: string | undefined): Send {
  const target = parseTarget(url);
  const headers = {
    "content-type": "application/json",
    accept: "application/json",
    ...(authorization === undefined ? {} : { authorization }),
  };
  return async (body) => {
    const answer = await askTarget(target, {
      ...{ method: "POST", path: "/query", body },
      headers: { ...headers, "content-length": Buffer.byteLength(body) },
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
    return { ...answer, body: parsed(answer.text) };
  };
}

function parsed(text: string): Received["body"] {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
