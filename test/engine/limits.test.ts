import type { Test } from "tap";
import { createTable, insert, query, selectAll, send } from "./kit.ts";
import { type FreshEngine, overEach } from "./over-each.ts";

const stock = { database: "main", table: "stock" };

/** Asks under limits, as the gateway tells them to the engine. */
async function askWithin(address: string, limits: unknown, body: object) {
  const text = typeof limits === "string" ? limits : JSON.stringify(limits);
  const headers = {
    "content-type": "application/json",
    ...(text === undefined ? {} : { "x-gatehouse-limits": text }),
  };
  const options = { method: "POST", path: "/query", headers };
  const answer = await send(address, options, JSON.stringify(body));
  return { ...JSON.parse(answer.text), status: answer.status, text: answer.text };
}

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
  const ask = (limits: unknown, body: object) => askWithin(engine.address, limits, body);
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
    message: "More than 2 rows would be changed, which exceeds the caller's limit",
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
  const limits = [{ elements: [0], columns: ["name", "gone"] }];
  const shown = async (body: object) => (await askWithin(address, limits, { Preview: body })).text;
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

/** The digest of rows by which what was approved is told from what would be changed now. */

const upToThree = { column: "id", cmp: "<=", value: 3 };
const remove = { Delete: { ...stock, where: upToThree } };
const addOne = { Update: { ...stock, add: { n: 1 }, where: upToThree } };
const upsert = (n: number) => ({
  Upsert: { ...stock, values: [{ id: 2, n }], on_conflict: ["id"], update: ["n"] },
});
const add = { Insert: { ...stock, values: [{ id: 9, n: 0 }] } };

async function stocked(t: Test, freshEngine: FreshEngine, hasKey = true) {
  const { engine } = await freshEngine(t);
  const columns = [
    { name: "id", type: "int", ...(hasKey ? { primary_key: true } : {}) },
    { name: "n", type: "int", nullable: true },
  ];
  await query(engine.address, { CreateTable: { ...stock, columns } });
  const ids = [4, 2, 5, 1, 3];
  await query(
    engine.address,
    insert(
      "stock",
      ids.map((id) => ({ id, n: 0 })),
    ),
  );
  const ask = (body: object, touched?: string) =>
    askWithin(engine.address, touched === undefined ? undefined : [{ touched }], body);
  const digestOf = async (change: object) => {
    const { digest } = await ask({ Preview: change }, "tell");
    t.match(digest, /^[0-9a-f]{64}$/);
    return String(digest);
  };
  const count = async () => (await query(engine.address, selectAll("stock"))).body.data?.length;
  return { ask, digestOf, count };
}

const stale = { status: 409, code: "approval_stale" };

overEach(
  "a change is carried out on the rows that were shown, and on no others",
  async (t, fresh) => {
    const { ask, digestOf, count } = await stocked(t, fresh);
    const shown = await digestOf(remove);
    t.equal(await digestOf(remove), shown, "nothing of a Preview stays");
    t.match(await ask(remove, "0".repeat(64)), stale);
    const later = {
      Update: { ...stock, set: { n: 7 }, where: { column: "id", cmp: "=", value: 2 } },
    };
    await ask(later);
    t.match(await ask(remove, shown), stale, "one of them was changed");
    t.equal(await count(), 5);
    await ask({ Update: { ...stock, set: { n: 0 }, where: { column: "id", cmp: "=", value: 2 } } });
    await ask({ Update: { ...stock, set: { n: 8 }, where: { column: "id", cmp: "=", value: 5 } } });
    t.match(await ask(remove, shown), { status: 200, affected: 3 }, "others may change");
    t.equal(await count(), 2);
    t.match(await ask(remove, shown), stale, "they are gone");
  },
);

overEach("a row that is there in the meantime is touched by no change", async (t, fresh) => {
  const { ask, digestOf, count } = await stocked(t, fresh);
  const shown = await digestOf(addOne);
  await ask({ Insert: { ...stock, values: [{ id: -1, n: 0 }] } });
  t.match(await ask(addOne, shown), stale);
  await ask({ Delete: { ...stock, where: { column: "id", cmp: "=", value: -1 } } });
  t.match(await ask(addOne, shown), { status: 200, affected: 3 });
  t.match(await ask(addOne, shown), stale, "it was done once");
  t.equal(await count(), 5);
});

overEach("Insert touches no row, and Upsert those with its keys", async (t, fresh) => {
  const { ask, digestOf } = await stocked(t, fresh);
  const [added, shown] = [await digestOf(add), await digestOf(upsert(5))];
  t.not(added, shown);
  t.match(await ask(add, shown), stale);
  t.match(await ask(add, added), { status: 200 });
  t.match(await ask(upsert(5), shown), { status: 200 });
  t.match(await ask(upsert(5), shown), stale);
});

overEach(
  "rows without a key are compared in any order, each as often as it is there",
  async (t, fresh) => {
    const { ask, digestOf } = await stocked(t, fresh, false);
    const shown = await digestOf(remove);
    await ask({ Delete: { ...stock, where: { column: "id", cmp: "=", value: 1 } } });
    await ask({ Insert: { ...stock, values: [{ id: 1, n: 0 }] } });
    t.equal(await digestOf(remove), shown);
    await ask({ Insert: { ...stock, values: [{ id: 1, n: 0 }] } });
    t.match(await ask(remove, shown), stale);
  },
);

overEach("only the digest's own form is taken", async (t, fresh) => {
  const { ask } = await stocked(t, fresh);
  for (const touched of ["", "told", "A".repeat(64), "0".repeat(63)]) {
    t.match(await ask(remove, touched), { status: 400, code: "invalid_value" });
  }
  t.notMatch(await ask({ Preview: remove }), { digest: /./ });
});
