import { statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { SessionFile, type SessionRegister, Sessions } from "../../src/mcp/proxy/sessions.ts";
import { ask, open } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { principalOf } from "./kit.ts";
import { handshakeCall, initialize } from "./messages.ts";
import { openProxied, type ProxiedSetting } from "./proxied.ts";

const grants = { alice: { main: "ReadOnly" }, bob: { main: "ReadOnly" } } as const;
const json = "application/json, text/event-stream";

async function begin({ endpoint }: ProxiedSetting): Promise<string> {
  const answer = await ask(endpoint.url, initialize);
  const id = String(answer.headers["mcp-session-id"]);
  const headers = { "mcp-session-id": id };
  await ask(endpoint.url, {
    ...handshakeCall("notifications/initialized", {}, headers),
    body: '{"jsonrpc":"2.0","method":"notifications/initialized"}',
  });
  return id;
}

t.test("a session is for the user that began it, and for nobody else", async (t) => {
  const setting = await openProxied(t, { grants });
  const { endpoint, fixture } = setting;
  const id = await begin(setting);
  const list = handshakeCall("tools/list", {}, { "mcp-session-id": id });
  t.equal((await ask(endpoint.url, list)).status, 200);

  fixture.take();
  endpoint.principal = principalOf("bob");
  const headers = { "mcp-session-id": id, accept: json };
  t.match(await ask(endpoint.url, list), { status: 404 });
  t.match(await ask(endpoint.url, { method: "GET", headers }), { status: 404 });
  t.match(await ask(endpoint.url, { method: "DELETE", headers }), { status: 404 });
  t.same(fixture.take(), [], "nothing went up");

  endpoint.principal = principalOf("alice");
  t.equal((await ask(endpoint.url, list)).status, 200);
});

t.test("a session ends with its DELETE", async (t) => {
  const setting = await openProxied(t, { grants });
  const { endpoint, fixture } = setting;
  const headers = { "mcp-session-id": await begin(setting) };
  t.equal((await ask(endpoint.url, { method: "DELETE", headers })).status, 200);
  fixture.take();
  const answer = await ask(endpoint.url, handshakeCall("tools/list", {}, headers));
  t.equal(answer.status, 404);
  t.match(JSON.parse(answer.body.toString()), { id: 1, error: { code: -32001 } });
  t.same(fixture.take(), []);
});

t.test("the stream of a session is open as long as its client is", async (t) => {
  const setting = await openProxied(t, { grants });
  const headers = { "mcp-session-id": await begin(setting), accept: "text/event-stream" };
  const stream = await open(setting.endpoint.url, { headers });
  t.match(stream.headers, { "content-type": "text/event-stream", "x-accel-buffering": "no" });
  stream.destroy();
});

t.test("a session is in use as long as a stream of it is open", async (t) => {
  let now = 0;
  let uses = 0;
  const own = new Sessions({ most: 9, mostPerUser: 9, idle: 100 }, () => now);
  const sessions: SessionRegister = {
    open: (id, username) => own.open(id, username),
    use(id, username) {
      uses++;
      return own.use(id, username);
    },
    end: (id) => own.end(id),
  };
  const setting = await openProxied(t, { grants, sessions, sessionTouch: 5 });
  const session = { "mcp-session-id": await begin(setting) };
  const headers = { ...session, accept: "text/event-stream" };
  const stream = await open(setting.endpoint.url, { headers });
  const list = handshakeCall("tools/list", {}, session);
  for (now = 99; now < 500; now += 99) {
    const before = uses;
    await eventually("it counts as used", () => uses > before);
  }
  t.equal((await ask(setting.endpoint.url, list)).status, 200);
  stream.destroy();
});

t.test("sessions are kept in a file, under names by which nobody can use them", async (t) => {
  const file = path.join(temporaryHome(t), "mcp_sessions");
  const openFile = () => {
    const records = new SessionFile(file, (error) => t.fail(String(error)));
    const sessions = new Sessions({ most: 3, mostPerUser: 9, idle: 100 }, () => 0, records);
    return { records, sessions };
  };
  const first = openFile();
  for (const id of ["a", "b", "c", "d"]) first.sessions.open(id, "alice");
  first.sessions.end("c");
  // As after kill -9: nothing was closed.
  const { records, sessions } = openFile();
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.strictSame(
    ["a", "b", "c", "d"].map((id) => sessions.use(id, "alice")),
    [false, true, false, true],
  );
  t.notOk(sessions.use("b", "bob"));
  t.notOk(records.all().some(([key]) => key.length < 20));
  first.records.close();
  records.close();
});

t.test("sessions are forgotten when they are idle, and when there are too many", async (t) => {
  let now = 0;
  const sessions = new Sessions({ most: 3, mostPerUser: 2, idle: 100 }, () => now);
  t.ok(sessions.open("a", "alice"));
  t.notOk(sessions.open("a", "bob"), "an id that is another user's");
  t.ok(sessions.open("b", "alice"));
  t.ok(sessions.use("a", "alice"));
  t.ok(sessions.open("c", "alice"), "past a user's own bound");
  t.notOk(sessions.use("b", "alice"), "the one that was idle longest is gone");
  t.ok(sessions.open("d", "bob"));
  t.ok(sessions.open("e", "carol"), "past the bound of all");
  t.equal(sessions.size, 3);
  t.notOk(sessions.use("a", "alice"));
  now = 99;
  t.ok(sessions.use("e", "carol"));
  now = 100;
  t.notOk(sessions.use("d", "bob"));
  t.equal(sessions.size, 1);
});
