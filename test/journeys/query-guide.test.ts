import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { blocksOf, conditionsOf, examplesOf, readGuide } from "../../generate/query-cases.ts";
import { definitions, operationNames } from "../../src/core/query/operations.ts";
import { toolDefinitions } from "../../src/features/mcp/tool-definitions.ts";
import { startGateway } from "../kit/gateway.ts";
import { sectionOf } from "../kit/page.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

const session = readGuide();
const shown = examplesOf(session);
const authors = readFileSync(
  path.join(import.meta.dirname, "../../docs/writing-an-upstream.md"),
  "utf8",
);

function settled(json: string): string {
  return json
    .replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, token: string | undefined) => token ?? "")
    .replace(/,"request_id":"[^"]*"/, "");
}

t.test("every query of the guide gets the answer that the guide shows", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  t.ok(shown.length > 30);
  for (const { body, answer: expected } of shown) {
    const answer = await gateway.query(body, token);
    t.equal(settled(answer.text), settled(expected), body);
    const succeeds = settled(expected).startsWith('{"status":"success"');
    t.equal(answer.status === 200, succeeds, `${answer.status}`);
  }
});

t.test("the tasks of the guide can be read in ten minutes", async (t) => {
  const [tasks = ""] = session.split(/^# Reference$/m);
  const words = tasks.split(/\s+/).length;
  t.ok(words > 1000 && words < 2300, `${words} words, examples among them, at 230 a minute`);
});

t.test("the guide has an example of every operation", async (t) => {
  const operations = shown.map(({ body }) => Object.keys(JSON.parse(body))[0]);
  for (const operation of [...operationNames, "Batch"]) {
    t.ok(operations.includes(operation), operation);
  }
});

// `test/conformance/alike.test.ts` sends each of them.
t.test("the guide's table of conditions has every comparison, and is read in full", async (t) => {
  const table = conditionsOf(session);
  t.equal(table.length, session.match(/^\| `(\{|null)/gm)?.length);
  const all = table.map(({ where }) => where).join();
  for (const cmp of ["=", "!=", ">", "<", ">=", "<=", "LIKE", "ILIKE", "IN", "NOT IN", "BETWEEN"]) {
    t.match(all, `"cmp": "${cmp}"`);
  }
});

function isQuery(block: string): boolean {
  return /^\{\s*"[A-Z]/.test(block);
}

async function followPart(t: Test, part: string): Promise<void> {
  const upstream = await new RecordingUpstream().listen(t);
  const [config = ""] = blocksOf(part, "toml");
  const placed = config.replace("http://127.0.0.1:9090", upstream.url);
  t.not(placed, config, "the page says where the database listens");
  const gateway = await startGateway(t, { config: placed });
  const token = await gateway.login();
  const blocks = blocksOf(part, "json");
  t.ok(blocks.some(isQuery));
  for (const [index, body] of blocks.entries()) {
    if (!isQuery(body)) continue;
    t.equal((await gateway.query(body, token)).status, 200, body);
    const received = upstream.take().map((request) => request.body.toString());
    const next = blocks[index + 1];
    if (next === undefined || isQuery(next)) t.strictSame(received, [body]);
    else t.strictSame(received.map(settled), [settled(next)]);
  }
}

for (const heading of ["Additional fields and operations", "Databases that want `op`"]) {
  t.test(`queries are forwarded as the page for authors shows: ${heading}`, (t) => {
    return followPart(t, sectionOf(authors, heading));
  });
}

t.test("the guide lists every operation with its right and its fields", async (t) => {
  const listed = Array.from(
    session.matchAll(/^\| \[`(\w+)`\]\(#\S+\) \| ([^|]+) \| (.*) \|$/gm),
    ([, operation, right, fields]) => [operation, right, fields],
  );
  const expected = Object.entries(definitions).map(
    ([operation, { permissions, effect, fields }]) => [
      operation,
      permissions.join(" ") + (effect === "previews" ? " and that of the change in it" : ""),
      Object.entries(fields)
        .map(([name, { required }]) => `\`${name}\`${required ? "" : "?"}`)
        .join(", "),
    ],
  );
  t.strictSame(listed.sort(), expected.sort());
});

const root = path.join(import.meta.dirname, "../..");
const guide = readFileSync(path.join(root, "docs/mcp.md"), "utf8");

t.test("the table of tools has every tool with its rights", async (t) => {
  const rows = guide.matchAll(/^\| (`[a-z_`, ]+`) \| ([A-Z, ]+|none) \| [\w ]+ \|$/gm);
  const listed = Array.from(rows, ([, names = "", rights]) =>
    names.split(", ").map((name) => `${name.slice(1, -1)}: ${rights}`),
  );
  const expected = toolDefinitions("full").map(
    ({ name, permissions }) => `${name}: ${permissions.join(", ") || "none"}`,
  );
  t.strictSame(listed.flat().sort(), expected.sort());
});

t.test("the README names every operation", async (t) => {
  const readme = readFileSync(path.join(root, "README.md"), "utf8");
  const sentence = /^.*\[operations\]\(docs\/query\.md\)(.*)$/m.exec(readme)?.[1] ?? "";
  for (const name of operationNames) t.match(sentence, `\`${name}\``);
});

t.test("the examples of the MCP guide work, and the first is 406 without Accept", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const users = { database: "main", table: "users" };
  const columns = [{ name: "name", type: "text" }];
  await gateway.query({ CreateTable: { ...users, columns } }, token);
  await gateway.query({ Insert: { ...users, values: [{ name: "Bob" }] } }, token);
  const [example = "", stateless = ""] = Array.from(
    guide.matchAll(/^```sh\n(curl .*?)\n```$/gms),
    ([, script = ""]) => script,
  );
  const play = (script: string) => {
    const env = { ...process.env, GATEHOUSE: gateway.url, TOKEN: token };
    return spawnSync("sh", ["-c", script], { encoding: "utf8", env }).stdout;
  };
  t.match(play(example), /^event: message\ndata: .*"tools":\[.*"name":"select"/);
  const read = (text = "") => JSON.parse(text.replace(/"version": ?"[^"]*"/, '"version":""'));
  t.same(read(play(stateless)), read(/^```json\n(\{\n {2}"result".*?)\n```$/ms.exec(guide)?.[1]));
  for (const part of [/-H 'Accept: [^']*'/, ", text/event-stream", "application/json, "]) {
    const unaccepting = example.replace(part, "");
    t.not(unaccepting, example);
    t.match(play(`${unaccepting} -w '\n%{http_code}'`), /\n406$/, `${part}`);
  }
});
