/** Types that openapi-typescript makes of docs/openapi.yaml: `npm ci --prefix test/clients`. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { examplesOf, readGuide } from "../../generate/query-cases.ts";
import { noClients, Workplace } from "../journeys/installed-clients.ts";

const root = path.join(import.meta.dirname, "../..");
const readme = readFileSync(path.join(root, "README.md"), "utf8");
const examples = examplesOf(readGuide());
const place = '"database": "main", "table": "users"';

/** Queries that the documentation shows, and others that hold all JSON that a cell may. */
const right = [
  ...Array.from(readme.matchAll(/^query '(.*)'$/gm), ([, query = ""]) => query),
  ...examples
    .filter(({ answer }) => answer.replace(/\s/g, "").startsWith('{"status":"success"'))
    .map(({ body }) => body),
  `{"Insert": {${place}, "values": [{"a": {"b": [1, null, "x"]}, "c": null, "d": true}]}}`,
];

/** Queries that the gateway refuses, with what a type can say. */
const wrong = [
  '{"Select": {"from": 5}}',
  '{"Select": {"database": "main", "from": 5, "columns": ["*"]}}',
  '{"Select": {"database": "main", "from": "users", "colums": ["*"]}}',
  '{"Select": {"database": "main", "from": "users", "columns": ["*"], "where": {"column": "a", "cmp": "~", "value": 1}}}',
  `{"Insert": {${place}, "values": {"id": 1}}}`,
  `{"Update": {${place}, "set": {"id": 1}}}`,
  `{"Update": {${place}, "add": {"id": "1"}, "where": null}}`,
  '{"Truncate": {"table": "users"}}',
  "{}",
];

const use = `
type Done = paths["/query"]["post"]["responses"][200]["content"]["application/json"];
export function namesIn(answer: Done): unknown[] {
  if (!("data" in answer) || answer.data === undefined) return [];
  return answer.data.flatMap((row) => (typeof row === "object" && "name" in row ? [row.name] : []));
}
export const ids: string[] = Object.values<operations["postQuery"]>({}).map(({ requestBody }) => Object.keys(requestBody.content)[0] ?? "");
// @ts-expect-error no message at all
export const nothing: components["schemas"]["McpMessage"] = {};
`;

t.test(
  "types of the document take the queries that are shown, and refuse wrong ones",
  { skip: noClients },
  async (t) => {
    t.ok(right.length > 30, `${right.length} queries are shown`);
    const workplace = new Workplace(t);
    const programs = path.join(workplace.directory, "node_modules/.bin");
    const types = path.join(workplace.directory, "openapi.d.ts");
    await workplace.run(path.join(programs, "openapi-typescript"), [
      path.join(root, "docs/openapi.yaml"),
      ...["--output", types],
    ]);
    t.notMatch(readFileSync(types, "utf8"), /\| unknown\b/, "no type takes whatever comes");
    const lines = [
      'import type { components, operations, paths } from "./openapi.d.ts";',
      'type Query = components["schemas"]["Query"];',
      ...right.map((query, at) => `export const right${at}: Query = ${query};`),
      ...wrong.flatMap((query, at) => [
        "// @ts-expect-error",
        `export const wrong${at}: Query = ${query};`,
      ]),
      ...examples
        .filter(({ answer }) => answer.replace(/\s/g, "").startsWith('{"status":"success"'))
        .map(({ answer }, at) => `export const answer${at}: Done = ${answer};`),
      use,
    ];
    const program = path.join(workplace.directory, "program.ts");
    writeFileSync(program, lines.join("\n"));
    const settings = [
      "--strict",
      "--noEmit",
      "--exactOptionalPropertyTypes",
      "--module",
      "nodenext",
    ];
    const flags = [...settings, "--allowImportingTsExtensions", "--skipLibCheck", program];
    const found = await workplace.run(path.join(programs, "tsc"), flags).catch(String);
    t.equal(found, "", "the program has the types that it should");
  },
);
