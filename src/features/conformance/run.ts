import { readFileSync } from "node:fs";
import * as z from "zod";
import {
  isObject as isRecord,
  type JsonObject,
  parseIfJson,
  parseUnrounded,
} from "../../core/json/exact.ts";
import { batchKey } from "../../core/query/grammar.ts";
import type { Level } from "../../core/query/kind.ts";
import { askTarget, type WholeAnswer } from "../../core/upstream/health-check.ts";
import { parseTarget } from "../../core/upstream/target.ts";

/** Numbers that a double would change are raw JSON (`JSON.isRawJSON`). */
export function isObject(value: unknown): value is JsonObject {
  return isRecord(value) && !JSON.isRawJSON(value);
}

/** Formats a value on one line, with a space after `:` and `,`. */
export function writeJson(value: unknown): string {
  return JSON.stringify(value, null, 1)
    .replace(/(?<=[{[])\n *|\n *(?=[}\]])/g, "")
    .replace(/\n */g, " ");
}

/** Writes equal numbers alike: 1.50, 1.5 and 15e-1 all become 15e-1. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member !== "number" && !JSON.isRawJSON(member)) return member;
    const [, sign = "", whole = "", fraction = "", power = "0"] =
      /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(JSON.stringify(member)) ?? [];
    const digits = (whole + fraction).replace(/^0+/, "");
    const kept = digits.replace(/0+$/, "");
    if (kept === "") return 0;
    const exponent = Number(power) - fraction.length + digits.length - kept.length;
    return JSON.rawJSON(`${sign}${kept}e${exponent}`);
  });
}

export const casesFile = new URL("../../../schemas/query.cases.json", import.meta.url);

const object = z.custom<JsonObject>(isObject);

/** The database `main` in `send` is replaced by one created for the section. */
const caseShape = z.strictObject({
  name: z.string(),
  send: object,
  status: z.number(),
  answer: object,
});
export type Case = z.infer<typeof caseShape>;

/** Cases that build on each other, on a database that is empty at first. */
const sectionShape = z.strictObject({
  name: z.string(),
  level: z.enum(["core", "full"]),
  cases: z.array(caseShape),
});
export type Section = z.infer<typeof sectionShape>;

const file = z.strictObject({ about: z.string(), sections: z.array(sectionShape) });

export function readCases(): z.infer<typeof file> {
  return file.parse(parseUnrounded(readFileSync(casesFile, "utf8")));
}

interface Received extends WholeAnswer {
  /** Undefined if the body is not JSON. */
  readonly body: unknown;
}

/** Members that an answer may always have. Their content is up to the database. */
const free: ReadonlySet<string> = new Set(["message", "affected", "constraint", "request_id"]);

function findDifference(expected: Case, { status, type, body }: Received): string | undefined {
  if (status !== expected.status) return `the status is ${status}, not ${expected.status}`;
  if (!/^application\/json\s*(?:;|$)/i.test(type)) {
    return `the Content-Type is ${JSON.stringify(type)}, not application/json`;
  }
  if (body === undefined) return "the body is no JSON";
  if (!isObject(body)) return "the body is no JSON object";
  const hasMessage = typeof body.message === "string" && body.message !== "";
  if ("message" in expected.answer && !hasMessage) return "message is no text";
  const unexpected = Object.keys(body).find((name) => !(name in expected.answer || free.has(name)));
  if (unexpected !== undefined) return `${unexpected} is not expected`;
  const names = Object.keys(expected.answer).filter(
    (name) => !/^(?:message|constraint)$/.test(name),
  );
  return firstDefined(names, (name) => {
    const [wanted, got] = [expected.answer[name], body[name]];
    return name === "data"
      ? dataDifference(expected.send, wanted, got, name)
      : differs(wanted, got, name);
  });
}

/**
 * Rows of a Select without `order_by` may come in any order. Messages in a Batch are not compared.
 */
function dataDifference(
  send: unknown,
  expected: unknown,
  got: unknown,
  path: string,
): string | undefined {
  const { Batch: elements, Select: select } = isObject(send) ? send : {};
  const isFreeOrder = isObject(select) && select.order_by === undefined;
  const isList = Array.isArray(expected) && Array.isArray(got);
  if (!isList || !(isFreeOrder || Array.isArray(elements))) return differs(expected, got, path);
  if (got.length !== expected.length) return lengthDifference(expected, got, path);
  if (Array.isArray(elements)) {
    return firstDefined(expected, (wanted, index) => {
      const [value, place] = [got[index], `${path}[${index}]`];
      if (typeof wanted !== "string") return dataDifference(elements[index], wanted, value, place);
      return typeof value === "string" ? undefined : `${place} is no text`;
    });
  }
  if (expected.length < 2) return differs(expected, got, path);
  const left = got.map(canonical);
  return firstDefined(expected, (row) => {
    const at = left.indexOf(canonical(row));
    if (at < 0) return `${path} has no row ${writeJson(row)}`;
    left.splice(at, 1);
    return undefined;
  });
}

function firstDefined<Item>(
  items: readonly Item[],
  find: (item: Item, index: number) => string | undefined,
): string | undefined {
  for (const [index, item] of items.entries()) {
    const found = find(item, index);
    if (found !== undefined) return found;
  }
  return undefined;
}

function lengthDifference(expected: unknown[], got: unknown[], path: string): string {
  return `${path} has ${got.length} elements, not ${expected.length}`;
}

/** The first difference. The order of object members counts. */
function differs(expected: unknown, got: unknown, path: string): string | undefined {
  if (got === undefined) return `${path} is missing`;
  if (canonical(expected) === canonical(got)) return undefined;
  if (Array.isArray(expected) && Array.isArray(got)) {
    if (got.length !== expected.length) return lengthDifference(expected, got, path);
    return firstDefined(expected, (value, index) =>
      differs(value, got[index], `${path}[${index}]`),
    );
  }
  if (isObject(expected) && isObject(got)) {
    const [names, others] = [Object.keys(expected), Object.keys(got)];
    if (names.join("\0") !== others.join("\0")) {
      return `${path} has the keys ${others.join(", ")}, not ${names.join(", ")}`;
    }
    return firstDefined(names, (name) => differs(expected[name], got[name], `${path}.${name}`));
  }
  return `${path} is ${writeJson(got)}, not ${writeJson(expected)}`;
}

export interface SectionResult {
  readonly name: string;
  /** Those that were run: none after the section's database could not be created. */
  readonly cases: number;
  readonly failures: readonly {
    readonly section: string;
    readonly name: string;
    readonly sent: string;
    readonly expected: { readonly status: number; readonly answer: string };
    readonly got: { readonly status: number; readonly answer: string };
    readonly difference: string;
  }[];
}

export function sectionsAt(level: Level, sections: readonly Section[]): readonly Section[] {
  return sections.filter((section) => level === "full" || section.level === level);
}

/** Sends a body to `POST /query`. Rejects if there is no answer. */
export type Send = (body: string) => Promise<Received>;

/** Runs one section in databases whose names begin with `prefix`, and drops them. */
export async function runSection(
  { name: section, cases }: Section,
  prefix: string,
  send: Send,
): Promise<SectionResult> {
  const others = new Set<string>();
  const nameOf = (database: string) => {
    if (database === "main") return prefix;
    others.add(`${prefix}_${database}`);
    return `${prefix}_${database}`;
  };
  const failures: SectionResult["failures"][number][] = [];
  let count = 0;
  const check = async (one: Case): Promise<boolean> => {
    count += 1;
    const sent = writeJson(renameDatabases(one.send, nameOf));
    const received = await send(sent);
    const difference = findDifference(one, received);
    if (difference === undefined) return true;
    const expected = { status: one.status, answer: writeJson(one.answer) };
    const got = { status: received.status, answer: received.text };
    failures.push({ section, name: one.name, sent, expected, got, difference });
    return false;
  };
  const answer = { status: "success", message: "" };
  const administer = (operation: string, name: string) =>
    check({ name, send: { [operation]: { database: "main" } }, status: 200, answer });
  const isCreated = await administer("CreateDatabase", "the section's database is created");
  try {
    if (isCreated) for (const one of cases) await check(one);
  } finally {
    await administer("DropDatabase", "the section's database is dropped");
    for (const database of others) await send(writeJson({ DropDatabase: { database } }));
  }
  return { name: section, cases: count, failures };
}

function renameDatabases(body: JsonObject, nameOf: (database: string) => string): JsonObject {
  const members = Object.entries(body).map(([key, value]): [string, unknown] => {
    if (key === batchKey && Array.isArray(value)) {
      return [key, value.map((one) => (isObject(one) ? renameDatabases(one, nameOf) : one))];
    }
    if (!isObject(value)) return [key, value];
    const { database } = value;
    // A Preview holds its operation where others have their fields.
    if (typeof database !== "string") return [key, renameDatabases(value, nameOf)];
    return [key, { ...value, database: nameOf(database) }];
  });
  return Object.fromEntries(members);
}

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
      method: "POST",
      path: "/query",
      body,
      headers: { ...headers, "content-length": Buffer.byteLength(body) },
    });
    return { ...answer, body: parseIfJson(answer.text, parseUnrounded) };
  };
}
