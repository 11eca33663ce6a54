/** `gatehouse types`: what it prints compiles, and takes the rows that the database answers. */
import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { typesText } from "../../src/cli/types.ts";
import { tableDescription } from "../../src/core/upstream/schema-source.ts";
import { createTable, freshEngine, insert, send } from "../engine/kit.ts";
import { freshMysql } from "../engine/mysql/kit.ts";
import type { Scene } from "../engine/over-each.ts";
import { freshPostgres } from "../engine/postgres/kit.ts";
import { compile } from "../kit/compile.ts";
import { startGateway } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";

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
  const program = [
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
  ];
  const files = { "tables.ts": text, "program.ts": program.join("\n") };
  t.equal(await compile(t, files), "", `${name}:\n${text}`);
  return text;
}

t.test("the types take the rows of SQLite, also of tables that others created", async (t) => {
  const scene = await freshEngine(t);
  const file = new DatabaseSync(`${scene.directory}/data/main.sqlite`);
  file.exec(`create table own (id integer primary key, loose integer, yes boolean, raw blob);
    insert into own values (1, 'text', true, x'00ff'), (2, 2.5, null, null)`);
  file.close();
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
  const program = ['import type { Databases } from "./tables.ts";', ...uses].join("\n");
  t.equal(await compile(t, { "tables.ts": text, "program.ts": program }), "", text);
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
  t.equal(await compile(t, { "tables.ts": all.stdout }), "");
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
    [["--url", "http://127.0.0.1:1"], admin, 1, /http:\/\/127\.0\.0\.1:1 cannot be reached\n$/],
    [["--url", "gate"], admin, 2, /--url is not the URL of a gateway/],
  ];
  for (const [flags, token, code, error] of refused) {
    t.match(await run(flags, token), { code, stdout: "", stderr: error }, String(error));
  }
});

t.test("written rows and conditions are checked by their columns", async (t) => {
  const column = (name: string, type: string, more = {}) => ({
    ...{ name, type, nullable: false, primary_key: false },
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
  const program = head + rows + right.join("\n");
  t.equal(await compile(t, { "tables.ts": tables, "right.ts": program }), "");
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
  t.equal(await compile(t, { "tables.ts": tables, "wrong.ts": head + rows + expected }), "");
});
