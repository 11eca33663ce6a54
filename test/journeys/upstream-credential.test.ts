import fs, { chmodSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { loadConfiguration } from "../../src/core/config/load.ts";
import { createLog } from "../../src/core/observe/log.ts";
import { openUpstreamCredential } from "../../src/core/upstream/credential.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import {
  ADMIN_PASSWORD,
  putInPlace,
  startGateway,
  type TestGateway,
  temporaryHome,
} from "../kit/gateway.ts";
import { select } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { type ReceivedRequest, RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { acceptSockets, openSocket } from "../kit/web-socket.ts";
import { callTool } from "./mcp.ts";

const routes = tables("routes", [
  { path: "/db/:database", access: "SELECT", forward_headers: ["X-Tenant"] },
  { path: "/status", access: "public" },
]);

interface Options {
  readonly upstream?: string;
  readonly auth?: string;
  readonly config?: string;
}

/** The header with the credential `first`, in a file that can be replaced. */
async function scene(t: Test, { upstream: keys = "", auth = "", config = "" }: Options = {}) {
  const upstream = await new RecordingUpstream().listen(t);
  const home = temporaryHome(t);
  const file = path.join(home, "token");
  writeFileSync(file, "first\n", { mode: 0o600 });
  const credential = 'credential = { header = "X-Chroma-Token", file = "token" }\n';
  const gateway = await startGateway(t, {
    home,
    auth,
    config: `[upstream]\nurl = "${upstream.url}"\n${credential}${keys}${config}${routes}`,
  });
  return { gateway, upstream, file, token: await gateway.login() };
}

const forged = { "X-Chroma-Token": "forged", X_Chroma_Token: "forged", "x.chroma.token": "forged" };

async function get(gateway: TestGateway, route: string, headers: Record<string, string>) {
  return ask(`${gateway.url}${route}`, { headers });
}

function query(gateway: TestGateway, headers: Record<string, string>) {
  const all = { "Content-Type": "application/json", ...headers };
  return ask(`${gateway.url}/query`, { method: "POST", headers: all, body: select });
}

/** The values of all headers that an upstream might read as the credential. */
function valuesIn({ rawHeaders }: ReceivedRequest): string[] {
  return rawHeaders.filter((_, at) =>
    /^x[^a-z]chroma[^a-z]token$/i.test(at % 2 === 1 ? (rawHeaders[at - 1] ?? "") : ""),
  );
}

t.test("every request carries the gateway's own value, and never a client's", async (t) => {
  const { gateway, upstream, token } = await scene(t);
  const headers = { Authorization: `Bearer ${token}`, ...forged };
  const args = { database: "main", from: "t", columns: ["*"] };
  const asked: [what: string, ask: () => Promise<unknown>][] = [
    ["a query", () => query(gateway, headers)],
    ["a route", () => get(gateway, "/db/main", headers)],
    ["a public route", () => get(gateway, "/status", forged)],
    ["schema", () => get(gateway, "/schema", headers)],
    ["a tool", () => callTool(gateway, "select", args, token)],
    [
      "a query that names it in Connection",
      () => query(gateway, { ...headers, Connection: "X-Chroma-Token" }),
    ],
    [
      "a route that names it in Connection",
      () => get(gateway, "/db/main", { ...headers, Connection: "X-Chroma-Token" }),
    ],
  ];
  for (const [what, act] of asked) {
    await act();
    const received = upstream.take();
    t.ok(received.length > 0, what);
    for (const one of received) {
      t.strictSame(valuesIn(one), ["first"], what);
      t.notOk(one.headers.authorization, what);
    }
  }
});

t.test("a WebSocket and health checks carry it too", async (t) => {
  const upgrade = '[[routes]]\npath = "/live"\naccess = "authenticated"\nupgrade = true\n';
  const { gateway, upstream, token } = await scene(t, {
    upstream: 'health_path = "/alive"\n',
    config: upgrade,
  });
  await gateway.request("/readyz");
  t.strictSame(
    upstream.take().map((one) => [one.url, ...valuesIn(one)]),
    [["/alive", "first"]],
  );
  const accepted = acceptSockets(t, upstream);
  const { socket } = await openSocket(`${gateway.url}/live`, token);
  socket.terminate();
  t.strictSame(
    accepted.map(({ request }) => request.headers["x-chroma-token"]),
    ["first"],
  );
});

t.test("it is read again when its file changes, and a bad file changes nothing", async (t) => {
  const { gateway, upstream, file, token } = await scene(t);
  const headers = { Authorization: `Bearer ${token}` };
  const sent = async () => {
    await query(gateway, headers);
    return valuesIn(upstream.takeOne())[0];
  };
  t.equal(await sent(), "first");
  await putInPlace(file, "second\n");
  await eventually("the second value", async () => (await sent()) === "second");
  await putInPlace(file, "two\nlines\n");
  const isRefused = ({ msg }: { msg?: unknown }) =>
    String(msg).startsWith("the credential was refused");
  await gateway.service.logged(isRefused);
  t.equal(await sent(), "second");
  writeFileSync(file, "third");
  chmodSync(file, 0o644);
  await eventually("unsafe permissions are refused", () =>
    gateway.service.log.some(
      (line) => isRefused(line) && /safe permissions/.test(String(line.reason)),
    ),
  );
  t.equal(await sent(), "second");
  chmodSync(file, 0o600);
  await eventually("the third value", async () => (await sent()) === "third");
  const log = JSON.stringify(gateway.service.log);
  t.notMatch(log, /second|third|two/, "the log has no value");
});

t.test("a file that could not be read for a moment is read again", async (t) => {
  const home = temporaryHome(t);
  const file = path.join(home, "token");
  writeFileSync(file, "first\n", { mode: 0o600 });
  const config = path.join(home, "credential.toml");
  const keys = 'url = "http://127.0.0.1:1"\ncredential = { header = "X-Token", file = "token" }\n';
  writeFileSync(config, `[upstream]\n${keys}`);
  const load = () => loadConfiguration({ config, cwd: home, env: {} });
  const lines: string[] = [];
  const opened = new AsyncDisposableStack();
  t.teardown(() => opened.disposeAsync());
  const log = createLog({ write: (line) => void lines.push(line) });
  const credential = openUpstreamCredential(load().configuration, log, opened);

  const open = fs.openSync;
  const failing = mock.method(fs, "openSync", (...args: Parameters<typeof open>) => {
    if (args[0] !== file) return open(...args);
    throw Object.assign(new Error("too many open files"), { code: "EMFILE" });
  });
  syncBuiltinESMExports();
  t.teardown(() => {
    failing.mock.restore();
    syncBuiltinESMExports();
  });
  t.throws(load, { cause: { code: "EMFILE" } }, "so that a reload is repeated");
  await putInPlace(file, "second\n");
  await eventually("it is refused", () => lines.length > 0);
  await delay(1200);
  t.equal(lines.length, 1, "once");
  t.equal(credential?.value, "first");
  failing.mock.restore();
  syncBuiltinESMExports();
  await eventually("the second value", () => credential?.value === "second");
});

t.test("the header may also carry the client's token to the gateway", async (t) => {
  const { gateway, upstream, token } = await scene(t, {
    auth: 'accept = ["bearer", "header:x-chroma-token"]',
    upstream: "forward_authorization = true\n",
  });
  for (const act of [
    () => query(gateway, { "X-Chroma-Token": token }),
    () => get(gateway, "/db/main", { "x-chroma-token": token }),
  ]) {
    t.equal((await act()).status, 200);
    t.strictSame(valuesIn(upstream.takeOne()), ["first"]);
  }
  await query(gateway, { Authorization: `Bearer ${token}` });
  const received = upstream.takeOne();
  t.equal(received.headers.authorization, `Bearer ${token}`, "forward_authorization still counts");
  t.strictSame(valuesIn(received), ["first"]);
});

t.test("as Authorization, it replaces the client's", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "token"), "Basic b3duOm93bg==", { mode: 0o600 });
  const config = `[upstream]
url = "${upstream.url}"
credential = { header = "Authorization", file = "token" }
forward_authorization = true
${routes}`;
  const gateway = await startGateway(t, { home, config });
  const headers = { Authorization: `Bearer ${await gateway.login()}` };
  await query(gateway, headers);
  t.equal(upstream.takeOne().headers.authorization, "Basic b3duOm93bg==");
  await get(gateway, "/db/main", headers);
  t.equal(upstream.takeOne().headers.authorization, "Basic b3duOm93bg==");
});

t.test("commands that ask the upstream for its schema send it", async (t) => {
  const { gateway, upstream } = await scene(t);
  upstream.take();
  await runWarm(gateway.home, ["access", "grant", "admin", "main", "ReadOnly"]);
  const received = upstream.take();
  t.ok(received.length > 0);
  for (const one of received) t.strictSame(valuesIn(one), ["first"], one.url);
});

t.test("with several workers, each of them reads the file again", async (t) => {
  const { gateway, upstream, file } = await scene(t, { config: "[server]\nworkers = 2\n" });
  const token = await gateway.login("admin", ADMIN_PASSWORD);
  const values = async () => {
    const headers = { Authorization: `Bearer ${token}` };
    await Promise.all(Array.from({ length: 12 }, () => query(gateway, headers)));
    return new Set(upstream.take().flatMap(valuesIn));
  };
  t.strictSame([...(await values())], ["first"]);
  await putInPlace(file, "second\n");
  await eventually("every worker sends the second value", async () => {
    const seen = await values();
    return seen.size === 1 && seen.has("second");
  });
});
