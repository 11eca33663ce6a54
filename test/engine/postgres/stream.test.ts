import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import t from "tap";
import { residentBytes } from "../../kit/process-info.ts";
import { query, selectAll, target } from "../kit.ts";
import { sharedServer } from "./kit.ts";
import { startService } from "./service.ts";

const rowCount = 100_000;
const megabyte = 1024 * 1024;

/** Starts an engine over `main` with a table of 100,000 rows, 100 megabytes as an answer. */
async function scene(t: Test) {
  const server = await sharedServer();
  const database = await server.createDatabase();
  await server.sql(
    `create schema main;
    create table main.items (id bigint primary key, text text not null);
    insert into main.items select id, repeat('x', 1000) from generate_series(1, ${rowCount}) as id`,
    database,
  );
  const { service, address } = await startService(t, server.url(database));
  await query(address, selectAll("items", { limit: 1 }));
  return { server, database, address, pid: service.child.pid ?? 0 };
}
type Test = { teardown(work: () => unknown): void };

async function open(address: string): Promise<IncomingMessage> {
  const headers = { "content-type": "application/json" };
  const options = { ...target(address), method: "POST", path: "/query", headers, agent: false };
  const outgoing = request(options).end(JSON.stringify(selectAll("items")));
  const [response]: IncomingMessage[] = await once(outgoing, "response");
  if (response === undefined) throw new Error("no response");
  return response;
}

t.test("an answer of 100,000 rows takes little memory and holds no connection", async (t) => {
  const { server, database, address, pid } = await scene(t);
  const before = residentBytes(pid);
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, residentBytes(pid));
  }, 5);
  t.teardown(() => clearInterval(timer));
  const responses = await Promise.all(Array.from({ length: 4 }, () => open(address)));
  // Nobody has read a byte, and the database is done with them all.
  const busy = `select 1 from pg_stat_activity where datname = '${database}' and state <> 'idle' and pid <> pg_backend_pid()`;
  t.same(await server.sql(busy, database), []);
  for (const response of responses) {
    let length = 0;
    let ids = 0;
    for await (const chunk of response) {
      length += chunk.length;
      ids += String(chunk).split(`"id"`).length - 1;
    }
    t.equal(length, Number(response.headers["content-length"]));
    t.ok(ids > rowCount * 0.99, "a key may lie across two chunks");
  }
  clearInterval(timer);
  t.ok(most - before < 200 * megabyte, `it took ${Math.round((most - before) / megabyte)} MB`);
});
