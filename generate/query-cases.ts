import { readFileSync, writeFileSync } from "node:fs";
import { parseUnrounded } from "../src/core/json/exact.ts";
import { refusalStatuses } from "../src/engine/refusal.ts";
import {
  type Case,
  casesFile,
  isObject,
  readCases,
  type Section,
  writeJson,
} from "../src/features/conformance/run.ts";

/** Copies the examples of docs/query.md into the conformance cases in schemas/query.cases.json. */

export function readGuide(): string {
  return readFileSync(new URL("../docs/query.md", import.meta.url), "utf8");
}

/** A query in the guide with its response. */
interface Example {
  readonly heading: string;
  readonly body: string;
  readonly answer: string;
}

/** A condition in the guide's table, with the ids of the rows that fulfill it. */
interface Condition {
  readonly where: string;
  readonly ids: readonly number[];
}

/** The fenced code blocks of one language. */
export function blocksOf(text: string, language: string): string[] {
  const found = text.matchAll(/^```(\w+)\n(.*?)\n^```$/gms);
  return Array.from(found, ([, name, block = ""]) => ({ name, block }))
    .filter(({ name }) => name === language)
    .map(({ block }) => block);
}

/** @throws Error if a query has no response */
export function examplesOf(guide: string): Example[] {
  return guide.split(/^(?=##+ )/m).flatMap((part) => {
    const heading = /^#+ (.*)$/m.exec(part)?.[1] ?? "";
    // A block holds a query and, after an empty line, its response.
    const blocks = blocksOf(part, "json").flatMap((block) => block.split("\n\n"));
    if (blocks.length % 2 > 0)
      throw new Error(`query without a response under the heading: ${heading}`);
    return blocks.flatMap((body, index) =>
      index % 2 > 0 ? [] : [{ heading, body, answer: blocks[index + 1] ?? "" }],
    );
  });
}

export function conditionsOf(guide: string): Condition[] {
  const found = guide.matchAll(/^\| `(\{"[a-z].*?\}|null)` \| ([\d, ]+|none) \|/gm);
  return Array.from(found, ([, where = "", ids = ""]) => ({
    where,
    ids: ids === "none" ? [] : ids.split(", ").map(Number),
  }));
}

/** The examples that create the rows for the conditions. */
function setupOf(examples: readonly Example[]): readonly Example[] {
  return examples.slice(
    0,
    examples.findIndex(({ body }) => body.startsWith('{"Select"')),
  );
}

function conditionQuery(where: string): string {
  return `{"Select": {"database": "main", "from": "orders", "columns": ["id"], "where": ${where}, "order_by": {"column": "id"}}}`;
}

/** Returns the status of an engine refusal; undefined for refusals of the gateway. */
type StatusOf = (code: string) => number | undefined;

function guideSections(statusOf: StatusOf): Section[] {
  const guide = readGuide();
  const examples = examplesOf(guide);
  const cases = examples.flatMap((example) => caseOf(example, statusOf));
  const setup = setupOf(examples).flatMap((example) => caseOf(example, statusOf));
  const conditions = conditionsOf(guide).map(({ where, ids }): Case => {
    const data = ids.map((id) => ({ id }));
    const send = objectOf(conditionQuery(where));
    return { name: where, send, status: 200, answer: { status: "success", data } };
  });
  return [
    { name: "The guide to queries", level: "full", cases },
    { name: "The guide's conditions", level: "full", cases: [...setup, ...conditions] },
  ];
}

/** Returns no case for an example that the gateway refuses, since no database sees it. */
function caseOf({ heading, body, answer }: Example, statusOf: StatusOf): Case[] {
  const expected = objectOf(answer);
  const isRefusal = typeof expected.code === "string";
  const status = isRefusal ? statusOf(String(expected.code)) : 200;
  if (status === undefined || "request_id" in expected) return [];
  return [{ name: heading, send: objectOf(body), status, answer: expected }];
}

function objectOf(text: string) {
  const value: unknown = parseUnrounded(text);
  if (!isObject(value)) throw new Error(`not a JSON object: ${text}`);
  return value;
}

const statuses: ReadonlyMap<string, number> = new Map(Object.entries(refusalStatuses));

function caseText({ name, send, status, answer }: Case): string {
  return [
    `        {"name": ${JSON.stringify(name)},`,
    `         "send": ${writeJson(send)},`,
    `         "status": ${status},`,
    `         "answer": ${writeJson(answer)}}`,
  ].join("\n");
}

function sectionText({ name, level, cases }: Section): string {
  const head = `    {"name": ${JSON.stringify(name)},\n     "level": "${level}",\n     "cases": [`;
  return `${head}\n${cases.map(caseText).join(",\n")}\n     ]}`;
}

/** Keeps the other sections of the file and replaces those of the guide. */
export function casesText(): string {
  const { about, sections } = readCases();
  const fromGuide = guideSections((code) => statuses.get(code));
  const names = new Set(fromGuide.map(({ name }) => name));
  const own = sections.filter(({ name }) => !names.has(name));
  const all = [...own, ...fromGuide].map(sectionText).join(",\n");
  return `{\n  "about": ${JSON.stringify(about)},\n  "sections": [\n${all}\n  ]\n}\n`;
}

if (import.meta.main) writeFileSync(casesFile, casesText());
