import { pino } from "pino";
import t from "tap";
import type { Exchange } from "../../src/core/http/exchange.ts";
import { createSchemaSource } from "../../src/core/upstream/schema-source.ts";
import { decodeHeaderValue } from "../../src/features/mcp/message.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { columnsOf } from "../kit/queries.ts";
import { connectStateless, eras } from "./clients.ts";
import { openAnswering, openEmbedded } from "./kit.ts";
import { handshakeCall, statelessCall } from "./messages.ts";
import { fromOrders, ofOrders, open } from "./orders.ts";

const json = "application/json";
const owner = { alice: { "*": "Owner" } } as const;
const users = {
  database: "main",
  table: "users",
  columns: [
    { name: "id", type: "bigint", primary_key: true },
    { name: "name", type: "varchar(20)", nullable: false },
  ],
};
const order_by = { column: "id" };
const select = { database: "main", from: "users", columns: ["*"], order_by };

for (const [client, connect] of eras) {
  t.test(`${client} can use every tool`, async (t) => {
    const { endpoint, ask } = await openEmbedded(t, { grants: owner });
    const mcp = await connect(t, endpoint.url);
    const toolNames = await mcp.toolNames();
    const expected =
      "batch count create_table delete describe_table drop_table insert list_databases " +
      "list_tables preview select update upsert whoami";
    t.equal(toolNames.toSorted().join(" "), expected);

    t.match(await mcp.call("create_table", users), { isError: false });
    const values = ["Ann", "Ben", "Cay"].map((name, at) => ({ id: at + 1, name }));
    const ofUsers = { database: "main", table: "users" };
    t.match(await mcp.call("insert", { ...ofUsers, values }), { isError: false });
    const where = { column: "id", cmp: "=", value: 2 };
    const set = { name: "Bob" };
    t.match(await mcp.call("update", { ...ofUsers, set, where }), { isError: false });
    const first = { column: "id", cmp: "=", value: 1 };
    t.match(await mcp.call("delete", { ...ofUsers, where: first }), { isError: false });
    const found = await mcp.call("select", { ...select, where: { or: [where, { not: first }] } });
    const rows = [{ id: 2, ...set }, values[2]];
    t.match(found, { isError: false, structured: { rows, truncated: false } });

    t.same((await mcp.call("list_databases", {})).structured, { databases: ["main"] });
    const tables = await mcp.call("list_tables", { database: "main" });
    t.same(tables.structured, { tables: ["users"] });
    const columns = [
      { name: "id", type: "bigint", primary_key: true, nullable: false },
      { name: "name", type: "varchar(20)", primary_key: false, nullable: false },
    ];
    const description = { columns, keys: [["id"]], rows: 2 };
    t.same((await mcp.call("describe_table", ofUsers)).structured, description);
    t.same(await mcp.resourceUris(), ["gatehouse:///main/users"]);
    const read = JSON.parse(await mcp.read("gatehouse:///main/users"));
    t.same(read, { ...ofUsers, ...description });

    t.match(await mcp.call("drop_table", ofUsers), { isError: false });
    const gone = await ask({ Select: { database: "main", from: "users", columns: ["*"] } });
    t.equal(gone.status, 404);
  });
}

t.test("a select returns at most the row limit, and says how to continue", async (t) => {
  const { endpoint, ask } = await openEmbedded(t, { grants: owner, rowLimit: 2 });
  await ask({ CreateTable: users });
  const values = [1, 2, 3].map((id) => ({ id, name: `n${id}` }));
  await ask({ Insert: { database: "main", table: "users", values } });
  const mcp = await connectStateless(t, endpoint.url);
  const next = { truncated: true, next_after: [2], next_offset: 2 };
  const firstTwo = { rows: [{ id: 1 }, { id: 2 }], ...next };
  const cases: [args: object, expected: object][] = [
    ...[{}, { limit: 2 }, { limit: 3 }, { limit: 100_000 }].map((limit): [object, object] => [
      limit,
      firstTwo,
    ]),
    [{ offset: 2 }, { rows: [{ id: 3 }], truncated: false }],
    [
      { limit: 1, offset: 1 },
      { rows: [{ id: 2 }], ...next },
    ],
    [{ limit: 0 }, { rows: [], truncated: true, next_offset: 0 }],
  ];
  for (const [args, expected] of cases) {
    const { structured } = await mcp.call("select", { ...select, columns: ["id"], ...args });
    t.same(structured, expected, JSON.stringify(args));
  }
});

t.test("without a schema there are no schema tools", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants: owner, hasSchema: false });
  const mcp = await connectStateless(t, endpoint.url);
  const names = await mcp.toolNames();
  t.notOk(names.some((name) => name.startsWith("list_") || name.startsWith("describe_")));
  t.ok(names.includes("select"));
});

t.test("count returns a number, with and without a condition", async (t) => {
  const mcp = await open(t, 30);
  t.same((await mcp.call("count", fromOrders)).structured, { count: 30 });
  const where = { column: "region", cmp: "=", value: "eu" };
  t.same((await mcp.call("count", { ...fromOrders, where })).structured, { count: 10 });
  t.match(await mcp.call("count", { ...fromOrders, database: "other" }), {
    isError: true,
    text: /^Denied: .*; whoami lists .*\(no_grant\)$/,
  });
});

t.test("count returns the groups with their count, largest first", async (t) => {
  const { endpoint, ask } = await openEmbedded(t, { grants: owner, rowLimit: 2 });
  await ask({ CreateTable: users });
  const values = ["b", "a", "b", "c", "b", "c"].map((name, id) => ({ id, name }));
  await ask({ Insert: { database: "main", table: "users", values } });
  const mcp = await connectStateless(t, endpoint.url);
  const byName = { database: "main", from: "users", group_by: ["name"] };
  t.same((await mcp.call("count", byName)).structured, {
    rows: [
      { name: "b", count: 3 },
      { name: "c", count: 2 },
    ],
    truncated: true,
  });
  const having = { column: "count", cmp: "=", value: 2 };
  t.same((await mcp.call("count", { ...byName, having })).structured, {
    rows: [{ name: "c", count: 2 }],
    truncated: false,
  });
  const many = { column: "count", cmp: ">", value: 5 };
  const all = { database: "main", from: "users", having: many };
  t.same((await mcp.call("count", all)).structured, { rows: [{ count: 6 }], truncated: false });
});

t.test("several tables are described in one call", async (t) => {
  const { endpoint, ask } = await openEmbedded(t, { grants: owner });
  await ask({ CreateTable: users });
  const columns = [{ name: "user_id", type: "int", references: "users.id" }];
  await ask({ CreateTable: { database: "main", table: "visits", columns } });
  const mcp = await connectStateless(t, endpoint.url);
  const tables = ["visits", "users", "visits"];
  t.match((await mcp.call("describe_table", { database: "main", tables })).structured, {
    tables: [
      { table: "visits", columns: [{ name: "user_id", references: "users.id" }], rows: 0 },
      { table: "users", columns: [{ name: "id" }, { name: "name" }], keys: [["id"]] },
    ],
  });
});

t.test("a change returns its rows, and a preview the rows before and after", async (t) => {
  const mcp = await open(t, 0);
  const values = [{ id: 1, total: 2.5 }, { id: 2 }];
  const inserted = await mcp.call("insert", { ...ofOrders, values, returning: ["id", "total"] });
  const rows = [values[0], { id: 2, total: null }];
  t.same(inserted.structured, { message: "Inserted 2 rows", affected: 2, rows });
  const where = { column: "id", cmp: "=", value: 1 };
  const Update = { ...ofOrders, add: { total: 1 }, where };
  const previewed = await mcp.call("preview", { Update });
  t.match(previewed.structured, { affected: 1, before: [{ total: 2.5 }], after: [{ total: 3.5 }] });
  t.equal(previewed.structured?.truncated, undefined);
  const upsert = { values: [{ id: 2, total: 9 }], on_conflict: ["id"], update: ["total"] };
  const upserted = await mcp.call("upsert", { ...ofOrders, ...upsert, returning: ["total"] });
  t.match(upserted.structured, { affected: 1, rows: [{ total: 9 }] });
});

t.test("a preview of more rows than it returns is marked as truncated", async (t) => {
  const mcp = await open(t, 101);
  const all = { Delete: { ...ofOrders, where: null } };
  t.match((await mcp.call("preview", all)).structured, { affected: 101, truncated: true });
  const where = { column: "id", cmp: "<", value: 100 };
  const some = await mcp.call("preview", { Delete: { ...ofOrders, where } });
  t.equal(some.structured?.truncated, undefined);
  const first = { Delete: { ...ofOrders, where: { column: "id", cmp: "=", value: 1 } } };
  const batch = await mcp.call("preview", { Batch: [first, first], limit: 1 });
  t.match(batch.structured?.results, [
    { affected: 1, before: [{ id: 1 }], after: [] },
    { affected: 0, before: [], after: [] },
  ]);
  t.equal(batch.structured?.truncated, undefined);
  const cut = await mcp.call("preview", { Batch: [all], limit: 1 });
  t.match(cut.structured, { truncated: true, results: [{ affected: 101, before: [{ id: 0 }] }] });
});

t.test("a batch runs whole or not at all, and names the operation that failed", async (t) => {
  const mcp = await open(t, 3, { rowLimit: 2 });
  const insert = (id: number) => ({ Insert: { ...ofOrders, values: [{ id }], returning: ["id"] } });
  const read = { Select: { ...fromOrders, columns: ["id"], order_by: { column: "id" } } };
  const done = await mcp.call("batch", { operations: [insert(7), read] });
  t.same(done.structured, {
    truncated: true,
    results: [{ affected: 1, data: [{ id: 7 }] }, [{ id: 0 }, { id: 1 }]],
  });
  t.match(await mcp.call("batch", { operations: [insert(8), insert(7)] }), {
    isError: true,
    text: /^Failed: operations\[1\]: .*; describe_table lists .*\(constraint_violation\)$/,
  });
  const source = { element: 0, column: "id" };
  const next = { Update: { ...ofOrders, set: { total: 1 }, bind: { id: source }, where: null } };
  t.match(
    await mcp.call("batch", { operations: [insert(8), { Update: { ...next.Update, expect: 1 } }] }),
    {
      isError: true,
      text: /^Failed: operations\[1\]: .*/,
    },
  );
  const one = { Delete: { ...ofOrders, where: { column: "id", cmp: "=", value: 9 }, expect: 1 } };
  t.match(await mcp.call("batch", { operations: [insert(8), one] }), {
    isError: true,
    text: /^Failed: operations\[1\]: 0 rows were affected, but expect is 1; .*\(expectation_failed\)$/,
  });
  t.match(await mcp.call("insert", { ...ofOrders, values: [{ id: 9 }], expect: 1 }), {
    isError: true,
    text: /"expect" is allowed only in an element of a Batch/,
  });
  t.same((await mcp.call("count", fromOrders)).structured, { count: 4 });
  const wrong: [args: Record<string, unknown>, text: RegExp][] = [
    [{}, /"operations" is missing; required: operations; write operations as \[/],
    [{ operations: [] }, /^Failed: operations: .* \(batch_size\)$/],
    [
      { operations: [insert(9), { Insert: ofOrders }] },
      /^Failed: operations\[1\].Insert: .*"values"/,
    ],
    [{ operations: [{ Insert: { ...ofOrders, values: {} } }] }, /write values as \[/],
    [{ operations: [], more: 1 }, /"more" is unknown; allowed: operations/],
    [{ operations: [{ Preview: { Delete: { ...ofOrders, where: null } } }] }, /\(not_in_batch\)$/],
  ];
  for (const [args, text] of wrong) t.match(await mcp.call("batch", args), { isError: true, text });
});

t.test("a change whose rows do not fit runs, and says that they are missing", async (t) => {
  const mcp = await open(t, 0, { resultBytes: 64 * 1024 });
  const values = Array.from({ length: 500 }, (_, id) => ({ id, region: "r".repeat(300) }));
  const inserted = await mcp.call("insert", { ...ofOrders, values, returning: ["*"] });
  t.same(inserted.structured, {
    message: "Inserted 500 rows; the rows are too large for the result",
    affected: 500,
    truncated: true,
  });
  t.same((await mcp.call("count", fromOrders)).structured, { count: 500 });
  const where = { column: "id", cmp: "<", value: 100 };
  const above = { column: "id", cmp: ">=", value: 100 };
  const previewed = await mcp.call("preview", { Delete: { ...ofOrders, where: null } });
  t.match(previewed.structured, { affected: 500, truncated: true });
  const wide = { ...ofOrders, set: { region: "s".repeat(600) }, where: above };
  t.match((await mcp.call("preview", { Update: wide })).structured, {
    message: "Previewed, nothing changed; the rows are too large for the result",
    affected: 400,
    truncated: true,
  });
  const deleted = await mcp.call("delete", { ...ofOrders, where, returning: ["*"] });
  t.match(deleted.structured, { affected: 100, truncated: undefined });
  const text = JSON.parse(deleted.text);
  t.equal(text.truncated, true);
  t.ok(text.rows.length > 0 && text.rows.length < 100 && deleted.text.length < 9000);
});

t.test("an error of a tool says where it is, what is allowed and what to do next", async (t) => {
  const mcp = await open(t, 1);
  const ofRows = { ...fromOrders, columns: ["*"] };
  const equal = (cmp: string) => ({ and: [{ column: "id", cmp, value: 1 }] });
  const typeless = [{ name: "id" }];
  const upsert = { values: [{ id: 1 }], on_conflict: "id", update: [] };
  const cases: [tool: string, args: Record<string, unknown>, text: RegExp][] = [
    ["select", { ...fromOrders, columns: ["x"] }, /; describe_table lists .*\(unknown_column\)$/],
    ["select", { ...fromOrders, columns: ["totle"] }, /did you mean total\?\) \(unknown_column\)$/],
    ["select", { ...ofRows, from: "things" }, /; list_tables shows .*\(table_not_found\)$/],
    [
      "describe_table",
      { database: "main", table: "things" },
      /; list_databases and list_tables show .*\(schema_not_found\)$/,
    ],
    [
      "select",
      { ...fromOrders, columns: ["id"], aggregate: "count" },
      /write aggregate as \[\{"fn": "count"/,
    ],
    ["select", { ...fromOrders, columns: ["count(*)"] }, /; use aggregate for counts and sums/],
    [
      "select",
      { ...ofRows, where: "id = 1" },
      /^Failed: where: an object is expected, a string was found; write where as {"column": "id", "cmp": "=", "value": 1}, .* \(wrong_type\)$/,
    ],
    [
      "select",
      { ...ofRows, where: equal("==") },
      /^Failed: where.and\[0\].cmp: .*allowed: =, !=, .*\(invalid_value\)$/,
    ],
    [
      "select",
      { ...ofRows, colums: ["id"] },
      /^Failed: the field "colums" is unknown; allowed: database, from, columns, .*\(unknown_field\)$/,
    ],
    [
      "select",
      { ...ofRows, limit: "10" },
      /^Failed: limit: a number is expected, a string was found \(wrong_type\)$/,
    ],
    [
      "insert",
      { ...ofOrders, values: { id: 1 } },
      /^Failed: values: an array .*, an object was found; write values as \[{"id": 1, .*\(wrong_type\)$/,
    ],
    [
      "insert",
      { ...ofOrders, values: [{ id: 1 }, 2] },
      /^Failed: values\[1\]: an object is expected, a number was found; /,
    ],
    [
      "delete",
      ofOrders,
      /^Failed: the field "where" .* database, table, where; write where as .* or null \(missing_field\)$/,
    ],
    [
      "create_table",
      { ...ofOrders, columns: typeless },
      /^Failed: columns\[0\]: the field "type" .*: name, type; write columns as /,
    ],
    [
      "preview",
      { Update: { ...ofOrders, set: 1, where: null } },
      /^Failed: Update.set: .*; write set as \{"name"/,
    ],
    ["upsert", { ...ofOrders, ...upsert }, /write on_conflict as/],
    ["count", { database: "main" }, /^Failed: the field "from" /],
    ["count", ofOrders, /"table" is unknown; .* \(did you mean from\?\)/],
    [
      "count",
      { ...fromOrders, limit: 1 },
      /^Failed: the field "limit" is unknown; allowed: database, from, compute, where, join, group_by, having/,
    ],
    ["count", { ...fromOrders, group_by: ["region"] }, /"count" .*\(duplicate_column\)$/],
    [
      "describe_table",
      { database: "main" },
      /^Failed: either table or tables is expected, neither/,
    ],
    ["describe_table", { ...ofOrders, tables: ["orders"] }, /expected, both were found/],
    [
      "describe_table",
      { database: "main", tables: ["orders", "things"] },
      /^Failed: .*: main.things; list_databases .*\(schema_not_found\)$/,
    ],
    [
      "describe_table",
      { database: "main", tables: Array.from({ length: 21 }, () => "orders") },
      /^Failed: tables.*20/,
    ],
    ["whoami", { user: "me" }, /"user" is unknown; allowed: none/],
    ["list_tables", { database: "a b" }, /^Failed: database: "a b" .*allowed: .*\(invalid_name\)$/],
    [
      "list_databases",
      { database: "main" },
      /^Failed: the field "database" is unknown; allowed: none \(unknown_field\)$/,
    ],
  ];
  for (const [tool, args, text] of cases) {
    t.match(await mcp.call(tool, args), { isError: true, text }, `${tool} ${JSON.stringify(args)}`);
  }
});

const columns = columnsOf({ id: "bigint", name: "text" });
const resultBytes = 64 * 1024;

async function openFilled(t: Parameters<typeof openEmbedded>[0]) {
  const setting = await openEmbedded(t, { grants: owner, rowLimit: 1000, resultBytes });
  await setting.ask({ CreateTable: { database: "main", table: "users", columns } });
  const values = Array.from({ length: 300 }, (_, id) => ({ id, name: `"${"n".repeat(500)}"` }));
  await setting.ask({ Insert: { database: "main", table: "users", values } });
  return setting;
}

for (const [client, connect] of eras) {
  t.test(`${client} reads a long result page by page, as data or as text`, async (t) => {
    const { endpoint } = await openFilled(t);
    const mcp = await connect(t, endpoint.url);
    for (const form of ["structured", "text"] as const) {
      const ids: unknown[] = [];
      let offset: unknown = 0;
      let pages = 0;
      while (offset !== undefined) {
        const answer = await mcp.call("select", { ...select, offset });
        const page = form === "text" ? JSON.parse(answer.text) : answer.structured;
        ids.push(...page.rows.map(({ id }: { id: number }) => id));
        t.equal(page.truncated, page.next_offset !== undefined);
        offset = page.next_offset;
        pages++;
      }
      t.strictSame(ids, [...Array(300).keys()], form);
      t.ok(pages > 1, `${pages} pages`);
    }
  });
}

t.test("a result keeps its size limit, and its text is short", async (t) => {
  const { endpoint } = await openFilled(t);
  for (const call of [statelessCall, handshakeCall]) {
    const { body } = await ask(
      endpoint.url,
      call("tools/call", { name: "select", arguments: select }),
    );
    t.ok(body.length <= resultBytes, `${body.length} bytes`);
    t.ok(body.length > resultBytes / 2, "as much as fits");
  }
  const mcp = await connectStateless(t, endpoint.url);
  const { text, structured } = await mcp.call("select", select);
  t.ok(text.length <= resultBytes / 8);
  const few = await mcp.call("select", { ...select, limit: 2 });
  t.same(JSON.parse(few.text), few.structured, "few rows are the same in both");
  t.match(structured, { truncated: true });
});

t.test("a row larger than a result is an error that says what to do", async (t) => {
  const { endpoint, ask: query } = await openFilled(t);
  const values = [{ id: -1, name: "n".repeat(100_000) }];
  await query({ Insert: { database: "main", table: "users", values } });
  const mcp = await connectStateless(t, endpoint.url);
  t.match(await mcp.call("select", select), {
    isError: true,
    text: /larger than the result limit of 65536 bytes; select fewer columns \(result_too_large\)$/,
  });
  const ids = { ...select, columns: ["id"], limit: 1 };
  t.match(await mcp.call("select", ids), { structured: { rows: [{ id: -1 }] } });
});

t.test("any formatting of the database's JSON is accepted, with every digit", async (t) => {
  const exact = { big: "-1e400", price: "98765432109876543210.0123456789" };
  const data = [{ id: 1, ...exact, text: 'a\nb "c" \\', real: 1.5, deep: [{ a: null }] }];
  const body = JSON.stringify({ status: "success", data }, null, "\r\n ")
    .replace(`"${exact.big}"`, exact.big)
    .replace(`"${exact.price}"`, exact.price);
  const url = await openAnswering(t, {
    answer: (_, response) => void response.setHeader("content-type", json).end(body),
  });
  for (const [, connect] of eras) {
    const mcp = await connect(t, url);
    const { structured, text } = await mcp.call("select", select);
    t.same(structured, { rows: data, truncated: false });
    t.match(text, `"price":${exact.price}`);
  }
});

function unexpected(): never {
  throw new Error("unexpected query");
}

const params = { name: "select", arguments: { database: "main", from: "t", columns: ["*"] } };

t.test("a client that disconnects cancels its query", async (t) => {
  let queries = 0;
  let aborted = 0;
  const url = await openAnswering(t, {
    answer: (_, response) => {
      queries++;
      response.once("close", () => aborted++);
    },
  });
  for (const [at, write] of [statelessCall, handshakeCall].entries()) {
    const client = new AbortController();
    const { headers, body } = write("tools/call", params);
    const answer = fetch(url, { method: "POST", headers, body, signal: client.signal });
    answer.catch(() => {});
    await eventually("the query runs", () => queries === at + 1);
    client.abort();
    await eventually("the query is cancelled", () => aborted === at + 1);
  }
});

t.test("an internal error reveals no details to the model, and is logged", async (t) => {
  const lines: string[] = [];
  const log = pino({ level: "error" }, { write: (line) => void lines.push(line) });
  const schema = createSchemaSource<Exchange>({
    upstreams: [{ holds: () => true, get: () => Promise.reject(new Error("/secret/path")) }],
    visibilityDenial: () => undefined,
  });
  const url = await openAnswering(t, { answer: unexpected, schema, log });
  const listing = { name: "list_databases", arguments: {} };
  const text = (await ask(url, statelessCall("tools/call", listing))).body.toString();
  t.match(text, "internal_error");
  t.notMatch(text, "secret");
  t.match(
    lines.map((line) => JSON.parse(line)),
    [{ requestId: "request-1", err: { message: "/secret/path" }, msg: "unexpected error" }],
  );
});

t.test("a subscription ends at once, because there are no changes to report", async (t) => {
  const url = await openAnswering(t, { answer: unexpected });
  const notifications = { toolsListChanged: true, resourcesListChanged: true };
  const stream = await ask(url, statelessCall("subscriptions/listen", { notifications }));
  t.match(stream.headers, { "content-type": "text/event-stream" });
  const [acknowledged, answer] = stream.body.toString().split("\n\n");
  t.match(acknowledged, /notifications\/subscriptions\/acknowledged","params":{"notifications":{}/);
  t.match(answer, /"id":1,"result":{"resultType":"complete"/);
});

function base64(text: string): string {
  return `=?base64?${Buffer.from(text).toString("base64")}?=`;
}

const call = statelessCall("tools/call", { name: "list_databases", arguments: {} });

function withHeaders(changes: Record<string, string | undefined>) {
  // JSON drops undefined members.
  return { ...call, headers: JSON.parse(JSON.stringify({ ...call.headers, ...changes })) };
}

const disagreements = [
  { "mcp-protocol-version": undefined },
  { "mcp-protocol-version": "2025-11-25" },
  { "mcp-method": undefined },
  { "mcp-method": "tools/list" },
  { "mcp-method": "Tools/Call" },
  { "mcp-name": undefined },
  { "mcp-name": "drop_table" },
  { "mcp-name": "List_Databases" },
  { "mcp-name": "list_databases, drop_table" },
  { "mcp-name": base64("drop_table") },
  { "mcp-name": "=?base64?!!!?=" },
  { "mcp-name": "=?base64?bGlzdF9kYXRhYmFzZXM?=" },
];

t.test("headers that differ from the body are refused", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants: owner });
  for (const changes of disagreements) {
    const answer = await ask(endpoint.url, withHeaders(changes));
    t.equal(answer.status, 400, JSON.stringify(changes));
    t.match(JSON.parse(answer.body.toString()), { id: 1, error: { code: -32020 } });
  }
});

t.test("an unknown protocol version is answered with the supported ones", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants: owner });
  const body = call.body.replace("2026-07-28", "2099-01-01");
  const headers = { ...call.headers, "mcp-protocol-version": "2099-01-01" };
  const answer = await ask(endpoint.url, { ...call, headers, body });
  t.equal(answer.status, 400);
  t.match(JSON.parse(answer.body.toString()).error, {
    code: -32022,
    data: { supported: ["2026-07-28"], requested: "2099-01-01" },
  });
});

t.test("a tool name may be encoded in base64", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants: owner });
  const answer = await ask(endpoint.url, withHeaders({ "mcp-name": base64("list_databases") }));
  t.equal(answer.status, 200);
  t.match(JSON.parse(answer.body.toString()).result, {
    structuredContent: { databases: ["main"] },
  });
});

t.test("header values are decoded strictly", async (t) => {
  t.equal(decodeHeaderValue("plain value"), "plain value");
  t.equal(decodeHeaderValue(base64("Hello, 世界")), "Hello, 世界");
  t.equal(decodeHeaderValue(base64("")), "");
  t.equal(decodeHeaderValue("=?base64?unfinished"), "=?base64?unfinished");
  t.equal(decodeHeaderValue("=?BASE64?YQ==?="), "=?BASE64?YQ==?=");
  const encoded = ["YQ", "YR==", "/w=="].map((base64) => `=?base64?${base64}?=`);
  for (const bad of ["caf\u00e9", "a\u0001", ...encoded])
    t.equal(decodeHeaderValue(bad), undefined, JSON.stringify(bad));
});

t.test("clients before 2026-07-28 need no headers, but those they send must match", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants: owner });
  const older = (headers: Record<string, string>) =>
    ask(endpoint.url, handshakeCall("tools/list", {}, headers));
  t.equal((await older({})).status, 200);
  t.equal((await older({ "mcp-protocol-version": "2025-06-18" })).status, 200);
  t.equal((await older({ "mcp-method": "tools/list" })).status, 200);
  const liar = await older({ "mcp-method": "ping" });
  t.equal(liar.status, 400, "a header that differs from the body");
  t.match(JSON.parse(liar.body.toString()).error, { code: -32020 });
});

t.test("GET and DELETE are 405, because the server has no sessions", async (t) => {
  const { endpoint } = await openEmbedded(t, { grants: owner });
  const headers = { accept: "text/event-stream" };
  t.equal((await ask(endpoint.url, { method: "GET", headers })).status, 405);
  t.equal((await ask(endpoint.url, { method: "DELETE" })).status, 405);
});
