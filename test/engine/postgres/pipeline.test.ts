import t from "tap";
import { createTable, insert, query, selectAll } from "../kit.ts";
import { countedWay, freshPostgres, sharedServer, startOn } from "./kit.ts";

const remove = (value: number) => ({
  Delete: { database: "main", table: "users", where: { column: "id", cmp: "=", value } },
});

/** Inserts of one row each. */
const inserts = (ids: readonly number[]) => ids.map((id) => insert("users", [{ id }]));
const range = (first: number, count: number) =>
  Array.from({ length: count }, (_, at) => first + at);

/** An engine over a table, by way of what counts the round trips of a Batch. */
async function countedEngine(test: { teardown(work: () => unknown): void }) {
  const { ask, database } = await freshPostgres(test);
  await ask(createTable("users", { id: "int" }));
  const { port, count } = await countedWay(test);
  const engine = await startOn(test, `postgres://gatehouse@127.0.0.1:${port}/${database}`);
  const trips = async (Batch: readonly object[]) => {
    // The first opens a connection, and may read the catalog.
    await query(engine.address, selectAll("users"));
    const before = count();
    const { status, body } = await query(engine.address, { Batch });
    return { status, body, trips: count() - before };
  };
  return { ask, database, trips };
}

t.test("the changes of a Batch go up together, with its commit", async (t) => {
  const { trips } = await countedEngine(t);
  const cases = [
    { fewest: 1, data: 10, batchOf: (id: number) => inserts(range(id, 10)) },
    { fewest: 1, data: 3, batchOf: (id: number) => [remove(id), ...inserts([id]), remove(id)] },
    { fewest: 3, data: 250, batchOf: (id: number) => inserts(range(id, 250)) },
    // Rows may need room on the disk, which is taken before the commit.
    {
      fewest: 4,
      data: 4,
      batchOf: (id: number) => [...inserts([id, id + 1]), selectAll("users"), remove(id)],
    },
  ];
  for (const [index, { fewest, data, batchOf }] of cases.entries()) {
    const all = [];
    // A second goes by where the machine is busy, and the catalog is read again.
    for (const attempt of range(1, 5)) {
      const answer = await trips(batchOf(10_000 * index + 1000 * attempt));
      t.match(answer, { status: 200, body: { data: { length: data } } });
      all.push(answer.trips);
    }
    t.equal(Math.min(...all), fewest);
  }
});

t.test("the first element that fails is named, and nothing stays", async (t) => {
  const { ask, trips } = await countedEngine(t);
  await ask(insert("users", [{ id: 5 }]));
  const unknown = insert("users", [{ nobody: 1 }]);
  const cases = [
    { Batch: inserts(range(1, 10)), element: 4, code: "constraint_violation" },
    { Batch: [...inserts([1, 5]), unknown], element: 1, code: "constraint_violation" },
    { Batch: [...inserts([1, 2]), unknown, ...inserts([5])], element: 2, code: "unknown_column" },
    { Batch: [...inserts([5]), selectAll("nothing")], element: 0, code: "constraint_violation" },
  ];
  for (const { Batch, element, code } of cases) {
    const message = new RegExp(`^Batch\\[${element}\\]: `);
    t.match((await trips(Batch)).body, { status: "error", code, message });
    t.same((await ask(selectAll("users"))).body.data, [{ id: 5 }]);
  }
});

t.test("what fails at the commit is about no element, and nothing stays", async (t) => {
  const { ask, database, trips } = await countedEngine(t);
  const server = await sharedServer();
  await server.sql(
    "alter table main.users add constraint one unique (id) deferrable initially deferred",
    database,
  );
  await server.sql("alter table main.users drop constraint users_pkey", database);
  const { status, body } = await trips(inserts([1, 2, 1]));
  t.match({ status, body }, { status: 409, body: { message: /^Table users has such a value/ } });
  t.same((await ask(selectAll("users"))).body.data, []);
});

t.test("a table that a Batch makes is known, and known as it was once that fails", async (t) => {
  const { ask, trips } = await countedEngine(t);
  const items = createTable("items", { id: "int" });
  const rows = [1, 2].map((id) => insert("items", [{ id }]));
  t.match((await trips([items, ...rows])).status, 200);
  t.match(
    (await trips([{ DropTable: { database: "main", table: "items" } }, ...rows])).status,
    404,
  );
  t.match((await trips(rows)).status, 409);
  t.same((await ask(selectAll("items"))).body.data, [{ id: 1 }, { id: 2 }]);
});
