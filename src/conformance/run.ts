import { batchKey } from "../query/grammar.ts";
import type { Level } from "../query/kind.ts";
import { askTarget } from "../upstream/ask-target.ts";
import { parseTarget } from "../upstream/target.ts";
import {
  type Case,
  isObject,
  type JsonObject,
  parseJson,
  type Section,
  writeJson,
} from "./cases.ts";
import { differenceOf, type Received } from "./difference.ts";

/** Sends the cases to a database, section by section, each over databases of its own. */

/** A case that was not answered as it should be. */
export interface Failure {
  readonly section: string;
  readonly name: string;
  /** The body, as it was sent. */
  readonly sent: string;
  readonly expected: { readonly status: number; readonly answer: string };
  readonly got: { readonly status: number; readonly answer: string };
  /** The first thing that differs, in a sentence. */
  readonly difference: string;
}

/** What came of a section. */
export interface SectionResult {
  readonly name: string;
  readonly cases: number;
  readonly failures: readonly Failure[];
}

/** The sections that a database of this level has to answer. */
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

/** A body whose databases are called as `nameOf` says. */
function placed(body: JsonObject, nameOf: (database: string) => string): JsonObject {
  const [[key, value = null] = ["", null]] = Object.entries(body);
  if (key === batchKey && Array.isArray(value)) {
    return { [key]: value.map((one) => (isObject(one) ? placed(one, nameOf) : one)) };
  }
  if (!isObject(value)) return body;
  const { database } = value;
  // A Preview has its operation where others have their fields.
  if (typeof database !== "string") return { [key]: placed(value, nameOf) };
  return { [key]: { ...value, database: nameOf(database) } };
}

const ANSWER_TIMEOUT_MS = 60_000;

/** Sends a body to `POST /query`. Rejects if no answer comes. */
export type Send = (body: string) => Promise<Received>;

/**
 * A way to send queries to `http://host:port`, `https://host:port` or `unix:/path`.
 *
 * @param authorization the `Authorization` header of each, if any
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
