import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import {
  blocksOf,
  conditionQuery,
  conditionsOf,
  examplesOf,
  groundOf,
  readGuide,
} from "../../generate/query-cases.ts";
import { definitions, operationNames } from "../../src/query/operations.ts";
import { startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

const session = readGuide();
const shown = examplesOf(session);
const authors = readFileSync(
  path.join(import.meta.dirname, "../../docs/writing-an-upstream.md"),
  "utf8",
);

/** JSON without the white space between its tokens, and without what differs from run to run. */
function settled(json: string): string {
  return json
    .replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, token: string | undefined) => token ?? "")
    .replace(/"request_id":"[^"]*"/, '"request_id":"..."');
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

t.test("the tasks are read in ten minutes", async (t) => {
  const [tasks = ""] = session.split(/^# Reference$/m);
  const words = tasks.split(/\s+/).length;
  t.ok(words > 1000 && words < 2300, `${words} words, examples among them, at 230 a minute`);
});

t.test("every operation of the guide is shown at work", async (t) => {
  const operations = shown.map(({ body }) => Object.keys(JSON.parse(body))[0]);
  for (const operation of [...operationNames, "Batch"]) {
    t.ok(operations.includes(operation), operation);
  }
});

t.test("every condition of the guide picks the rows that the guide says", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  for (const { body } of groundOf(shown)) await gateway.query(body, token);
  const table = conditionsOf(session);
  t.equal(table.length, session.match(/^\| `(\{|null)/gm)?.length, "every row is read");
  const all = table.map(({ where }) => where).join();
  for (const cmp of ["=", "!=", ">", "<", ">=", "<=", "LIKE", "ILIKE", "IN", "NOT IN", "BETWEEN"]) {
    t.match(all, `"cmp": "${cmp}"`);
  }
  for (const { where, picked } of table) {
    const answer = await gateway.query(conditionQuery(where), token);
    const rows = picked.map((id) => ({ id }));
    t.strictSame(answer.body, { status: "success", data: rows }, where);
  }
});

/** A query has one key, which begins with a capital letter. */
function isQuery(block: string): boolean {
  return /^\{\s*"[A-Z]/.test(block);
}

/** Sends what a part of the page for authors shows through a gateway that is configured as it says. */
async function followPart(t: Test, part: string): Promise<void> {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
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
  t.test(`what goes up is what the page for authors shows: ${heading}`, (t) => {
    const part = authors.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? "";
    return followPart(t, part);
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
