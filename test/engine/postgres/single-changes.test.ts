import t from "tap";
import { insert, query, selectAll } from "../kit.ts";
import { freshPostgres, sharedServer, startOn } from "./kit.ts";

/** A table whose defaults show the settings that a change runs with. */
const tables = `
  create table main.found (id int primary key,
    isolation text default current_setting('transaction_isolation'),
    zone text default current_setting('timezone'),
    time_limit text default current_setting('statement_timeout'))`;

for (const own of ["read committed", "serializable"]) {
  t.test(`a single change finds the same settings on a server that is ${own}`, async (t) => {
    const { ask, database } = await freshPostgres(t);
    const server = await sharedServer();
    await server.sql(tables, database);
    await server.sql(`alter database ${database} set default_transaction_isolation = '${own}'`);
    await server.sql(`alter database ${database} set timezone = 'Asia/Tokyo'`);
    const { address } = await startOn(t, server.url(database), { queryTimeLimit: 7000 });
    const ids = [1, 2];
    for (const id of ids) {
      t.match(await query(address, insert("found", [{ id }])), { status: 200 });
    }
    const found = { isolation: "read committed", zone: "UTC", time_limit: "7s" };
    const rows = ids.map((id) => ({ id, ...found }));
    t.same((await ask(selectAll("found", { order_by: { column: "id" } }))).body.data, rows);
  });
}

t.test("a single change that fails, at once or at its end, leaves nothing", async (t) => {
  const { ask, database } = await freshPostgres(t);
  const server = await sharedServer();
  const words = "id int primary key, code int unique deferrable initially deferred";
  await server.sql(`create table main.items (${words})`, database);
  t.match(await ask(insert("items", [{ id: 1, code: 1 }])), { status: 200 });
  for (const values of [
    { id: 1, code: 2 },
    { id: 2, code: 1 },
  ]) {
    t.match(await ask(insert("items", [values])), { status: 409 });
    t.same((await ask(selectAll("items"))).body.data, [{ id: 1, code: 1 }]);
  }
  const where = { column: "id", cmp: "=", value: 1 };
  const update = { Update: { database: "main", table: "items", set: { code: 3 }, where } };
  t.match(await ask(update), { status: 200, body: { affected: 1 } });
  t.same((await ask(selectAll("items"))).body.data, [{ id: 1, code: 3 }]);
});
