import { createTable, equal, insert, remove, selectAll, send, update } from "./kit.ts";
import { overEach, overSqlite, type Scene } from "./over-each.ts";

const stock = { database: "main", table: "stock" };

/** Sends a query with limits as the gateway does. */
async function askWithin({ address }: Scene["engine"], limits: unknown, body: object) {
  const text = typeof limits === "string" ? limits : JSON.stringify(limits);
  const headers = {
    "content-type": "application/json",
    ...(text === undefined ? {} : { "x-test-limits": text }),
  };
  const options = { method: "POST", path: "/query", headers };
  const answer = await send(address, options, JSON.stringify(body));
  return { ...JSON.parse(answer.text), status: answer.status, text: answer.text };
}

/** Creates `stock` with five rows, with or without a primary key. */
async function stocked({ engine, ask }: Scene, hasKey = true) {
  const columns = [
    { name: "id", type: "int", ...(hasKey ? { primary_key: true } : {}) },
    { name: "n", type: "int", nullable: true },
  ];
  await ask(createTable("stock", columns));
  const values = [4, 2, 5, 1, 3].map((id) => ({ id, n: 0 }));
  await ask(insert("stock", values));
  const rows = async () => (await ask(selectAll("stock"))).body.data ?? [];
  return {
    ask: (limits: unknown, body: object) => askWithin(engine, limits, body),
    changed: async () =>
      (await rows()).filter((row) => JSON.stringify(row).includes('"n":1')).length,
    count: async () => (await rows()).length,
    /** Sends a change that is bound to a digest. */
    approved: (body: object, touched: string) => askWithin(engine, [{ touched }], body),
    digestOf: async (change: object) => {
      const { digest } = await askWithin(engine, [{ touched: "tell" }], { Preview: change });
      return String(digest);
    },
  };
}

const upTo = (id: number) => ({ column: "id", cmp: "<=", value: id });
const setOne = (id: number, more = {}) => ({
  Update: { ...stock, set: { n: 1 }, where: upTo(id), ...more },
});
const tooMany = (what: string) => ({ status: 409, code: `too_many_${what}` });

overEach("a change that affects too many rows is rolled back", async (t, scene) => {
  const { ask, changed } = await stocked(scene);
  t.match(await ask([{ changes: 2 }], setOne(3)), {
    ...tooMany("changes"),
    message: "More than 2 rows would be changed, which exceeds the caller's limit",
  });
  t.match(await ask([{ changes: 1 }], setOne(2)), { message: /^More than 1 row would be changed/ });
  t.equal(await changed(), 0);
  t.match(await ask([{ changes: 3 }], setOne(3)), { status: 200 });
  t.equal(await changed(), 3);
  t.match(await ask([{ changes: 1 }], { Preview: remove("stock") }), tooMany("changes"));
});

overSqlite("a change that returns too many rows is rolled back", async (t, scene) => {
  const { ask, changed } = await stocked(scene);
  t.match(await ask([{ rows: 1 }], setOne(2, { returning: ["id"] })), tooMany("rows"));
  t.equal(await changed(), 0);
  t.match(await ask([{ rows: 1 }], setOne(2)), { status: 200 }, "no row is returned");
  t.match(await ask([{ rows: 4 }], { Preview: remove("stock") }), tooMany("rows"));
  t.match(await ask([{ rows: 5 }], { Preview: remove("stock") }), { status: 200 });
});

overSqlite("the elements of a Batch count together", async (t, scene) => {
  const { ask, changed } = await stocked(scene);
  const batch = { Batch: [setOne(1), setOne(2), setOne(3)] };
  const message = /^Batch\[2\]: /;
  t.match(await ask([{ changes: 5 }], batch), { ...tooMany("changes"), message });
  t.equal(await changed(), 0);
  t.match(await ask([{ elements: [0, 1], changes: 3 }], batch), { status: 200 });
});

overSqlite("a Preview shows only the allowed columns", async (t, { engine, ask }) => {
  await ask(createTable("stock", { id: "int", name: "text", salary: "int" }));
  const values = [1, 2].map((id) => ({ id, name: "x", salary: 100 + id }));
  await ask(insert("stock", values));
  const limits = [{ elements: [0], columns: ["name", "gone"] }];
  const preview = async (body: object) => (await askWithin(engine, limits, { Preview: body })).text;
  const row = '{"name":"x"}';
  const both = `"before":[${row},${row}]`;
  t.match(await preview(remove("stock")), both);
  t.match(await preview(update("stock", { name: "y" })), `${both},"after":[{"name":"y"}`);
  t.match(await preview(insert("stock", [{ id: 3, name: "x" }])), `"after":[${row}]`);
  const rows = [1, 2].map((id) => ({ id, name: "z" }));
  const upsert = { ...stock, values: rows, on_conflict: ["id"], update: ["name"] };
  t.match(await preview({ Upsert: upsert }), both);
});

overSqlite("an approver's Preview shows the columns that bind reads", async (t, scene) => {
  const { ask } = await stocked(scene);
  const bind = { n: { element: 0, column: "n" } };
  const added = { Insert: { ...stock, values: [{ id: 9 }], bind } };
  const Batch = [setOne(1, { returning: ["id"] }), added];
  const { text } = await ask([{ touched: "tell" }], { Preview: { Batch } });
  t.match(text, '"before":[{"id":1,"n":0}],"after":[{"id":1,"n":1}]}');
});

/** An approved change is bound to the digest of the rows that it would affect. */

const removeThree = remove("stock", upTo(3));
const addOne = { Update: { ...stock, add: { n: 1 }, where: upTo(3) } };
const upsert = {
  Upsert: { ...stock, values: [{ id: 2, n: 5 }], on_conflict: ["id"], update: ["n"] },
};
const stale = { status: 409, code: "approval_stale" };

overEach("a change runs only on the rows that were approved", async (t, scene) => {
  const { approved, digestOf, count } = await stocked(scene);
  const { ask } = scene;
  const digest = await digestOf(removeThree);
  t.match(digest, /^[0-9a-f]{64}$/);
  t.equal(await digestOf(removeThree), digest, "a Preview changes nothing");
  t.match(await approved(removeThree, "0".repeat(64)), stale);
  await ask(update("stock", { n: 7 }, equal("id", 2)));
  t.match(await approved(removeThree, digest), stale, "one of them was changed");
  t.equal(await count(), 5);
  await ask(update("stock", { n: 0 }, equal("id", 2)));
  await ask(update("stock", { n: 8 }, equal("id", 5)));
  t.match(await approved(removeThree, digest), { status: 200, affected: 3 }, "others may change");
  t.equal(await count(), 2);
  t.match(await approved(removeThree, digest), stale, "they are gone");
});

overEach("a row that was added after the approval is not changed", async (t, scene) => {
  const { approved, digestOf, count } = await stocked(scene);
  const digest = await digestOf(addOne);
  await scene.ask(insert("stock", [{ id: -1, n: 0 }]));
  t.match(await approved(addOne, digest), stale);
  await scene.ask(remove("stock", equal("id", -1)));
  t.match(await approved(addOne, digest), { status: 200, affected: 3 });
  t.match(await approved(addOne, digest), stale, "it ran once");
  t.equal(await count(), 5);
});

overEach(
  "an Insert affects no existing row, and an Upsert those with its keys",
  async (t, scene) => {
    const { approved, digestOf } = await stocked(scene);
    const add = insert("stock", [{ id: 9, n: 0 }]);
    const [added, digest] = [await digestOf(add), await digestOf(upsert)];
    t.not(added, digest);
    t.match(await approved(add, digest), stale);
    t.match(await approved(add, added), { status: 200 });
    t.match(await approved(upsert, digest), { status: 200 });
    t.match(await approved(upsert, digest), stale);
  },
);

overEach("rows without a key are compared in any order, with repeats", async (t, scene) => {
  const { approved, digestOf } = await stocked(scene, false);
  const digest = await digestOf(removeThree);
  await scene.ask(remove("stock", equal("id", 1)));
  await scene.ask(insert("stock", [{ id: 1, n: 0 }]));
  t.equal(await digestOf(removeThree), digest);
  await scene.ask(insert("stock", [{ id: 1, n: 0 }]));
  t.match(await approved(removeThree, digest), stale);
});
