import { readFileSync, writeFileSync } from "node:fs";
import {
  type Case,
  casesFile,
  isObject,
  parseJson,
  readCases,
  type Section,
  writeJson,
} from "../src/conformance/run.ts";
import { refusalStatuses } from "../src/engine/refusal.ts";

/** Writes the examples of docs/query.md, which are cases too, to schemas/query.cases.json: `node generate/query-cases.ts`. */

/** The text of the guide. */
export function readGuide(): string {
  return readFileSync(new URL("../docs/query.md", import.meta.url), "utf8");
}

/** A query that the guide shows, and the answer after it. */
interface Example {
  /** The heading above it. */
  readonly heading: string;
  readonly body: string;
  readonly answer: string;
}

/** A condition of the guide's table, and the ids of the rows that it picks. */
interface Condition {
  readonly where: string;
  readonly picked: readonly number[];
}

/** The fenced blocks of one language in their order, without the line breaks at their ends. */
export function blocksOf(text: string, language: string): string[] {
  const found = text.matchAll(/^```(\w+)\n(.*?)\n^```$/gms);
  return Array.from(found, ([, name, block = ""]) => ({ name, block }))
    .filter(({ name }) => name === language)
    .map(({ block }) => block);
}

/** The queries of the guide in their order. @throws Error if one has no answer */
export function examplesOf(guide: string): Example[] {
  return guide.split(/^(?=##+ )/m).flatMap((part) => {
    const heading = /^#+ (.*)$/m.exec(part)?.[1] ?? "";
    const blocks = blocksOf(part, "json");
    if (blocks.length % 2 > 0) throw new Error(`a query without an answer: ${heading}`);
    return blocks.flatMap((body, index) =>
      index % 2 > 0 ? [] : [{ heading, body, answer: blocks[index + 1] ?? "" }],
    );
  });
}

/** The rows of the guide's table of conditions. */
export function conditionsOf(guide: string): Condition[] {
  const found = guide.matchAll(/^\| `(\{"[a-z].*?\}|null)` \| ([\d, ]+|none) \|/gm);
  return Array.from(found, ([, where = "", ids = ""]) => ({
    where,
    picked: ids === "none" ? [] : ids.split(", ").map(Number),
  }));
}

/** The examples that make the tables which the conditions are about. */
export function groundOf(examples: readonly Example[]): readonly Example[] {
  return examples.slice(
    0,
    examples.findIndex(({ body }) => body.startsWith('{"Select"')),
  );
}

/** A query for the ids that a condition of the table picks. */
export function conditionQuery(where: string): string {
  return `{"Select": {"database": "main", "from": "orders", "columns": ["id"], "where": ${where}, "order_by": {"column": "id"}}}`;
}

/** The code of a refusal that is not the gateway's own, with the status that the engine gives it. */
type StatusOf = (code: string) => number | undefined;

/** The sections that the guide amounts to. */
function guideSections(statusOf: StatusOf): Section[] {
  const guide = readGuide();
  const examples = examplesOf(guide);
  const cases = examples.flatMap((example) => caseOf(example, statusOf));
  const ground = groundOf(examples).flatMap((example) => caseOf(example, statusOf));
  const conditions = conditionsOf(guide).map(({ where, picked }): Case => {
    const data = picked.map((id) => ({ id }));
    const send = objectOf(conditionQuery(where));
    return { name: where, send, status: 200, answer: { status: "success", data } };
  });
  return [
    { name: "The guide to queries", level: "full", cases },
    { name: "The guide's conditions", level: "full", cases: [...ground, ...conditions] },
  ];
}

/** Nothing for an example that the gateway refuses, so that no database sees it. */
function caseOf({ heading, body, answer }: Example, statusOf: StatusOf): Case[] {
  const expected = objectOf(answer);
  const isRefusal = typeof expected.code === "string";
  const status = isRefusal ? statusOf(String(expected.code)) : 200;
  if (status === undefined || "request_id" in expected) return [];
  return [{ name: heading, send: objectOf(body), status, answer: expected }];
}

function objectOf(text: string) {
  const value = parseJson(text);
  if (!isObject(value)) throw new Error(`no JSON object: ${text}`);
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

/** The text of the file: its own sections as they are, and those of the guide anew. */
export function casesText(): string {
  const { about, sections } = readCases();
  const fromGuide = guideSections((code) => statuses.get(code));
  const names = new Set(fromGuide.map(({ name }) => name));
  const own = sections.filter(({ name }) => !names.has(name));
  const all = [...own, ...fromGuide].map(sectionText).join(",\n");
  return `{\n  "about": ${JSON.stringify(about)},\n  "sections": [\n${all}\n  ]\n}\n`;
}

if (import.meta.main) writeFileSync(casesFile, casesText());
