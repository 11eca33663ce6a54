import fc from "fast-check";
import t from "tap";
import { caseCount } from "../kit/nightly.ts";
import { createTable, insert, refusal } from "./kit.ts";
import {
  type Cell,
  Decimal,
  evaluate,
  Json,
  type ModelName,
  type ModelRow,
  type ModelSelect,
  OutOfRange,
  rowText,
  type Where,
} from "./model.ts";
import { freshMysql } from "./mysql/kit.ts";
import { overEach, overSqlite } from "./over-each.ts";
import { freshPostgres } from "./postgres/kit.ts";

const database = "main";
const types = {
  id: "int",
  small: "int",
  qty: "bigint",
  ratio: "double",
  region: "text",
  label: "varchar(20)",
  day: "date",
  due: "date",
  price: "decimal(10,2)",
  cost: "decimal(10,2)",
  at: "timestamp",
  seen: "timestamp",
  paid: "boolean",
  sent: "boolean",
  doc: "json",
  note: "json",
};

const days = ["2026-01-01", "2024-12-30", "2024-02-29", "2021-01-03", "1999-12-31", "0050-05-15"];
const moments = [
  "2026-12-31T23:59:58.25Z",
  "2026-01-01T00:00:00Z",
  "2024-12-30T12:30:00Z",
  "2024-02-29T05:06:07Z",
  "1969-07-20T20:17:40Z",
  "0050-05-15T13:14:15Z",
];
const documents = [
  { a: { b: 1 }, "c.d": "x" },
  { a: [1, "x", null, { b: true }] },
  [1, { b: 1 }, "x"],
  "x",
  1,
  true,
  { 'q"\\': [["x"]], "": { b: "é" }, a: null },
  [],
  {},
];
const paths = [
  ["a"],
  ["a", "b"],
  ["a", 3, "b"],
  ["b"],
  [0],
  [1],
  [1, "b"],
  ["c.d"],
  ['q"\\', 0],
  [""],
];
const words = ["eu", "EU ", " é", "straße", "", "a%b", "Ω"];
const optional = <Value>(one: fc.Arbitrary<Value>) => fc.option(one, { freq: 5 });
const cents = fc.oneof(fc.constantFrom(250, -125, 0), fc.integer({ min: -999, max: 99_999 }));
const decimal = cents.map((digits) => new Decimal(BigInt(digits), 2));
const cells = {
  small: optional(fc.integer({ min: -9, max: 9 }).map(BigInt)),
  qty: optional(fc.constantFrom(0n, 7n, -1n, 2n ** 62n, -(2n ** 63n), 2n ** 53n + 1n)),
  ratio: optional(fc.integer({ min: -40, max: 40 }).map((n) => n / 4)),
  region: optional(fc.constantFrom(...words)),
  label: optional(fc.constantFrom(...words)),
  day: optional(fc.constantFrom(...days)),
  due: optional(fc.constantFrom(...days)),
  price: optional(decimal),
  cost: optional(decimal),
  at: optional(fc.constantFrom(...moments)),
  seen: optional(fc.constantFrom(...moments)),
  paid: optional(fc.boolean()),
  sent: optional(fc.boolean()),
  doc: optional(fc.constantFrom(...documents).map((value) => new Json(value))),
  note: optional(fc.constantFrom(...documents).map((value) => new Json(value))),
};
const table: fc.Arbitrary<ModelRow[]> = fc
  .array(fc.record(cells), { minLength: 1, maxLength: 15 })
  .map((rows) => rows.map((row, at) => ({ id: BigInt(at + 1), ...row })));

type Choose = <Value>(values: readonly Value[]) => Value;

/** Names of values that are alike. */
interface Pools {
  /** Whole numbers and doubles, small whole numbers, and those that no name is made of. */
  readonly number: string[];
  readonly small: string[];
  readonly result: string[];
  readonly text: string[];
  readonly day: string[];
  /** Decimals, and small whole numbers computed beside them. */
  readonly decimal: string[];
  readonly moment: string[];
  readonly flag: string[];
  readonly json: string[];
}

const units = ["year", "quarter", "month", "week", "day", "hour", "minute"];

const kindsOfNames = [
  "calculate",
  "div",
  "round",
  "abs",
  "text",
  "part",
  "trunc",
  "diff",
  "alike",
  "alike",
  "decimal",
  "decimal",
  "json",
  "json",
];

function nameOf(choose: Choose, as: string, pools: Pools): ModelName {
  const { number, small, result, text, day, decimal, moment, flag, json } = pools;
  const note = (pool: string[], name: Omit<ModelName, "as">): ModelName => {
    pool.push(as);
    return { as, ...name };
  };
  const two = (pool: readonly string[], value: Cell) => {
    const items = [
      choose(pool),
      choose<string | { value: Cell }>([
        choose(pool),
        choose(pool),
        choose(pool),
        choose(pool),
        { value },
        { value },
        { value: null },
      ]),
    ];
    return choose([true, true, false]) ? items : items.toReversed();
  };
  const when = conditionOf(choose, pools);
  switch (choose(kindsOfNames)) {
    case "calculate":
      return note(number, {
        fn: choose(["add", "sub", "mul"]),
        of: two(number, choose([3n, 0n, -1n])),
      });
    case "div":
      return note(result, { fn: "div", of: two(small, 7n) });
    case "round":
      return note(number, { fn: "round", of: [choose(number)], digits: choose([0, 1, 3]) });
    case "abs":
      return note(number, { fn: "abs", of: [choose(number)] });
    case "text": {
      const of = [choose(text)];
      if (choose([true, false, false])) return note(small, { fn: "length", of });
      if (choose([true, false])) return note(text, { fn: "concat", of: two(text, "-é") });
      return note(text, { fn: choose(["lower", "upper", "trim"]), of });
    }
    case "part": {
      const unit = choose([...units, "weekday"]);
      return note(small, { fn: "part", unit, of: [choose([choose(day), choose(moment)])] });
    }
    case "trunc": {
      const pool = choose([day, moment]);
      return note(pool, { fn: "trunc", unit: choose(units), of: [choose(pool)] });
    }
    case "diff": {
      const unit = choose(["day", "hour", "minute", "second"]);
      const items = [choose(day), choose(moment)];
      return note(result, { fn: "diff", unit, of: [choose(items), choose(items)] });
    }
    case "decimal": {
      const mixed = two([...decimal, choose(small)], new Decimal(-125n, 2));
      switch (choose(["sum", "sum", "product", "double", "round", "abs"])) {
        case "sum":
          return note(decimal, { fn: choose(["add", "sub"]), of: mixed });
        case "product":
          return note(result, { fn: choose(["mul", "div"]), of: mixed });
        case "double":
          return note(result, {
            fn: choose(["add", "mul", "div"]),
            of: [choose(decimal), "ratio"],
          });
        case "round":
          return note(decimal, { fn: "round", of: [choose(decimal)], digits: choose([0, 1, 3]) });
        default:
          return note(decimal, { fn: "abs", of: [choose(decimal)] });
      }
    }
    case "json":
      return note(json, { fn: "json", of: [choose(json)], path: choose(paths) });
    default: {
      const [pool, value] = choose<[string[], Cell]>([
        [small, 4n],
        [text, "EU "],
        [day, "2024-02-29"],
        [decimal, new Decimal(250n, 2)],
        [moment, "2024-02-29T05:06:07Z"],
        [flag, true],
        [json, new Json("x")],
      ]);
      const of = two(pool, value);
      if (choose([true, false])) return note(pool, { fn: choose(["coalesce", "nullif"]), of });
      // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
      return note(pool, { fn: "if", when, then: choose(of), else: choose(pool) });
    }
  }
}

function conditionOf(choose: Choose, pools: Pools): Where {
  const { number, small, text, day, decimal, moment, flag, json } = pools;
  const [pool, value] = choose<[readonly string[], Cell]>([
    [number, 1n],
    [small, 2n],
    [text, "eu"],
    [day, "2024-12-30"],
    [decimal, new Decimal(250n, 2)],
    [moment, "2024-12-30T12:30:00Z"],
    [flag, true],
    [json, new Json(choose<unknown>(["x", 1, { b: 1 }]))],
  ]);
  const column = choose(pool);
  const cmp = choose(pool === json ? ["=", "!="] : ["=", "!=", "<", ">="]);
  if (choose([true, false, false])) {
    const alike = choose([pool, pool, pool === day ? moment : pool === decimal ? number : pool]);
    return { column, cmp, other: choose(alike) };
  }
  if (pool !== json && choose([true, false, false, false])) {
    return { column, cmp: "IN", value: [value, null] };
  }
  if (choose([true, false, false, false])) return { column, cmp: "=", value: null };
  return { column, cmp, value };
}

function queryOf(choose: Choose): ModelSelect {
  const pools: Pools = {
    number: ["id", "small", "qty", "ratio"],
    small: ["id", "small"],
    result: [],
    text: ["region", "label"],
    day: ["day", "due"],
    decimal: ["price", "cost"],
    moment: ["at", "seen"],
    flag: ["paid", "sent"],
    json: ["doc", "note"],
  };
  const names = ["n1", "n2", "n3", "n4"].slice(0, choose([1, 2, 3, 4]));
  const compute = names.map((as) => nameOf(choose, as, pools));
  const where = choose([undefined, conditionOf(choose, pools)]);
  const direction = () => choose(["ASC" as const, "DESC" as const]);
  const shared = { compute, ...(where === undefined ? {} : { where }) };
  const columns = choose([names, ["id", ...names]]);
  switch (choose(["rows", "rows", "distinct", "groups"])) {
    case "distinct": {
      const order_by = columns.map((column) => ({ column, direction: direction() }));
      return { ...shared, columns, distinct: true, order_by };
    }
    case "groups": {
      const plain = [
        ...pools.text,
        ...pools.day,
        ...pools.small,
        ...pools.moment,
        // A column of decimals keeps its zeros.
        ...pools.decimal.filter((name) => names.includes(name)),
      ];
      // PostgreSQL groups only the JSON values that are computed.
      const other = [...pools.flag, ...pools.json.filter((name) => names.includes(name))];
      const group_by = [...new Set([choose(plain), choose([...plain, ...other])])];
      const aggregate = [
        { fn: "count", as: "rows" },
        { fn: choose(["min", "max", "count"]), column: choose(plain), as: "most" },
        { fn: "count", column: choose(other), distinct: choose([true, false]), as: "others" },
      ];
      const having = choose<Where | undefined>([
        undefined,
        { column: "rows", cmp: ">", value: 1n },
        { column: group_by[0] ?? "", cmp: "!=", value: null },
      ]);
      const order_by = ["rows", ...group_by].map((column) => ({ column, direction: direction() }));
      return {
        ...shared,
        group_by,
        aggregate,
        order_by,
        ...(having === undefined ? {} : { having }),
      };
    }
    default: {
      const order_by = [choose(names), "id"].map((column) => ({ column, direction: direction() }));
      const more = choose(["region", "at", "paid", "doc"]);
      return { ...shared, columns: [...columns, more], order_by, limit: choose([3, 20]) };
    }
  }
}

/** JSON with exact numbers. */
function json(value: unknown): string {
  const marked = JSON.stringify(value, (_key, cell: unknown) => {
    if (cell instanceof Json) return JSON.parse(cell.text);
    return typeof cell === "bigint" || cell instanceof Decimal ? `\u0000${cell}` : cell;
  });
  return marked.replace(/"\\u0000(-?[\d.]+)"/g, "$1");
}

/** @param hasDecimals false if decimals are doubles in the database */
function expectedOf(
  rows: readonly ModelRow[],
  query: ModelSelect,
  hasDecimals: boolean,
): string | undefined {
  const written = (row: ModelRow) => {
    if (hasDecimals) return row;
    const cells = Object.entries(row).map(([name, cell]) => {
      return [name, cell instanceof Decimal ? Number(cell) : cell] as const;
    });
    return Object.fromEntries(cells);
  };
  try {
    const found = evaluate(rows, query)
      .map((row) => rowText(written(row)))
      .join(",");
    return `{"status":"success","data":[${found}]}`;
  } catch (error) {
    if (error instanceof OutOfRange) return undefined;
    throw error;
  }
}

overEach("generated Selects compute what the model computes", async (t, { ask }) => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const choices = fc.array(fc.nat(), { minLength: 120, maxLength: 120 });
  let compared = 0;
  const tables = fc.sample(table, { seed, numRuns: caseCount(3, 10) });
  for (const [index, rows] of tables.entries()) {
    const from = `t${index}`;
    t.match(await ask(createTable(from, types)), { status: 200 });
    t.match(await ask(json(insert(from, rows))), { status: 200 });
    for (const numbers of fc.sample(choices, { seed: seed + index, numRuns: 45 })) {
      let next = 0;
      const query = queryOf((values) => {
        const chosen = values[(numbers[next++ % numbers.length] ?? 0) % values.length];
        if (chosen === undefined && values.length === 0) throw new Error("nothing to choose from");
        return chosen as (typeof values)[number];
      });
      const expected = expectedOf(rows, query, !t.name.endsWith("(SQLite)"));
      const { text } = await ask(json({ Select: { database, from, ...query } }));
      if (expected === undefined) {
        const isWhole = query.distinct === true && query.where === undefined;
        if (isWhole) t.match(text, /"code":"number_out_of_range"/, json(query));
        continue;
      }
      compared++;
      if (text === expected) continue;
      t.equal(text, expected, `seed ${seed}: ${json(query)}`);
      t.comment(json(rows));
      return;
    }
  }
  t.ok(compared > 25 * tables.length, `${compared} queries`);
});

const orders = {
  id: "int",
  name: "text",
  qty: "bigint",
  size: "int",
  price: "decimal(10,2)",
  ratio: "double",
  day: "date",
  at: "timestamp",
  isPaid: "boolean",
  doc: "json",
};
const first = {
  id: 1,
  name: " Éß ",
  qty: 7,
  size: 2,
  price: 1.25,
  ratio: 2.5,
  isPaid: true,
  day: "2026-01-01",
  at: "2026-12-31T23:59:58.5Z",
  doc: { a: [1, { b: "x" }], c: null },
};
const second = {
  id: 2,
  name: null,
  qty: -7,
  size: 0,
  price: -1.5,
  ratio: -0.5,
  isPaid: null,
  day: null,
  at: "2024-12-30T12:30:00Z",
  doc: [1, 20],
};

const lit = (value: unknown) => ({ value });

overEach("functions take what is at the ends of their types", async (t, { ask }) => {
  const numbers = { i: "bigint", large: "numeric(60,0)", fine: "numeric(38,30)" };
  const names = {
    "a.b": 1,
    "a'b": 2,
    "": 3,
    "*": 4,
    'q"u': 5,
    "b\\s": 6,
    "é\n": 7,
    $: 8,
    "[0]": 9,
  };
  await ask(
    createTable("ends", { id: "int", ...numbers, day: "date", at: "timestamp", doc: "json" }),
  );
  const isSqlite = t.name.endsWith("(SQLite)");
  const large = isSqlite ? "15" : "12345678901234567890123456789012345678901234567890";
  const lowest = "-9223372036854775808";
  const early = { day: "0050-05-15", at: "0050-05-15T13:14:15Z", doc: names };
  const row = json({ id: 1, fine: 0, ...early }).replace('"fine":0', '"fine":9e-30');
  const cells = row.slice(1, -1);
  const filled = `{"i":${lowest},"large":${large},${cells}}`;
  await ask(`{"Insert":{"database":"${database}","table":"ends","values":[${filled}]}}`);
  const answered = async (definition: object) => {
    const query = { database, from: "ends", columns: ["x"], compute: [{ as: "x", ...definition }] };
    return ask({ Select: query });
  };
  for (const [definition, expected] of [
    [
      { fn: "div", of: ["large", lit(3)] },
      isSqlite ? "5" : "4115226300411522630041152263004115226300411522630",
    ],
    [{ fn: "div", of: ["fine", "fine"] }, "1"],
    [
      { fn: "div", of: ["i", lit(7)] },
      isSqlite ? "-1317624576693539300" : "-1317624576693539401.142857142857",
    ],
    [{ fn: "sub", of: [lit(-1), "i"] }, "9223372036854775807"],
    [{ fn: "trunc", unit: "quarter", of: ["day"] }, '"0050-04-01"'],
    [{ fn: "trunc", unit: "quarter", of: ["at"] }, '"0050-04-01T00:00:00Z"'],
    [{ fn: "trunc", unit: "week", of: ["at"] }, '"0050-05-09T00:00:00Z"'],
    [{ fn: "part", unit: "week", of: ["day"] }, "19"],
    [{ fn: "part", unit: "year", of: ["at"] }, "50"],
    ...Object.entries(names).map(
      ([name, value]) => [{ fn: "json", of: ["doc"], path: [name] }, `${value}`] as const,
    ),
  ] as const) {
    const { text } = await answered(definition);
    t.equal(text, `{"status":"success","data":[{"x":${expected}}]}`, json(definition));
  }
  for (const of of [
    [lit(0), "i"],
    [lit(1), "i"],
    ["i", lit(1)],
  ]) {
    const answer = await answered({ fn: "sub", of });
    t.match(answer, refusal(400, "number_out_of_range"), json(of));
  }
});

t.test("a quotient that a decimal of MySQL cannot hold is refused", async (t) => {
  const { ask } = await freshMysql(t);
  await ask(createTable("ends", { id: "int", large: "numeric(60,0)", fine: "numeric(38,30)" }));
  const large = "9".repeat(60);
  const row = `{"id":1,"large":${large},"fine":1e-30}`;
  await ask(`{"Insert":{"database":"${database}","table":"ends","values":[${row}]}}`);
  for (const of of [
    ["large", lit(3)],
    ["large", "fine"],
    ["large", lit(-10)],
  ]) {
    const compute = [{ as: "x", fn: "div", of }];
    const answer = await ask({ Select: { database, from: "ends", columns: ["x"], compute } });
    t.match(answer, refusal(400, "number_out_of_range"), json(of));
  }
  const compute = [{ as: "x", fn: "div", of: ["large", lit(10_000_000)] }];
  const query = { database, from: "ends", columns: ["x"], compute };
  for (const more of [{}, { distinct: true }]) {
    const { text } = await ask({ Select: { ...query, ...more } });
    t.match(text, `[{"x":${large.slice(7)}.${large.slice(-7)}}]`);
  }
});

t.test("an infinite date of PostgreSQL has no parts and no distance", async (t) => {
  const { ask, sql } = await freshPostgres(t);
  await ask(createTable("days", { id: "int", day: "date", at: "timestamp" }));
  await sql(
    "insert into main.days values (1, 'infinity', '-infinity'), (2, '2026-01-02', '2026-01-01')",
  );
  for (const [definition, expected] of [
    ...["year", "quarter", "month", "week", "day", "hour", "minute", "weekday"].flatMap((unit) =>
      ["day", "at"].map((name) => [{ fn: "part", unit, of: [name] }, null] as const),
    ),
    [{ fn: "diff", unit: "day", of: ["day", "at"] }, null],
    [{ fn: "diff", unit: "day", of: ["at", lit("2026-01-01")] }, null],
    [{ fn: "trunc", unit: "month", of: ["day"] }, "infinity"],
    [{ fn: "trunc", unit: "month", of: ["at"] }, "-infinity"],
  ] as const) {
    const compute = [{ as: "x", ...definition }];
    const order_by = { column: "id" };
    const query = { database, from: "days", columns: ["x"], compute, order_by };
    const { body, text } = await ask({ Select: query });
    t.strictSame(body.data?.[0], { x: expected }, `${json(definition)}: ${text}`);
  }
});

overEach("a value that is no array has no first element", async (t, { ask }) => {
  await ask(createTable("documents", { id: "int", json: "json", jsonb: "jsonb" }));
  const values = [3, "x", true, { 0: 1 }, [[5]], { a: 3 }, { a: [4] }];
  const rows = values.map((value, id) => ({ id, json: value, jsonb: value }));
  t.match(await ask(insert("documents", rows)), { status: 200 });
  for (const [path, expected] of [
    [[0], [null, null, null, null, [5], null, null]],
    [
      [0, 0],
      [null, null, null, null, 5, null, null],
    ],
    [[0, 0, 0], values.map(() => null)],
    [
      ["a", 0],
      [null, null, null, null, null, null, 4],
    ],
    [["0"], [null, null, null, 1, null, null, null]],
  ] as const) {
    for (const column of ["json", "jsonb"]) {
      const compute = [{ as: "x", fn: "json", of: [column], path }];
      const query = { from: "documents", columns: ["x"], compute, order_by: { column: "id" } };
      const { body } = await ask({ Select: { database, ...query } });
      const found = body.data?.map((row) => Object(row).x) ?? body.message;
      t.same(found, expected, `${column} ${JSON.stringify(path)}`);
    }
  }
});

overEach("a sum of whole numbers is one for the Select around it", async (t, { ask }) => {
  t.match(await ask(createTable("sums", { id: "int", kind: "text", n: "bigint" })), {
    status: 200,
  });
  const largest = "9223372036854775807";
  const rows = [
    { id: 1, kind: "few", n: 5 },
    { id: 2, kind: "few", n: 12 },
    { id: 3, kind: "most", n: largest },
    { id: 4, kind: "past", n: largest },
    { id: 5, kind: "past", n: 1 },
  ];
  t.match(await ask(insert("sums", rows)), { status: 200 });
  const compute = (kind: string, fn: string, of: unknown[]) => {
    const where = { column: "kind", cmp: "=", value: kind };
    const aggregate = ["n", "id"].map((column) => ({
      fn: "sum",
      column,
      as: `sum of ${column}`,
    }));
    const from = { select: { from: "sums", where, group_by: ["kind"], aggregate }, as: "each" };
    const select = { from, compute: [{ as: "found", fn, of }], columns: ["found"] };
    return ask({ Select: { database, ...select } });
  };
  for (const [fn, of, found] of [
    ["concat", ["sum of n", { value: "/" }, "sum of id"], '"17/3"'],
    ["sub", ["sum of n", "sum of id"], "14"],
    ["div", ["sum of n", { value: 2 }], "8.5"],
    ["coalesce", [{ value: null }, "sum of n"], "17"],
  ] as const) {
    t.match((await compute("few", fn, [...of])).text, `[{"found":${found}}]`, fn);
  }
  t.match((await compute("most", "concat", ["sum of n", { value: "" }])).text, `"${largest}"`);
  const past = refusal(400, "number_out_of_range");
  t.match(await compute("most", "add", ["sum of n", { value: 1 }]), past);
  t.match(await compute("past", "concat", ["sum of n", { value: "" }]), past);
  t.match(await compute("past", "sub", ["sum of n", { value: 5 }]), past);
});

overEach("a null literal makes null", async (t, { ask }) => {
  await ask(createTable("orders", orders));
  await ask(insert("orders", [first]));
  const columns = ["id", "price", "ratio", "name", "day", "at", "isPaid", "doc"];
  const unary = ["abs", "round", "lower", "upper", "trim", "length"].map((fn) => ({ fn, of: [] }));
  for (const { of, ...definition } of [
    ...unary,
    ...["add", "sub", "mul", "div"].flatMap((fn) =>
      ["id", "price", "ratio", lit(null)].map((one) => ({ fn, of: [one] })),
    ),
    ...["day", "at", lit(null)].map((one) => ({ fn: "diff", unit: "day", of: [one] })),
    ...["trunc", "part"].map((fn) => ({ fn, unit: "day", of: [] })),
    { fn: "json", path: ["a"], of: [] },
  ]) {
    for (const items of [
      [...of, lit(null)],
      [lit(null), ...of],
    ]) {
      const compute = [{ as: "x", ...definition, of: items }];
      const order_by = { column: "x" };
      const query = { database, from: "orders", columns: ["x"], compute, order_by };
      const { body } = await ask({ Select: query });
      t.strictSame(body.data, [{ x: null }], json({ compute, body: body.message }));
    }
  }
  for (const column of columns) {
    const compute = [{ as: "x", fn: "nullif", of: [lit(null), column] }];
    const { body } = await ask({ Select: { database, from: "orders", columns: ["x"], compute } });
    t.strictSame(body.data, [{ x: null }], json({ compute, body: body.message }));
  }
});

function branches(yes: unknown, no: unknown) {
  // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
  return { then: yes, else: no };
}

overSqlite("what is no date in SQLite computes to null", async (t, { ask }) => {
  await ask(createTable("days", { id: "int", day: "date" }));
  const days = ["2026-02-30", "2026-13-01", "2026-1-5", "none", "2024-02-29"];
  await ask(
    insert(
      "days",
      days.map((day, id) => ({ id, day })),
    ),
  );
  const compute = [{ as: "month", fn: "trunc", unit: "month", of: ["day"] }];
  const rows = { database, from: "days", columns: ["month"], compute, order_by: { column: "id" } };
  const months = [...days.slice(1).map(() => null), "2024-02-01"];
  const { body } = await ask({ Select: rows });
  t.strictSame(
    body.data,
    months.map((month) => ({ month })),
  );
});

overSqlite("a computed name that is not allowed is refused with what is", async (t, { ask }) => {
  await ask(createTable("orders", { ...orders, clock: "time" }));
  await ask(insert("orders", [first, { ...second, qty: 2 ** 52 }]));
  const invalid = "invalid_value";
  const doubled = Array.from({ length: 32 }, (_, at) => ({
    as: `n${at}`,
    fn: "add",
    of: at === 0 ? ["qty", "qty"] : [`n${at - 1}`, `n${at - 1}`],
  }));
  for (const [compute, code, message] of [
    [
      [{ as: "x", fn: "lower", of: ["qty"] }],
      invalid,
      /"x": lower does not take "qty" \(bigint.*\)/,
    ],
    [
      [{ as: "x", fn: "add", of: ["qty", "name"] }],
      invalid,
      /add does not take "name" \(.*text\); allowed: numbers/,
    ],
    [
      [{ as: "x", fn: "trunc", unit: "day", of: ["isPaid"] }],
      invalid,
      /trunc does not take "isPaid"/,
    ],
    [[{ as: "x", fn: "json", of: ["name"], path: ["a"] }], invalid, /json does not take "name"/],
    [
      [{ as: "x", fn: "part", unit: "hour", of: ["clock"] }],
      invalid,
      /does not take "clock" \(time.*\); allowed: dates, and dates with times$/,
    ],
    ...["day", "at"].map(
      (name) =>
        [
          [{ as: "x", fn: "diff", unit: "day", of: [name, lit("tomorrow")] }],
          invalid,
          /"(day|at)" \(.*\) cannot be compared with this string in this way; allowed: text such as 20/,
        ] as const,
    ),
    [[{ as: "x", fn: "coalesce", of: ["day", "qty"] }], invalid, /coalesce does not take "qty"/],
    [
      [
        {
          as: "x",
          fn: "if",
          when: { column: "qty", cmp: ">", value: 1 },
          ...branches(lit(1), lit("no")),
        },
      ],
      invalid,
      /^compute "x": if does not take a literal \(text\); allowed: items of one type, here bigint$/,
    ],
    [
      [{ as: "x", fn: "concat", of: ["name", "elsewhere"] }],
      "unknown_column",
      /^compute "x": There is no column "elsewhere" in orders; orders has .*; write a text as {"value": "elsewhere"}$/,
    ],
    [[{ as: "QTY", fn: "abs", of: ["qty"] }], "duplicate_column", /"QTY" is taken/],
    [[{ as: "x", fn: "abs", of: ["x"] }], "unknown_column", /"x"/],
    [[{ as: "x", fn: "mul", of: ["qty", "qty"] }], "number_out_of_range", /range/],
    [doubled, "query_too_complex", /compute "n\d+"/],
  ] as const) {
    const columns = [compute[0]?.as ?? ""];
    const answer = await ask({ Select: { database, from: "orders", columns, compute } });
    t.match(answer, refusal(400, code, message), json(compute).slice(0, 100));
  }
  const compute = [{ as: "x", fn: "json", of: ["doc"], path: ["a"] }];
  const where = { column: "x", cmp: "<", value: 1 };
  const less = await ask({ Select: { database, from: "orders", columns: ["x"], compute, where } });
  t.match(less, refusal(400, invalid, /"x" \(json\)/));
  const aggregate = [{ fn: "sum", column: "qty", as: "sum" }];
  for (const early of [
    { where: { column: "sum", cmp: ">", value: 1 } },
    { compute: [{ as: "x", fn: "round", of: ["sum"] }] },
  ]) {
    const found = await ask({ Select: { database, from: "orders", aggregate, ...early } });
    t.match(found, refusal(400, "unknown_column", /"sum" is aggregated after .*; use having/));
  }
});

overSqlite("a name computed of tables with other names uses those names", async (t, { ask }) => {
  await ask(createTable("staff", { id: "int", boss: "int", pay: "bigint" }));
  const query = {
    database,
    from: { table: "staff", as: "s" },
    join: { table: "staff", as: "m", on: "s.boss = m.id", join_type: "LEFT" },
  };
  for (const [compute, code, message] of [
    [{ as: "x", fn: "abs", of: ["pay"] }, "ambiguous_column", /s.pay or m.pay/],
    [{ as: "x", fn: "abs", of: ["m.pays"] }, "unknown_column", /"m.pays" in s and m.*m.pay/],
    [{ as: "x", fn: "abs", of: ["staff.pay"] }, "invalid_column", /staff/],
    [{ as: "Pay", fn: "abs", of: ["m.pay"] }, "duplicate_column", /"Pay" is taken/],
  ] as const) {
    const answer = await ask({ Select: { ...query, columns: [compute.as], compute: [compute] } });
    t.match(answer, refusal(400, code, message), json(compute));
  }
});
