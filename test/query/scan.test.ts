import { mock } from "node:test";
import { serialize } from "node:v8";
import t from "tap";
import { runAtOnce } from "../../src/core/base/cooperative-scheduling.ts";
import { ExactNumber } from "../../src/core/json/exact.ts";
import { createGrammar, type Grammar } from "../../src/core/query/grammar.ts";
import { parseQuery, parseQueryInSlices, parseQueryInSteps } from "../../src/core/query/parse.ts";
import { QueryRefused } from "../../src/core/query/refusal.ts";
import {
  gist,
  insertOf,
  plain,
  refusalOf,
  scanBody,
  select,
  term,
  verdict,
  widened,
} from "./kit.ts";

const target = { database: "main", table: "users" };
const drop = (table: unknown, database: unknown = "main") => ({ DropTable: { database, table } });
const inner = JSON.stringify(target);
const join = { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" };
const equal = term("age", "=", 1);
const where = (condition: unknown) => ({ Delete: { ...target, where: condition } });
const whereText = (condition: string) =>
  `{"Delete":{"database":"main","table":"users","where":${condition}}}`;
const insert = (...rows: string[]) =>
  `{"Insert":{"database":"main","table":"users","values":[${rows.join(",")}]}}`;
const insertRow = (row: object) => insert(JSON.stringify(row));
const update = (set: string) =>
  `{"Update":{"database":"main","table":"users","where":null,"set":${set}}}`;
const create = (...columns: unknown[]) => ({ CreateTable: { ...target, columns } });
const id = { name: "id", type: "int" };
const truncate = (fields: object) => ({ Truncate: { ...target, ...fields } });

/** Tests bodies, listed under the code that each of them gets. */
function judge(
  title: string,
  expected: Readonly<Record<string, readonly unknown[]>>,
  grammar: Grammar = plain,
): void {
  t.test(title, async (t) => {
    for (const [code, bodies] of Object.entries(expected)) {
      const others = bodies
        .filter((body) => verdict(body, grammar) !== code)
        .map((body) => (typeof body === "string" ? body.slice(0, 200) : body));
      t.strictSame(others, [], `all ${bodies.length} are ${code}`);
    }
  });
}

judge("an operation that is not in the grammar and not configured is refused", {
  no_operation: ["{}"],
  unknown_operation: [
    ...["select", "Truncate", "op", "", "Select ", "toString", "__proto__", "Grant"].map(
      (key) => `{${JSON.stringify(key)}:${inner}}`,
    ),
    `{"op":"select","DropTable":${inner}}`,
  ],
});

judge("a second operation is refused, also `op`, and also the same one again", {
  several_operations: ['"Select":{}', '"Batch":[]', '"op":"select"', '"\\u006fp":1'].map(
    (second) => `{"DropTable":${inner},${second}}`,
  ),
  duplicate_key: ["DropTable", "\\u0044ropTable"].map(
    (second) => `{"DropTable":${inner},"${second}":${inner}}`,
  ),
});

judge("a field that is repeated, missing, unknown or of the wrong type is refused", {
  duplicate_key: ['"database"', '"d\\u0061tabase"'].map(
    (key) => `{"DropTable":{"database":"a","table":"t",${key}:"b"}}`,
  ),
  missing_field: [{ database: "main" }, { table: "users" }, {}].map((DropTable) => ({ DropTable })),
  unknown_field: [
    { DropTable: { ...target, cascade: true } },
    { DropTable: { ...target, Database: "x" } },
    { CreateDatabase: target },
  ],
  wrong_type: [
    ...[null, 1, true, ["main"], {}].flatMap((wrong) => [drop("users", wrong), drop(wrong)]),
    ...[null, 1, "users", [target]].map((DropTable) => ({ DropTable })),
  ],
});

const badNames = [
  "",
  "x".repeat(64),
  "a.b",
  "a b",
  "a/b",
  "é",
  "*",
  "a\n",
  "a\u0000",
  "..",
  'a"',
  "a`",
];
judge("databases and tables have plain names", {
  accepted: ["a", "A-1_", "0", "x".repeat(63)].map((name) => drop(name, name)),
  invalid_name: badNames.flatMap((name) => [
    drop("users", name),
    drop(name),
    { CreateDatabase: { database: name } },
  ]),
});

t.test("a refusal names the place, what is wrong and what is allowed", async (t) => {
  const body = { Batch: [drop("users"), { Insert: { ...target, rows: [] } }] };
  const { code, message, location } = refusalOf(body);
  t.equal(code, "unknown_field");
  t.equal(location.path, "Batch[1].Insert");
  t.match(message, /^Batch\[1\]\.Insert, byte \d+: .*"rows".*database, table, values/);
});

t.test("the parser reads a view of a larger buffer like a buffer of its own", async (t) => {
  const text = JSON.stringify(drop("users"));
  const whole = Buffer.from(`xxx${text}yyy`);
  const { accesses } = scanBody(whole.subarray(3, 3 + text.length), plain);
  t.strictSame(accesses.map(gist)[0]?.tables, ["users"]);
});

judge("columns are *, columns, or columns of the operation's tables", {
  accepted: ["*", "id", "users.id", "users.größe", "first name"].map((column) =>
    select({ columns: [column] }),
  ),
  invalid_column: [
    "",
    "users.",
    ".id",
    "users.*",
    "users.a.b",
    "orders.id",
    "main.users.id",
    "a'b",
    "Users.id",
  ].map((column) => select({ columns: ["id", column] })),
  invalid_value: [select({ columns: [] })],
  wrong_type: ["*", [1], null].map((columns) => select({ columns })),
});

judge("a join has its three fields and no others", {
  accepted: [
    select({ join: [join] }),
    ...["INNER", "LEFT", "RIGHT"].map((join_type) => select({ join: { ...join, join_type } })),
  ],
  wrong_type: [null, "orders"].map((join) => select({ join })),
  unknown_field: [select({ join: { ...join, alias: "o" } })],
  missing_field: [select({ join: { table: "orders", on: join.on } })],
  invalid_name: [select({ join: { ...join, table: "other.orders" } })],
  invalid_value: ["inner", "CROSS", "INNER "].map((join_type) =>
    select({ join: { ...join, join_type } }),
  ),
});

judge("on is exactly table.column = table.column, both of this Select", {
  accepted: [select({ join: { ...join, on: "orders.user_id = users.id" } })],
  invalid_column: [
    "",
    "users.id",
    "users.id=orders.id",
    "users.id  = orders.id",
    "users.id =  orders.id",
    " users.id = orders.id",
    "users.id = orders.id ",
    "users.id\t=\torders.id",
    "users.id = id",
    "id = orders.id",
    "users.id = orders.id = users.id",
    "users.a=b = orders.id",
    "users.a b = orders.id",
    "users.* = orders.id",
    "users.id = orders.id OR 1=1",
    "users.id = other.id",
    "other.id = orders.id",
    "users.id > orders.id",
  ].map((on) => select({ join: { ...join, on } })),
  invalid_value: ["users.id = users.boss", "orders.id = orders.id"].map((on) =>
    select({ join: { ...join, on } }),
  ),
});

judge("order_by is one column and a direction", {
  accepted: [{ column: "name" }, { column: "users.name", direction: "DESC" }].map((order_by) =>
    select({ order_by }),
  ),
  invalid_column: ["*", "orders.id"].map((column) => select({ order_by: { column } })),
  invalid_value: [select({ order_by: { column: "name", direction: "desc" } })],
  missing_field: [select({ order_by: { direction: "ASC" } })],
  unknown_field: [select({ order_by: { column: "name", nulls: "LAST" } })],
  wrong_type: [null, "name", { column: "name", direction: null }].map((order_by) =>
    select({ order_by }),
  ),
});

const counted = (...values: string[]) =>
  ["limit", "offset"].flatMap((field) =>
    values.map((value) => JSON.stringify(select({ [field]: 0 })).replace(/0\}\}$/, `${value}}}`)),
  );
judge("limit and offset are whole numbers of digits only", {
  accepted: counted("0", "10", "9007199254740991"),
  invalid_value: counted("-1", "-0", "1.0", "1e2", "9007199254740992", "1".repeat(400)),
  wrong_type: counted("null", '"10"', "[10]", "true"),
});

t.test("a refusal of a foreign table names its place in the body", async (t) => {
  const condition = { and: [equal, { ...equal, column: "x.id" }] };
  const { location, message } = refusalOf(select({ where: condition, join }));
  t.equal(location.path, "Select.where.and[1].column");
  t.match(message, /"x".*"users" and "orders"/);
});

const mixed = ["a.id", "users.id", "b.id", "orders.id", "c.id"];
judge("a foreign table among several names is found", {
  invalid_column: [
    select({ columns: mixed, join }),
    select({ columns: mixed.slice(0, 2) }),
    { Batch: [drop("orders"), select({ where: { ...equal, column: "orders.id" } })] },
  ],
});

judge("where may be null, and only a Select may omit it", {
  accepted: [where(null), select(), select({ where: null })],
  missing_field: [{ Delete: target }, { Update: { ...target, set: { a: 1 } } }],
});

judge("every comparison of the grammar is accepted and no other", {
  accepted: ["=", "!=", ">", "<", ">=", "<="].map((cmp) =>
    where({ column: "age", cmp, value: null }),
  ),
  invalid_value: ["", "==", "<>", "like", "IS", "NOT IN", "= ", "=;"].map((cmp) =>
    where({ ...equal, cmp }),
  ),
  wrong_type: [where({ ...equal, cmp: null })],
});

const compared = (values: Record<string, unknown[]>) =>
  Object.entries(values).flatMap(([cmp, all]) =>
    all.flatMap((value) => [
      where({ column: "a", cmp, value }),
      where({ value, cmp, column: "a" }),
    ]),
  );
judge("LIKE, IN and BETWEEN need values that fit, in any order of keys", {
  accepted: compared({ LIKE: ["a%"], IN: [[], [1], [1, "a"]], BETWEEN: [[1, 2]] }),
  invalid_value: compared({
    LIKE: [1, null, ["a"], {}],
    IN: [1, "a", null, { "0": 1 }],
    BETWEEN: [1, "ab", [], [1], [1, 2, 3], { a: 1, b: 2 }],
  }),
});

judge("a comparison has its three fields and no others", {
  accepted: [whereText('{"column":"a","cmp":"=","value":{"a":1,"a":2}}')],
  missing_field: [
    ...[{ column: "a", cmp: "=" }, { column: "a", value: 1 }, { cmp: "=", value: 1 }, {}].map(
      where,
    ),
  ],
  unknown_field: [where({ ...equal, match: "!" }), where({ ...equal, and: [equal] })],
  duplicate_key: [whereText('{"column":"a","cmp":"=","value":1,"value":2}')],
});

const text = JSON.stringify(equal);
judge("conditions are combined by exactly one of and, or, not", {
  accepted: [
    where({ and: [equal, { or: [equal, { not: { and: [equal] } }] }] }),
    whereText(`{"\\u0061nd":[${text}]}`),
    where({ or: Array.from({ length: 200 }, () => ({ not: equal })) }),
  ],
  unknown_field: [
    ...[{ and: [equal], or: [equal] }, { not: equal, column: "a" }, { xor: [equal] }].map(where),
  ],
  missing_field: [whereText('{"not":{"and":[{"not":{}}]}}')],
  duplicate_key: [whereText(`{"not":${text},"not":${text}}`)],
});

judge("a combination has at least one condition, each an object", {
  invalid_value: [{ and: [] }, { or: [] }].map(where),
  wrong_type: [
    ...["and", "or"].flatMap((key) =>
      [equal, null, [equal, null], ["1=1"]].map((value) => where({ [key]: value })),
    ),
    ...[{ not: null }, { not: [equal] }, "1=1", [equal], false].map(where),
  ],
});

judge("a condition's column is a column of the operation's table", {
  accepted: [where({ ...equal, column: "users.age" })],
  invalid_column: ["*", "", "other.age", "users.*", "a.b.c", "a`"].map((column) =>
    where({ ...equal, column }),
  ),
  wrong_type: [where({ ...equal, column: 1 })],
});

judge("values are at least one row, and every row is an object", {
  accepted: [insert("{}")],
  invalid_value: [insert()],
  wrong_type: [
    ...["null", "[]", "1", '"a"', "true"].map((row) => insert('{"a":1}', row)),
    insert("{}").replace("[{}]", "{}"),
  ],
});

judge("set is an object of at least one column", {
  accepted: [update('{"a":1}')],
  invalid_value: [update("{}")],
  wrong_type: ["null", '[{"a":1}]', '"a"'].map(update),
});

const repeating = ['{"a":1,"b":2,"a":3}', '{"a":1,"\\u0061":2}', '{"\\u0061":1,"\\u0061":1,"a":2}'];
const wide = (prefix: string, extra = "") =>
  `{${Array.from({ length: 2048 }, (_, index) => `"${prefix}${index}":0`).join(",")}${extra}}`;
const rows = [
  '{"a":1,"b":2}',
  '{"a":1,"b":2}',
  '{"b":1,"a":2}',
  '{"a":1}',
  "{}",
  '{"c":1,"b":2,"a":3}',
];
judge("a column is given once in each row, however it is spelled and however many there are", {
  accepted: [
    insert(...rows, ...rows, ...rows),
    insert('{"ab":1,"a":2}', '{"a":1,"ab":2}'),
    insert(wide("a"), wide("b"), wide("a")),
    insertOf('{"a":1,"a":{"b":1,"b":2}}'),
    update('{"cell":[{"a":1,"a":2}]}'),
  ],
  duplicate_key: [
    ...repeating.flatMap((row) => [
      insert(row),
      update(row),
      insert('{"a":1,"b":2}', row),
      insert('{"b":1,"a":2}', '{"x":1}', row),
    ]),
    insert('{"é":1,"\\u00e9":2}'),
    insert('{"😀":1,"\\ud83d\\ude00":2}'),
    insert(wide("a", ',"a0":1')),
    insert(wide("a"), wide("b"), wide("a", ',"a2047":1')),
    insert(wide("a"), wide("b"), '{"a0":1,"a1":2,"a0":3}'),
  ],
  invalid_column: [insert('{"a":1}', '{"ab":1,"a":2}', '{"a\\"":1}')],
});

const listed = (count: number, one: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => one(index)).join(",");
const conditions = (count: number) =>
  `{"or":[${listed(count, (index) => `{"column":"c","cmp":"=","value":${index}}`)}]}`;
const selecting = (count: number) =>
  `{"Select":{"database":"main","from":"users","columns":[${listed(count, (index) => `"c${index}"`)}]}}`;
const upsert = (...rows: string[]) =>
  `{"Upsert":{"database":"main","table":"users","values":[${rows.join(",")}],"on_conflict":["a0"],"update":[]}}`;

judge("the parts of an operation and the columns of its rows are bounded", {
  accepted: [
    whereText(conditions(12_000)),
    whereText(`{"column":"c","cmp":"IN","value":[${listed(60_000, String)}]}`),
    insert(...Array.from({ length: 60_000 }, () => '{"a":1}')),
    selecting(49_000),
    insert(wide("a"), wide("b"), wide("a")),
    `{"Batch":[${insert(wide("a"), wide("b"))},${insert(wide("c"), wide("d"), wide("c"))}]}`,
    `{"Batch":[${selecting(30_000)},${selecting(30_000)}]}`,
  ],
  query_too_complex: [
    whereText(conditions(20_000)),
    selecting(50_001),
    update(`{${listed(50_001, (index) => `"c${index}":0`)}}`),
    `{"CreateTable":{"database":"main","table":"users","columns":[${listed(20_000, (index) => `{"name":"c${index}","type":"int"}`)}]}}`,
    insert(wide("a"), wide("b"), '{"c":1}'),
    insert(`{${listed(4097, (index) => `"c${index}":0`)}}`),
    upsert(wide("a"), wide("b"), '{"c":1}'),
  ],
});

const goodColumns = ["id", "first name", "größe", "$x", "a*b", "a\u00a0b", "x".repeat(128)];
const badColumns = [
  "",
  "*",
  "a.b",
  "users.id",
  "a'",
  'a"',
  "a\\",
  "a`",
  "x".repeat(129),
  "😀".repeat(129),
  ...["\u0000", "\n", "\u001f", "\u007f", "\u0080", "\u009f"].map((control) => `a${control}b`),
];
judge("a row's keys are column names without a table", {
  accepted: [...goodColumns, "漢".repeat(128), "😀".repeat(128)].map((key) =>
    insertRow({ [key]: 1 }),
  ),
  invalid_column: [
    ...badColumns.map((key) => JSON.stringify({ [key]: 1 })),
    ...[
      "a\\u002eb",
      "\\u002a",
      "$serde_json::private::RawValue",
      "\\u0024serde_json::private::Number",
      "a\\u0027",
      "a\\u0085",
    ].map((key) => `{"${key}":1}`),
  ].flatMap((row) => [insert(row), update(row)]),
});

t.test("a refusal names the row, and never a value", async (t) => {
  const secret = "hunter2";
  const bodies = {
    "Insert.values[1]": [
      insert('{"a":1}', `{"a":"${secret}","a":1}`),
      insert('{"a":1}', `{"a":"${secret}","b":nope}`),
      insert('{"a":1}', `{"b":{"${secret}":"\\ud800"}}`),
    ],
    "Select.where": [select({ where: term("a", "BETWEEN", [secret]) })],
  };
  for (const [path, refused] of Object.entries(bodies)) {
    for (const body of refused) {
      const { message, location } = refusalOf(body);
      t.equal(location.path, path);
      t.notMatch(message, secret);
    }
  }
});

t.test("rows like the one before are read as strictly", async (t) => {
  const lengths = [...Array(10).keys()];
  const strings = lengths.flatMap((length) =>
    [...Array(0x100).keys()].map((code) => {
      const sign = String.fromCharCode(code);
      return `"${"a".repeat(length)}${sign === '"' ? '\\"' : sign}${"b".repeat(length % 3)}"`;
    }),
  );
  const isJson = (text: string) => {
    try {
      JSON.parse(text);
      return true;
    } catch {
      return false;
    }
  };
  const judged = strings.filter(
    (text) =>
      verdict(insert('{"c":""}', `{"c":${text}}`)) === (isJson(text) ? "accepted" : "invalid_json"),
  );
  t.equal(judged.length, strings.length);
  const names = lengths.map((length) => `c${"x".repeat(length)}`);
  for (const name of names) {
    for (const [at] of [...name].entries()) {
      const other = `${name.slice(0, at)}d${name.slice(at + 1)}`;
      const { accesses } = scanBody(insert(`{"${name}":1}`, `{"${name}":1}`, `{"${other}":1}`));
      const used = accesses.flatMap(({ node }) => node.uses.map(({ column }) => column));
      t.strictSame(used, [name, other]);
    }
  }
  const cut = insert('{"c":"x"}', '{"c":"xxx"}');
  const ends = [...cut].map((_, at) => verdict(cut.slice(0, at)));
  t.strictSame(new Set(ends), new Set(["invalid_json"]));
});

t.test("an Insert of many rows is one access", async (t) => {
  const rows = Array.from({ length: 10_000 }, (_, id) => JSON.stringify({ id, name: `n${id}` }));
  t.equal(scanBody(insert(...rows)).accesses.length, 1);
});

judge("a table has at least one column, each with a name and a type", {
  accepted: [create(id), create({ ...id, primary_key: true, unique: false, nullable: true })],
  invalid_value: [create()],
  missing_field: [{ CreateTable: target }, create({ name: "id" }), create({ type: "int" })],
  unknown_field: [create({ ...id, comment: 1 })],
  wrong_type: [
    { CreateTable: { ...target, columns: {} } },
    create("id"),
    ...["primary_key", "unique", "nullable"].flatMap((key) =>
      [null, 1, "true", []].map((wrong) => create({ ...id, [key]: wrong })),
    ),
  ],
  invalid_column: ["*", "users.id", "", "a'b", "x".repeat(129)].map((name) =>
    create({ ...id, name }),
  ),
});

const types = (...all: string[]) => all.map((type) => create({ ...id, type }));
judge("a type is a word, optionally with a length or a precision", {
  accepted: types(
    ..."int VARCHAR(255) numeric(10,2) int8 a_b n(999999999)".split(" "),
    `a${"x".repeat(62)}`,
  ),
  invalid_type: types(
    ..."8int _int int) int() int(1 int(a) int(-1) int(1,) int(1,2,3) n(1000000000)".split(" "),
    "",
    "int unsigned",
    "int(1, 2)",
    "int (1)",
    `a${"x".repeat(63)}`,
    "int; DROP TABLE users",
    "int\n",
    "größe",
  ),
  wrong_type: [create({ ...id, type: 1 })],
});

t.test("two columns of one name are refused", async (t) => {
  t.equal(verdict(create(id, { name: "name", type: "text" })), "accepted");
  const { code, location } = refusalOf(create(id, { name: "name", type: "text" }, id));
  t.equal(code, "invalid_column");
  t.equal(location.path, "CreateTable.columns[2].name");
});

t.test("every element of a batch is checked", async (t) => {
  const { location } = refusalOf({ Batch: [drop("a"), drop("b"), drop("not plain")] });
  t.equal(location.path, "Batch[2].DropTable.table");
});

const batch = (...Batch: unknown[]) => ({ Batch });
const drops = (length: number) => batch(...Array.from({ length }, () => drop("a")));
judge("a batch has 1 to 1000 elements, each an object with one operation", {
  accepted: [drops(1), drops(1000)],
  batch_size: [drops(0), drops(1001), '{"Batch":[],"Batch":[]}'],
  wrong_type: [
    { Batch: drop("a") },
    { Batch: null },
    batch(drop("a"), null),
    batch([drop("a")]),
    batch("DropTable"),
  ],
  no_operation: [batch({})],
  unknown_operation: [batch({ Grant: {} })],
  several_operations: [
    batch({ ...drop("a"), ...select() }),
    batch({ ...drop("a"), op: "drop" }),
    { Batch: [drop("a")], ...drop("b") },
  ],
  unknown_field: [batch({ ...drop("a"), comment: "" })],
});

judge(
  "batches, operations on databases and configured ones cannot be in a batch",
  {
    not_in_batch: [
      batch(drop("a")),
      { CreateDatabase: { database: "main" } },
      { DropDatabase: { database: "main" } },
      truncate({}),
    ].map((other) => batch(drop("a"), other)),
  },
  widened,
);

t.test("a configured operation has a database, a table and its right", async (t) => {
  t.strictSame(scanBody(truncate({}), widened).accesses.map(gist), [
    { operation: "Truncate", permission: "DELETE", database: "main", tables: ["users"] },
  ]);
  t.equal(verdict(truncate({})), "unknown_operation");
  t.equal(verdict(select({ trace: 1 })), "unknown_field");
});

const traced = (trace: string) => `{"DropDatabase":{"database":"main","trace":${trace}}}`;
judge(
  "a configured field is allowed once in every operation, with any value of unique keys",
  {
    accepted: [
      ...[null, 1, "x", [{}], { a: { b: [] } }].flatMap((trace) => [
        select({ trace }),
        truncate({ trace }),
        batch(select({ trace })),
        { CreateDatabase: { database: "main", trace } },
      ]),
      ...['{"a":1,"A":{"a":1}}', '[{"a":1},{"a":1}]', '"{\\"a\\":1}"'].map(traced),
    ],
    duplicate_key: [
      '{"DropDatabase":{"database":"main","trace":1,"tr\\u0061ce":2}}',
      ...[
        '{"a":1,"a":2}',
        '{"a":1,"b":2,"\\u0061":3}',
        '{"a":{"b":{"c":1,"c":1}}}',
        '[0,[{"a":1},{"b":[{"c":1,"c":1}]}]]',
        '{"__proto__":1,"__proto__":2}',
      ].map(traced),
    ],
    invalid_json: [traced('{"a":1,}')],
    nesting_too_deep: [traced("[".repeat(63) + "]".repeat(63))],
    unknown_field: [
      truncate({ where: null }),
      select({ order_by: { column: "a", trace: 1 } }),
      { ...select(), trace: 1 },
      `{"DropTable":${inner},"trace":1}`,
    ],
    missing_field: [{ Truncate: { database: "main" } }],
    invalid_name: [truncate({ table: "not plain" })],
    several_operations: [`{"DropTable":${inner},"Truncate":1}`],
  },
  widened,
);

t.test("a refusal within a configured field names its place", async (t) => {
  const { location, message } = refusalOf(traced('{"a":1,"a":2}'), widened);
  t.equal(location.path, "DropDatabase.trace");
  t.match(message, /the key "a" is given twice/);
});

t.test("a configured field named value has unique keys, too", async (t) => {
  const grammar = createGrammar({ extraFields: ["value"], operations: {} });
  const selecting = (value: string) =>
    `{"Select":{"database":"main","from":"users","columns":["*"],"value":${value}}}`;
  t.equal(verdict(selecting('{"a":{"b":1}}'), grammar), "accepted");
  t.equal(verdict(selecting('{"a":1,"a":2}'), grammar), "duplicate_key");
  t.equal(verdict(selecting('{"a":{"b":1,"b":2}}'), grammar), "duplicate_key");
});

t.test("a column named value, values or set may be bound, written and compared", async (t) => {
  for (const column of ["value", "values", "set", "Insert", "bind"]) {
    const row = { [column]: [{ a: 1 }] };
    const bound = { ...target, values: [{}], bind: { [column]: { element: 0, column } } };
    const inserted = { Insert: { ...target, values: [row] } };
    const updated = { Update: { ...target, set: row, where: { ...equal, column } } };
    t.equal(verdict({ Batch: [inserted, { Insert: bound }, updated] }), "accepted", column);
  }
});

t.test("a long word in place of an operator or escape is refused like a short one", async (t) => {
  const long = "x".repeat(9_000_000);
  t.equal(verdict(where({ ...equal, cmp: long })), "invalid_value");
  t.equal(verdict(where({ ...equal, cmp: "LIKE", escape: long })), "invalid_value");
});

const stepTarget = '"database":"main","table":"users"';
const many = (count: number, make: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => make(index)).join(",");
const row = (index: number) => `{"id":${index},"name":"n","tags":["a",{"b":[1,2]}]}`;
const comparison = (index: number) => `{"column":"c${index}","cmp":"=","value":[1,2,3]}`;

const longBodies = {
  rows: `{"Insert":{${stepTarget},"values":[${many(3000, row)}]}}`,
  "one wide row": `{"Insert":{${stepTarget},"values":[{${many(4000, (index) => `"column${index}":"${index}"`)}}]}}`,
  "a set": `{"Update":{"set":{${many(9000, (index) => `"c${index}":0`)}},"where":null,${stepTarget}}}`,
  "a cell": insertOf(`[${many(20_000, String)}]`),
  "a deep cell": insertOf(`[${many(1000, () => "[".repeat(50) + "]".repeat(50))}]`),
  conditions: `{"Delete":{${stepTarget},"where":{"or":[${many(3000, comparison)}]}}}`,
  "a list": `{"Delete":{${stepTarget},"where":{"not":{"column":"a","cmp":"IN","value":[${many(20_000, String)}]}}}}`,
  "a pair": `{"Delete":{${stepTarget},"where":{"value":[[${many(20_000, String)}],2],"column":"a","cmp":"BETWEEN"}}}`,
  columns: `{"Select":{"columns":[${many(9000, (index) => `"users.c${index}"`)}],"database":"main","from":"users"}}`,
  definitions: `{"CreateTable":{${stepTarget},"columns":[${many(3000, (index) => `{"name":"c${index}","type":"int"}`)}]}}`,
  "a Batch": `{"Batch":[${many(900, (index) => insertOf(`"${index}"`))}]}`,
  "an extra field": `{"DropTable":{"trace":{"a":[${many(3000, row)}]},${stepTarget}}}`,
};

/** The steps that a parseQuery takes, and what it gives. */
function countedSteps(body: string) {
  const steps = parseQueryInSteps(Buffer.from(body), widened, 1024);
  for (let count = 0; ; count++) {
    const step = steps.next();
    if (step.done === true) return { count, query: step.value };
  }
}

t.test("a long body is parsed in steps of bounded length, with the same result", async (t) => {
  for (const [name, body] of Object.entries(longBodies)) {
    const { count, query } = countedSteps(body);
    // Comparing such values member by member takes a minute.
    const whole = serialize(parseQuery(Buffer.from(body), widened));
    t.ok(serialize(query).equals(whole), name);
    t.ok(count > body.length / 1024 / 4, `${name}: ${count} steps for ${body.length} bytes`);
  }
});

t.test("what parsing a long body takes is charged, and bounded", async (t) => {
  for (const [name, text] of Object.entries(longBodies)) {
    const body = Buffer.from(text);
    let held = 0;
    const hold = (bytes: number) => {
      held += bytes;
    };
    runAtOnce(parseQueryInSteps(body, widened, 1024, hold));
    t.ok(held <= 8 * body.length, `${name}: ${held} bytes for ${body.length}`);
    if (/^(?:rows|a cell|a list|a pair)$/.test(name)) t.equal(held, 0, `${name} makes no tokens`);
    if (name === "conditions") t.ok(held > 0, "conditions do");
  }
  const refuse = () => {
    throw new Error("too much");
  };
  const steps = parseQueryInSteps(Buffer.from(longBodies.conditions), plain, 1024, refuse);
  t.throws(() => runAtOnce(steps), { message: "too much" });
});

function refusalBy(read: () => unknown): string {
  try {
    read();
    return "accepted";
  } catch (error) {
    if (error instanceof QueryRefused) return `${error.code}: ${error.message}`;
    throw error;
  }
}

t.test("an error in a long body is the same in steps", async (t) => {
  const tails = ['"x":1}', ",,", "}}}}}", ']}}{"a":1}', "]]]]", '"\\ud800"', ""];
  for (const [name, body] of Object.entries(longBodies)) {
    for (const [index, tail] of tails.entries()) {
      const broken = Buffer.from(body.slice(0, body.length - 4 - index) + tail);
      const expected = refusalBy(() => parseQuery(broken, plain));
      t.equal(
        refusalBy(() => runAtOnce(parseQueryInSteps(broken, plain, 512))),
        expected,
        name,
      );
      t.not(expected, "accepted", name);
    }
  }
});

t.test("a BETWEEN that is read in steps still needs two values", async (t) => {
  const list = `[[${many(5000, String)}],2,3]`;
  const body = `{"Delete":{${stepTarget},"where":{"column":"a","cmp":"BETWEEN","value":${list}}}}`;
  t.match(
    refusalBy(() => runAtOnce(parseQueryInSteps(Buffer.from(body), plain, 64))),
    /^invalid_value/,
  );
});

t.test("only an empty set is refused, also in steps", async (t) => {
  const update = (set: string) =>
    Buffer.from(`{"Update":{${stepTarget},"where":null,"set":${set}}}`);
  t.match(
    refusalBy(() => runAtOnce(parseQueryInSteps(update("{}"), plain, 1))),
    /^invalid_value/,
  );
  t.equal(
    refusalBy(() => runAtOnce(parseQueryInSteps(update('{"a":[1,2]}'), plain, 1))),
    "accepted",
  );
});

const longRows = many(300_000, (index) => `{"c":"${index}"}`);

t.test("other work runs between the slices of a long scan", async (t) => {
  let turns = 0;
  let isDone = false;
  const turn = () => {
    turns++;
    if (!isDone) setImmediate(turn);
  };
  setImmediate(turn);
  const body = Buffer.from(`{"Insert":{${stepTarget},"values":[${longRows}]}}`);
  // Each step takes a millisecond, however fast the machine is.
  let now = 0;
  const clock = mock.method(performance, "now", () => ++now);
  const query = await parseQueryInSlices(body, plain);
  clock.mock.restore();
  isDone = true;
  t.equal(query?.accesses.length, 1);
  t.ok(turns > 1, `${turns} turns`);
  const broken = Buffer.from(`{"c":[${longRows}]}`);
  await t.rejects(parseQueryInSlices(broken, plain), { code: "unknown_operation" });
});

t.test("a long parseQuery stops when its result is no longer wanted", async (t) => {
  const body = Buffer.from(`{"Insert":{${stepTarget},"values":[${longRows}]}}`);
  let asked = 0;
  t.equal(await parseQueryInSlices(body, plain, () => ++asked < 3), undefined);
  t.equal(asked, 3);
});

t.test("many long scans block the event loop little longer than one", async (t) => {
  const body = Buffer.from(`{"Insert":{${stepTarget},"values":[${longRows}]}}`);
  const turns: number[] = [];
  // What this thread itself takes: what else the machine does counts for nothing.
  const spent = () => process.threadCpuUsage().user / 1000;
  let before = spent();
  let isDone = false;
  const turn = () => {
    const now = spent();
    turns.push(now - before);
    before = now;
    if (!isDone) setImmediate(turn);
  };
  setImmediate(turn);
  await Promise.all(Array.from({ length: 16 }, () => parseQueryInSlices(body, plain)));
  isDone = true;
  const usual = turns.sort((one, other) => one - other)[turns.length >> 1] ?? 0;
  t.ok(usual < 64, `${Math.round(usual)} ms at a time`);
});

t.test("a Preview has the node and the fields of the change in it", async (t) => {
  const text =
    '{"Preview":{"Insert":{"database":"m","table":"a","values":[{"n":18446744073709551617,"f":1.0,"i":7}]}}}';
  const query = parseQuery(Buffer.from(text), plain);
  const node = query.accesses[0]?.node;
  t.equal(node?.operation, "Insert");
  t.equal(text.slice(node?.range.start, node?.range.end), text.slice(21, -2));
  t.equal(node?.where, undefined);
  t.strictSame(query.operations.at(0)?.fields, {
    database: "m",
    table: "a",
    values: [{ n: 18446744073709551617n, f: new ExactNumber("1.0"), i: 7 }],
  });
  const truncate = Buffer.from('{"Truncate":{"database":"m","table":"a","trace":1}}');
  const configured = parseQuery(truncate, widened);
  t.equal(configured.operations.at(0), undefined);
  t.equal(configured.accesses[0]?.node.hasExtraFields, true);
});
