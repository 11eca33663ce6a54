/** The tools beyond single operations: pages, counts, batches, previews, and what is shown of them. */
import t from "tap";
import { fromOrders, ofOrders, open } from "./orders.ts";

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
