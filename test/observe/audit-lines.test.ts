import { readFileSync } from "node:fs";
import fc from "fast-check";
import t from "tap";
import { z } from "zod";
import { auditPage, withAuditFields } from "../../generate/audit-fields.ts";
import { auditLines } from "../../src/observe/audit-line.ts";
import { createGrammar } from "../../src/query/grammar.ts";
import { scan } from "../../src/query/scan.ts";
import { openSetting } from "../gateway/kit.ts";
import { callTool } from "../journeys/mcp.ts";
import { type Answer, auditOf, startGateway, type TestGateway } from "../kit/gateway.ts";

t.test("the fields of docs/audit.md are those of the schema", async (t) => {
  const page = readFileSync(auditPage, "utf8");
  t.equal(withAuditFields(page), page, "npm run docs writes them");
});

const anyLine = z.union(Object.values(auditLines));

/** The audit's line of an answer. */
function lineOf(gateway: TestGateway, { headers }: Answer) {
  const id = headers.get("x-request-id");
  return gateway.service.logged(({ requestId, audit }) => audit === true && requestId === id);
}

const people = {
  CreateTable: {
    database: "main",
    table: "people",
    columns: [
      { name: "id", type: "int", primary_key: true },
      { name: "name", type: "text", nullable: true },
    ],
  },
};
const values = [1, 2, 3].map((id) => ({ id, name: `n${id}` }));
const place = { database: "main", table: "people" };

t.test("the audit says how many rows were changed and answered", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const ask = async (query: object) => {
    const answer = await gateway.query(query, token);
    t.equal(answer.headers.get("x-gatehouse-affected"), null, "no client sees it");
    t.equal(answer.headers.get("x-gatehouse-rows"), null);
    const { affected, rows } = await lineOf(gateway, answer);
    return { affected, rows };
  };
  const none = { affected: undefined, rows: undefined };
  t.strictSame(await ask(people), none);
  t.strictSame(await ask({ Insert: { ...place, values } }), { ...none, affected: 3 });
  const where = { column: "id", cmp: ">", value: 1 };
  const read = { Select: { database: "main", from: "people", columns: ["*"], where } };
  t.strictSame(await ask(read), { ...none, rows: 2 });
  t.strictSame(await ask({ Preview: { Delete: { ...place, where } } }), { ...none, rows: 2 });
  const change = { Update: { ...place, set: { name: "x" }, where, returning: ["id"] } };
  t.strictSame(await ask(change), { affected: 2, rows: 2 });
  const batch = {
    Batch: [{ Delete: { ...place, where } }, read, { Insert: { ...place, values: [{ id: 9 }] } }],
  };
  t.strictSame(await ask(batch), { affected: 3, rows: 0 });
  t.strictSame(await ask({ Insert: { ...place, values: [{ id: 9 }] } }), none, "a failure");
  const tool = await callTool(
    gateway,
    "select",
    { database: "main", from: "people", columns: ["id"] },
    token,
  );
  t.match(await auditOf(gateway, tool), { via: "mcp", rows: 2, level: "info" });
});

t.test("nobody but the engine is believed about rows", async (t) => {
  const { gateway, upstream } = await openSetting(t);
  upstream.answer = (_request, response) =>
    response.writeHead(200, { "x-gatehouse-affected": "7", "X-Gatehouse-Rows": "7" }).end("{}");
  const answer = await gateway.query({ Delete: { ...place, where: null } }, await gateway.login());
  t.equal(answer.headers.get("x-gatehouse-affected"), null);
  const { affected, rows } = await lineOf(gateway, answer);
  t.strictSame([affected, rows], [undefined, undefined]);
});

t.test("the level tells a denial and a failure", async (t) => {
  const { gateway, upstream } = await openSetting(t);
  const reader = await gateway.addUser("rita", "ReadOnly");
  const read = { Select: { database: "main", from: "people", columns: ["id"] } };
  t.match(await lineOf(gateway, await gateway.query(read, reader)), {
    level: "info",
    via: "query",
  });
  const denied = await lineOf(gateway, await gateway.query({ DropTable: place }, reader));
  t.match(denied, { level: "warn", decision: "deny" });
  upstream.answer = (_request, response) => response.destroy();
  t.match(await lineOf(gateway, await gateway.query(people, await gateway.login())), {
    level: "error",
    status: 502,
  });
  const login = await gateway.send("POST", "/login", { username: "rita", password: "wrong one" });
  t.strictSame((await lineOf(gateway, login)).via, undefined);
});

const full = createGrammar({ extraFields: [], operations: {}, level: "full" });
function shapeOf(body: object, most = 2048): string | undefined {
  return scan(Buffer.from(JSON.stringify(body)), full, true).accesses[0]?.detail?.shape(most);
}

t.test("a shape has columns by position and comparisons", async (t) => {
  const where = {
    and: [
      { column: "people.age", cmp: ">", value: 18 },
      {
        or: [
          { column: "people.age", cmp: ">", value: 20 },
          { value: "A%", cmp: "LIKE", column: "people.name" },
        ],
      },
    ],
  };
  const from = { database: "main", from: "people", columns: ["people.id", "people.id", "*"] };
  const join = { table: "orders", on: "people.id = orders.person", join_type: "INNER" };
  const order = { column: "people.name" };
  t.equal(
    shapeOf({ Select: { ...from, join, where, order_by: order } }),
    "columns(people.id, *) on(people.id, orders.person) order_by(people.name) where(people.age >, people.name LIKE)",
  );
  const rows = [
    { id: 1, name: "a" },
    { name: "b", id: 2, age: 3 },
  ];
  t.equal(shapeOf({ Insert: { ...place, values: rows } }), "values(id, name, age)");
  const batch = {
    Batch: [{ Insert: { ...place, values: rows } }, { Insert: { ...place, values: rows } }],
  };
  const shapes = scan(Buffer.from(JSON.stringify(batch)), full, true).accesses;
  t.equal(
    shapes[1]?.detail?.shape(99),
    "values(id, name, age)",
    "the second has what the first had",
  );
  t.equal(shapeOf({ Delete: { ...place, where: null } }), "");
});

t.test("a shape is cut, between characters", async (t) => {
  for (const letter of ["a", "é", "𝒳"]) {
    const columns = Array.from({ length: 60 }, (_, at) => letter.repeat(40) + at);
    const shape = shapeOf({ Select: { database: "main", from: "t", columns } }) ?? "";
    t.ok(Buffer.byteLength(shape) <= 2048 && Buffer.byteLength(shape) > 2040, letter);
    t.match(shape, /\.\.\.$/);
    t.notMatch(shape, /\ufffd/);
  }
  const gateway = await startGateway(t);
  const columns = Array.from({ length: 30 }, (_, at) => "c".repeat(90) + at);
  const one = { Select: { database: "main", from: "t", columns } };
  const answer = await gateway.query({ Batch: [one, one, one] }, await gateway.login());
  const { operations } = await lineOf(gateway, answer);
  const shapes = Array.isArray(operations) ? operations.map(({ shape = "" }) => shape) : [];
  t.ok(shapes.join("").length <= 2048, "those of a query together");
});

/** Stands in every value, and nowhere else. */
const marker = "xMARKERx";
const cell: fc.Arbitrary<unknown> = fc.oneof(
  fc.string().map((text) => `${text}${marker}`),
  fc.constant(77_190_277),
  fc.array(fc.constant(marker), { maxLength: 2 }),
);
const column = fc.constantFrom("id", "name", "note", "people.id");
const comparison = fc.oneof(
  fc.record({ column, cmp: fc.constantFrom("=", "!=", ">", "<="), value: cell }),
  fc.record({ column, cmp: fc.constant("LIKE"), value: fc.constant(`%${marker}`) }),
  fc.record({
    column,
    cmp: fc.constantFrom("IN", "NOT IN"),
    value: fc.array(cell, { minLength: 1 }),
  }),
);
const condition = fc.oneof(
  comparison,
  fc.record({ and: fc.array(comparison, { minLength: 1, maxLength: 3 }) }),
  fc.record({ not: comparison }),
  fc.constant(null),
);
const row = fc.dictionary(fc.constantFrom("id", "name", "note"), cell, { minKeys: 1 });
const operation = fc.oneof(
  fc.record({ where: condition }).map(({ where }) => ({
    Select: { database: "main", from: "people", columns: ["id"], where },
  })),
  row.map((one) => ({ Insert: { ...place, values: [one] } })),
  fc.tuple(row, condition).map(([set, where]) => ({ Update: { ...place, set, where } })),
  condition.map((where) => ({ Delete: { ...place, where } })),
  cell.map((after) => ({
    Select: {
      ...{ database: "main", from: "people", columns: ["id"] },
      ...{ order_by: [{ column: "id" }], after: [after], limit: 2 },
    },
  })),
  // What is not of the grammar.
  cell.map((value) => ({ Delete: { ...place, where: { column: "id", cmp: "~", value } } })),
  cell.map((value) => ({ Insert: { ...place, values: [{ id: 1 }], more: value } })),
);
const query = fc.oneof(
  operation,
  fc.array(operation, { minLength: 1, maxLength: 3 }).map((Batch) => ({ Batch })),
);

t.test("no line holds a value, and each is of the schema", async (t) => {
  const gateway = await startGateway(t);
  const tokens = [await gateway.login(), await gateway.addUser("rita", "ReadOnly")];
  await gateway.query(people, tokens[0]);
  const sent: Promise<Record<string, unknown>>[] = [];
  await fc.assert(
    fc.asyncProperty(query, fc.constantFrom(...tokens), async (body, token) => {
      sent.push(lineOf(gateway, await gateway.query(body, token)));
    }),
    { numRuns: 150 },
  );
  await Promise.all(sent);
  await gateway.service.stop();
  const lines = gateway.service.log.filter(({ audit }) => audit === true);
  t.ok(lines.length > 150);
  for (const { audit: _, ...line } of lines) {
    const { success, error } = anyLine.safeParse(line);
    if (!success) t.fail(`${error.message}: ${JSON.stringify(line)}`);
  }
  t.ok(lines.some(({ operations }) => JSON.stringify(operations ?? []).includes("where(")));
  const text = gateway.service.output;
  t.notMatch(text, marker);
  t.notMatch(text, "77190277");
  for (const token of tokens) t.notOk(text.includes(token.split(".")[2] ?? ""));
});
