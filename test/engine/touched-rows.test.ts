/** The digest of rows by which what was approved is told from what would be changed now. */
import type { Test } from "tap";
import { insert, query, selectAll, send } from "./kit.ts";
import { type FreshEngine, overEach } from "./over-each.ts";

const stock = { database: "main", table: "stock" };
const where = { column: "id", cmp: "<=", value: 3 };
const remove = { Delete: { ...stock, where } };
const update = { Update: { ...stock, add: { n: 1 }, where } };
const upsert = (n: number) => ({
  Upsert: { ...stock, values: [{ id: 2, n }], on_conflict: ["id"], update: ["n"] },
});
const add = { Insert: { ...stock, values: [{ id: 9, n: 0 }] } };

/** An engine with five rows, of a table with or without a key. */
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
  const ask = async (body: object, touched?: string) => {
    const limits =
      touched === undefined ? {} : { "x-gatehouse-limits": JSON.stringify([{ touched }]) };
    const headers = { "content-type": "application/json", ...limits };
    const options = { method: "POST", path: "/query", headers };
    const answer = await send(engine.address, options, JSON.stringify(body));
    return { ...JSON.parse(answer.text), status: answer.status };
  };
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
  const shown = await digestOf(update);
  await ask({ Insert: { ...stock, values: [{ id: -1, n: 0 }] } });
  t.match(await ask(update, shown), stale);
  await ask({ Delete: { ...stock, where: { column: "id", cmp: "=", value: -1 } } });
  t.match(await ask(update, shown), { status: 200, affected: 3 });
  t.match(await ask(update, shown), stale, "it was done once");
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
