import t from "tap";
import { crossingBatches, setCount } from "../conflicts.ts";
import { createTable, insert } from "../kit.ts";
import { freshPostgres, sharedServer } from "./kit.ts";

t.test("batches that get into each other's way are tried again", async (t) => {
  const { ask } = await freshPostgres(t);
  await crossingBatches(t, ask);
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
    ask({ Batch: [setCount(1, 10), setCount(2, 10)] }),
    ask({ Batch: [setCount(2, 20), setCount(1, 20)] }),
  ]);
  t.match([first.status, second.status], [200, 200]);
});
