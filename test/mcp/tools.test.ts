/** The tools beyond single operations: pages, counts, batches, previews, and what is shown of them. */
import t, { type Test } from "tap";
import { overEach } from "../engine/over-each.ts";
import { type AnyClient, connectStateless } from "./clients.ts";
import { openEmbedded } from "./kit.ts";

const grants = { alice: { main: "Owner" } } as const;
const ofOrders = { database: "main", table: "orders" };
const fromOrders = { database: "main", from: "orders" };
const orders = {
  ...ofOrders,
  columns: [
    { name: "id", type: "bigint", primary_key: true },
    { name: "region", type: "text" },
    { name: "total", type: "numeric(10,2)" },
    { name: "count", type: "int" },
  ],
};

async function open(t: Test, rows: number, options: object = {}): Promise<AnyClient> {
  const { endpoint, ask } = await openEmbedded(t, { grants, ...options });
  await ask({ CreateTable: orders });
  const regions = ["eu", "us", null];
  const values = Array.from({ length: rows }, (_, id) => ({
    id,
    region: regions[id % 3],
    total: id,
  }));
  await ask({ Insert: { ...ofOrders, values } });
  return connectStateless(t, endpoint.url);
}

t.test("pages by a cursor lose no row, in whatever order", async (t) => {
  const mcp = await open(t, 100, { rowLimit: 7 });
  const orderings: object[] = [
    { order_by: { column: "id" } },
    { order_by: [{ column: "region", direction: "DESC" }, { column: "id" }] },
    { order_by: [{ column: "orders.region" }, { column: "orders.id", direction: "DESC" }] },
  ];
  for (const ordering of orderings) {
    const ids = new Set<unknown>();
    let cursor: object = {};
    let pages = 0;
    for (let more = true; more; pages++) {
      const { structured = {} } = await mcp.call("select", {
        ...{ ...fromOrders, columns: ["id", "region"], ...ordering, ...cursor },
      });
      for (const row of Object(structured.rows)) ids.add(row.id);
      more = structured.truncated === true;
      t.equal(structured.next_after !== undefined, more);
      if (pages > 0) t.equal(structured.next_offset, undefined, "an offset does not go with after");
      cursor = { after: structured.next_after };
    }
    t.equal(ids.size, 100);
    t.equal(pages, 15);
  }
});

t.test("a cursor is given where the next call can take it, and no other", async (t) => {
  const mcp = await open(t, 5, { rowLimit: 2 });
  const ordered = { ...fromOrders, order_by: { column: "id" } };
  const withCursor = [
    { ...ordered, columns: ["*"] },
    { ...ordered, columns: ["orders.id"] },
    { ...ordered, columns: ["id"], offset: 1 },
  ];
  for (const args of withCursor) {
    const { structured = {} } = await mcp.call("select", args);
    const { rows } = structured;
    const last: { id?: number } = Object(Array.isArray(rows) ? rows.at(-1) : undefined);
    t.same(structured.next_after, [last.id]);
  }
  const without = [
    { ...ordered, columns: ["total"] },
    { ...fromOrders, columns: ["id"] },
    { ...ordered, columns: ["id"], distinct: true },
    {
      ...fromOrders,
      group_by: ["id"],
      aggregate: [{ fn: "count", as: "n" }],
      order_by: { column: "id" },
    },
  ];
  for (const args of without) {
    const { structured = {} } = await mcp.call("select", args);
    t.match(structured, { truncated: true, next_offset: 2 }, JSON.stringify(args));
    t.equal(structured.next_after, undefined);
  }
  const unsure = { ...fromOrders, columns: ["region"], order_by: { column: "region" } };
  const { structured = {} } = await mcp.call("select", unsure);
  t.match(await mcp.call("select", { ...unsure, after: structured.next_after }), {
    isError: true,
    text: /add id to order_by .*\(order_not_unique\)$/,
  });
});

t.test("a cursor of a join names the column that it is of", async (t) => {
  const mcp = await open(t, 4, { rowLimit: 2 });
  const lines = [
    { name: "id", type: "bigint", primary_key: true },
    { name: "order_id", type: "bigint" },
  ];
  await mcp.call("create_table", { database: "main", table: "lines", columns: lines });
  const values = [10, 11, 12, 13].map((id) => ({ id, order_id: id - 10 }));
  await mcp.call("insert", { database: "main", table: "lines", values });
  const joined = {
    ...{
      ...fromOrders,
      join: { table: "lines", on: "orders.id = lines.order_id", join_type: "INNER" },
    },
    order_by: [{ column: "orders.id" }, { column: "lines.id" }],
  };
  const both = await mcp.call("select", { ...joined, columns: ["orders.id", "lines.id"] });
  t.match(both.structured, { next_after: [1, 11] });
  const one = await mcp.call("select", { ...joined, columns: ["lines.id"] });
  t.equal(
    one.structured?.next_after,
    undefined,
    "the key that is not there is not taken from another",
  );
});

t.test("a cursor of an integer beyond 2^53 is taken back to the digit", async (t) => {
  const mcp = await open(t, 0, { rowLimit: 1 });
  const values = ["9007199254740993", "9007199254740995"].map((id) => ({ id }));
  await mcp.call("insert", { ...ofOrders, values });
  const page = { ...fromOrders, columns: ["id"], order_by: { column: "id" } };
  const first = await mcp.call("select", page);
  t.match(first.structured, { next_after: ["9007199254740993"] });
  const second = await mcp.call("select", { ...page, after: first.structured?.next_after });
  t.same(second.structured, { rows: [{ id: "9007199254740995" }], truncated: false });
});

t.test("rows are counted, with and without a condition and a join", async (t) => {
  const mcp = await open(t, 30);
  t.same((await mcp.call("count", fromOrders)).structured, { count: 30 });
  const where = { column: "region", cmp: "=", value: "eu" };
  t.same((await mcp.call("count", { ...fromOrders, where })).structured, { count: 10 });
  t.match(await mcp.call("count", { ...fromOrders, group_by: ["region"] }), {
    isError: true,
    text: /^Failed: the field "group_by" is unknown; allowed: database, from, where, join/,
  });
  t.match(await mcp.call("count", { database: "main" }), {
    isError: true,
    text: /"from" is left out/,
  });
  t.match(await mcp.call("count", { ...fromOrders, database: "other" }), {
    isError: true,
    text: /^Denied: .*; whoami tells .*\(no_grant\)$/,
  });
});

t.test("a change answers its rows, and a preview what it would do", async (t) => {
  const mcp = await open(t, 0);
  const inserted = await mcp.call("insert", {
    ...{ ...ofOrders, values: [{ id: 1, total: 2.5 }, { id: 2 }] },
    returning: ["id", "total"],
  });
  t.same(inserted.structured, {
    message: "Inserted 2 rows",
    affected: 2,
    rows: [
      { id: 1, total: 2.5 },
      { id: 2, total: null },
    ],
  });
  const where = { column: "id", cmp: "=", value: 1 };
  const previewed = await mcp.call("preview", {
    Update: { ...ofOrders, add: { total: 1 }, where },
  });
  t.match(previewed.structured, { affected: 1, before: [{ total: 2.5 }], after: [{ total: 3.5 }] });
  t.equal(previewed.structured?.truncated, undefined);
  const upsert = { values: [{ id: 2, total: 9 }], on_conflict: ["id"], update: ["total"] };
  const upserted = await mcp.call("upsert", { ...ofOrders, ...upsert, returning: ["total"] });
  t.match(upserted.structured, { affected: 1, rows: [{ total: 9 }] });
});

t.test("a preview of more rows than it shows says that there are more", async (t) => {
  const mcp = await open(t, 101);
  const all = { Delete: { ...ofOrders, where: null } };
  t.match((await mcp.call("preview", all)).structured, { affected: 101, truncated: true });
  const where = { column: "id", cmp: "<", value: 100 };
  const some = await mcp.call("preview", { Delete: { ...ofOrders, where } });
  t.equal(some.structured?.truncated, undefined);
});

t.test("a batch is carried out whole or not at all, and says which operation failed", async (t) => {
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
    text: /^Failed: operations\[1\]: .*; describe_table tells .*\(constraint_violation\)$/,
  });
  t.same((await mcp.call("count", fromOrders)).structured, { count: 4 });
  const wrong: [args: Record<string, unknown>, text: RegExp][] = [
    [{}, /"operations" is left out; required: operations; operations is written like \[/],
    [{ operations: [] }, /^Failed: operations: .* \(batch_size\)$/],
    [
      { operations: [insert(9), { Insert: { ...ofOrders } }] },
      /^Failed: operations\[1\].Insert: the field "values"/,
    ],
    [{ operations: [{ Insert: { ...ofOrders, values: {} } }] }, /values is written like \[/],
    [{ operations: [], more: 1 }, /"more" is unknown; allowed: operations/],
    [{ operations: [{ Preview: { Delete: { ...ofOrders, where: null } } }] }, /\(not_in_batch\)$/],
  ];
  for (const [args, text] of wrong) t.match(await mcp.call("batch", args), { isError: true, text });
});

t.test("what is too large to be shown was done all the same, and the result says so", async (t) => {
  const mcp = await open(t, 0, { resultBytes: 64 * 1024 });
  const values = Array.from({ length: 500 }, (_, id) => ({ id, region: "r".repeat(300) }));
  const inserted = await mcp.call("insert", { ...ofOrders, values, returning: ["*"] });
  t.same(inserted.structured, {
    message: "Inserted 500 rows; the rows are too large to be shown",
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
    message: "Nothing is kept; the rows are too large to be shown",
    affected: 400,
    truncated: true,
  });
  const deleted = await mcp.call("delete", { ...ofOrders, where, returning: ["*"] });
  t.match(deleted.structured, { affected: 100, truncated: undefined });
  const text = JSON.parse(deleted.text);
  t.equal(text.truncated, true);
  t.ok(text.rows.length > 0 && text.rows.length < 100 && deleted.text.length < 9000);
});

t.test("what is refused names what would be right", async (t) => {
  const mcp = await open(t, 1);
  const cases: [tool: string, args: Record<string, unknown>, text: RegExp][] = [
    [
      "select",
      { ...fromOrders, columns: ["nothing"] },
      /; describe_table tells the columns \(unknown_column\)$/,
    ],
    [
      "select",
      { ...fromOrders, columns: ["totle"] },
      /\(did you mean total\?\) \(unknown_column\)$/,
    ],
    [
      "select",
      { database: "main", from: "things", columns: ["*"] },
      /; list_tables tells .*\(table_not_found\)$/,
    ],
    [
      "describe_table",
      { database: "main", table: "things" },
      /; list_databases and list_tables tell .*\(schema_not_found\)$/,
    ],
    [
      "select",
      { ...fromOrders, columns: ["id"], aggregate: "count" },
      /aggregate is written like \[\{"fn": "count"/,
    ],
    [
      "preview",
      { Update: { ...ofOrders, set: 1, where: null } },
      /^Failed: Update.set: .*; set is written like \{"name"/,
    ],
    [
      "upsert",
      { ...ofOrders, values: [{ id: 1 }], on_conflict: "id", update: [] },
      /on_conflict is written like/,
    ],
    ["whoami", { user: "me" }, /"user" is unknown; allowed: none/],
    [
      "count",
      { database: "main", table: "orders" },
      /"table" is unknown; .* \(did you mean from\?\)/,
    ],
    [
      "delete",
      ofOrders,
      /"where" is left out; .*; where is written like .* or null \(missing_field\)$/,
    ],
    ["select", { ...fromOrders, columns: ["count(*)"] }, /; counts and sums stand under aggregate/],
  ];
  for (const [tool, args, text] of cases) {
    t.match(await mcp.call(tool, args), { isError: true, text }, `${tool} ${JSON.stringify(args)}`);
  }
});

overEach("pages of every type go on by what the last row holds", async (t, fresh) => {
  const { endpoint, ask } = await openEmbedded(t, { grants, rowLimit: 2, fresh });
  const types = ["numeric(10,2)", "double", "timestamp", "date", "bool", "bigint", "varchar(9)"];
  const columns = [
    { name: "id", type: "int", primary_key: true },
    ...types.map((type, at) => ({ name: `c${at}`, type })),
  ];
  await ask({ CreateTable: { ...ofOrders, columns } });
  const rowOf = (n: number) => ({
    ...{ c0: n / 4, c1: n / 3, c2: `2026-01-02T03:04:0${n}Z`, c3: `2026-01-0${1 + n}` },
    ...{ c4: n > 2, c5: `900719925474199${n}`, c6: n === 3 ? null : `"${n}'` },
  });
  const values = [0, 1, 2, 3, 4].map((n) => ({ id: n, ...rowOf(n) }));
  t.match(await ask({ Insert: { ...ofOrders, values } }), { status: 200 });
  const mcp = await connectStateless(t, endpoint.url);
  for (const [at, type] of types.entries()) {
    const order_by = [{ column: `c${at}`, direction: "DESC" }, { column: "id" }];
    const ids: unknown[] = [];
    let cursor: object | undefined = {};
    while (cursor !== undefined) {
      const page = { ...fromOrders, columns: ["*"], order_by, ...cursor };
      const { structured = {}, isError, text } = await mcp.call("select", page);
      if (isError) t.fail(`${type}: ${text}`);
      for (const { id } of Object(structured.rows ?? [])) ids.push(id);
      cursor = structured.truncated === true ? { after: structured.next_after } : undefined;
    }
    t.same(ids.toSorted(), [0, 1, 2, 3, 4], type);
  }
});
