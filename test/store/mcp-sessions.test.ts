import { existsSync } from "node:fs";
import path from "node:path";
import type { McpServer } from "@modelcontextprotocol/server";
import t, { type Test } from "tap";
import { hashId } from "../../src/core/base/sealed-bytes.ts";
import { sessionLimits } from "../../src/features/mcp/proxy/sessions.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { revision, send } from "../journeys/mcp.ts";
import { open } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { connectEarlier, connectStateless } from "../mcp/clients.ts";
import { FixtureServer, keepEvents } from "../mcp/fixture-server.ts";
import { handshakeCall, initialize } from "../mcp/messages.ts";
import { openOwn } from "./own-replica.ts";
import { openReplicated } from "./round-robin.ts";

const servers: McpServer[] = [];
const fixture = new FixtureServer((server) => servers.push(server), {}, keepEvents());
const upstream = await fixture.listen(t);
const policy = tables("mcp.tools", [
  { name: "test_simple_text", permission: "SELECT", database: "main" },
]);
const { store, replicas, balancer } = await openReplicated(t, {
  mcp: `upstream = "${upstream}"\n${policy}`,
  server: await sharedServer(),
});
const alice = await balancer.addUser("alice", "ReadOnly");
const bob = await balancer.addUser("bob", "ReadOnly");
const [one, two, three] = replicas as [TestGateway, TestGateway, TestGateway];

async function begin(gateway: TestGateway, token: string): Promise<string> {
  const answer = await send(gateway, initialize, token);
  return String(answer.headers.get("mcp-session-id"));
}

const listIn = (session: string) => handshakeCall("tools/list", {}, { "mcp-session-id": session });

async function checkEverywhere(t: Test, session: string, token: string, status: number) {
  for (const gateway of replicas) {
    t.equal((await send(gateway, listIn(session), token)).status, status);
  }
}

t.test("MCP clients of every revision can use another replica for each request", async (t) => {
  for (const connect of [connectEarlier, connectStateless]) {
    const client = await connect(t, `${balancer.url}/mcp`, alice);
    for (let call = 0; call < 6; call++) {
      t.match(await client.call("test_simple_text", {}), { text: /simple text/ });
    }
  }
  for (const { home } of replicas) t.notOk(existsSync(path.join(home, "mcp_sessions")));
});

t.test("a session works for its user at every replica, and for no other user", async (t) => {
  const session = await begin(one, alice);
  await checkEverywhere(t, session, alice, 200);
  fixture.take();
  await checkEverywhere(t, session, bob, 404);
  await checkEverywhere(t, "made-up", alice, 404);
  for (const method of ["GET", "DELETE"]) {
    const headers = { "mcp-session-id": session, accept: "text/event-stream" };
    t.equal((await send(two, { method, headers }, bob)).status, 404);
  }
  t.same(fixture.take(), [], "nothing was forwarded");
});

t.test("an ended session is ended at every replica", async (t) => {
  const session = await begin(one, alice);
  await checkEverywhere(t, session, alice, 200);
  const headers = { "mcp-session-id": session };
  t.equal((await send(three, { method: "DELETE", headers }, alice)).status, 200);
  await checkEverywhere(t, session, alice, 404);
});

t.test("a session outlives the replica where it began", async (t) => {
  const session = await begin(one, alice);
  const started = await store.replica(
    ...([store.url, one.home, `[server]\npublic_url = "${balancer.url}"\n`] as const),
  );
  t.equal((await send(started, listIn(session), alice)).status, 200);
  t.equal((await send(started, listIn(session), bob)).status, 404);
});

/** Opens the session's stream. `text` returns the events received so far. */
async function openStream(gateway: TestGateway, session: string, last = {}) {
  const headers = {
    authorization: `Bearer ${alice}`,
    ...revision,
    "mcp-session-id": session,
    ...last,
  };
  const answer = await open(`${gateway.url}/mcp`, {
    headers: { accept: "text/event-stream", ...headers },
  });
  const received: string[] = [];
  answer.on("error", () => {}).on("data", (piece) => received.push(String(piece)));
  return { answer, text: () => received.join("") };
}

t.test("a stream that broke off with its replica resumes at another", async (t) => {
  const more = `[server]\npublic_url = "${balancer.url}"\n`;
  const fourth = await store.replica(store.url, store.makeHome(), more);
  const session = await begin(fourth, alice);
  const server = servers.at(-1);
  const broken = await openStream(fourth, session);
  await server?.sendLoggingMessage({ level: "error", data: "first" });
  await eventually("it comes", () => broken.text().includes("first"));
  await fourth.service.stop("SIGKILL");
  await eventually("it broke off", () => broken.answer.destroyed);
  await server?.sendLoggingMessage({ level: "error", data: "second" });

  const last = { "last-event-id": /^id: (\d+)$/m.exec(broken.text())?.[1] ?? "" };
  const theirs = { headers: { "mcp-session-id": session, ...last }, method: "GET" };
  t.equal((await send(two, theirs, bob)).status, 404, "not for another user");
  const resumed = await openStream(two, session, last);
  await eventually("what was missed comes", () => resumed.text().includes("second"));
  await server?.sendLoggingMessage({ level: "error", data: "third" });
  await eventually("and what follows", () => resumed.text().includes("third"));
  t.notMatch(resumed.text(), "first");
  resumed.answer.destroy();
});

t.test("the store does not reveal session ids", async (t) => {
  const session = await begin(two, alice);
  const rows = JSON.stringify(await store.sql("select * from gatehouse.mcp_sessions"));
  t.match(rows, "alice");
  t.notMatch(rows, session);
});

t.test("a replica whose thread was blocked asks the store before it gives up", async (t) => {
  const { replica, sessions } = await openOwn(t, store);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500);
  t.ok(replica.leaseAge > 2000);
  t.ok(await sessions.open("after a pause", "alice"));
});

t.test("idle sessions expire, and the oldest one makes room for a new one", async (t) => {
  const { sessions } = await openOwn(t, store);
  const { sessions: others } = await openOwn(t, store);
  t.ok(await sessions.open("idle", "alice"));
  await store.sql("update gatehouse.mcp_sessions set used = used - interval '1 hour'");
  t.notOk(await others.use("idle", "alice"));
  await store.sql(
    `insert into gatehouse.mcp_sessions select 'k' || n, 'session', 'carol',
      clock_timestamp() - n * interval '1 second' from generate_series(1, ${sessionLimits.perUser}) n`,
  );
  t.ok(await sessions.open("s1", "carol"));
  const kept = await store.sql("select key from gatehouse.mcp_sessions where username = 'carol'");
  t.equal(kept.length, sessionLimits.perUser);
  t.notOk(
    kept.some(({ key }) => key === `k${sessionLimits.perUser}`),
    "the oldest made room",
  );
  t.ok(await others.use("s1", "carol"));
  t.notOk(await sessions.open("s1", "dave"), "of another user");
  t.notOk(await others.use("\ns1", "carol"), "a task is no session");
  sessions.end("s1");
  await eventually("it is forgotten", async () => {
    const key = hashId("s1");
    const rows = await store.sql(`select from gatehouse.mcp_sessions where key = '${key}'`);
    return rows.length === 0;
  });
});
