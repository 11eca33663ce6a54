import t from "tap";
import { createSchemaSource } from "../../src/core/upstream/schema-source.ts";
import { findNextPage } from "../../src/features/mcp/tool-results.ts";
import { ask } from "../kit/client.ts";
import { columnsOf } from "../kit/queries.ts";
import { openEmbedded } from "./kit.ts";
import { statelessCall } from "./messages.ts";
import { fromOrders, grants, ofOrders, open, pagesOf } from "./orders.ts";

t.test("pages by a cursor lose no row, in any order", async (t) => {
  const mcp = await open(t, 100, { rowLimit: 7 });
  const orderings: object[] = [
    { order_by: { column: "id" } },
    { order_by: [{ column: "region", direction: "DESC" }, { column: "id" }] },
    { order_by: [{ column: "orders.region" }, { column: "orders.id", direction: "DESC" }] },
  ];
  for (const ordering of orderings) {
    const select = { ...fromOrders, columns: ["id", "region"], ...ordering };
    const pages = await Array.fromAsync(pagesOf(mcp, select));
    const ids = pages.flatMap(({ rows }) => Object(rows)).map(({ id }) => id);
    t.equal(new Set(ids).size, 100);
    t.equal(pages.length, 15);
    for (const [at, page] of pages.entries()) {
      t.equal(page.next_after !== undefined, at < 14);
      t.equal(page.next_offset !== undefined, at === 0, "no offset together with after");
    }
  }
});

t.test("a page has a cursor only if the next call would accept it", async (t) => {
  const mcp = await open(t, 5, { rowLimit: 2 });
  const ordered = { ...fromOrders, order_by: { column: "id" } };
  const withCursor = [
    { ...ordered, columns: ["*"] },
    { ...ordered, columns: ["orders.id"] },
    { ...ordered, columns: ["id"], offset: 1 },
  ];
  for (const args of withCursor) {
    const { structured = {} } = await mcp.call("select", args);
    t.same(structured.next_after, [Object(structured.rows).at(-1).id]);
  }
  const without = [
    { ...ordered, columns: ["total"] },
    { ...fromOrders, columns: ["region"], order_by: { column: "region" } },
    { ...fromOrders, columns: ["id"] },
    { ...ordered, columns: ["id"], distinct: true },
    { ...ordered, group_by: ["id"], aggregate: [{ fn: "count", as: "n" }] },
  ];
  for (const args of without) {
    const { structured = {} } = await mcp.call("select", args);
    t.match(structured, { truncated: true, next_offset: 2 }, JSON.stringify(args));
    t.equal(structured.next_after, undefined);
  }
  const byRegion = { ...fromOrders, columns: ["region"], order_by: { column: "region" } };
  t.match(await mcp.call("select", { ...byRegion, after: ["eu"] }), {
    isError: true,
    text: /add id to order_by .*\(order_not_unique\)$/,
  });
});

t.test("an order by a computed name or by JSON continues by an offset", async (t) => {
  const mcp = await open(t, 0, { rowLimit: 3 });
  const columns = columnsOf({ id: "int", doc: "json" });
  await mcp.call("create_table", { database: "main", table: "docs", columns });
  const values = Array.from({ length: 8 }, (_, id) => ({ id, doc: id < 5 ? id : { id } }));
  await mcp.call("insert", { database: "main", table: "docs", values });
  const twice = { as: "twice", fn: "mul", of: ["id", { value: -2 }] };
  for (const column of ["twice", "doc"]) {
    const order_by = [{ column }, { column: "id" }];
    const all = { database: "main", from: "docs", columns: ["id", column], order_by };
    const select = column === "twice" ? { ...all, compute: [twice] } : all;
    const ids: unknown[] = [];
    for (let offset = 0; ids.length < 8; offset += 3) {
      const { structured, text } = await mcp.call("select", { ...select, offset });
      t.equal(structured?.next_after, undefined, text);
      ids.push(...Object(structured?.rows).map(({ id }: { id: number }) => id));
    }
    t.strictSame(ids.toSorted(), [0, 1, 2, 3, 4, 5, 6, 7]);
  }
});

t.test("a cursor of a join takes values from the right table", async (t) => {
  const mcp = await open(t, 4, { rowLimit: 2 });
  const lines = [
    { name: "id", type: "bigint", primary_key: true },
    { name: "order_id", type: "bigint" },
  ];
  await mcp.call("create_table", { database: "main", table: "lines", columns: lines });
  const values = [10, 11, 12, 13].map((id) => ({ id, order_id: id - 10 }));
  await mcp.call("insert", { database: "main", table: "lines", values });
  const joined = {
    ...fromOrders,
    join: { table: "lines", on: "orders.id = lines.order_id", join_type: "INNER" },
    order_by: [{ column: "orders.id" }, { column: "lines.id" }],
  };
  const both = await mcp.call("select", { ...joined, columns: ["orders.id", "lines.id"] });
  t.match(both.structured, { next_after: [1, 11] });
  const one = await mcp.call("select", { ...joined, columns: ["lines.id"] });
  t.equal(one.structured?.next_after, undefined, "orders.id is not among the columns");
});

t.test("a cursor with an integer beyond 2^53 keeps every digit", async (t) => {
  const mcp = await open(t, 0, { rowLimit: 1 });
  const values = ["9007199254740993", "9007199254740995"].map((id) => ({ id }));
  await mcp.call("insert", { ...ofOrders, values });
  const page = { ...fromOrders, columns: ["id"], order_by: { column: "id" } };
  const first = await mcp.call("select", page);
  t.match(first.structured, { next_after: ["9007199254740993"] });
  const second = await mcp.call("select", { ...page, after: first.structured?.next_after });
  t.same(second.structured, { rows: [{ id: "9007199254740995" }], truncated: false });
});

t.test("a decimal is part of a cursor only if a double keeps its digits", async (t) => {
  const byPrice = new Map([
    ["columns", Buffer.from('["price"]')],
    ["order_by", Buffer.from('{"column":"price"}')],
  ]);
  const nextPage = findNextPage(byPrice, "full", async () => true);
  const after = async (price: string) =>
    (await nextPage([{ price: JSON.rawJSON(price) }])).next_after;
  t.strictSame(await after("1.50"), [1.5]);
  t.strictSame(await after("-0.00123456789012345e2"), [-0.123456789012345]);
  t.equal(await after("1.000000000000000001"), undefined);
});

t.test("64-bit integers keep their digits in arguments and results", async (t) => {
  const { endpoint, ask: query } = await openEmbedded(t, { grants });
  const table = { database: "main", table: "big" };
  const columns = columnsOf({ id: "bigint", note: "json" });
  await query({ CreateTable: { ...table, columns } });
  const call = async (name: string, args: object) => {
    const sent = statelessCall("tools/call", { name, arguments: args });
    // A number in quotes is sent as a bare number.
    const body = sent.body.replace(/"#(-?\d+)"/g, "$1");
    const { result } = JSON.parse((await ask(endpoint.url, { ...sent, body })).body.toString());
    t.notOk(result.isError, JSON.stringify(result));
    return result.structuredContent;
  };
  const read = { database: "main", from: "big", columns: ["*"] };
  const stored = async () => (await query({ Select: read })).text;
  const values = [{ id: "#-9223372036854775808", note: { n: "#9007199254740993" } }];
  await call("insert", { ...table, values });
  t.match(await stored(), '"id":-9223372036854775808,"note":{"n":9007199254740993}');
  const row = { id: "-9223372036854775808", note: { n: "9007199254740993" } };
  t.same(await call("select", read), { rows: [row], truncated: false });

  const where = { column: "id", cmp: "=", value: row.id };
  await call("insert", { ...table, values: [{ id: "-9223372036854775807", note: 1 }] });
  await call("update", { ...table, set: { id: "9007199254740993" }, where });
  t.match(await stored(), '"id":9007199254740993,"note":{"n":9007199254740993}');
  await call("delete", { ...table, where: { ...where, value: "9007199254740993" } });
  t.match(await stored(), '"data":[{"id":-9223372036854775807,"note":1}]', "no other row is gone");
});

t.test("an order of a table joined with itself is total with both of its keys", async (t) => {
  const id = { name: "id", type: "int", primary_key: true, nullable: false };
  const boss = { name: "boss", type: "int", primary_key: false, nullable: true };
  const described = { databases: ["main"], columns: [id, boss] };
  const body = Buffer.from(JSON.stringify({ data: described }));
  const answer = { status: 200, headers: [], body, isCut: false };
  const source = createSchemaSource<undefined>({
    upstreams: [{ holds: () => true, get: async () => answer }],
    visibilityDenial: () => undefined,
  });
  const tables = [{ table: "staff" }, { table: "staff", as: "m" }];
  const { signal } = new AbortController();
  const isTotal = (...order: string[]) =>
    source.isUniqueOrder(undefined, "main", tables, order, signal);
  t.ok(await isTotal("m.id", "staff.boss", "staff.id"));
  t.notOk(await isTotal("staff.id", "m.boss"));
  t.notOk(await isTotal("m.id"));
});
