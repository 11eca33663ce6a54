import t from "tap";
import { createTable, insert, selectAll } from "../kit.ts";
import { freshPostgres, sharedServer } from "./kit.ts";

function set(id: number, count: number) {
  const where = { column: "id", cmp: "=", value: id };
  return { Update: { database: "main", table: "counts", set: { count }, where } };
}

t.test("batches that get into each other's way are tried again", async (t) => {
  const { ask } = await freshPostgres(t);
  await ask(createTable("counts", { id: "int", count: "int" }));
  const ids = [1, 2, 3, 4];
  await ask(
    insert(
      "counts",
      ids.map((id) => ({ id, count: 0 })),
    ),
  );
  // In opposite orders they lock each other out, and PostgreSQL ends one of the two.
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, round) => {
      const order = round % 2 === 0 ? ids : ids.toReversed();
      return ask({ Batch: [...order.map((id) => set(id, round)), selectAll("counts")] });
    }),
  );
  const done = answers.filter(({ status }) => status === 200);
  t.ok(done.length > answers.length / 2);
  for (const { status, body } of answers) {
    if (status !== 200) t.match([status, body.code], [503, "busy"]);
  }
  for (const { body } of done) {
    const rows = JSON.stringify(body.data?.at(-1));
    t.equal(new Set(rows.match(/"count":\d+/g)).size, 1, "each saw its own writes alone");
  }
});

t.test("a deadlock is broken and both batches are carried out", async (t) => {
  const { ask, database } = await freshPostgres(t);
  const server = await sharedServer();
  await ask(createTable("counts", { id: "int", count: "int" }));
  await ask(
    insert("counts", [
      { id: 1, count: 0 },
      { id: 2, count: 0 },
    ]),
  );
  await server.sql(
    `create function main.slowly() returns trigger language plpgsql as
      $$ begin perform pg_sleep(0.2); return new; end $$;
    create trigger slowly after update on main.counts for each row execute function main.slowly()`,
    database,
  );
  const [first, second] = await Promise.all([
    ask({ Batch: [set(1, 10), set(2, 10)] }),
    ask({ Batch: [set(2, 20), set(1, 20)] }),
  ]);
  t.match([first.status, second.status], [200, 200]);
});
