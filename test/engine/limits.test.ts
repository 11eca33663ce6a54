import type { Test } from "tap";
import { createTable, insert, query, selectAll, send } from "./kit.ts";
import { type FreshEngine, overEach } from "./over-each.ts";

const stock = { database: "main", table: "stock" };

/** An engine with five rows, and the way to ask it under limits. */
async function limited(t: Test, freshEngine: FreshEngine) {
  const { engine } = await freshEngine(t);
  await query(engine.address, createTable("stock", { id: "int", n: "int" }));
  await query(
    engine.address,
    insert(
      "stock",
      [1, 2, 3, 4, 5].map((id) => ({ id, n: 0 })),
    ),
  );
  const ask = async (limits: unknown, body: object) => {
    const text = typeof limits === "string" ? limits : JSON.stringify(limits);
    const headers = { "content-type": "application/json", "x-gatehouse-limits": text };
    const options = { method: "POST", path: "/query", headers };
    const { status, body: answer } = await send(engine.address, options, JSON.stringify(body));
    return { status, code: answer.code, message: answer.message };
  };
  const changed = async () => {
    const { body } = await query(engine.address, selectAll("stock"));
    return body.data?.filter((row) => JSON.stringify(row).includes('"n":1')).length;
  };
  return { ask, changed };
}

const where = (id: number) => ({ column: "id", cmp: "<=", value: id });
const update = (id: number, more = {}) => ({
  Update: { ...stock, set: { n: 1 }, where: where(id), ...more },
});

overEach("a change that touches more rows than it may is taken back", async (t, freshEngine) => {
  const { ask, changed } = await limited(t, freshEngine);
  t.match(await ask([{ changes: 2 }], update(3)), {
    status: 409,
    code: "too_many_changes",
    message: "More than 2 rows would be changed",
  });
  t.match(await ask([{ changes: 1 }], update(2)), { message: /^More than 1 row would be changed/ });
  t.equal(await changed(), 0);
  t.match(await ask([{ changes: 3 }], update(3)), { status: 200 });
  t.equal(await changed(), 3);
  t.match(await ask([{ changes: 1 }], { Preview: { Delete: { ...stock, where: null } } }), {
    status: 409,
    code: "too_many_changes",
  });
});

overEach("a change that answers more rows than it may is taken back", async (t, freshEngine) => {
  const { ask, changed } = await limited(t, freshEngine);
  t.match(await ask([{ rows: 1 }], update(2, { returning: ["id"] })), {
    status: 409,
    code: "too_many_rows",
  });
  t.equal(await changed(), 0);
  t.match(await ask([{ rows: 1 }], update(2)), { status: 200 }, "nothing is answered");
  t.match(await ask([{ rows: 4 }], { Preview: { Delete: { ...stock, where: null } } }), {
    status: 409,
    code: "too_many_rows",
  });
  t.match(await ask([{ rows: 5 }], { Preview: { Delete: { ...stock, where: null } } }), {
    status: 200,
  });
});

overEach("the elements of a Batch count together", async (t, freshEngine) => {
  const { ask, changed } = await limited(t, freshEngine);
  const batch = { Batch: [update(1), update(2), update(3)] };
  t.match(await ask([{ changes: 5 }], batch), {
    status: 409,
    code: "too_many_changes",
    message: /^Batch\[2\]: /,
  });
  t.equal(await changed(), 0);
  t.match(await ask([{ elements: [0, 1], changes: 3 }], batch), { status: 200 });
});

const badBytewise = [
  '[{"database":"main","table":"stock"}]',
  '[{"database":"main","table":"stock","bytewise":[],"written":[{"column":"n","cmp":"LIKE","value":"a"}]}]',
  '[{"database":"main","table":"stock","bytewise":[],"changes":1}]',
];

overEach("limits that are not of their form are refused", async (t, freshEngine) => {
  const { ask, changed } = await limited(t, freshEngine);
  for (const limits of ["", "{}", '[{"changes":-1}]', '[{"change":1}]', "[1", ...badBytewise]) {
    t.match(await ask(limits, update(1)), { status: 400, code: "invalid_value" }, limits);
  }
  t.equal(await changed(), 0);
});

overEach("a Preview shows the columns alone that it may", async (t, freshEngine) => {
  const { engine } = await freshEngine(t);
  const address = engine.address;
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "name", type: "text" },
    { name: "salary", type: "int" },
  ];
  await query(address, { CreateTable: { ...stock, columns } });
  const values = [1, 2].map((id) => ({ id, name: "x", salary: 100 + id }));
  await query(address, insert("stock", values));
  const shown = async (body: object) => {
    const headers = {
      "content-type": "application/json",
      "x-gatehouse-limits": JSON.stringify([{ elements: [0], columns: ["name", "gone"] }]),
    };
    const options = { method: "POST", path: "/query", headers };
    return (await send(address, options, JSON.stringify({ Preview: body }))).text;
  };
  const where = null;
  const row = '{"name":"x"}';
  const both = `"before":[${row},${row}]`;
  t.match(await shown({ Delete: { ...stock, where } }), both);
  t.match(
    await shown({ Update: { ...stock, set: { name: "y" }, where } }),
    `${both},"after":[{"name":"y"}`,
  );
  t.match(
    await shown({ Insert: { ...stock, values: [{ id: 3, name: "x" }] } }),
    `"after":[${row}]`,
  );
  const upsert = {
    ...stock,
    values: [
      { id: 1, name: "z" },
      { id: 2, name: "z" },
    ],
    on_conflict: ["id"],
    update: ["name"],
  };
  t.match(await shown({ Upsert: upsert }), both);
});
