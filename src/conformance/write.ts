/** Writes the guide's sections of schemas/query.cases.json: `node src/conformance/write.ts`. */

import { writeFileSync } from "node:fs";
import { refusalStatuses } from "../engine/refusal.ts";
import { type Case, casesFile, readCases, type Section } from "./cases.ts";
import { writeJson } from "./exact-json.ts";
import { guideSections } from "./guide.ts";

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
