/** Conditions by rows of other tables, in Selects and changes. */
import t from "tap";
import { createTable, equal, insert, query, refusal, selectAll } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, overSqlite, type Scene } from "./over-each.ts";
import { startOn } from "./postgres/kit.ts";

type Ask = Scene["ask"];

async function fill(ask: Ask): Promise<void> {
  await ask(createTable("staff", { id: "int", name: "text", boss: "int", since: "date" }));
  await ask(createTable("rentals", { id: "int", staff_id: "int", film: "text", price: "double" }));
  await ask(
    insert("staff", [
      { id: 1, name: "Ann", boss: null, since: "2024-01-01" },
      { id: 2, name: "Bob", boss: 1, since: "2025-01-01" },
      { id: 3, name: "Cid", boss: 1, since: "2026-01-01" },
    ]),
  );
  await ask(
    insert("rentals", [
      { id: 10, staff_id: 1, film: "A", price: 1 },
      { id: 11, staff_id: 1, film: "B", price: 2 },
      { id: 12, staff_id: 2, film: "A", price: 2.5 },
      { id: 13, staff_id: null, film: "B", price: null },
    ]),
  );
}

const rented = (film: string) => ({
  exists: {
    table: "rentals",
    on: "rentals.staff_id = staff.id",
    where: equal("film", film),
  },
});
const bosses = { column: "id", cmp: "IN", select: { from: "staff", columns: ["boss"] } };
const target = { database: "main", table: "staff" };

overEach("changes take conditions on other tables and on their own", async (t, { ask }) => {
  await fill(ask);
  const next = { as: "next", fn: "add", of: ["s.id", { value: 1 }] };
  const selected = { from: { table: "staff", as: "s" }, columns: ["next"], compute: [next] };
  const within = { from: { select: selected, as: "t" }, columns: ["next"] };
  const either = [
    { column: "id", cmp: "IN", select: within },
    { column: "id", cmp: "<", other: "boss" },
  ];
  const shifted = { Update: { ...target, set: { since: "2025-01-01" }, where: { or: either } } };
  t.match((await ask(shifted)).text, '"affected":2');
  const having = { column: "n", cmp: ">", value: 1 };
  const busy = { from: "rentals", group_by: ["staff_id"], aggregate: [{ fn: "count", as: "n" }] };
  const where = { and: [{ column: "id", cmp: "IN", select: { ...busy, having } }, rented("B")] };
  const renamed = { Update: { ...target, set: { name: "Zoe" }, where, returning: ["id", "name"] } };
  t.match((await ask({ Preview: renamed })).text, '"before":[{"id":1,"name":"Ann"}]');
  t.match((await ask(renamed)).text, '"affected":1,"data":[{"id":1,"name":"Zoe"}]');
  const promoted = { Update: { ...target, set: { name: "Boss" }, where: bosses } };
  t.match((await ask(promoted)).text, '"affected":1');
  t.match((await ask({ Preview: { Delete: { ...target, where: bosses } } })).text, '"affected":1');
  t.match((await ask({ Delete: { ...target, where: { not: rented("A") } } })).text, '"affected":1');
  t.match((await ask({ Delete: { ...target, where: bosses } })).text, '"affected":1');
});

overSqlite(
  "a change counts the rows of a Select before it counts values once",
  async (t, { ask }) => {
    await fill(ask);
    const rest = { from: "rentals", columns: ["staff_id"], order_by: { column: "id" }, offset: 1 };
    const where = { column: "id", cmp: "IN", select: rest };
    const { body } = await ask({
      Update: { ...target, set: { name: "Zoe" }, where, returning: ["id"] },
    });
    t.same(body.data, [{ id: 1 }, { id: 2 }]);
  },
);

const linked = {
  n: "int",
  word: "text",
  code: "uuid",
  day: "date",
  at: "timestamp",
  paid: "boolean",
};
const code = "5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f";
const largestOdd = "9007199254740993";

overEach("on compares columns of different types as other does", async (t, { ask }) => {
  const types = { id: "int", ratio: "double", big: "bigint", ...linked };
  for (const table of ["one", "two"]) {
    await ask(createTable(table, types));
    const moments = `"day": "2026-01-31", "at": "2026-01-31T00:00:00Z"`;
    await ask(`{"Insert": {"database": "main", "table": "${table}", "values": [
      {"id": 1, "n": 1, "word": "${code}", "code": "${code}", "paid": true, ${moments},
        "ratio": 9007199254740992, "big": ${largestOdd}},
      {"id": 2, "n": 2, "word": "1x", "big": 2, "ratio": 2}]}}`);
  }
  const asked = (on: string) => {
    const from = {
      database: "main",
      from: "one",
      columns: ["one.id"],
      order_by: [{ column: "one.id" }],
    };
    const include = [{ as: "rows", table: "two", on, columns: ["id"] }];
    return Promise.all([
      ask({ Select: { ...from, join: { table: "two", on, join_type: "INNER" } } }),
      ask({ Select: { ...from, where: { exists: { table: "two", on } } } }),
      ask({ Select: { ...from, include } }),
    ]);
  };
  for (const [one, other, ids] of [
    ["day", "at", [1]],
    ["at", "day", [1]],
    ["ratio", "big", [1, 2]],
    ["big", "ratio", [1, 2]],
    ["n", "ratio", [2]],
    ["word", "code", [1]],
    ["code", "word", [1]],
    ["paid", "paid", [1]],
  ] as const) {
    const [joined, existing, included] = await asked(`one.${one} = two.${other}`);
    const expected = ids.map((id) => ({ id }));
    t.same(joined?.body.data, expected, `join: ${one} = ${other}`);
    t.same(existing?.body.data, expected, `exists: ${one} = ${other}`);
    const members = included?.body.data?.map((row) => Object(row).rows.map(Object));
    const found = [1, 2].map((id) => (ids.some((one) => one === id) ? [{ id }] : []));
    t.same(members, found, `include: ${one} = ${other}`);
  }
  for (const [one, other] of [
    ["n", "word"],
    ["paid", "n"],
    ["word", "day"],
  ]) {
    const named = new RegExp(
      `"(${one}|${other})" \\(.*\\) cannot be compared with "(${one}|${other})"`,
    );
    for (const answer of await asked(`two.${other} = one.${one}`)) {
      t.match(answer, refusal(400, "invalid_value", named));
    }
  }
  const select = { from: "two", columns: ["word"] };
  const where = { column: "code", cmp: "IN", select };
  const { body } = await ask({ Select: { database: "main", from: "one", columns: ["id"], where } });
  t.same(body.data, [{ id: 1 }], "a UUID and texts");
});

t.test("texts are found among many of another table (MySQL)", async (t) => {
  const { ask, sql, url } = await freshMysql(t);
  for (const table of ["many", "few"]) {
    await ask(createTable(table, { id: "int", name: "text" }));
    await sql(
      "use main",
      `insert into ${table} select seq, concat('name ', seq) from seq_1_to_30000`,
    );
  }
  await sql("delete from main.few where id > 29990", "insert into main.few values (0, null)");
  const { address } = await startOn(t, url, { queryTimeLimit: 10_000 });
  for (const [cmp, n] of [
    ["IN", 29_990],
    ["NOT IN", 10],
  ] as const) {
    const where = { column: "name", cmp, select: { from: "few", columns: ["name"] } };
    const aggregate = [{ fn: "count", as: "n" }];
    const asked = { Select: { database: "main", from: "many", aggregate, where } };
    t.match(await query(address, asked), { status: 200, body: { data: [{ n }] } }, cmp);
  }
});

overSqlite("a refused condition names tables, columns and types", async (t, { ask }) => {
  await fill(ask);
  const select = (where: object) =>
    ask({ Select: { database: "main", from: "staff", columns: ["id"], where } });
  const member = (column: string, picked: string) =>
    select({ column, cmp: "IN", select: { from: "rentals", columns: [picked] } });
  t.match(await member("id", "film"), refusal(400, "invalid_value", /"id" \(.*"film" \(.* by IN/));
  t.match(await member("since", "staff_id"), refusal(400, "invalid_value"));
  t.match(await member("id", "films"), refusal(400, "unknown_column", /"films" in rentals/));
  const elsewhere = { table: "rent", on: "rent.id = staff.id" };
  t.match(await select({ exists: elsewhere }), refusal(404, "table_not_found", /rent in main/));
  const unknown = { table: "rentals", on: "rentals.staff = staff.id" };
  t.match(await select({ exists: unknown }), refusal(400, "unknown_column", /rentals.staff/));
});

overSqlite("a join of a table with itself needs another name for it", async (t, { ask }) => {
  await fill(ask);
  const join = { table: "staff", on: "staff.boss = staff.id", join_type: "INNER" };
  const query = { database: "main", from: "staff", columns: ["id"], join };
  t.match(await ask({ Select: query }), refusal(400, "self_join", /use as/));
  const from = { table: "staff", as: "s" };
  const named = {
    ...query,
    from,
    columns: ["m.nam"],
    join: { ...join, as: "m", on: "s.boss = m.id" },
  };
  const unknown = refusal(400, "unknown_column", /"m.nam" in s and m.*m.name/);
  t.match(await ask({ Select: named }), unknown);
});

overEach("Selects of texts within Selects find what each finds", async (t, { ask }) => {
  await ask(createTable("outer", { id: "int", day: "date" }));
  await ask(createTable("inner", { id: "int", day: "date", region: "text", label: "text" }));
  const days = ["2026-01-31", "2026-02-01", null, null];
  await ask(
    insert(
      "outer",
      Array.from({ length: 12 }, (_, id) => ({ id, day: days[id % 4] })),
    ),
  );
  const rows = Array.from({ length: 11 }, (_, id) => ({
    id,
    day: days[id % 4],
    region: `region ${id % 3}`,
    label: `label ${id % 5}`,
  }));
  await ask(insert("inner", rows));
  const labels = { from: "inner", columns: ["label"], where: { column: "id", cmp: "<", value: 4 } };
  const where = { column: "region", cmp: "IN", select: labels };
  const found = { from: "inner", columns: ["day"], where };
  for (const condition of [
    { column: "day", cmp: "IN", select: found },
    { not: { column: "day", cmp: "NOT IN", select: found } },
  ]) {
    const { body } = await ask(selectAll("outer", { where: condition }));
    t.strictSame(body.data, []);
  }
});
