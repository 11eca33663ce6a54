/** Selects with `include`, and Selects that read other Selects. */
import { choicesOf } from "../query/arbitrary.ts";
import { Chooser } from "../query/arbitrary-selects.ts";
import { nestedSelect, rowsFor, tableNames, tableTypes } from "./arbitrary-selects.ts";
import { createTable, dropTable, equal, insert, refusal, rowsAs } from "./kit.ts";
import { answersOf, type ModelTables, rowText } from "./model.ts";
import { overEach, type Scene } from "./over-each.ts";

/** JSON with exact integers. */
function json(value: unknown): string {
  return JSON.stringify(value, (_key, cell: unknown) =>
    typeof cell === "bigint" ? JSON.rawJSON(String(cell)) : cell,
  );
}

overEach("generated nested Selects return the rows of relational algebra", async (t, { ask }) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const choose = new Chooser(choicesOf(seed));
  const seen = { rows: 0, members: 0, more: 0, from: 0 };
  for (let world = 0; world < 10; world++) {
    const tables: ModelTables = Object.fromEntries(
      tableNames.map((name) => [name, rowsFor(choose)]),
    );
    const named = (text: string) => text.replaceAll("$", `w${world}`);
    for (const [name, rows] of Object.entries(tables)) {
      t.match(await ask(createTable(named(name), tableTypes)), { status: 200 });
      t.match(await ask(json(insert(named(name), rows))), { status: 200 });
    }
    for (let number = 0; number < 40; number++) {
      const query = nestedSelect(choose);
      const asked = named(json({ Select: { database: "main", ...query } }));
      const { text } = await ask(asked);
      const answers = named(answersOf(query, tables).map(rowText).join(","));
      const expected = `{"status":"success","data":[${answers}]}`;
      if (answers !== "") seen.rows++;
      if (/"m0":[{[][^\]]/.test(answers)) seen.members++;
      if (answers.includes('_more":true')) seen.more++;
      if (asked.includes('"from":{"select"')) seen.from++;
      if (text === expected) continue;
      t.equal(text, expected, `seed ${seed}: ${asked}`);
      t.comment(json(tables));
      return;
    }
    for (const name of tableNames) t.match(await ask(dropTable(named(name))), { status: 200 });
  }
  t.comment(JSON.stringify(seen));
  t.ok(seen.rows > 100 && seen.members > 40 && seen.more > 10 && seen.from > 100);
});

const on = "lines.order_id = orders.id";
const line = { as: "lines", table: "lines", on, columns: ["id"], order_by: { column: "id" } };

async function fill(ask: Scene["ask"]): Promise<void> {
  await ask(createTable("orders", { id: "int", customer: "text", lines_more: "int" }));
  await ask(createTable("lines", { id: "int", order_id: "int", note: "text" }));
  const orders = [1, 2, 3].map((id) => ({ id, customer: `c${id}` }));
  await ask(insert("orders", orders));
  const lines = Array.from({ length: 201 }, (_, at) => ({ id: at, order_id: at > 100 ? 2 : 1 }));
  await ask(insert("lines", [...lines, { id: 500, order_id: null }]));
}

overEach("each row has at most as many members as the limit says", async (t, { ask }) => {
  await fill(ask);
  const members = async (include: object, fields: object = {}) => {
    const query = { database: "main", from: "orders", columns: ["id"], include: [include] };
    const order_by = { column: "id" };
    const { body, text } = await ask({ Select: { ...query, order_by, ...fields } });
    return body.data ?? text;
  };
  t.match(await members(line), [
    { id: 1, lines: { length: 100, 99: { id: 99 } }, lines_more: true },
    { id: 2, lines: { length: 100, 99: { id: 200 } }, lines_more: undefined },
    { id: 3, lines: { length: 0 }, lines_more: undefined },
  ]);
  t.same(await members({ ...line, limit: 0 }), [
    { id: 1, lines: [], lines_more: true },
    { id: 2, lines: [], lines_more: true },
    { id: 3, lines: [] },
  ]);
  const last = { ...line, one: true, order_by: { column: "id", direction: "DESC" } };
  t.same(await members(last, { columns: ["customer"] }), [
    { customer: "c1", lines: { id: 100 } },
    { customer: "c2", lines: { id: 200 } },
    { customer: "c3", lines: null },
  ]);
  const order = { as: "order", table: "orders", on: "orders.id = lines.order_id", one: true };
  const from = { select: { from: "lines", columns: ["id", "order_id"] }, as: "l" };
  const include = { ...order, on: "orders.id = l.order_id", columns: ["customer"] };
  const where = { column: "l.id", cmp: ">", value: 199 };
  const order_by = { column: "id" };
  t.same(await members(include, { from, columns: ["*"], where, order_by }), [
    { id: 200, order_id: 2, order: { customer: "c2" } },
    { id: 500, order_id: null, order: null },
  ]);
});

overEach("members stand in a Batch and in lines of JSON, but not in CSV", async (t, scene) => {
  await fill(scene.ask);
  const query = { database: "main", from: "orders", columns: ["id"], order_by: { column: "id" } };
  const include = [{ ...line, limit: 1 }];
  const Select = { ...query, include, limit: 2 };
  const rows = [1, 2].map(
    (id) => `{"id":${id},"lines":[{"id":${id === 1 ? 0 : 101}}],"lines_more":true}`,
  );
  t.match((await scene.ask({ Batch: [{ Select }] })).text, `"data":[[${rows.join(",")}]]`);
  const { address } = scene.engine;
  const streamed = await rowsAs(address, { Select }, "application/x-ndjson");
  t.match(streamed.text, rows.map((row) => `${row}\n`).join(""));
  const flat = await rowsAs(address, { Select }, "text/csv");
  t.match(flat, { status: 400, text: /CSV/ });
});

overEach("members match as rows of a join do", async (t, { ask }) => {
  await fill(ask);
  await ask(
    insert("lines", [
      { id: 600, note: "2" },
      { id: 601, note: "c" },
    ]),
  );
  const query = { database: "main", from: "orders" };
  for (const on of ["lines.order_id = orders.id", "lines.note = orders.id"]) {
    const order_by = [{ column: "orders.id" }, { column: "lines.id" }];
    const join = { table: "lines", on, join_type: "INNER" };
    const columns = ["orders.id", "lines.id"];
    const joined = await ask({ Select: { ...query, columns, join, order_by } });
    const include = [{ ...line, on, limit: 1000 }];
    const included = await ask({ Select: { ...query, columns: ["id"], include } });
    t.equal(included.status, joined.status);
    if (joined.status !== 200) t.equal(included.text, joined.text);
    const pairs = [included.body.data ?? []].flat().flatMap((row) => {
      const { id, lines } = Object(row);
      return lines.map((one: { id: number }) => ({ "orders.id": id, "lines.id": one.id }));
    });
    t.strictSame(pairs, joined.body.data ?? [], on);
  }
});

overEach("rows and their members are of one moment", async (t, { ask }) => {
  await fill(ask);
  const move = (id: number, order_id: number) =>
    ask({
      Update: { database: "main", table: "lines", set: { order_id }, where: equal("id", id) },
    });
  const include = [{ ...line, limit: 1000 }];
  const query = { database: "main", from: "orders", columns: ["id"], include };
  let isOver = false;
  const moving = (async () => {
    for (let turn = 0; !isOver; turn++) await move(turn % 201, 1 + (turn % 3));
  })();
  const counts = new Set<string>();
  for (let turn = 0; turn < 60; turn++) {
    const { body } = await ask({ Select: query });
    const ids = (body.data ?? []).flatMap((row) =>
      Object(row).lines.map((one: { id: number }) => one.id),
    );
    counts.add(`${ids.length} lines, ${new Set(ids).size} of them different`);
  }
  isOver = true;
  await moving;
  t.strictSame([...counts], ["201 lines, 201 of them different"]);
});

overEach("a wrong name in a nested Select is refused with what is allowed", async (t, { ask }) => {
  await fill(ask);
  const query = { database: "main", from: "orders", columns: ["id"] };
  const refused = async (fields: object, code: string, message: RegExp) =>
    t.match(
      await ask({ Select: { ...query, ...fields } }),
      refusal(code === "table_not_found" ? 404 : 400, code, message),
    );
  const include = (fields: object) => ({ include: [{ ...line, ...fields }] });
  await refused(include({ columns: ["nothing"] }), "unknown_column", /"nothing".*lines/);
  await refused(include({ on: "lines.order_id = orders.nothing" }), "unknown_column", /nothing/);
  await refused(
    include({ table: "nowhere", on: "nowhere.id = orders.id" }),
    "table_not_found",
    /nowhere/,
  );
  await refused({ columns: ["*"], ...include({}) }, "duplicate_column", /lines_more/);
  await refused(
    { columns: ["*"], ...include({ as: "CUSTOMER" }) },
    "duplicate_column",
    /CUSTOMER/i,
  );
  const compute = [{ as: "order_id", fn: "abs", of: ["id"] }];
  await refused(include({ compute }), "duplicate_column", /order_id/);
  const from = { select: { from: "lines", columns: ["id", "note"] }, as: "l" };
  await refused(
    { from, columns: ["l.order_id"] },
    "unknown_column",
    /order_id.*\bl\b.*"?id"?.*note/,
  );
  await refused({ from, where: equal("order_id", 1) }, "unknown_column", /order_id/);
  await refused({ from, order_by: { column: "id" }, after: [1] }, "order_not_unique", /./);
  const join = { table: "orders", on: "orders.id = lines.order_id", join_type: "INNER" };
  for (const columns of [["lines.id", "orders.id"], ["*"]]) {
    const twice = { select: { from: "lines", columns, join }, as: "l" };
    await refused({ from: twice, columns: ["note"] }, "duplicate_column", /"l".*"id"/);
  }
});
