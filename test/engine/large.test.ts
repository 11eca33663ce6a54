import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import t from "tap";
import {
  createTable,
  databaseFiles,
  freshEngine,
  insert,
  query,
  selectAll,
  send,
  target,
} from "./kit.ts";

const items = createTable("items", { id: "int", text: "text" });
const filler = "x".repeat(1000);

function itemRows(count: number): object[] {
  return Array.from({ length: count }, (_, id) => ({ id, text: filler }));
}

/** Asks for everything and returns the response with nothing of its body taken yet. */
async function openSelect(address: string): Promise<IncomingMessage> {
  const headers = { "content-type": "application/json" };
  const outgoing = request({
    ...target(address),
    method: "POST",
    path: "/query",
    headers,
    agent: false,
  });
  outgoing.end(JSON.stringify(selectAll("items")));
  const [response]: IncomingMessage[] = await once(outgoing, "response");
  if (response === undefined) throw new Error("no response");
  return response;
}

t.test("one Insert takes ten thousand rows, and they come back", async (t) => {
  const { ask } = await freshEngine(t);
  await ask(items);
  t.match(await ask(insert("items", itemRows(10_000))), {
    body: { message: "Inserted 10000 rows" },
  });
  const { body, headers } = await ask(selectAll("items"));
  t.same(body.data, itemRows(10_000));
  t.ok(Number(headers["content-length"]) > 10_000_000);
});

t.test("a reader that takes its time holds up no writer and sees no change", async (t) => {
  const { ask, engine, directory } = await freshEngine(t);
  await ask(items);
  await ask(insert("items", itemRows(10_000)));
  const response = await openSelect(engine.address);
  t.match(await ask({ Delete: { database: "main", table: "items", where: null } }), {
    status: 200,
  });
  t.match(await ask({ DropTable: { database: "main", table: "items" } }), { status: 200 });
  t.same(databaseFiles(directory), ["main.sqlite", "main.sqlite-journal"]);
  t.same(JSON.parse(await text(response)).data.length, 10_000);
});

t.test("a client that goes away in the middle leaves the engine at work", async (t) => {
  const { ask, engine } = await freshEngine(t);
  await ask(items);
  await ask(insert("items", itemRows(10_000)));
  for (let round = 0; round < 20; round += 1) (await openSelect(engine.address)).destroy();
  t.equal((await ask(selectAll("items", { limit: 1 }))).status, 200);
  t.match(await ask({ DropTable: { database: "main", table: "items" } }), { status: 200 });
});

t.test("many clients at a time are all answered", async (t) => {
  const { ask } = await freshEngine(t);
  await ask(items);
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, id) =>
      id % 2 === 0 ? ask(insert("items", [{ id }])) : ask(selectAll("items")),
    ),
  );
  t.same(
    answers.map((answer) => answer.status),
    answers.map(() => 200),
  );
  t.equal((await ask(selectAll("items"))).body.data?.length, 25);
});

t.test("close lets the answer under way be read to its end", async (t) => {
  const { ask, engine } = await freshEngine(t);
  await ask(items);
  await ask(insert("items", itemRows(10_000)));
  const response = await openSelect(engine.address);
  const closed = engine.close();
  t.match(await query(engine.address, selectAll("items")), {
    status: 503,
    body: { code: "closing" },
  });
  t.equal(JSON.parse(await text(response)).data.length, 10_000);
  await closed;
  await t.rejects(send(engine.address, { path: "/healthz" }));
});
