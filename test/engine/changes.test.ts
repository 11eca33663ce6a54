import type { Test } from "tap";
import { type Answer, createTable, insert, selectAll } from "./kit.ts";
import { type FreshEngine, overEach } from "./over-each.ts";

type Ask = (body: object | string) => Promise<Answer>;

const stock = { database: "main", table: "stock" };

const definition = {
  CreateTable: {
    ...stock,
    columns: [
      { name: "id", type: "serial", primary_key: true },
      { name: "name", type: "text" },
      { name: "count", type: "bigint" },
      { name: "price", type: "decimal(10,2)" },
    ],
  },
};

/** An engine with the rows 1 to 3 in `stock`. */
async function withStock(t: Test, freshEngine: FreshEngine): Promise<Ask> {
  const { ask } = await freshEngine(t);
  t.match(await ask(definition), { status: 200 });
  const values = [
    { name: "nail", count: 10, price: 0.1 },
    { name: "bolt", count: 20, price: 0.25 },
    { name: "nut", count: null, price: null },
  ];
  t.match(await ask(insert("stock", values)), { status: 200 });
  return ask;
}

async function rowsIn(ask: Ask): Promise<unknown> {
  return (await ask(selectAll("stock", { order_by: { column: "id" } }))).body.data;
}

const byName = (value: string) => ({ column: "name", cmp: "=", value });

overEach("a change says how many rows it touched", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const said = async (body: object) => (await ask(body)).text;
  t.equal(
    await said(insert("stock", [{ name: "pin" }, { name: "pin" }])),
    '{"status":"success","message":"Inserted 2 rows","affected":2}',
  );
  t.equal(
    await said({ Update: { ...stock, set: { count: 1 }, where: byName("pin") } }),
    '{"status":"success","message":"Updated 2 rows","affected":2}',
  );
  t.equal(
    await said({ Update: { ...stock, set: { count: 1 }, where: byName("pin") } }),
    '{"status":"success","message":"Updated 2 rows","affected":2}',
    "rows that match count, though they are as they were",
  );
  t.equal(
    await said({ Delete: { ...stock, where: byName("pin") } }),
    '{"status":"success","message":"Deleted 2 rows","affected":2}',
  );
  t.equal(
    await said({ Delete: { ...stock, where: byName("pin") } }),
    '{"status":"success","message":"Deleted 0 rows","affected":0}',
  );
  t.equal(await said({ DropTable: stock }), '{"status":"success","message":"Table stock dropped"}');
});

overEach("a change answers the rows that it has changed", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const said = async (body: object) => (await ask(body)).text;
  const values = [{ name: "z" }, { name: "a" }];
  t.equal(
    await said({ Insert: { ...stock, values, returning: ["id", "stock.name"] } }),
    '{"status":"success","message":"Inserted 2 rows","affected":2,"data":[{"id":4,"name":"z"},{"id":5,"name":"a"}]}',
    "by the order of values",
  );
  t.equal(
    await said({
      Update: {
        ...stock,
        set: { name: "x" },
        where: { column: "id", cmp: "<", value: 3 },
        returning: ["*"],
      },
    }),
    '{"status":"success","message":"Updated 2 rows","affected":2,"data":[{"id":1,"name":"x","count":10,"price":0.10},{"id":2,"name":"x","count":20,"price":0.25}]}'.replace(
      "0.10",
      (text) => (t.fullname.includes("SQLite") ? "0.1" : text),
    ),
  );
  const none = { column: "id", cmp: "=", value: 99 };
  t.equal(
    await said({ Update: { ...stock, set: { name: "x" }, where: none, returning: ["id"] } }),
    '{"status":"success","message":"Updated 0 rows","affected":0,"data":[]}',
  );
  t.equal(
    await said({ Delete: { ...stock, where: byName("x"), returning: ["count", "id", "count"] } }),
    '{"status":"success","message":"Deleted 2 rows","affected":2,"data":[{"count":10,"id":1},{"count":20,"id":2}]}',
  );
  t.match(await ask({ Delete: { ...stock, where: null, returning: ["nmae"] } }), {
    status: 400,
    body: { code: "unknown_column", message: /did you mean name/ },
  });
  t.match(await rowsIn(ask), [{ id: 3 }, { id: 4 }, { id: 5 }]);
});

overEach("changed rows are answered by the order of their key", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("words", { word: "text", n: "int" }));
  const words = ["b", "é", "a", "Z", "\u{1f600}", "\uffee", "aa"];
  await ask(
    insert(
      "words",
      words.map((word, n) => ({ word, n })),
    ),
  );
  const sorted = ["Z", "a", "aa", "b", "é", "\uffee", "\u{1f600}"].map((word) => ({ word }));
  const words_ = { database: "main", table: "words", where: null, returning: ["word"] };
  t.strictSame((await ask({ Update: { ...words_, set: { n: 1 } } })).body.data, sorted);
  t.strictSame((await ask({ Delete: { ...words_ } })).body.data, sorted);
});

overEach("a change of the key is answered with the new key", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const shift = { Update: { ...stock, add: { id: 100 }, where: null, returning: ["id"] } };
  t.strictSame((await ask(shift)).body.data, [{ id: 101 }, { id: 102 }, { id: 103 }]);
  const set = {
    Update: { ...stock, set: { id: 7 }, where: byName("nut"), returning: ["id", "name"] },
  };
  t.strictSame((await ask(set)).body.data, [{ id: 7, name: "nut" }]);
});

overEach("an element of a Batch that asks for rows answers them", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const Batch = [
    { Insert: { ...stock, values: [{ name: "pin" }], returning: ["id"] } },
    { Update: { ...stock, set: { count: 1 }, where: byName("pin") } },
    {
      Upsert: {
        ...stock,
        values: [{ id: 4, name: "peg" }],
        on_conflict: ["id"],
        update: ["name"],
        returning: ["name", "count"],
      },
    },
    { Delete: { ...stock, where: null, returning: ["id"] } },
  ];
  t.equal(
    (await ask({ Batch })).text,
    '{"status":"success","data":[{"affected":1,"data":[{"id":4}]},"Updated 1 row",{"affected":1,"data":[{"name":"peg","count":1}]},{"affected":4,"data":[{"id":1},{"id":2},{"id":3},{"id":4}]}]}',
  );
});

overEach("add adds to numbers, exactly, and leaves null", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const add = (cells: string, where = "null") =>
    ask(
      `{"Update":{"database":"main","table":"stock","add":{${cells}},"where":${where},"returning":["*"]}}`,
    );
  t.match((await add('"count":-1,"price":0.2')).body.data, [
    { count: 9, price: 0.3 },
    { count: 19, price: 0.45 },
    { count: null, price: null },
  ]);
  const first = '{"column":"id","cmp":"=","value":1}';
  t.match((await add('"count":9223372036854775798', first)).text, '"count":9223372036854775807,');
  for (const [cells, code] of [
    ['"count":1', "number_out_of_range"],
    ['"price":99999999.99', t.fullname.includes("SQLite") ? "" : "number_out_of_range"],
    ['"count":0.5', "invalid_value"],
    ['"name":1', "invalid_value"],
    ['"nope":1', "unknown_column"],
  ] as const) {
    if (code !== "") t.match(await add(cells, first), { status: 400, body: { code } }, cells);
  }
  t.match((await add('"count":-9223372036854775807', first)).text, '"count":0,');
  t.match((await add('"count":-9223372036854775808', first)).text, '"count":-9223372036854775808,');
  t.match(await add('"count":-1', first), { body: { code: "number_out_of_range" } });
  const both = { ...stock, set: { count: 1 }, add: { count: 1 }, where: null };
  t.match(await ask({ Update: both }), {
    status: 400,
    body: {
      code: "duplicate_column",
      message: 'Column "count" is in both set and add; allowed: one of them',
    },
  });
  t.match(
    await ask({
      Update: { ...stock, set: { name: "x" }, add: { count: 5 }, where: byName("bolt") },
    }),
    {
      body: { affected: 1 },
    },
  );
  t.match(await rowsIn(ask), [{}, { name: "x", count: 24 }, {}]);
});

overEach(
  "a table without a primary key answers its rows where the database can",
  async (t, freshEngine) => {
    const { ask } = await freshEngine(t);
    const bare = { database: "main", table: "bare" };
    await ask({ CreateTable: { ...bare, columns: [{ name: "a", type: "int" }] } });
    t.match(await ask({ Insert: { ...bare, values: [{ a: 1 }], returning: ["a"] } }), {
      body: { data: [{ a: 1 }] },
    });
    const update = { Update: { ...bare, set: { a: 2 }, where: null, returning: ["a"] } };
    const answer = await ask(update);
    if (t.fullname.includes("MySQL")) {
      t.match(answer, {
        status: 400,
        body: { code: "not_supported", message: /^Table bare has no primary key/ },
      });
      t.match(await ask({ Preview: update }), { status: 400, body: { code: "not_supported" } });
      await ask({ Update: { ...bare, set: { a: 2 }, where: null } });
    } else {
      t.match(answer, { body: { data: [{ a: 2 }] } });
      t.match(await ask({ Preview: update }), { body: { before: [{ a: 2 }], after: [{ a: 2 }] } });
    }
    t.match(await ask({ Delete: { ...bare, where: null, returning: ["a"] } }), {
      body: { data: [{ a: 2 }] },
    });
  },
);

overEach("changes that run beside each other are each carried out once", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const first = { column: "id", cmp: "=", value: 1 };
  const add = { Update: { ...stock, add: { count: 1 }, where: first, returning: ["count"] } };
  const upsert = (name: string) => ({
    Upsert: { ...stock, values: [{ id: 50, name }], on_conflict: ["id"], update: ["name"] },
  });
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => ask(index % 2 === 0 ? add : upsert(`${index}`))),
  );
  for (const answer of answers) t.match(answer, { status: 200, body: { affected: 1 } });
  const counts = answers.flatMap(({ body }) => body.data ?? []).map((row) => JSON.stringify(row));
  t.equal(new Set(counts).size, 10, "each saw a state of its own");
  t.match(await rowsIn(ask), [{ count: 20 }, {}, {}, { id: 50 }]);
});

overEach("a row that is there is changed or left by an Upsert", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const upsert = (values: object[], update: string[], more: object = {}) =>
    ask({ Upsert: { ...stock, values, on_conflict: ["id"], update, ...more } });
  const values = [
    { id: 1, name: "tack", count: 1 },
    { id: 8, name: "hook", count: 2 },
  ];
  t.equal(
    (await upsert(values, ["name"], { returning: ["id", "name", "count"] })).text,
    '{"status":"success","message":"Upserted 2 rows","affected":2,"data":[{"id":1,"name":"tack","count":10},{"id":8,"name":"hook","count":2}]}',
    "what update does not name stays",
  );
  t.match(
    await upsert(values, ["name"]),
    { body: { affected: 2 } },
    "rows set to what they are count",
  );
  const more = [
    { id: 8, name: "skipped" },
    { id: 9, name: "ring" },
  ];
  t.equal(
    (await upsert(more, [], { returning: ["id"] })).text,
    '{"status":"success","message":"Upserted 1 row","affected":1,"data":[{"id":9}]}',
    "a row that is left counts for nothing",
  );
  t.match(await upsert(more, []), { body: { affected: 0 } });
  const twice = [
    { id: 20, name: "one" },
    { id: 20, name: "two" },
  ];
  t.match(await upsert(twice, ["name"]), { body: { affected: 2 } });
  t.match(await upsert([{ id: null, name: "new" }], ["name"], { returning: ["id"] }), {
    body: { affected: 1, data: [{ id: 21 }] },
  });
  t.match(await rowsIn(ask), [
    { id: 1, name: "tack", count: 10 },
    { id: 2 },
    { id: 3 },
    { id: 8, name: "hook" },
    { id: 9, name: "ring" },
    { id: 20, name: "two" },
    { id: 21, name: "new" },
  ]);
});

overEach("an Upsert that nothing can decide is refused", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const upsert = {
    ...stock,
    values: [{ id: 1, name: "x" }],
    on_conflict: ["id"],
    update: ["name"],
  };
  const refusal = async (fields: object, code: string, message: RegExp) =>
    t.match(await ask({ Upsert: { ...upsert, ...fields } }), {
      status: 400,
      body: { code, message },
    });
  await refusal(
    { on_conflict: ["name"] },
    "no_unique_key",
    /primary or unique key of stock; it has \(id\)$/,
  );
  await refusal({ on_conflict: ["id", "name"] }, "no_unique_key", /it has \(id\)$/);
  await refusal({ on_conflict: ["nope"] }, "unknown_column", /"nope"/);
  await refusal({ update: ["name", "name"] }, "duplicate_column", /"name" is given twice/);
  await refusal(
    { values: [{ id: 1, name: "x" }, { id: 2 }] },
    "invalid_value",
    /^values\[1\]: Column "name" is missing/,
  );
  await refusal({ values: [{ id: 1, name: 7 }] }, "invalid_value", /^values\[0\]: Column "name" /);
  t.match(await ask({ Batch: [{ Upsert: { ...upsert, on_conflict: ["name"] } }] }), {
    body: { message: /^Batch\[0\]: on_conflict requires / },
  });
});

overEach(
  "an Upsert on a table with several unique keys is refused where it could take another one",
  async (t, freshEngine) => {
    const { ask } = await freshEngine(t);
    const people = { database: "main", table: "people" };
    const columns = [
      { name: "id", type: "serial", primary_key: true },
      { name: "email", type: "text", unique: true },
      { name: "name", type: "text" },
    ];
    await ask({ CreateTable: { ...people, columns } });
    await ask(insert("people", [{ email: "a", name: "A" }]));
    const values = [
      { email: "a", name: "B" },
      { email: "c", name: "C" },
    ];
    const upsert = {
      ...people,
      values,
      on_conflict: ["email"],
      update: ["name"],
      returning: ["email", "name"],
    };
    const answer = await ask({ Upsert: upsert });
    if (t.fullname.includes("MySQL")) {
      const message =
        /tables with a single unique key, and people has several; it has \(id\), \(email\)$/;
      t.match(answer, { status: 400, body: { code: "not_supported", message } });
    } else {
      t.match(answer, { body: { affected: 2, data: values } });
    }
  },
);

overEach("a Preview shows the rows before and after, and keeps nothing", async (t, freshEngine) => {
  const ask = await withStock(t, freshEngine);
  const there = await rowsIn(ask);
  const preview = async (operation: object) => (await ask({ Preview: operation })).text;
  const cut = (text: string) =>
    t.fullname.includes("SQLite") ? text.replaceAll("0.10", "0.1") : text;
  t.equal(
    await preview({ Update: { ...stock, add: { count: 1 }, where: byName("nail") } }),
    cut(
      '{"status":"success","affected":1,"before":[{"id":1,"name":"nail","count":10,"price":0.10}],"after":[{"id":1,"name":"nail","count":11,"price":0.10}]}',
    ),
  );
  t.equal(
    await preview({ Delete: { ...stock, where: byName("nut"), returning: ["id"] } }),
    '{"status":"success","affected":1,"before":[{"id":3}],"after":[]}',
  );
  const change = { ...stock, add: { count: 1 }, where: byName("nail"), returning: ["count", "id"] };
  t.equal(
    await preview({ Update: change }),
    '{"status":"success","affected":1,"before":[{"count":10,"id":1}],"after":[{"count":11,"id":1}]}',
    "returning names the columns that are shown",
  );
  t.match(await ask({ Preview: { Update: { ...change, returning: ["prize"] } } }), {
    status: 400,
    body: { code: "unknown_column" },
  });
  t.equal(
    await preview({ Insert: { ...stock, values: [{ id: 9, name: "pin" }] } }),
    '{"status":"success","affected":1,"before":[],"after":[{"id":9,"name":"pin","count":null,"price":null}]}',
  );
  const values = [
    { id: 7, name: "new", price: 1.5 },
    { id: 3, name: "nut", price: 2.25 },
  ];
  t.match(
    JSON.parse(
      await preview({ Upsert: { ...stock, values, on_conflict: ["id"], update: ["price"] } }),
    ),
    {
      affected: 2,
      before: [{ id: 3, price: null }],
      after: [
        { id: 7, name: "new", price: 1.5 },
        { id: 3, name: "nut", price: 2.25 },
      ],
    },
  );
  t.match(
    JSON.parse(await preview({ Upsert: { ...stock, values, on_conflict: ["id"], update: [] } })),
    {
      affected: 1,
      before: [],
      after: [{ id: 7 }],
    },
  );
  t.match(await ask({ Preview: { Insert: { ...stock, values: [{ id: 1 }] } } }), {
    status: 409,
    body: { code: "constraint_violation" },
  });
  t.match(await ask({ Preview: { Delete: { ...stock, table: "stok", where: null } } }), {
    status: 404,
  });
  t.strictSame(await rowsIn(ask), there);
});

overEach("a Preview shows a hundred rows and counts all", async (t, freshEngine) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("many", { id: "int", n: "int" }));
  const many = { database: "main", table: "many" };
  const values = Array.from({ length: 250 }, (_, id) => ({ id: 250 - id, n: 0 }));
  const sizes = (answer: Answer) => {
    const { affected, before, after } = JSON.parse(answer.text);
    return [affected, before.length, after.length, before[0]?.id, after[0]?.id];
  };
  t.strictSame(sizes(await ask({ Preview: { Insert: { ...many, values } } })), [
    250,
    0,
    100,
    undefined,
    250,
  ]);
  await ask(insert("many", values));
  t.strictSame(
    sizes(await ask({ Preview: { Update: { ...many, add: { n: 1 }, where: null } } })),
    [250, 100, 100, 1, 1],
  );
  t.strictSame(sizes(await ask({ Preview: { Delete: { ...many, where: null } } })), [
    250,
    100,
    0,
    1,
    undefined,
  ]);
  const upsert = { ...many, values, on_conflict: ["id"], update: ["n"] };
  t.strictSame(sizes(await ask({ Preview: { Upsert: upsert } })), [250, 100, 100, 250, 250]);
});
