import { type Answer, createTable, insert } from "./kit.ts";
import { overEach } from "./over-each.ts";
import { rowsIn, stock, withStock } from "./stock.ts";

const byName = (value: string) => ({ column: "name", cmp: "=", value });

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
