import { createTable, insert } from "./kit.ts";
import { overEach } from "./over-each.ts";
import { rowsIn, stock, withStock } from "./stock.ts";

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
      message: 'Column "count" stands in set and in add; allowed: in one of them',
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
