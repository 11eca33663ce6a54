/** Values that a read returned are accepted again: as filter, in lists, to page, to set, to insert, to bind. */
import t, { type Test } from "tap";
import { type Answer, rowsAs } from "./kit.ts";
import { freshSqlite, type LegacyScene } from "./legacy.ts";
import { freshMysql } from "./mysql/kit.ts";
import { freshPostgres } from "./postgres/kit.ts";

/** Values as SQL, by the type of their column. */
type Columns = Readonly<Record<string, readonly string[]>>;

/** Computed decimals have no zeros at the end. */
function renamed(type: string, cell: string): string {
  const isDecimal = /^(numeric|decimal)/.test(type) && cell.includes(".");
  return isDecimal ? cell.replace(/\.?0+$/, "") : cell;
}

class RoundTrip {
  readonly #t: Test;
  readonly #scene: LegacyScene;
  readonly #table: string;
  readonly #type: string;

  constructor(test: Test, scene: LegacyScene, table: string, type: string) {
    this.#t = test;
    this.#scene = scene;
    this.#table = table;
    this.#type = type;
  }

  async #ask(body: string): Promise<Answer> {
    const answer = await this.#scene.ask(body);
    if (answer.status !== 200) this.#t.fail(`${body} ${answer.body.message}`);
    return answer;
  }

  #select(rest: string, table = this.#table): string {
    return `{"Select":{"database":"main","from":"${table}",${rest}}}`;
  }

  async #data(rest: string): Promise<string> {
    return /"data":\[(.*)\]\}$/s.exec((await this.#ask(this.#select(rest))).text)?.[1] ?? "none";
  }

  async #ids(where: string): Promise<string> {
    const data = await this.#data(`"columns":["id"],"where":${where},"order_by":{"column":"id"}`);
    return data.replace(/[^\d,]/g, "");
  }

  async check(values: readonly string[]): Promise<void> {
    const { sql, engine } = this.#scene;
    const test = this.#t;
    const table = this.#table;
    await sql(
      `create table main.${table} (id integer primary key, parent integer, cell ${this.#type})`,
      ...values.map((value, at) => `insert into main.${table} values (${at + 1}, 1, ${value})`),
      `create table main.${table}_b (id integer primary key, cell ${this.#type})`,
      `insert into main.${table}_b select id, cell from main.${table}`,
    );
    const all = this.#select(`"columns":["id","cell"],"order_by":{"column":"id"}`);
    const lines = await rowsAs(engine.address, JSON.parse(all), "application/x-ndjson");
    const rows = lines.text.split("\n").slice(0, -1);
    test.equal(rows.length, values.length);
    test.equal(
      (await this.#ask(all)).text,
      `{"status":"success","data":[${rows}]}`,
      `${this.#type} as lines`,
    );
    const cells = rows.map((row) => row.slice(row.indexOf(`"cell":`) + `"cell":`.length, -1));
    const name = (at: number, what: string) =>
      `${this.#type} ${values[at]} as ${cells[at]}: ${what}`;
    const empty = values.map((_, at) => `(${1001 + at}, 2, null)`);
    await sql(`insert into main.${table} values ${empty}`);
    for (const [at, cell] of cells.entries()) {
      const id = at + 1;
      const compare = (cmp: string, value: string) =>
        this.#ids(`{"column":"cell","cmp":"${cmp}","value":${value}}`);
      const equal = (await compare("=", cell)).split(",");
      test.ok(equal.includes(String(id)), name(at, `= finds ${equal}`));
      test.same((await compare("IN", `[${cell}]`)).split(","), equal, name(at, "IN"));
      // In a column of no type, a word in order is a text.
      if (this.#type !== "") {
        const between = (await compare("BETWEEN", `[${cell},${cell}]`)).split(",");
        test.ok(between.includes(String(id)), name(at, `BETWEEN finds ${between}`));
      }
      test.notOk((await compare("!=", cell)).split(",").includes(String(id)), name(at, "!="));
      test.notOk((await compare("NOT IN", `[${cell}]`)).split(",").includes(String(id)));

      const at1000 = `"where":{"column":"id","cmp":"=","value":${1000 + id}}`;
      const change = `"database":"main","table":"${table}"`;
      await this.#ask(`{"Update":{${change},"set":{"cell":${cell}},${at1000}}}`);
      test.match(await compare("=", cell), String(1000 + id), name(at, "set is equal"));
      const returned = `"affected":1,"data":[{"cell":${cell}}]}`;
      const bound = await this.#ask(
        `{"Batch":[{"Delete":{${change},${at1000},"returning":["cell"]}},
          {"Insert":{${change},"values":[{"id":${1000 + id}}],"bind":{"cell":{"element":0,"column":"cell"}},"returning":["cell"]}}]}`,
      );
      const both = `{"status":"success","data":[{${returned},{${returned}]}`;
      test.equal(bound.text, both, name(at, "set, and bind"));
      await this.#ask(`{"Delete":{${change},${at1000}}}`);
      const inserted = await this.#ask(
        `{"Insert":{${change},"values":[{"id":${1000 + id},"cell":${cell}}],"returning":["cell"]}}`,
      );
      test.match(inserted.text, returned, name(at, "insert"));
      await this.#ask(`{"Delete":{${change},${at1000}}}`);

      const answer = await this.#scene.ask(
        this.#select(
          `"columns":["c"],"compute":[{"as":"c","fn":"coalesce","of":["cell",{"value":null}]}],
          "where":{"column":"id","cmp":"=","value":${id}}`,
        ),
      );
      if (answer.status === 200) {
        test.equal(
          answer.text,
          `{"status":"success","data":[{"c":${renamed(this.#type, cell)}}]}`,
          name(at, "renamed"),
        );
      } else test.match(answer.body.message, /does not take/);
    }
    const included = await this.#data(
      `"columns":["id","cell"],"order_by":{"column":"id"},"include":[{"as":"b","table":"${table}_b",
        "on":"${table}.id = ${table}_b.id","columns":["cell"],"one":true}]`,
    );
    const expected = rows.map((row, at) => `${row.slice(0, -1)},"b":{"cell":${cells[at]}}}`);
    test.equal(included, expected.join(","), `${this.#type} in an include`);
    await this.#page(cells.length);
    await this.#link(cells.length);
    const distinct = await this.#data(
      `"columns":["cell"],"distinct":true,"order_by":{"column":"cell"}`,
    );
    const grouped = await this.#data(
      `"group_by":["cell"],"aggregate":[{"fn":"count","as":"n"}],"order_by":{"column":"cell"}`,
    );
    test.equal(grouped.replace(/,"n":\d+/g, ""), distinct, `${this.#type} in groups`);
    for (const [at, cell] of cells.entries()) test.match(distinct, cell, name(at, "distinct"));
  }

  /** Each way to compare a column with another one finds each value in the copy of its table. */
  async #link(count: number): Promise<void> {
    const [one, other] = [this.#table, `${this.#table}_b`];
    const on = `"table":"${other}","on":"${one}.cell = ${other}.cell"`;
    const all = Array.from({ length: count }, (_, at) => at + 1).join(",");
    const conditions = {
      other: `{"column":"cell","cmp":"=","other":"cell"}`,
      present: `{"column":"cell","cmp":"!=","value":null}`,
      in: `{"column":"cell","cmp":"IN","select":{"from":"${other}","columns":["cell"]}}`,
      exists: `{"exists":{${on}}}`,
    };
    for (const [name, where] of Object.entries(conditions)) {
      this.#t.equal(await this.#ids(where), all, `${this.#type} ${name}`);
    }
    const joined = await this.#data(
      `"columns":["${one}.id"],"distinct":true,"join":{${on},"join_type":"INNER"},"order_by":{"column":"${one}.id"}`,
    );
    this.#t.equal(joined.replace(/[^\d,]/g, ""), all, `${this.#type} joined`);
    const included = await this.#data(
      `"columns":["id"],"order_by":{"column":"id"},"include":[{"as":"b",${on},"columns":["id"]}]`,
    );
    this.#t.equal(included.split(`"b":[{`).length - 1, count, `${this.#type} included`);
  }

  /** Walks through all rows, one a page. */
  async #page(count: number): Promise<void> {
    const order = `"columns":["id","cell"],"order_by":[{"column":"cell"},{"column":"id"}]`;
    const all = await this.#data(order);
    const pages: string[] = [];
    for (let after = ""; pages.length <= count; ) {
      const page = await this.#data(`${order},"limit":1${after}`);
      const [, id, cell] = /^\{"id":(\d+),"cell":(.*)\}$/s.exec(page) ?? [];
      if (id === undefined) break;
      // `after` takes no arrays and objects.
      if (/^"?[[{]/.test(cell ?? "")) return;
      pages.push(page);
      after = `,"after":[${cell},${id}]`;
    }
    this.#t.equal(pages.join(","), all, `${this.#type} in pages`);
  }
}

function roundTrips(
  server: string,
  fresh: (test: Test) => Promise<LegacyScene>,
  columns: Columns,
  types: readonly string[] = [],
): void {
  t.test(
    `values of another program's table are accepted as they were read (${server})`,
    async (t) => {
      const scene = await fresh(t);
      await scene.sql("create table main.started (id integer)", ...types);
      for (const [at, [type, values]] of Object.entries(columns).entries()) {
        await t.test(`values of ${type || "no type"} are accepted as they were read`, (t) =>
          new RoundTrip(t, scene, `t${at}`, type).check(values),
        );
      }
    },
  );
}

const doubles = ["1.5", "0.1", "-0.0", "1e300", "1e19", "9007199254740993", "5e-324", "1e21"];

roundTrips("SQLite", freshSqlite, {
  real: [...doubles, "9e999", "-9e999"],
  "double precision": [...doubles, "9e999"],
  numeric: [...doubles, "9e999", "12", "'text'"],
  integer: ["9223372036854775807", "-9223372036854775808", "1.5", "'text'", "9e999"],
  text: [
    "'a'",
    "''",
    "'a' || char(0) || 'b'",
    "char(65533)",
    "'Infinity'",
    "char(128512)",
    "'aGk='",
  ],
  blob: ["x''", "x'ff00'", "x'6869'", "'some text'", "5"],
  "": ["1", "1.5", "'a'", "9e999"],
  datetime: ["'2013-03-00'", "0", "'now'"],
  boolean: ["1", "0", "2", "'yes'"],
});

const types = [
  "create type main.mood as enum ('low', 'high', 'even')",
  "create domain main.domain_of_mood as main.mood",
  "create domain main.domain_of_domain as main.domain_of_mood",
  "create domain main.amount as numeric(6,2)",
  "create type main.pair as (one int, other text)",
];

const ofPostgres: Columns = {
  real: ["0.1", "'NaN'", "'Infinity'", "'-Infinity'", "3.4028235e38", "1e-45", "16777216", "0.3"],
  "double precision": ["0.1", "'NaN'", "'-Infinity'", "1e300", "1e19", "5e-324"],
  numeric: ["1.50", "'NaN'", "'Infinity'", "1e400", "0.000"],
  "numeric(6,2)": ["1.5", "'NaN'"],
  bigint: ["9223372036854775807"],
  date: ["'2026-01-02'", "'0044-03-15 BC'", "'infinity'", "'500000-01-01'", "'5874897-12-31'"],
  timestamp: [
    "'2026-01-02 03:04:05.678901'",
    "'0044-03-15 12:00 BC'",
    "'-infinity'",
    "'294276-12-31 23:59:59.999999'",
    "'10000-01-01'",
  ],
  "timestamp(0)": ["'2026-01-02 03:04:05'"],
  timestamptz: [
    "'2026-01-02 03:04:05.678901+02'",
    "'0044-03-15 12:00:00+00 BC'",
    "'infinity'",
    "'294276-12-31 23:59:59+00'",
  ],
  time: ["'24:00:00'", "'03:04:05.5'"],
  timetz: ["'03:04:05+02'"],
  interval: ["'1 day 2 hours'", "'-1 mon'"],
  "char(5)": ["'ab'"],
  '"char"': ["'a'"],
  text: ["''", "'a''b'", "U&'\\FFFD'", "'Infinity'"],
  uuid: ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
  boolean: ["true", "false"],
  bytea: ["'\\x'", "'\\xff00'"],
  json: [
    `'{"a": 1, "b": [1.50, "x"]}'`,
    `'"text"'`,
    "'1.0'",
    `'{"b":1,"a":{}}'`,
    `'{"a":1,"a":2}'`,
    `'{"2":1,"1":2}'`,
  ],
  jsonb: [`'{"a": 1, "b": [1.50, "x"]}'`, `'"text"'`],
  "main.mood": ["'even'", "'low'", "'high'"],
  "main.domain_of_mood": ["'even'", "'low'", "'high'"],
  "main.domain_of_domain": ["'even'", "'low'"],
  "main.amount[]": ["'{1.50,NULL}'"],
  "main.pair": ["row(1, 'a')", "row(null, 'b')", "row(null, null)"],
  xml: ["'<a>x</a>'"],
  point: ["'(1,2)'"],
  polygon: ["'((1,2),(3,4))'"],
  box: ["'(1,1),(0,0)'"],
  inet: ["'10.0.0.1/8'"],
  money: ["'12.50'"],
  "bit(3)": ["B'101'"],
  "bit varying": ["B'1010'"],
  "text[]": [`'{a,"b,c",NULL,""}'`, "'{}'"],
  "bigint[]": ["'{{1,2},{3,9007199254740993}}'", "'[0:1]={1,2}'", "'[0:1][-1:0]={{1,2},{3,4}}'"],
  "json[]": [`array['{"a": 1}'::json]`],
  "jsonb[]": [`array['[1, [2]]'::jsonb, null]`, `array[array['"a"'::jsonb]]`],
  "box[]": ["'{(1,1),(0,0);(2,2),(1,1)}'"],
  "real[]": ["'{0.1,NaN}'"],
  int4range: ["'[1,5)'"],
  tsvector: ["'a b'"],
  int2vector: ["'1 2'"],
  oid: ["7", "4294967295"],
};

roundTrips("PostgreSQL", freshPostgres, ofPostgres, types);

roundTrips("MariaDB", freshMysql, {
  float: ["0.1", "3.4028e38", "1.4e-45", "16777216", "0.3", "8388609"],
  double: ["0.1", "1e300", "1e19", "5e-324"],
  "decimal(6,2)": ["1.5"],
  "decimal(6,2) zerofill": ["1.5"],
  "int(6) zerofill": ["5"],
  "tinyint(1)": ["0", "1", "5", "-128", "127"],
  "tinyint(1) unsigned": ["255"],
  smallint: ["-32768", "32767"],
  "smallint unsigned": ["65535"],
  mediumint: ["-8388608", "-1"],
  "int unsigned": ["4294967295"],
  bigint: [
    "9223372036854775807",
    "-9223372036854775808",
    "9007199254740993",
    "-9007199254740993",
    "4294967296",
    "-4294967297",
    "-1",
    "0",
  ],
  "bigint unsigned": ["18446744073709551615", "9007199254740993", "9007199254740991", "0"],
  "bit(9)": ["b'101'"],
  "bit(64)": ["18446744073709551615"],
  date: [
    "'2026-01-02'",
    "'0000-00-00'",
    "'2013-03-00'",
    "'2013-00-00'",
    "'0000-03-01'",
    "'0001-01-01'",
  ],
  datetime: [
    "'2026-01-02 03:04:05'",
    "'0000-00-00 00:00:00'",
    "'2013-03-00 00:00:00'",
    "'2013-03-00 01:02:03'",
  ],
  "datetime(6)": ["'2026-01-02 03:04:05.678901'", "'2013-00-00 00:00:00.5'"],
  "timestamp null": ["'2026-01-02 03:04:05'", "0"],
  "timestamp(3) null": ["'2026-01-02 03:04:05.678'"],
  time: ["'838:59:59'", "'-00:00:01'", "'00:00:00'"],
  "time(3)": ["'-838:59:58.5'"],
  year: ["0", "1901", "2155"],
  "varchar(20)": ["'a '", "''", "'Infinity'"],
  "char(5)": ["'ab'"],
  "varchar(20) character set latin1": ["'é'", "'€'", "_latin1 x'81'"],
  "varchar(20) character set utf8mb3": ["'漢'"],
  text: ["'a'"],
  "enum('z','b','a')": ["'a'", "'z'", "'b'"],
  "set('z','b','a')": ["'a'", "'b,a'", "''", "'z'", "'b'"],
  "binary(4)": ["x'ff'"],
  "varbinary(9)": ["x'ff00'", "''"],
  blob: ["x'ff00'"],
  json: [`'{"a": 1, "b": [1.50, "x"]}'`, `'"text"'`, `'{"b":1,"a":2}'`, `'{"a":1,"a":2}'`],
  uuid: ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
  inet6: ["'::1'"],
});
