import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import {
  batchTool,
  countTool,
  queryTools,
  schemaTools,
  whoAmITool,
} from "../../src/mcp/tool-definitions.ts";
import { createGrammar } from "../../src/query/grammar.ts";
import { operationNames } from "../../src/query/operations.ts";
import { startGateway } from "../kit/gateway.ts";

const root = path.join(import.meta.dirname, "../..");
const guide = readFileSync(path.join(root, "docs/mcp.md"), "utf8");

t.test("the guide's table has every tool with its rights", async (t) => {
  const rows = guide.matchAll(/^\| (`[a-z_`, ]+`) \| ([A-Z, ]+|none) \| [\w ]+ \|$/gm);
  const listed = Array.from(rows, ([, names = "", rights]) =>
    names.split(", ").map((name) => `${name.slice(1, -1)}: ${rights}`),
  );
  const grammar = createGrammar({ extraFields: [], operations: {} });
  const tools = [
    ...[...Object.values(schemaTools), ...queryTools(grammar)],
    ...[...countTool(grammar), batchTool(grammar), whoAmITool],
  ];
  const expected = tools.map(
    ({ name, permissions }) => `${name}: ${permissions.join(", ") || "none"}`,
  );
  t.strictSame(listed.flat().sort(), expected.sort());
});

t.test("the README names every operation", async (t) => {
  const readme = readFileSync(path.join(root, "README.md"), "utf8");
  const sentence = /^.*\[operations\]\(docs\/query\.md\)(.*)$/m.exec(readme)?.[1] ?? "";
  for (const name of operationNames) t.match(sentence, `\`${name}\``);
});

t.test("the guide's examples answer as it says, and the first is 406 without Accept", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const customers = { database: "main", table: "customers" };
  const columns = [{ name: "name", type: "text" }];
  await gateway.query({ CreateTable: { ...customers, columns } }, token);
  await gateway.query({ Insert: { ...customers, values: [{ name: "Alice" }] } }, token);
  const [example = "", call = "", stateless = ""] = Array.from(
    guide.matchAll(/^```sh\n(curl .*?)\n```$/gms),
    ([, script = ""]) => script,
  );
  const play = (script: string) => {
    const env = { ...process.env, GATEHOUSE: gateway.url, TOKEN: token };
    return spawnSync("sh", ["-c", script], { encoding: "utf8", env }).stdout;
  };
  t.match(play(example), /^event: message\ndata: .*"tools":\[.*"name":"select"/);
  t.equal(play(call).trim(), /^```text\n(.*?)\n```$/ms.exec(guide)?.[1]);
  const read = (text = "") => JSON.parse(text.replace(/"version": ?"[^"]*"/, '"version":""'));
  t.same(read(play(stateless)), read(/^```json\n(\{\n {2}"result".*?)\n```$/ms.exec(guide)?.[1]));
  for (const part of [/-H 'Accept: [^']*'/, ", text/event-stream", "application/json, "]) {
    const unaccepting = example.replace(part, "");
    t.not(unaccepting, example);
    t.match(play(`${unaccepting} -w '\n%{http_code}'`), /\n406$/, `${part}`);
  }
});
