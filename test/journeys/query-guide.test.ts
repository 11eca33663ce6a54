import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { definitions, operationNames } from "../../src/query/operations.ts";
import { startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

const text = readFileSync(path.join(import.meta.dirname, "../../docs/query.md"), "utf8");
const [session = "", ownDatabase = ""] = text.split(/^## Another database$/m);

/** A body that the guide shows, and what it shows after it, if anything: an answer, or what goes up. */
interface Example {
  readonly body: string;
  readonly outcome: string | undefined;
}

/** A query has one key, which begins with a capital letter. */
function isQuery(block: string): boolean {
  return /^\{\s*"[A-Z]/.test(block);
}

/** The fenced blocks of one language in their order, without the line breaks at their ends. */
function blocks(part: string, language: string): string[] {
  const found = part.matchAll(/^```(\w+)\n(.*?)\n^```$/gms);
  return Array.from(found, ([, name, block = ""]) => ({ name, block }))
    .filter(({ name }) => name === language)
    .map(({ block }) => block);
}

function examples(part: string): Example[] {
  const all = blocks(part, "json");
  return all.flatMap((block, index) => {
    if (!isQuery(block)) return [];
    const next = all[index + 1];
    return [{ body: block, outcome: next === undefined || isQuery(next) ? undefined : next }];
  });
}

/** JSON without the white space between its tokens, and without what differs from run to run. */
function settled(json: string): string {
  return json
    .replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, token: string | undefined) => token ?? "")
    .replace(/"request_id":"[^"]*"/, '"request_id":"..."');
}

/** The conditions of the guide's table, each with the ids of the rows that it picks. */
function conditions(): { where: string; picked: number[] }[] {
  const found = session.matchAll(/^\| `(\{"[a-z].*?\}|null)` \| ([\d, ]+|none) \|/gm);
  return Array.from(found, ([, where = "", ids = ""]) => ({
    where,
    picked: ids === "none" ? [] : ids.split(", ").map(Number),
  }));
}

t.test("every query of the guide gets the answer that the guide shows", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const shown = examples(session);
  t.equal(shown.length * 2, blocks(session, "json").length, "queries and answers take turns");
  for (const { body, outcome = "" } of shown) {
    const answer = await gateway.query(body, token);
    t.equal(settled(answer.text), settled(outcome), body);
    const succeeds = settled(outcome).startsWith('{"status":"success"');
    t.equal(answer.status === 200, succeeds, `${answer.status}`);
  }
});

t.test("every operation of the guide is shown at work", async (t) => {
  const shown = examples(session).map(({ body }) => Object.keys(JSON.parse(body))[0]);
  for (const operation of [...operationNames, "Batch"]) {
    t.ok(shown.includes(operation), operation);
  }
});

t.test("every condition of the guide picks the rows that the guide says", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const first = examples(session).findIndex(({ body }) => body.startsWith('{"Select"'));
  for (const { body } of examples(session).slice(0, first)) await gateway.query(body, token);
  const table = conditions();
  t.equal(table.length, session.match(/^\| `(\{|null)/gm)?.length, "every row is read");
  const shown = table.map(({ where }) => where).join();
  for (const cmp of ["=", "!=", ">", "<", ">=", "<=", "LIKE", "ILIKE", "IN", "NOT IN", "BETWEEN"]) {
    t.match(shown, `"cmp": "${cmp}"`);
  }
  for (const { where, picked } of table) {
    const select = `{"Select":{"database":"main","from":"orders","columns":["id"],"where":${where},"order_by":{"column":"id"}}}`;
    const answer = await gateway.query(select, token);
    const rows = picked.map((id) => ({ id }));
    t.strictSame(answer.body, { status: "success", data: rows }, where);
  }
});

/** Sends what a part of the guide shows through a gateway that is configured as that part says. */
async function followOwnDatabase(t: Test, part: string): Promise<void> {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const [config = ""] = blocks(part, "toml");
  const placed = config.replace("http://127.0.0.1:9090", upstream.url);
  t.not(placed, config, "the guide says where the database listens");
  const gateway = await startGateway(t, { config: placed });
  const token = await gateway.login();
  const shown = examples(part);
  t.ok(shown.length > 0);
  for (const { body, outcome } of shown) {
    t.equal((await gateway.query(body, token)).status, 200, body);
    const received = upstream.take().map((request) => request.body.toString());
    if (outcome === undefined) t.strictSame(received, [body]);
    else t.strictSame(received.map(settled), [settled(outcome)]);
  }
}

for (const part of ownDatabase.split(/^### /m).slice(1)) {
  t.test(`what goes up is what the guide shows: ${part.split("\n", 1)}`, (t) =>
    followOwnDatabase(t, part),
  );
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
