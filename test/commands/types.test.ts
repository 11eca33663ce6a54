/** `gatehouse types`: what it prints compiles, and takes the rows that the database answers. */

import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import { typesText } from "../../src/cli/types.ts";
import { tableDescription } from "../../src/core/upstream/schema-source.ts";
import { createTable, insert, send } from "../engine/kit.ts";
import { freshMysql } from "../engine/mysql/kit.ts";
import type { Scene } from "../engine/over-each.ts";
import { freshSqlite } from "../engine/over-each.ts";
import { freshPostgres, sharedServer } from "../engine/postgres/kit.ts";
import { compile } from "../kit/compile.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { sampled } from "../kit/nightly.ts";
import { runWarm } from "../kit/warm-command.ts";
import { install } from "./kit.ts";

const of = { database: "main", table: "all" };

/** Every type of CreateTable, and a value. */
const everyType: Readonly<Record<string, readonly [type: string, value: unknown]>> = {
  id: ["bigint", 1],
  "first name": ["text", 'An "n"'],
  größe: ["double", 1.5],
  class: ["real", 0.5],
  price: ["numeric(10,2)", 2.5],
  exact: ["decimal", 3],
  small: ["smallint", 2],
  ok: ["bool", true],
  day: ["date", "2026-01-02"],
  at: ["timestamp", "2026-01-02T03:04:05Z"],
  time: ["time", "03:04:05"],
  code: ["varchar(20)", "a"],
  key: ["uuid", "00000000-0000-4000-8000-000000000000"],
  data: ["jsonb", { tags: ["a", 1, null] }],
  raw: ["json", [1]],
  content: ["blob", "aGVsbG8="],
};

const files: Record<string, string> = {};

/** Keeps a program and its tables for the last test: each run of the compiler takes seconds. */
function compileLater(name: string, tables: string, program: readonly string[] = []): void {
  files[`${name}-tables.ts`] = tables;
  files[`${name}.ts`] = program.join("\n").replaceAll("./tables.ts", `./${name}-tables.ts`);
}

async function typesOf({ engine, ask }: Scene, tables: readonly string[]) {
  const described = tables.map(async (table) => {
    const { body } = await send(engine.address, { path: `/schema/main/${table}` });
    return [table, tableDescription.parse(body).data] as const;
  });
  const text = typesText(new Map([["main", new Map(await Promise.all(described))]]), "a test");
  const rows = tables.map(async (table) => {
    const answer = await ask({ Select: { database: "main", from: table, columns: ["*"] } });
    const data = /"data":(\[.*\])\}$/s.exec(answer.text)?.[1];
    return `export const of_${table}: Databases["main"]["${table}"][] = ${data};`;
  });
  return { text, uses: await Promise.all(rows) };
}

async function check(t: Test, name: string, scene: Scene, tables: readonly string[] = []) {
  const columns = Object.entries(everyType).map(([name, [type]]) => ({ name, type }));
  const definitions = columns.map((column, at) => ({
    ...column,
    ...(at === 0 ? { primary_key: true } : {}),
    ...(at === 1 ? { nullable: false } : {}),
  }));
  t.match(await scene.ask({ CreateTable: { ...of, columns: definitions } }), { status: 200 });
  const whole = Object.entries(everyType).map(([name, [, value]]) => [name, value]);
  const values = [Object.fromEntries(whole), { id: 2, "first name": "" }];
  t.match(await scene.ask(insert("all", values)), { status: 200 });
  const { text, uses } = await typesOf(scene, ["all", ...tables]);
  compileLater(name, text, [
    'import type { Databases } from "./tables.ts";',
    ...uses,
    'type Row = Databases["main"]["all"];',
    "export const names: keyof Row = 'first name';",
    "// @ts-expect-error there is no such column",
    "export const other: keyof Row = 'name';",
    "// @ts-expect-error never null",
    "export const none: Row['first name'] = null;",
    "// @ts-expect-error a number",
    "export const price: Row['price'] = '2.50';",
    "// @ts-expect-error true or false",
    "export const ok: Row['ok'] = 1;",
    "// @ts-expect-error nothing else than JSON",
    "export const data: Row['data'] = new Date();",
  ]);
  return text;
}

t.test("the types take the rows of SQLite, also of tables that others created", async (t) => {
  const scene = await freshSqlite();
  await scene.sql(`create table own (id integer primary key, loose integer, yes boolean, raw blob);
    insert into own values (1, 'text', true, x'00ff'), (2, 2.5, null, null)`);
  const text = await check(t, "SQLite", scene, ["own"]);
  t.match(text, "loose: number | string | null;");
});

t.test("the types take the rows of PostgreSQL, its enums, domains and arrays", async (t) => {
  const scene = await freshPostgres(t);
  await scene.sql(
    `create type main.mood as enum ('so, so', 'it''s "fine"', 'back\\slash');
    create domain main.amount as numeric(10,2);
    create domain main.yes as boolean not null;
    create table main.own (id int primary key, mood main.mood, amount main.amount, yes main.yes,
      grid int[], moods main.mood[], words text[] not null, span interval, at timestamp(3),
      big oid, ratio double precision, bits bit(3), mail "char");
    insert into main.own values (1, 'it''s "fine"', 1.50, true, '{{1,null},{2,3}}', '{"so, so"}',
      '{a,null}', '1 day', '2026-01-02 03:04:05', 7, 0.5, b'101', 'c'), (2, null, null, true,
      null, null, '{}', null, null, null, null, null, null);
    create view main.seen as select id, mood from main.own`,
  );
  const text = await check(t, "PostgreSQL", scene, ["own", "seen"]);
  t.match(text, String.raw`mood: "so, so" | "it's \"fine\"" | "back\\slash" | null;`);
  t.match(text, String.raw`moods: List<"so, so" | "it's \"fine\"" | "back\\slash"> | null;`);
  t.match(text, "words: List<string>;");
});

t.test("the types take the rows of MySQL, its enums and unsigned numbers", async (t) => {
  const scene = await freshMysql(t);
  await scene.sql(
    `create table main.own (id int unsigned primary key, mood enum('so, so', 'it''s fine') not null,
      tags set('a', 'b'), flag bit(3), yes tinyint(1), few tinyint, y year, amount decimal(10,2)
      unsigned zerofill, f float(7,2), content varbinary(9), words longtext)`,
    `insert into main.own values (1, 'so, so', 'a,b', b'101', 1, 2, 2026, 1.5, 2.5, 'x', 'w'),
      (2, 'it''s fine', null, null, null, null, null, null, null, null, null)`,
  );
  const text = await check(t, "MySQL", scene, ["own"]);
  t.match(text, `mood: "so, so" | "it's fine";`);
});

t.test("a name or label cannot become code", async (t) => {
  const hostile = ['x: never; } } //"', "*/ evil", "\u202eevil", "__proto__", "a\nb", "` + b", "é"];
  const columns = hostile.map((name) => ({
    name,
    type: name,
    labels: [name, "`"],
    primary_key: false,
    nullable: true,
  }));
  const tables = new Map(hostile.map((name) => [name, { columns }]));
  const text = typesText(new Map([["a-b", tables]]), "a test");
  t.notMatch(text, "\u202e");
  const uses = hostile.map((name, at) => {
    const key = JSON.stringify(name);
    return `export const value${at}: Databases["a-b"][${key}][${key}] = ${key};`;
  });
  compileLater("hostile", text, ['import type { Databases } from "./tables.ts";', ...uses]);
});

t.test("the command prints what the token may read", async (t) => {
  const gateway = await startGateway(t);
  const admin = await gateway.login();
  const query = async (body: object) => t.equal((await gateway.query(body, admin)).status, 200);
  await query({ CreateDatabase: { database: "other" } });
  await query(createTable("notes", { id: "int", secret: "text", note: "text" }));
  await query(createTable("vault", { id: "int" }));
  await query(createTable("visits", { day: "date" }, "other"));
  const rita = await gateway.addUser("rita", "ReadOnly");
  const [types, of] = [["types", "--url", gateway.url], ["--database"]];
  const run = (flags: readonly string[], token: string | undefined) =>
    runWarm(
      gateway.home,
      [...types, ...flags],
      "",
      token === undefined ? {} : { GATEHOUSE_TOKEN: token },
    );
  const all = await run([], admin);
  t.match(all, { code: 0, stderr: "" });
  t.match(all.stdout, /^ {2}main: \{$.*^ {4}vault: \{$.*^ {2}other: \{$.*^ {6}day: string;$/ms);
  compileLater("command", all.stdout);
  const one = await run([...of, "other"], admin);
  t.match(one, { code: 0, stdout: /visits/ });
  t.notMatch(one.stdout, /notes|vault/);

  await gateway.edit((text) =>
    text.replace(
      /(username = "rita"\ndatabase = "main"\nrole = "ReadOnly")/,
      '$1\ntables = ["notes"]\ncolumns = ["id", "note"]',
    ),
  );
  const narrowed = async () => (await run([], rita)).stdout;
  let text = await narrowed();
  // A call in which the rights change may fail.
  while (text === "" || text.includes("vault")) text = await narrowed();
  t.match(text, /^ {4}notes: \{$\n {6}id: number;\n {6}note: string \| null;\n {4}\};$/m);
  t.notMatch(text, /secret|^ {2}other: /m);

  const refused: [flags: string[], token: string | undefined, code: number, error: RegExp][] = [
    [[], undefined, 2, /^gatehouse: \$GATEHOUSE_TOKEN is not set; .*token issue/],
    [[], "two words", 1, /does not contain a bearer token\n$/],
    [[], "bad", 1, /rejected the token \(Invalid token format\); set \$GATEHOUSE_TOKEN to .*\n$/],
    [[...of, "other"], rita, 1, /\/schema\/other: Insufficient permissions .*\n$/],
    [[...of, "nowhere"], admin, 1, /\/schema\/nowhere: Database or table not found\n$/],
    [
      ["--url", "http://127.0.0.1:1"],
      admin,
      1,
      /http:\/\/127\.0\.0\.1:1 cannot be reached \(bad port\)\n$/,
    ],
    [["--url", "gate"], admin, 2, /--url is not the URL of a gateway/],
  ];
  for (const [flags, token, code, error] of refused) {
    t.match(await run(flags, token), { code, stdout: "", stderr: error }, String(error));
  }
});

const shop = { database: "main" };
const count = { fn: "count", as: "n" };

/** Queries of a shop, and what their answers hold. */
const typedQueries: readonly (readonly [query: object, holds: string])[] = [
  [
    {
      Batch: [
        {
          Insert: {
            ...shop,
            table: "orders",
            returning: ["id", "total"],
            values: [{ id: 3, status: "new", total: "7.25" }],
          },
        },
        {
          Insert: {
            ...shop,
            table: "lines",
            values: [{ article: "jug" }],
            bind: { order_id: { element: 0, column: "id" } },
          },
        },
        { Update: { ...shop, table: "orders", add: { total: "0.25" }, where: null } },
        { Select: { ...shop, from: "lines", columns: ["article"], limit: 1 } },
        { Delete: { ...shop, table: "lines", returning: ["*"], where: null } },
        { Insert: { ...shop, table: "lines", values: [{ order_id: 3, article: "pot" }] } },
        { Insert: { ...shop, table: "lines", values: [{ order_id: 1, article: "pan" }] } },
      ],
    },
    `[{ affected: number; data: { id: number; total: number }[] }, string, string,
      { article: string }[], { affected: number; data: Rows["lines"][] }, string, string]`,
  ],
  [
    {
      Select: {
        ...shop,
        from: "orders",
        group_by: ["status"],
        order_by: { column: "revenue" },
        aggregate: [
          count,
          { fn: "sum", column: "total", as: "revenue" },
          { fn: "avg", column: "big", as: "mean" },
          { fn: "sum", column: "big", as: "bigs" },
          { fn: "max", column: "day", as: "last" },
          { fn: "count", column: "day", distinct: true, as: "days" },
        ],
      },
    },
    `{ status: string; n: number; revenue: number; mean: number | null; bigs: number | null;
      last: string | null; days: number }[]`,
  ],
  [
    {
      Select: {
        ...shop,
        from: "orders",
        where: { column: "id", cmp: "<", value: 0 },
        aggregate: [count, { fn: "sum", column: "total", as: "revenue" }],
      },
    },
    "{ n: number; revenue: number | null }[]",
  ],
  [
    {
      Select: {
        ...shop,
        from: "orders",
        columns: ["id"],
        order_by: { column: "id" },
        include: [
          {
            as: "all",
            table: "lines",
            on: "lines.order_id = orders.id",
            limit: 1,
            columns: ["loud"],
            compute: [{ as: "loud", fn: "upper", of: ["article"] }],
            include: [
              {
                as: "of",
                table: "orders",
                on: "orders.id = lines.order_id",
                columns: ["day"],
                one: true,
              },
            ],
          },
          {
            as: "one",
            table: "lines",
            on: "lines.order_id = orders.id",
            columns: ["*"],
            one: true,
          },
        ],
      },
    },
    `{ id: number; all: { loud: string; of: { day: string | null } | null }[]; all_more?: true;
      one: Rows["lines"] | null }[]`,
  ],
  [
    {
      Select: {
        ...shop,
        from: { table: "orders", as: "o" },
        columns: ["*", "twice"],
        join: [{ table: "lines", on: "o.id = lines.order_id", join_type: "LEFT" }],
        compute: [{ as: "twice", fn: "mul", of: ["total", { value: 2 }] }],
        where: {
          and: [
            { column: "o.total", cmp: ">", value: "0.10" },
            { not: { column: "twice", cmp: "=", value: 0 } },
          ],
        },
      },
    },
    `{ id: number; status: string; total: number; big: number | null; day: string | null;
      tags: Json; paid: boolean | null; order_id: number | null; article: string | null;
      twice: number }[]`,
  ],
  [
    {
      Select: {
        ...shop,
        from: { table: "lines", as: "a" },
        columns: ["a.order_id", "b.order_id", "b.article"],
        join: { table: "lines", as: "b", on: "a.article = b.article", join_type: "RIGHT" },
      },
    },
    `{ "a.order_id": number | null; "b.order_id": number; article: string }[]`,
  ],
  [
    {
      Select: {
        ...shop,
        from: "orders",
        order_by: { column: "id" },
        columns: [
          "half",
          "name",
          "month",
          "year",
          "tag",
          "state",
          "day_or",
          "none",
          "short",
          "age",
        ],
        compute: [
          { as: "half", fn: "div", of: ["total", { value: 2 }] },
          { as: "name", fn: "concat", of: ["status", "id"] },
          { as: "month", fn: "trunc", unit: "month", of: ["day"] },
          { as: "year", fn: "part", unit: "year", of: ["month"] },
          { as: "tag", fn: "json", path: ["a", 0], of: ["tags"] },
          {
            as: "state",
            fn: "if",
            when: { column: "paid", cmp: "=", value: true },
            // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
            then: { value: "paid" },
            else: "status",
          },
          { as: "day_or", fn: "coalesce", of: ["big", { value: 1 }] },
          { as: "none", fn: "nullif", of: ["status", { value: "new" }] },
          { as: "short", fn: "length", of: ["name"] },
          { as: "age", fn: "diff", unit: "day", of: ["day", { value: "2026-01-01" }] },
        ],
      },
    },
    `{ half: number | null; name: string; month: string | null; year: number | null; tag: Json;
      state: string; day_or: number; none: string | null; short: number; age: number | null }[]`,
  ],
  [
    {
      Select: {
        ...shop,
        group_by: ["n"],
        aggregate: [{ fn: "count", as: "orders" }],
        from: {
          as: "each",
          select: { from: "lines", group_by: ["order_id"], aggregate: [count] },
        },
      },
    },
    "{ n: number; orders: number }[]",
  ],
];

t.test("answers have the types that their queries give them", async (t) => {
  const scenes = { SQLite: freshSqlite, PostgreSQL: freshPostgres, MySQL: freshMysql };
  for (const [name, fresh] of sampled(Object.entries(scenes))) {
    const scene = await fresh(t);
    const made = {
      orders: [
        { name: "id", type: "int", primary_key: true },
        { name: "status", type: "varchar(20)", nullable: false },
        { name: "total", type: "decimal(10,2)", nullable: false },
        { name: "big", type: "bigint" },
        { name: "day", type: "date" },
        { name: "tags", type: "json" },
        { name: "paid", type: "bool" },
      ],
      lines: [
        { name: "order_id", type: "int", primary_key: true },
        { name: "article", type: "varchar(20)", primary_key: true },
      ],
    };
    for (const [table, columns] of Object.entries(made)) {
      t.match(await scene.ask({ CreateTable: { ...shop, table, columns } }), { status: 200 });
    }
    const orders = [
      {
        id: 1,
        status: "new",
        total: 1.5,
        big: 2 ** 52,
        day: "2026-01-31",
        tags: { a: [1] },
        paid: true,
      },
      { id: 2, status: "old", total: "2.50" },
    ];
    t.match(await scene.ask(insert("orders", orders)), { status: 200 });
    const lines = ["cup", "jug"].map((article) => ({ order_id: 1, article }));
    t.match(await scene.ask(insert("lines", lines)), { status: 200 });
    const { text } = await typesOf(scene, Object.keys(made));
    const program = [
      'import type { Answer, Checked, Databases, Json } from "./tables.ts";',
      'type Rows = Databases["main"];',
      "type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;",
    ];
    for (const [at, [query, holds]] of typedQueries.entries()) {
      const answer = await scene.ask(query);
      t.equal(answer.status, 200, answer.text);
      program.push(
        `const query${at} = ${JSON.stringify(query)} as const;`,
        `export const checked${at}: Checked<typeof query${at}> = query${at};`,
        `export const same${at}: Same<Answer<typeof query${at}>["data"], ${holds}> = true;`,
        `export const answer${at}: Answer<typeof query${at}> = ${answer.text};`,
      );
    }
    compileLater(`answers-${name}`, text, program);
  }
});

t.test("written rows and conditions are checked by their columns", (t) => {
  const column = (name: string, type: string, more = {}) => ({
    name,
    type,
    nullable: false,
    primary_key: false,
    ...more,
  });
  const columns = [
    column("id", "serial", { serial: true }),
    column("state", "state", { labels: ["new", "old"] }),
    column("price", "numeric(10,2)"),
    column("note", "text", { nullable: true }),
    column("size", "int", { default: "1" }),
    column("twice", "int", { computed: true }),
  ];
  const described = tableDescription.parse({ data: { columns } }).data;
  const tables = typesText(new Map([["main", new Map([["items", described]])]]), "a test");
  const head = 'import type { Databases, Inserts, Where } from "./tables.ts";\n';
  const rows =
    'type Row = Inserts["main"]["items"];\ntype On = Where<Databases["main"]["items"]>;\n';
  const right = [
    'export const a: Row = { state: "new", price: "12.50" };',
    'export const b: Row = { id: 1, state: "old", price: 1, note: null, size: 2 };',
    'export const c: On = { and: [{ column: "state", cmp: "IN", value: ["new"] }] };',
    'export const d: On = { not: { column: "note", cmp: "=", value: null } };',
  ];
  const wrong = [
    'export const e: Row = { state: "gone", price: 1 };',
    "export const f: Row = { price: 1 };",
    'export const g: Row = { state: "new", price: 1, twice: 2 };',
    'export const h: Row = { state: "new", price: 1, nme: "x" };',
    'export const i: On = { column: "state", cmp: "=", value: "gone" };',
    'export const j: On = { column: "size", cmp: ">", value: "1" };',
    'export const k: On = { column: "sise", cmp: "=", value: 1 };',
  ];
  const expected = wrong.map((line) => `// @ts-expect-error\n${line}`).join("\n");
  compileLater("rows", tables, [head, rows, ...right, "", expected]);
  t.end();
});

t.test("names and values in queries are checked", (t) => {
  const column = (name: string, type: string, nullable = false) => ({
    name,
    type,
    nullable,
    primary_key: false,
  });
  const items = [
    column("id", "int"),
    column("price", "numeric(10,2)"),
    column("note", "text", true),
  ];
  const parts = [column("item", "int"), column("name", "text")];
  const described = [items, parts].map((columns) => tableDescription.parse({ data: { columns } }));
  const tables = new Map(described.map(({ data }, at) => [at === 0 ? "items" : "parts", data]));
  const select = (more: string) => `{ Select: { database: "main", from: "items", ${more} } }`;
  const update = (more: string) => `{ Update: { database: "main", table: "items", ${more} } }`;
  const insert = (more: string) => `{ Insert: { database: "main", table: "items", ${more} } }`;
  const include = (more: string) =>
    select(
      `columns: ["id"], include: [{ as: "p", table: "parts", on: "parts.item = items.id", ${more} }]`,
    );
  const twice = `compute: [{ as: "twice", fn: "mul", of: ["price", { value: 2 }] }]`;
  const join = `join: { table: "parts", on: "items.id = parts.item", join_type: "INNER" }`;
  const sum = `group_by: ["note"], aggregate: [{ fn: "sum", column: "price", as: "s" }]`;
  const right = [
    select(`columns: ["id"], where: { column: "price", cmp: "IN", value: ["1.50", 2] }`),
    select(`columns: ["twice"], ${twice}, where: { column: "twice", cmp: ">", value: 2 }`),
    select(`columns: ["parts.name", "note"], ${join}`),
    select(`${sum}, order_by: [{ column: "s", direction: "DESC" }, { column: "note" }]`),
    select(`columns: ["id"], where: { exists: { table: "other", on: "a.b = c.d" } }`),
    include(`columns: ["name"], limit: 3`),
    update(`set: { note: null }, add: { price: "0.10" }, where: null`),
    insert(`values: [{ id: 1, price: "1.50" }], returning: ["*"]`),
    `{ Preview: { limit: 3, ${update("set: { price: 1 }, where: null").slice(1, -1)} } }`,
    `{ CreateTable: { database: "new", table: "any", columns: [{ name: "id", type: "int" }] } }`,
  ];
  const wrong = [
    select(`columns: ["id", "nme"]`),
    select(`columns: ["id"]`).replace("items", "item"),
    select(`columns: ["id"]`).replace("main", "man"),
    select(`colums: ["id"]`),
    select(`columns: ["id"], where: { column: "id", cmp: ">", value: "five" }`),
    select(`columns: ["id"], where: { column: "id", cmp: "NOT IN", value: [null] }`),
    select(`columns: ["id"], order_by: { column: "twice" }`),
    select(`columns: ["parts.nme"], ${join}`),
    select(`columns: ["id"], ${join.replace("parts", "part")}`),
    select(`${sum}, order_by: { column: "t" }`),
    include(`columns: ["nme"]`),
    include(`columns: ["name"], lmit: 3`),
    update(`set: { nte: null }, where: null`),
    update(`set: { note: 1 }, where: null`),
    update(`add: { note: "1" }, where: null`),
    update(`add: { id: "1" }, where: null`),
    insert(`values: [{ id: 1 }]`),
    insert(`values: [{ id: 1, price: 1, nme: 2 }]`),
    insert(`values: [{ id: 1, price: 1 }], returning: ["nme"]`),
    `{ Batch: [${update("set: { nte: null }, where: null")}] }`,
    `{ Preview: ${update("set: { nte: null }, where: null")} }`,
  ];
  const program = [
    'import type { Answer, Checked } from "./tables.ts";',
    "declare function query<const Of>(query: Of & Checked<Of>): Answer<Of>;",
    ...right.map((each) => `query(${each});`),
    ...wrong.map((each) => `// @ts-expect-error\nquery(${each});`),
    "// @ts-expect-error it is not selected",
    `query(${select('columns: ["id"]')}).data[0]?.price;`,
    "// @ts-expect-error nothing is returned",
    `query(${update("set: { note: null }, where: null")}).data;`,
  ];
  const text = typesText(new Map([["main", tables]]), "a test");
  compileLater("queries", text, program);
  t.end();
});

t.test("the types and programs of the tests above compile", async (t) => {
  t.equal(await compile(t, files), "");
});

const products = {
  CreateTable: {
    database: "main",
    table: "products",
    columns: [
      { name: "id", type: "int", primary_key: true },
      { name: "tenant", type: "text" },
    ],
  },
};

/** Repeats the command, since the database may respond too late on a busy machine. */
async function untilPrinted(home: string, flags: string[], ...texts: string[]): Promise<void> {
  await eventually(texts.join(), async () => {
    const { code, stdout, stderr } = await runWarm(home, flags);
    if (code !== 0) throw new Error(stderr);
    return texts.every((text) => (stdout + stderr).includes(text));
  });
}

const gateway = await startGateway(t, {});
const admin = await gateway.login();

t.test("a filter is checked only against tables that no narrower entry decides", async (t) => {
  const tables = ["orders", "tenants", "log_a", "log_b"];
  for (const table of tables) {
    const columns = [
      { name: "id", type: "int", primary_key: true },
      ...(table === "orders" ? [{ name: "tenant", type: "text" }] : []),
    ];
    const made = await gateway.query({ CreateTable: { database: "main", table, columns } }, admin);
    t.equal(made.status, 200);
  }
  await gateway.addUser("alice", "ReadOnly");
  const run = async (command: string, more: string[] = []) => {
    const { code, stderr } = await runWarm(gateway.home, [...command.split(" "), ...more]);
    t.equal(code, 0, stderr);
  };
  const filter = ["--row-filter", "tenant = acme"];
  await run("access grant alice main.tenants ReadOnly");
  await run("access grant alice main.log_* None");
  await run("access grant alice main ReadOnly", filter);
  await run("group set eu --add alice");
  await run("access grant --group eu main.tenants None");
  await run("access grant --group eu main.log_* ReadOnly");
  const configuration = ["config", "check", "--json"];
  const warnings = async () => {
    const { stdout } = await runWarm(gateway.home, configuration);
    return JSON.parse(stdout).warnings;
  };
  t.strictSame(await warnings(), []);
  await run("access grant --group eu main ReadWrite", [...filter, "--require-where", "tenant"]);
  t.strictSame(await warnings(), []);
  await run("access revoke --group eu main.tenants");
  const about = "the entry of group eu for main: main.tenants has no column tenant";
  await untilPrinted(gateway.home, configuration, about);
  await run("access revoke alice main.log_*");
  t.strictSame((await warnings()).length, 1, "the group's pattern decides for alice");
  await run("access revoke --group eu main.log_*");
  await untilPrinted(
    gateway.home,
    configuration,
    "the entry of alice for main: main.log_a and 1 other table has no column tenant",
    "the entry of group eu for main: main.log_a and 2 other tables has no column tenant",
  );
  for (const table of tables) {
    await gateway.query({ DropTable: { database: "main", table } }, admin);
  }
});

t.test("access grant warns about names that the database does not have", async (t) => {
  t.equal((await gateway.query(products, admin)).status, 200);
  await gateway.addUser("bea", "ReadOnly");
  const grant = ["access", "grant", "bea"];
  const right = [...grant, "main.products", "ReadOnly", "--row-filter", "tenant = acme"];
  t.equal((await runWarm(gateway.home, right)).stderr, "");
  const wrong: [flags: string[], words: string][] = [
    [["main.product", "ReadOnly"], "main has no table product (did you mean products?)"],
    [["mian", "ReadOnly"], "the database mian does not exist (did you mean main?)"],
    [["public", "ReadOnly"], "the database public does not exist (known: main)"],
    [["'main.t'", "ReadOnly"], "the database main.t does not exist; name the table t in `tables`"],
    [["main.order_*", "ReadOnly"], "no table of main begins with order_"],
    [
      ["main.products", "ReadWrite", "--row-filter", "tennant = acme"],
      "main.products has no column tennant (did you mean tenant?)",
    ],
    [
      ["main", "ReadWrite", "--columns", "id,size"],
      "main.products has no column size (known: id, tenant)",
    ],
  ];
  for (const [flags, words] of wrong) {
    await untilPrinted(gateway.home, [...grant, ...flags], words);
  }
  const all = wrong.map(([, words]) => words);
  await untilPrinted(gateway.home, ["config", "check", "--json"], ...all);
});

t.test("without a running gateway, commands ask PostgreSQL for its names", async (t) => {
  const server = await sharedServer();
  const database = await server.createDatabase();
  await server.sql("create table products (id int primary key)", database);
  const { home } = install(t);
  const configuration = path.join(home, "gateway.toml");
  const upstream = `[upstream]\nurl = "${server.url(database)}"\n`;
  writeFileSync(configuration, readFileSync(configuration, "utf8") + upstream);
  let count = 0;
  await eventually("the hint names public", async () => {
    count += 1;
    const { stdout } = await runWarm(home, ["user", "add", `u${count}`, "--no-password"]);
    return stdout.includes(`access grant u${count} public ReadOnly`);
  });
  const missing = "public has no table product (did you mean products?)";
  await untilPrinted(home, ["access", "grant", "alice", "public.product", "ReadOnly"], missing);
  await untilPrinted(home, ["config", "check"], "the database main does not exist (known: public)");
  const right = ["access", "grant", "alice", "public.products", "ReadOnly"];
  t.match(await runWarm(home, right), { code: 0, stderr: /^$/ });
});

t.test("access grant does not wait for a database that does not respond", async (t) => {
  const port = await freePort();
  const silent = createServer(() => {}).listen(port, "127.0.0.1");
  await once(silent, "listening");
  t.teardown(() => silent.close());
  for (const scheme of ["http://", "postgres://app@"]) {
    const gatehouse = install(t);
    const url = `${scheme}127.0.0.1:${port}`;
    writeFileSync(path.join(gatehouse.home, "gateway.toml"), `[upstream]\nurl = "${url}"\n`);
    const start = performance.now();
    const { code, stderr } = await gatehouse.run("access grant alice public.product ReadOnly");
    t.strictSame([code, stderr], [0, ""]);
    const seconds = Math.round((performance.now() - start) / 1000);
    t.ok(seconds < 15, `${url}: ${seconds} s`);
  }
});
