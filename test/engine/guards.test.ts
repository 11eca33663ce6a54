/** Rows that one term excludes have no effect on others, and short queries make no long statements. */
import t from "tap";
import { sampled } from "../kit/nightly.ts";
import { createTable, insert, refusal } from "./kit.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, overSqlite } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const database = "main";
const lit = (value: unknown) => ({ value });
const term = (column: string, cmp: string, value: unknown) => ({ column, cmp, value });
const largest = "9223372036854775807";

/** Row filters. The row 2 is of no tenant that they allow. */
const filters = [
  term("tenant", "=", "acme"),
  term("tenant", "IN", ["acme"]),
  term("tenant", "IN", ["acme", "globex"]),
  term("tenant", "!=", "other"),
  term("level", ">", 5),
];

/** Terms that are about the hidden row. */
const pins: readonly object[] = [
  term("id", "=", 2),
  term("id", "BETWEEN", [2, 2]),
  term("id", "IN", [2]),
  term("id", ">", 1),
  { or: [term("id", "=", 2), term("id", "=", 9)] },
  { not: term("id", "!=", 2) },
  { column: "id", cmp: "=", other: "level" },
];

const compute = [{ as: "over", fn: "add", of: ["weight", lit(1)] }];
const over = term("over", ">", 0);
const columns = ["id"];

/** Selects of `items` with a condition that computes. */
function selects(and: readonly object[]): Record<string, object> {
  const where = { and: [...and, over] };
  const own = { from: "items", columns, compute, where };
  const item = { table: "items", as: "one" };
  const same = { table: "items", on: "items.id = one.id", columns };
  const ofOne = (name: string) => ({ ...own, columns: [`items.${name}`] });
  return {
    plain: own,
    ordered: { ...own, order_by: { column: "over" }, limit: 1 },
    distinct: { ...own, distinct: true },
    counted: { from: "items", compute, where, aggregate: [{ fn: "count", as: "n" }] },
    grouped: {
      from: "items",
      compute,
      where: { and },
      group_by: ["over"],
      columns: ["over"],
      aggregate: [{ fn: "count", as: "n" }],
      having: term("over", ">", 0),
    },
    selected: { from: "items", compute, where: { and }, columns: ["over"] },
    sorted: { from: "items", compute, where: { and }, columns, order_by: { column: "over" } },
    "in a condition": { from: "others", columns, where: { column: "id", cmp: "IN", select: own } },
    "as from": { from: { select: own, as: "t" }, columns },
    "around a Select": {
      from: { select: { from: "items", columns: ["*"], where: { and } }, as: "items" },
      columns,
      compute,
      where: over,
    },
    included: {
      from: item,
      columns: ["one.id"],
      include: [{ as: "same", ...same, compute, where }],
    },
    joined: {
      ...ofOne("id"),
      join: { table: "others", on: "others.id = items.id", join_type: "INNER" },
      compute: [{ as: "over", fn: "add", of: ["items.weight", lit(1)] }],
      where: { and: [...and.map((one) => qualified(one)), over] },
    },
  };
}

/** The same condition with columns of `items`. */
function qualified(condition: object): object {
  const text = JSON.stringify(condition).replace(/"(column|other)":"/g, '"$1":"items.');
  return JSON.parse(text);
}

overEach("rows that a term excludes are never computed", async (t, { ask }) => {
  const types = { id: "int", tenant: "varchar(20)", level: "int", weight: "bigint" };
  await ask(createTable("items", types));
  await ask(createTable("others", { id: "int" }));
  await ask(insert("others", [{ id: 2 }]));
  const hidden = `{"id":2,"tenant":"other","level":2,"weight":${largest}}`;
  const insertion = insert("items", [{ id: 1, tenant: "acme", level: 9, weight: 5 }]);
  await ask(JSON.stringify(insertion).replace("[{", `[${hidden},{`));
  for (const filter of filters) {
    for (const pin of sampled(pins)) {
      for (const [name, select] of Object.entries(selects([filter, pin]))) {
        const { status, text } = await ask({ Select: { database, ...select } });
        const about = `${name}, ${JSON.stringify([filter, pin])}: ${text}`;
        if (status !== 200) t.fail(about);
      }
    }
  }
  // Terms that compute may also name columns, within and around other tables.
  const exists = { table: "others", on: "others.id = items.id" };
  const some = { or: [term("over", "=", 6), { and: [term("items.level", "=", 2), { exists }] }] };
  for (const columns of [["id", "weight"], ["*"]]) {
    const where = { and: [term("tenant", "IN", ["acme"]), some] };
    const { body } = await ask({ Select: { database, from: "items", columns, compute, where } });
    t.match(body.data, [{ id: 1, weight: 5 }]);
    t.equal(body.data?.length, 1);
  }
  const visible = selects([term("id", "=", 2)]);
  const found = await ask({ Select: { database, ...visible.plain } });
  t.match(found, refusal(400, "number_out_of_range"), "a row that no term excludes is computed");
});

/** The names of tables and columns in statements of the engine, or close to them. */
const words = ["fenced", "grouped", "ranked", "changed", "excluded", "listed", "picked", "t"];

overEach("tables and columns may have the words of statements", async (t, { ask }) => {
  const ids = { c1: 5, c2: 6, c3: 7, n: 8, key: 9, place: 10 };
  const names = Object.keys(ids);
  const types = Object.fromEntries(names.map((name) => [name, "int"]));
  await ask(createTable("items", { id: "int", tenant: "varchar(20)", ...types }));
  await ask(insert("items", [{ id: 1, tenant: "acme", ...ids }]));
  for (const word of words) {
    await ask(createTable(word, { id: "int", ...types }));
    // No other row is equal to one of `items` in a column of its own.
    await ask(insert(word, [{ id: 4, c1: 4, c2: 4, c3: 4, n: 4, key: 4, place: 4 }]));
  }
  const add = (name: string) => [{ as: "over", fn: "add", of: [name, lit(1)] }];
  for (const word of sampled(words)) {
    for (const name of ["id", ...names]) {
      const on = `${word}.id = items.${name}`;
      const exists = { table: word, on };
      const either = { or: [term("over", "=", -1), { exists }] };
      const and = [term("tenant", "IN", ["acme"]), either];
      const own = { database, from: "items", columns: [name] };
      const within = { from: "items", columns: [name], compute: add("id"), where: { and } };
      const derived = { database, from: { select: within, as: "rows" }, columns: [name] };
      const linked = { exists: { table: word, on: `${word}.id = rows.${name}` } };
      const have = {
        and: [
          term("m", ">", 0),
          { column: name, cmp: "IN", select: { from: word, columns: ["id"] } },
        ],
      };
      for (const select of [
        { ...own, compute: add("id"), where: { and } },
        { ...own, where: { exists } },
        { ...own, where: { column: name, cmp: "IN", select: { from: word, columns: ["id"] } } },
        derived,
        {
          ...derived,
          from: { select: { from: "items", columns: ["*"] }, as: "rows" },
          where: linked,
        },
        {
          database,
          from: "items",
          compute: add("id"),
          where: term("over", "=", 2),
          group_by: [name],
          aggregate: [{ fn: "count", as: "m" }],
          having: have,
        },
      ]) {
        const { status, text } = await ask({ Select: select });
        t.equal(text, '{"status":"success","data":[]}', JSON.stringify([status, select]));
      }
      const include = [
        {
          as: "found",
          table: word,
          on,
          columns: ["id"],
          compute: add("id"),
          where: term("over", ">", 0),
        },
      ];
      t.match(await ask({ Select: { ...own, include } }), { body: { data: [{ found: [] }] } });
    }
    const target = { database, table: word };
    const rows = [{ id: 4, c1: 40, c2: 41 }];
    const upsert = { ...target, values: rows, on_conflict: ["id"], update: ["c1", "c2"] };
    t.match(await ask({ Upsert: { ...upsert, returning: ["c1"] } }), {
      body: { data: [{ c1: 40 }] },
    });
    t.match(await ask({ Upsert: { ...upsert, values: [{ id: 4, c1: 50, c2: 51 }] } }), {
      body: { affected: 1 },
    });
    const where = { exists: { table: "items", on: `items.c1 = ${word}.id` } };
    const updated = { ...target, set: { c2: 1 }, returning: ["c1", "c2"] };
    t.match(await ask({ Update: { ...updated, where } }), { body: { affected: 0 } });
    t.match(await ask({ Update: { ...updated, where: term("c1", "=", 50) } }), {
      body: { data: [{ c1: 50, c2: 1 }] },
    });
    t.match(await ask({ Preview: { Delete: { ...target, where: term("n", "=", 4) } } }), {
      body: { affected: 1 },
    });
  }
});

overSqlite("tables may have the names of what describes tables", async (t, { ask }) => {
  const indexed = ["index_list", "index_info", "index_xinfo", "collation_list"];
  const names = ["table_list", "table_info", "table_xinfo", "foreign_key_list", ...indexed];
  const tables = names.map((name) => ({ database, table: `pragma_${name}` }));
  const name = { type: "text", unique: true };
  for (const { table } of tables) await ask(createTable(table, { id: "int", name }));
  for (const place of tables) {
    const upsert = { ...place, values: [{ id: 1, name: "a" }], on_conflict: ["name"], update: [] };
    t.match(await ask({ Upsert: upsert }), { body: { affected: 1 } }, place.table);
    t.match(await ask({ DropTable: place }), { status: 200 }, place.table);
  }
});

overEach("an or computes its second term only where the first is not met", async (t, { ask }) => {
  await ask(createTable("items", { id: "int", tenant: "varchar(20)", weight: "bigint" }));
  const row = `{"id":1,"tenant":"acme","weight":${largest}}`;
  await ask(JSON.stringify(insert("items", [{}])).replace("{}", row));
  const either = { or: [term("id", "=", 1), over] };
  for (const where of [
    either,
    { and: [term("tenant", "=", "acme"), either] },
    { and: [term("tenant", "IN", ["acme", "globex"]), term("id", "<", 5), either] },
    { and: [term("tenant", "=", "acme"), { or: [term("id", "=", 7), { and: [either] }] }] },
  ]) {
    const select = { database, from: "items", columns, compute, where };
    t.match(await ask({ Select: select }), { status: 200, body: { data: [{ id: 1 }] } });
  }
});

t.test("rows that a row filter excludes are not computed by an index (MySQL)", async (t) => {
  const { ask, sql } = await freshMysql(t);
  await ask(createTable("items", { id: "int", tenant: "varchar(20)", weight: "bigint" }));
  const filler = Array.from({ length: 500 }, (_, at) => ({ id: at, tenant: "acme", weight: at }));
  await ask(insert("items", filler));
  await ask(
    `{"Insert":{"database":"main","table":"items","values":[{"id":900,"tenant":"other","weight":${largest}}]}}`,
  );
  await sql("use main", "create index by_weight on items (weight)", "analyze table items");
  const self = { table: "items", as: "two", on: "one.tenant = two.tenant", join_type: "INNER" };
  for (const pin of [
    term("weight", ">", 4000),
    term("weight", "IN", [1, 2 ** 53]),
    term("id", "=", 900),
  ]) {
    const and = [term("tenant", "=", "acme"), pin, over];
    const plain = { from: "items", columns, compute, where: { and } };
    const joined = {
      from: { table: "items", as: "one" },
      join: self,
      columns: ["one.id"],
      compute: [{ as: "over", fn: "add", of: ["one.weight", lit(1)] }],
      where: {
        and: [
          term("two.tenant", "=", "acme"),
          { ...pin, column: "one.id" },
          term("one.tenant", "=", "acme"),
          over,
        ],
      },
    };
    for (const select of [plain, joined]) {
      const { status, text } = await ask({ Select: { database, ...select } });
      t.equal(status, 200, `${JSON.stringify(select)}: ${text}`);
    }
  }
});

t.test("rows that a row filter excludes are not cast (PostgreSQL)", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await sql(
    `create table main.items (id int primary key, tenant text not null, exact numeric,
      about double precision, doc json, day date, moment timestamptz)`,
    `insert into main.items values (1, 'acme', 1, 1, '{"a": 1}', '2026-01-01', '2026-01-01'),
      (2, 'other', 1e400, 1, '{"a": "\\u0000"}', '5874897-01-01', '2026-01-01')`,
    "create table main.others (id int primary key, about double precision, item_id int, doc json)",
    `insert into main.others values (1, 1, 2, '{"a": 1}')`,
  );
  const about = { from: "others", columns: ["about"] };
  // The more values a list has, the later PostgreSQL compares it, unless there are nine or more.
  for (const count of sampled([1, 5, 6, 8, 9], 2)) {
    const tenants = Array.from("bcdefghi".slice(0, count - 1), (letter) => `tenant ${letter}`);
    const filter = term("tenant", "IN", ["acme", ...tenants]);
    for (const one of [
      { column: "exact", cmp: "=", other: "about" },
      { column: "about", cmp: "<", other: "exact" },
      { column: "day", cmp: "=", other: "moment" },
      { column: "doc", cmp: "=", other: "doc" },
      { column: "exact", cmp: "IN", select: about },
      { column: "exact", cmp: "NOT IN", select: about },
      { exists: { table: "others", on: "others.about = items.exact" } },
      { not: { exists: { table: "others", on: "items.doc = others.doc" } } },
      {
        or: [{ exists: { table: "others", on: "others.about = items.exact" } }, term("id", "=", 9)],
      },
      term("doc", "=", { a: 1 }),
      { or: [term("doc", "=", { a: 1 }), term("id", "=", 7)] },
    ]) {
      for (const where of [{ and: [filter, one] }, { and: [one, filter] }]) {
        for (const body of around(where)) await pass(body);
        if ("exists" in one || "not" in one || "or" in one) continue;
        const inner = { select: { from: "items", columns: ["*"], where: filter }, as: "rows" };
        for (const from of [inner, { select: { from: inner, columns: ["*"] }, as: "more" }]) {
          await pass({ Select: { database, from, columns, where: one } });
        }
      }
    }
    const qualified = term("items.tenant", "IN", ["acme", ...tenants]);
    for (const on of ["items.exact = others.about", "others.doc = items.doc"]) {
      const join = { table: "others", on, join_type: "INNER" };
      const back = { ...join, table: "items" };
      const selected = { database, columns: ["items.id"] };
      const left = { ...join, join_type: "LEFT" };
      const right = { ...back, join_type: "RIGHT" };
      for (const pin of ["id", "about"]) {
        const where = { and: [term(`others.${pin}`, "=", 1), qualified] };
        await pass({ Select: { ...selected, from: "items", join, where } });
        await pass({ Select: { ...selected, from: "items", join: left, where } });
        await pass({ Select: { ...selected, from: "others", join: back, where } });
        await pass({ Select: { ...selected, from: "others", join: right, where } });
        const again = { table: "others", as: "more", on: "more.id = items.id", join_type: "LEFT" };
        await pass({ Select: { ...selected, from: "items", join: [join, again], where } });
        const renamed = { ...join, on: on.replaceAll("items.", "one.") };
        const renamedWhere = JSON.parse(JSON.stringify(where).replaceAll("items.", "one."));
        const one = { from: { table: "items", as: "one" }, join: renamed, where: renamedWhere };
        await pass({ Select: { database, columns: ["one.id"], ...one } });
      }
      const inner = { from: "items", columns: ["id", "exact", "doc"], where: filter };
      const from = { select: inner, as: "items" };
      await pass({ Select: { ...selected, from, join } });
      await pass({ Select: { ...selected, from, join: left } });
      const exists = { table: "items", on, where: filter };
      await pass({ Select: { database, from: "others", columns, where: { exists } } });
      const not = { exists: { ...exists, where: { and: [term("id", ">", 0), filter] } } };
      await pass({ Select: { database, from: "others", columns, where: { not } } });
      const include = [{ as: "items", table: "items", on, columns, where: filter }];
      await pass({ Select: { database, from: "others", columns, include } });
      const outer = [{ as: "others", table: "others", on, columns }];
      await pass({ Select: { database, from: "items", columns, where: filter, include: outer } });
    }
    for (const cmp of ["IN", "NOT IN"]) {
      for (const select of [
        { from: "items", columns: ["exact"], where: filter },
        { from: "items", columns: ["exact"], where: { and: [filter, term("id", ">", 0)] } },
        { from: "items", columns: ["exact"], where: filter, distinct: true },
        {
          from: { select: { from: "items", columns: ["exact"], where: filter }, as: "rows" },
          columns: ["exact"],
        },
      ]) {
        const where = { column: "about", cmp, select };
        await pass({ Select: { database, from: "others", columns, where } });
        await pass({
          Select: {
            database,
            from: "others",
            columns,
            where: { and: [where, term("id", ">", 0)] },
          },
        });
        await pass({
          Delete: { database, table: "others", where: { and: [where, term("id", "=", 7)] } },
        });
      }
    }
    for (const having of [
      { column: "exact", cmp: "=", other: "about" },
      { and: [{ column: "exact", cmp: "=", other: "about" }, term("n", ">", 0)] },
      { column: "exact", cmp: "NOT IN", select: about },
    ]) {
      const grouped = {
        group_by: ["exact", "about"],
        aggregate: [{ fn: "count", as: "n" }],
        having,
      };
      await pass({ Select: { database, from: "items", where: filter, ...grouped } });
      const from = { select: { from: "items", columns: ["*"], where: filter }, as: "rows" };
      await pass({ Select: { database, from, ...grouped } });
    }
  }
  async function pass(body: object) {
    const { status, text } = await ask(body);
    if (status !== 200) t.fail(`${JSON.stringify(body)}: ${text}`);
  }
  function around(where: object): object[] {
    const select = { from: "items", columns, where };
    const exists = { table: "items", on: "items.id = others.item_id", where };
    const isPlain = !JSON.stringify(where).includes('"exists"');
    return [
      { Select: { database, ...select } },
      { Select: { database, from: { select, as: "rows" }, columns } },
      { Select: { database, from: "items", where, aggregate: [{ fn: "count", as: "n" }] } },
      ...(isPlain ? [{ Select: { database, from: "others", columns, where: { exists } } }] : []),
      { Select: { database, from: "others", columns, where: { column: "id", cmp: "IN", select } } },
      { Update: { database, table: "items", set: { about: 1 }, where } },
      { Delete: { database, table: "items", where: { and: [term("id", "=", 9), where] } } },
    ];
  }
});

overSqlite("names that repeat too many expressions are refused", async (t, { ask }) => {
  await ask(createTable("plain", { id: "int", word: "text" }));
  await ask(insert("plain", [{ id: 1, word: "a" }]));
  const eight = (name: string) => Array.from({ length: 8 }, () => name);
  const names = ["id", "a1", "a2", "a3"];
  const nested = names.slice(1).map((name, at) => {
    return { as: name, fn: "add", of: eight(names[at] ?? "") };
  });
  const terms = (name: string, count: number) => {
    return { and: Array.from({ length: count }, () => term(name, "!=", 7)) };
  };
  const own = { from: "plain", columns };
  const level = (left: number): object => ({
    from: "plain",
    columns: ["a2"],
    compute: [
      {
        as: "a0",
        fn: "if",
        when: left === 0 ? term("id", "=", 1) : inner(left),
        else: lit(0),
        // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
        then: "id",
      },
      { as: "a1", fn: "add", of: eight("a0") },
      { as: "a2", fn: "add", of: eight("a1") },
    ],
  });
  const inner = (left: number) => ({ column: "id", cmp: "IN", select: level(left - 1) });
  const long = [{ as: "a1", fn: "concat", of: ["word", lit("x".repeat(400_000))] }];
  const some = { ...own, compute: nested.slice(0, 2) };
  for (const select of [
    { ...own, compute: nested, where: terms("a3", 1000) },
    { ...own, compute: nested, where: terms("a3", 100) },
    level(3),
    { ...own, where: inner(3) },
    { ...own, compute: [...long, { as: "a2", fn: "concat", of: eight("a1") }] },
  ]) {
    const answer = await ask({ Select: { database, ...select } });
    t.match(answer, refusal(400, "query_too_complex", /limit of the database: .*name/));
  }
  t.match(await ask({ Select: { database, ...some, where: terms("a2", 100) } }), { status: 200 });
  t.match(await ask({ Select: { database, ...level(0) } }), { status: 200 });
});
