import { insert } from "./kit.ts";
import { overEach } from "./over-each.ts";
import { rowsIn, stock, withStock } from "./stock.ts";

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
    /^values\[1\]: Column "name" is left out/,
  );
  await refusal({ values: [{ id: 1, name: 7 }] }, "invalid_value", /^values\[0\]: Column "name" /);
  t.match(await ask({ Batch: [{ Upsert: { ...upsert, on_conflict: ["name"] } }] }), {
    body: { message: /^Batch\[0\]: on_conflict takes / },
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
      const message = /tables with one unique key alone, and of people it has \(id\), \(email\)$/;
      t.match(answer, { status: 400, body: { code: "not_supported", message } });
    } else {
      t.match(answer, { body: { affected: 2, data: values } });
    }
  },
);
