/** Computed texts have at most 1 MiB in a row, however they are nested. */
import { createTable, insert, refusal } from "./kit.ts";
import { overEach, overSqlite, type Scene } from "./over-each.ts";

const database = "main";
const MOST = 1024 * 1024;
const tooLong = refusal(400, "query_too_complex", /computed text is longer than 1 MiB/);

const texts: readonly (readonly [id: number, word: string | null])[] = [
  [1, "a".repeat(100)],
  [2, "b".repeat(MOST / 8)],
  [3, "c".repeat(MOST / 8 + 1)],
  [4, "é".repeat(MOST / 16)],
  [5, "é".repeat(MOST / 16 + 1)],
  [6, "d".repeat(MOST)],
  [7, "e".repeat(MOST + 1)],
  [8, null],
];

async function fill({ ask }: Scene): Promise<void> {
  await ask(createTable("plain", { id: "int", word: "text", short: "varchar(20)", n: "bigint" }));
  for (const [id, word] of texts) {
    await ask(insert("plain", [{ id, word, short: `short ${id}`, n: id }]));
  }
}

const term = (column: string, cmp: string, value: unknown) => ({ column, cmp, value });
const lit = (value: unknown) => ({ value });
const eight = (one: unknown) => Array.from({ length: 8 }, () => one);
const concat = (as: string, of: readonly unknown[]) => ({ as, fn: "concat", of });
/** 512 times a name, under the name `t`. */
const times = (name: string) => [
  concat("x8", eight(name)),
  concat("x64", eight("x8")),
  concat("t", eight("x64")),
];

overEach("a computed text has at most 1 MiB in a row", async (t, scene) => {
  await fill(scene);
  const lengths = [{ as: "n", fn: "length", of: ["t"] }];
  const answer = (id: number, compute: readonly object[], more: object = {}) =>
    scene.ask({
      Select: {
        database,
        from: "plain",
        columns: ["n"],
        ...more,
        where: term("id", "=", id),
        compute: [...compute, ...lengths.map((one) => ({ ...one, as: "size" }))],
      },
    });
  const sized = (id: number, compute: readonly object[]) =>
    answer(id, compute, { columns: ["size"] });
  const passes = async (id: number, compute: readonly object[], size: number | null) =>
    t.match(await sized(id, compute), { status: 200, body: { data: [{ size }] } });
  const fails = async (id: number, compute: readonly object[]) =>
    t.match(await sized(id, compute), tooLong, JSON.stringify([id, compute]).slice(0, 300));

  await passes(1, times("word"), 51_200);
  await passes(2, [concat("t", eight("word"))], MOST);
  await fails(3, [concat("t", eight("word"))]);
  await passes(4, [concat("t", eight("word"))], MOST / 2);
  await fails(5, [concat("t", eight("word"))]);
  await fails(2, [concat("t", [...eight("word").slice(2), lit("x".repeat(MOST / 4)), "n"])]);
  await passes(6, [concat("t", ["word", lit("")])], MOST);
  await fails(6, [concat("t", ["word", "n"])]);
  await fails(7, [concat("t", ["word", lit(null)])]);
  await passes(8, [concat("t", eight("word"))], 0);
  for (const fn of ["lower", "upper", "trim"]) {
    await passes(6, [{ as: "t", fn, of: ["word"] }], MOST);
    await fails(7, [{ as: "t", fn, of: ["word"] }]);
    await passes(8, [{ as: "t", fn, of: ["word"] }], null);
  }
  await fails(7, [{ as: "t", fn: "coalesce", of: ["word", "short"] }]);
  await passes(7, [{ as: "t", fn: "coalesce", of: ["short", "word"] }], 7);
  await passes(8, [{ as: "t", fn: "coalesce", of: ["word", "short"] }], 7);
  await fails(7, [{ as: "t", fn: "nullif", of: ["word", "short"] }]);
  await passes(7, [{ as: "t", fn: "nullif", of: ["short", "word"] }], 7);
  const either = (value: number) => ({
    as: "t",
    fn: "if",
    when: term("id", "=", value),
    else: "short",
    // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
    then: "word",
  });
  await fails(7, [either(7)]);
  await passes(7, [either(1)], 7);
  // An intermediate text counts, also if the result is short.
  await fails(3, [
    concat("whole", eight("word")),
    { as: "t", fn: "nullif", of: ["whole", "whole"] },
  ]);

  // The length of a stored text is not that of a computed one.
  const whole = { database, from: "plain", columns: ["size"], where: term("id", "=", 7) };
  const length = [{ as: "size", fn: "length", of: ["word"] }];
  t.match(await scene.ask({ Select: { ...whole, compute: length } }), {
    status: 200,
    body: { data: [{ size: MOST + 1 }] },
  });

  // Long literals are computed if the text is known to stay below.
  const long = lit("x".repeat(300_000));
  await passes(1, [concat("t", [long, long, long, "short", "n"])], 900_008);
  await fails(1, [concat("t", [long, long, long, long])]);
  await fails(1, [concat("t", [long, long, long, "word", lit("x".repeat(200_000))])]);
});

overSqlite("a computed text counts over all levels and wherever it stands", async (t, scene) => {
  await fill(scene);
  const first = term("id", "=", 1);
  const level = (from: unknown) => ({ from, columns: ["n", "t"], compute: times("word") });
  const one = { ...level("plain"), where: first };
  const more = (select: object, as: string) => ({
    from: { select, as },
    columns: ["n", "t2"],
    compute: [concat("y8", eight("t")), concat("y64", eight("y8")), concat("t2", eight("y64"))],
  });
  const two = more(one, "a");
  const three = {
    from: { select: two, as: "b" },
    columns: ["n"],
    compute: [concat("z8", eight("t2")), concat("z", eight("z8"))],
  };
  const first8 = [concat("t", eight("word"))];
  const where = term("id", "=", 3);
  const link = { table: "plain", on: "plain.id = one.id" };
  const selects: readonly object[] = [
    two,
    { ...three, columns: ["z"] },
    { ...two, aggregate: [{ fn: "max", column: "t2", as: "m" }], columns: undefined },
    { ...two, group_by: ["t2"], columns: ["t2"], aggregate: [{ fn: "count", as: "c" }] },
    { ...two, order_by: { column: "t2" } },
    { ...two, distinct: true },
    { ...two, where: term("t2", "=", "x") },
    {
      from: "plain",
      columns: ["n"],
      compute: first8,
      where: { and: [where, term("t", "!=", "x")] },
    },
    { from: "plain", columns: ["n"], compute: first8, order_by: { column: "t" } },
    {
      from: "plain",
      columns: ["n"],
      where: { column: "word", cmp: "IN", select: { ...two, columns: ["t2"] } },
    },
    {
      from: { table: "plain", as: "one" },
      columns: ["id"],
      where: { ...where, column: "one.id" },
      include: [{ as: "m", ...link, columns: ["t"], compute: first8 }],
    },
  ];
  for (const select of selects) {
    const answer = await scene.ask({ Select: { database, ...select } });
    t.match(answer, tooLong, JSON.stringify(select).slice(0, 300));
  }
  const { status } = await scene.ask({ Select: { database, ...one } });
  t.equal(status, 200, "the inner text alone is short");
  const filter = term("id", "<", 3);
  const narrowed = { from: "plain", columns: ["n"], compute: first8 };
  const found = { ...narrowed, where: { and: [filter, term("t", "!=", "x")] } };
  t.match(
    await scene.ask({ Select: { database, ...found } }),
    { status: 200, body: { data: [{ n: 1 }, { n: 2 }] } },
    "texts of other rows do not count",
  );
});
