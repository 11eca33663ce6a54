import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { ask, open as openAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { insert, select } from "../kit/queries.ts";
import { runWarm } from "../kit/warm-command.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { obtainTokens, refresh } from "../oauth/flow.ts";
import { postForm, register } from "../oauth/kit.ts";
import { refusalOf, send } from "./mcp.ts";
import { openStaffed, passwordOf, soon, staffedHome, tokenOf } from "./staff.ts";
import { connectToEach, type KeptConnection, servedBy, workerOf, workersOf } from "./supervised.ts";

const names = ["ann", "ben", "cid", "dan", "eve", "fay", "gus", "hal"];
/** Removed by manual edits; the first is enough unless the machine is busy. */
const edited = ["ivy", "jim", "kim", "lee", "mia"];
const owners = [...edited, ...names].map((name) => `${name} main Owner`);
const grants = ["root * Owner", "rita main ReadOnly", ...owners];
const COUNT = 2;
const { gateway, upstream } = await openStaffed(t, grants, {
  ...servedBy(COUNT, { server: 'trusted_proxies = ["127.0.0.1"]' }),
});
const PROCESSES = 2;
const people = ["root * Owner", "alice main ReadWrite", "bob main ReadOnly"];
const fixture = new FixtureServer();
const url = await fixture.listen(t);
const proxied = await startGateway(t, {
  home: await staffedHome(t, people),
  upstream: "http://127.0.0.1:9",
  ...servedBy(PROCESSES, { config: `[mcp]\nupstream = "${url}"\nregistrations_per_hour = 20` }),
});

const root = await tokenOf(gateway, "root");
const connections = await connectToEach(t, gateway, root, COUNT);

// Its revocation becomes permanent later; see below.
const ofIvy = await tokenOf(gateway, "ivy");
await gateway.edit((text) => text.replaceAll('username = "ivy"', 'username = "iva"'));

async function answersOfAll(token: string): Promise<(string | undefined)[]> {
  const ask = async (kept: KeptConnection) => {
    const { code, isReused } = await kept.send("POST", "/query", token, insert);
    if (!isReused) throw new Error("the connection was not kept");
    return code;
  };
  return Promise.all(connections.map(ask));
}

const all = (code: string | undefined) => connections.map(() => code);

t.test("several processes serve one port, and log lines name the worker", async (t) => {
  const workers = new Set<number>();
  for (const kept of connections) {
    const { requestId, status } = await kept.send("GET", "/api/me", root);
    t.equal(status, 200);
    workers.add(await workerOf(gateway, requestId));
  }
  t.strictSame([...workers], [1, 2]);
  const { worker, workers: count } = await gateway.service.logged(({ url }) => url !== undefined);
  t.strictSame([worker, count], [undefined, COUNT]);
});

t.test("a change is answered once each worker could read it", async (t) => {
  const [, second] = workersOf(gateway);
  const limitFiles = (soft: number) =>
    execFileSync("prlimit", ["--pid", String(second), `--nofile=${soft}:`]);
  const [first] = connections;
  const hal = await tokenOf(gateway, "hal");
  const ways = [
    () => first?.send("DELETE", "/api/access/hal/main", root, ""),
    () => first?.send("POST", "/logout", hal, "{}"),
  ];
  for (const way of ways) {
    limitFiles(5);
    const changing = way();
    const isAnswered = await Promise.race([changing?.then(() => true), delay(1500, false)]);
    t.notOk(isAnswered, "it waits for the worker that has no descriptor");
    limitFiles(1024);
    t.equal((await changing)?.status, 200);
    const refused = await answersOfAll(hal);
    t.strictSame(refused, all(way === ways[0] ? "no_grant" : "token_revoked"));
  }
});

t.test("every worker applies the roles", async (t) => {
  const rita = await tokenOf(gateway, "rita");
  const ann = await tokenOf(gateway, "ann");
  upstream.take();
  for (const kept of connections) {
    t.equal((await kept.send("POST", "/query", rita, select)).status, 200);
    t.equal((await kept.send("POST", "/query", rita, insert)).code, "role_insufficient");
    t.equal((await kept.send("POST", "/query", ann, insert)).status, 200);
    const elsewhere = insert.replace('"main"', '"side"');
    t.equal((await kept.send("POST", "/query", ann, elsewhere)).code, "no_grant");
    t.equal((await kept.send("POST", "/query", "a.b.c", insert)).code, "token_invalid");
  }
  t.equal(upstream.take().length, 2 * COUNT);
});

const passwords = { old_password: passwordOf("eve"), new_password: "an entirely new one" };
const changes: [
  what: string,
  by: "root" | "itself",
  request: string,
  code: string,
  body?: object,
][] = [
  ["a logout", "itself", "POST /logout ann", "token_revoked"],
  ["the end of all tokens", "root", "DELETE /api/users/ben/tokens ben", "token_revoked"],
  ["a user's removal", "root", "DELETE /api/users/cid cid", "user_gone"],
  ["a demotion", "root", "PUT /api/access/dan/main dan", "role_insufficient", { role: "ReadOnly" }],
  ["another password", "itself", "PUT /api/users/eve/password eve", "token_revoked", passwords],
];
for (const [what, by, request, code, body] of changes) {
  t.test(`${what} is in force in every worker once it is answered`, async (t) => {
    const [method = "", route = "", name = ""] = request.split(" ");
    const token = await tokenOf(gateway, name);
    t.strictSame(await answersOfAll(token), all(undefined));
    const done = await gateway.send(method, route, body, by === "root" ? root : token);
    t.equal(done.status, 200);
    t.strictSame(await answersOfAll(token), all(code));
  });
}

t.test("an edit of the file and a command take effect in every worker", async (t) => {
  const [gus, hal] = [await tokenOf(gateway, "gus"), await tokenOf(gateway, "hal")];
  const isRefused = (token: string) => async () =>
    (await answersOfAll(token)).every((code) => code === "token_revoked");
  await gateway.edit((text) => text.replace('username = "gus"\n', "$&disabled = true\n"));
  await soon(t, "the edit", isRefused(gus));
  await runWarm(gateway.home, ["token", "revoke", "--user", "hal"]);
  await soon(t, "the revocation", isRefused(hal));
});

t.test("failed and waiting logins are counted over all workers", async (t) => {
  const body = JSON.stringify({ username: "fay", password: "a wrong one" });
  const headers = { "Content-Type": "application/json", "X-Forwarded-For": "203.0.113.7" };
  const guess = wireRequest("POST /login", { ...headers, Connection: "close" }, body);
  const answers = await Promise.all(
    Array.from({ length: 60 }, async () => {
      const wire = await Wire.open(gateway.url);
      wire.send(guess);
      return wire.untilClosed();
    }),
  );
  const count = (pattern: RegExp) => answers.filter((answer) => pattern.test(answer)).length;
  t.equal(count(/^HTTP\/1\.1 401 /), 10);
  t.equal(count(/"too_many_attempts"|"login_busy"/), 50);
  const ids = answers.map((answer) => /^X-Request-Id: (.+)\r$/im.exec(answer)?.[1] ?? "");
  const workers = await Promise.all(ids.map((id) => workerOf(gateway, id)));
  t.equal(new Set(workers).size, COUNT, "all of them were asked");
  await runWarm(gateway.home, ["user", "enable", "fay"]);
  const right = { username: "fay", password: passwordOf("fay") };
  await soon(t, "the end of the lock", async () => {
    const init = { method: "POST", headers, body: JSON.stringify(right) };
    return (await gateway.request("/login", init)).status === 200;
  });
});

t.test("SIGHUP makes every worker reload its files", async (t) => {
  const refusals = (worker: number) =>
    gateway.service.log.filter(
      (line) => String(line.msg).startsWith("access file refused:") && line.worker === worker,
    ).length;
  const before = [1, 2].map(refusals);
  const more = (count: number) => () =>
    [1, 2].every((worker, at) => refusals(worker) >= (before[at] ?? 0) + count);
  await gateway.edit((text) => `${text}broken`);
  await gateway.service.logged(more(1));
  gateway.service.child.kill("SIGHUP");
  await gateway.service.logged(more(2));
  t.ok(more(2)());
  await gateway.edit((text) => text.replace(/broken$/, ""));
});

t.test("only one worker makes the revocations of a manual edit permanent", async (t) => {
  t.strictSame(await answersOfAll(ofIvy), all("user_gone"));
  const file = path.join(gateway.home, "revocations");
  const linesOf = (name: string) =>
    readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => line.includes(`"${name}"`)).length;
  const found: number[] = [];
  for (const name of edited) {
    if (name !== "ivy") {
      await gateway.edit((text) =>
        text.replaceAll(`username = "${name}"`, `username = "${name}a"`),
      );
    }
    await eventually("it is revoked", () => linesOf(name) > 0);
    // The second worker's turn is half a second after the first one's, which may be late.
    await delay(700);
    found.push(linesOf(name));
    if (found.includes(1)) break;
  }
  t.ok(found.includes(1), `${found}`);
});

const revision = { "mcp-protocol-version": "2025-11-25" };
/** So many new connections reach every worker almost certainly. */
const MANY = 24;

function knock(token: string, { headers, ...call }: ReturnType<typeof handshakeCall>) {
  const authorization = `Bearer ${token}`;
  const own = { ...headers, authorization, connection: "close" };
  return ask(`${proxied.url}/mcp`, { ...call, headers: own });
}

t.test("a session works for its user only, at every worker", async (t) => {
  const alice = await tokenOf(proxied, "alice");
  const bob = await tokenOf(proxied, "bob");
  const begun = await knock(alice, initialize);
  const session = { ...revision, "mcp-session-id": String(begun.headers["mcp-session-id"]) };
  const list = handshakeCall("tools/list", {}, session);
  const workers = new Set<number>();
  for (let count = 0; count < MANY || workers.size < PROCESSES; count++) {
    const { status, headers } = await knock(alice, list);
    t.equal(status, 200);
    workers.add(await workerOf(proxied, String(headers["x-request-id"])));
    t.equal((await knock(bob, list)).status, 404);
  }
  t.equal((await knock(alice, { ...list, method: "DELETE" })).status, 200);
  for (let count = 0; count < PROCESSES; count++) t.equal((await knock(alice, list)).status, 404);
});

t.test("the streams of a user are counted over all workers", async (t) => {
  const bob = await tokenOf(proxied, "bob");
  const { headers, ...call } = statelessCall("subscriptions/listen", {
    notifications: { toolsListChanged: true },
  });
  const own = { ...headers, authorization: `Bearer ${bob}` };
  const listen = () => openAnswer(`${proxied.url}/mcp`, { ...call, headers: own });
  const streams: IncomingMessage[] = [];
  t.teardown(() => {
    for (const stream of streams) stream.destroy();
  });
  while (streams.length < 100) streams.push(...(await Promise.all([listen(), listen()])));
  t.ok(streams.every(({ statusCode }) => statusCode === 200));
  t.equal((await listen()).statusCode, 429);
  for (const stream of streams.splice(0, 2)) stream.destroy();
  await eventually("there is room again", async () => {
    const again = await listen();
    again.destroy();
    return again.statusCode === 200;
  });
});

t.test("a browser login, its refresh and its end work at every worker", async (t) => {
  const tokens = await obtainTokens(proxied, { password: passwordOf("alice") });
  const list = statelessCall("tools/list");
  const again = await refresh(proxied, tokens.clientId, tokens.refreshToken);
  t.equal(again.status, 200);
  const fields = { token: String(again.body.refresh_token), client_id: tokens.clientId };
  for (let count = 0; count < MANY / 2; count++) {
    t.equal((await knock(tokens.accessToken, list)).status, 200);
  }
  t.equal((await postForm(`${proxied.url}/oauth/revoke`, fields)).status, 200);
  for (let count = 0; count < MANY / 2; count++) {
    const answer = await knock(tokens.accessToken, list);
    t.equal(refusalOf(await send(proxied, list, tokens.accessToken)), "token_revoked");
    t.equal(answer.status, 401);
  }
});

t.test("client registrations are counted over all workers", async (t) => {
  const statuses: number[] = [];
  // The app of an earlier test was the first of twenty.
  for (let count = 0; count < 22; count++) statuses.push((await register(proxied)).status);
  t.strictSame(statuses, [...Array(19).fill(201), 429, 429, 429]);
});
