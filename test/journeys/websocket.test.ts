import { readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { WebSocket } from "ws";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { putInPlace, startGateway, type TestGateway } from "../kit/gateway.ts";
import { RawUpstream } from "../kit/raw-upstream.ts";
import { tables } from "../kit/tables.ts";
import {
  type Accepted,
  acceptSockets,
  handshake,
  openSocket,
  SocketClient,
} from "../kit/web-socket.ts";
import { Wire } from "../kit/wire.ts";
import { oneWayEach, type Way } from "./losses.ts";
import { openBriefly, openStaffed, soon, succeed, tokenOf } from "./staff.ts";
import { servedBy } from "./supervised.ts";

const socketRoutes = tables("routes", [
  { path: "/public/live", access: "public", upgrade: true },
  { path: "/live", access: "authenticated", upgrade: true },
  { path: "/brief", access: "authenticated", upgrade: true, upgrade_idle_timeout: 1 },
  {
    path: "/db/:database/live",
    access: "INSERT",
    query: ["x"],
    forward_headers: ["X-Client"],
    upgrade: true,
  },
  { path: "/db/:database/plain", access: "INSERT" },
]);

function auditOf({ answer }: SocketClient, { service }: TestGateway) {
  const id = answer.headers["x-request-id"];
  return service.logged(({ audit, requestId }) => audit !== undefined && requestId === id);
}

const limits = `
response_timeout = 3
[server]
request_timeout = 3
shutdown_grace = 1
allowed_origins = ["https://app.example.com"]
`;
const names = ["carl", "dora", "emil", "fay"];
const grants = [
  "root * Owner",
  "alice main ReadOnly",
  "bob main ReadWrite",
  ...names.map((name) => `${name} main ReadWrite`),
];
const { gateway, upstream } = await openStaffed(t, grants, { config: `${limits}${socketRoutes}` });
const [root, alice, bob] = [
  await tokenOf(gateway, "root"),
  await tokenOf(gateway, "alice"),
  await tokenOf(gateway, "bob"),
];

t.test("a permitted user's WebSocket is opened with the gateway's identity headers", async (t) => {
  const accepted = acceptSockets(t, upstream, {
    headers: [
      "X-Own: kept",
      "X-Gatehouse-Decision: deny",
      "X-Gatehouse-User: eve",
      "X-Request-Id: x",
      "Access-Control-Allow-Origin: *",
      "Connection: X-Drop",
      "X-Drop: it",
    ],
    greeting: "with the agreement",
  });
  const headers = {
    Authorization: `Bearer ${bob}`,
    "X-Gatehouse-User": "root",
    X_Gatehouse_Role: "Owner",
    "X-Forwarded-For": "192.0.2.1",
    "X-Client": "kept",
    Cookie: "a=b",
    "X-WEBAUTH-USER": "root",
  };
  const client = await SocketClient.open(`${gateway.url}/db/main/live?x=1`, headers, ["chat"]);

  const { request } = accepted[0] ?? {};
  t.equal(request?.url, "/db/main/live?x=1");
  t.match(request?.headers, {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-protocol": "chat",
    "x-gatehouse-user": "bob",
    "x-gatehouse-role": "ReadWrite",
    "x-gatehouse-database": "main",
    "x-forwarded-for": "127.0.0.1",
    "x-client": "kept",
  });
  for (const name of ["authorization", "cookie", "x_gatehouse_role", "x-webauth-user"]) {
    t.notOk(request?.headers[name], name);
  }
  t.match(client.answer.headers, {
    "x-own": "kept",
    "x-gatehouse-decision": "allow",
    "sec-websocket-protocol": "chat",
    "x-request-id": request?.headers["x-request-id"],
  });
  for (const name of ["x-gatehouse-user", "access-control-allow-origin", "x-drop"]) {
    t.notOk(client.answer.headers[name], name);
  }

  await eventually("what came with the agreement", () => client.heard.length === 1);
  await client.echo("there and back");
  t.strictSame(client.heard, ["with the agreement", "there and back"]);
  t.strictSame(accepted[0]?.heard, ["there and back"]);
  const isNoted = () => gateway.service.log.some(({ audit, status }) => audit && status === 101);
  t.notOk(isNoted(), "the audit waits for the end");
  client.socket.close(4001);
  await eventually("it is closed as it was asked to be", () => client.code === 4001);
  const line = await auditOf(client, gateway);
  t.match(line, { user: "bob", method: "GET", path: "/db/main/live", decision: "allow" });
  t.match(line, { status: 101, operations: [{ operation: "INSERT", database: "main" }] });
  t.ok(Number(line.bytes) > 300, "head and messages are counted");
  t.ok(Number(line.ms) > 0);
});

t.test("a handshake without the right is refused and not forwarded", async (t) => {
  const accepted = acceptSockets(t, upstream);
  const foreign = { Origin: "https://evil.example.com" };
  const refused: [path: string, headers: Record<string, string>, status: number, code: string][] = [
    ["/live", handshake(), 401, "unauthenticated"],
    ["/live", handshake("x"), 401, "token_invalid"],
    [`/live?access_token=${bob}`, handshake(), 401, "unauthenticated"],
    ["/live", handshake(undefined, { Cookie: `token=${bob}` }), 401, "unauthenticated"],
    ["/live", handshake(undefined, { "Sec-WebSocket-Protocol": bob }), 401, "unauthenticated"],
    ["/db/main/live", handshake(alice), 403, "role_insufficient"],
    ["/db/side/live", handshake(bob), 403, "no_grant"],
    ["/db/_all/live", handshake(bob), 404, "not_found"],
    ["/db/main/live?y=1", handshake(bob), 400, "unknown_parameter"],
    ["/db/main/live", handshake(bob, foreign), 403, "origin_not_allowed"],
    ["/public/live", handshake(undefined, foreign), 403, "origin_not_allowed"],
    ["/public/live", handshake(undefined, { Origin: "null" }), 403, "origin_not_allowed"],
    ["/db/main%2f/live", handshake(bob), 400, "path_not_canonical"],
    ["/nowhere", handshake(bob), 404, "not_found"],
    ["/api/me", handshake(), 401, "unauthenticated"],
  ];
  for (const [path, headers, status, code] of refused) {
    const answer = await ask(`${gateway.url}${path}`, { headers });
    t.equal(answer.status, status, `${path}: ${code}`);
    t.match(JSON.parse(answer.body.toString()), { status: "error", code, message: String });
    t.equal(answer.headers["x-gatehouse-decision"], "deny");
    t.equal(/^Bearer /.test(answer.headers["www-authenticate"] ?? ""), status === 401);
  }
  const post = await ask(`${gateway.url}/live`, { method: "POST", headers: handshake(bob) });
  t.equal(post.status, 405);
  t.equal(accepted.length, 0);
  t.strictSame(upstream.take(), []);

  for (const origin of ["https://app.example.com", gateway.url]) {
    (await SocketClient.open(`${gateway.url}/public/live`, { Origin: origin })).cut();
  }
  t.equal(accepted.length, 2, "pages that may are let in");
});

t.test("an upstream's refusal of the handshake is returned", async (t) => {
  upstream.server.on("upgrade", (request, socket) => {
    const body = `no: ${request.url}`;
    socket.end(
      `HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nX-Gatehouse-Role: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  });
  const answer = await ask(`${gateway.url}/public/live`, { headers: handshake() });
  t.equal(answer.status, 426);
  t.equal(answer.body.toString(), "no: /public/live");
  t.match(answer.headers, { "sec-websocket-version": "13", "x-gatehouse-decision": "allow" });
  t.notOk(answer.headers["x-gatehouse-role"]);
  t.equal(answer.headers.connection, "close");
});

t.test("a route without upgrade serves a handshake as a plain request", async (t) => {
  acceptSockets(t, upstream);
  const headers = handshake(bob);
  const answer = await ask(`${gateway.url}/db/main/plain`, { headers });
  t.equal(answer.status, 200);
  t.notOk(upstream.received[0]?.headers.upgrade);
});

t.test("a slow client applies backpressure and receives every message", async (t) => {
  const accepted = acceptSockets(t, upstream);
  const client = await openSocket(`${gateway.url}/live`, bob);
  const piece = Buffer.alloc(1024 * 1024, "x");
  const sender = accepted[0]?.socket;
  client.socket.pause();
  for (let count = 0; count < 64; count++) sender?.send(piece);
  let waiting = Number.POSITIVE_INFINITY;
  await eventually("no more is taken", () => {
    const before = waiting;
    waiting = sender?.bufferedAmount ?? 0;
    return waiting === before;
  });
  t.ok(waiting > 32 * piece.length, `${waiting} bytes wait at the upstream`);
  client.socket.resume();
  await eventually("all has come", () => client.heard.length === 64);
  client.cut();
});

t.test("a WebSocket is cut when its right is lost, and others stay open", async (t) => {
  const accepted = acceptSockets(t, upstream);
  const others = [
    await openSocket(`${gateway.url}/db/main/live`, bob),
    await openSocket(`${gateway.url}/public/live`),
  ];
  t.equal(oneWayEach.length, names.length);
  const loseOne = async (way: Way, number: number) => {
    const name = names[number] ?? "";
    const token = await tokenOf(gateway, name);
    const client = await openSocket(`${gateway.url}/db/main/live`, token);
    const isItsOwn = ({ request }: Accepted) => request.headers["x-gatehouse-user"] === name;
    const upstreamSide = accepted.find(isItsOwn)?.socket;
    await way.act({ gateway, name, token, root });
    await soon(t, `cut: ${way.how}`, () => client.isClosed);
    await eventually("the upstream sees it", () => upstreamSide?.readyState === WebSocket.CLOSED);
    t.match(await auditOf(client, gateway), { status: 101, decision: "allow", reason: way.code });
  };
  await Promise.all(oneWayEach.map(loseOne));
  for (const other of others) await other.echo("still here");
});

t.test("a WebSocket outlives request timeouts, but not its token or idle timeout", async (t) => {
  const accepted = acceptSockets(t, upstream);
  const silent = await openSocket(`${gateway.url}/brief`, bob);
  const [toSilent] = accepted.map(({ socket }) => socket);
  const open = (token: string) => openSocket(`${gateway.url}/live`, token);
  const { opened: expiring, exp } = await openBriefly(gateway, open);
  // On a busy machine the upstream itself may be silent for too long: then again.
  await eventually("where the upstream speaks, there is no silence", async () => {
    const busy = await openSocket(`${gateway.url}/brief?busy`, bob);
    const toBusy = accepted.findLast(({ request }) => request.url === "/brief?busy")?.socket;
    for (let tick = 0; tick < 10 && !busy.isClosed; tick++) {
      toBusy?.send("tick");
      await delay(200);
    }
    const isOpen = !busy.isClosed;
    busy.cut();
    return isOpen;
  });

  await eventually("the silent socket is cut", () => silent.isClosed);
  await eventually("the upstream sees it", () => toSilent?.readyState === WebSocket.CLOSED);
  t.ok(Number((await auditOf(silent, gateway)).ms) > 900);
  await eventually("the token has expired", () => expiring.isClosed);
  t.ok(Date.now() / 1000 >= exp, "not before its time");
  t.match(await auditOf(expiring, gateway), { status: 101, reason: "token_expired" });
});

t.test("a drain cuts WebSockets after the grace period", async (t) => {
  acceptSockets(t, upstream);
  const finishing = await openSocket(`${gateway.url}/live`, bob);
  const staying = await openSocket(`${gateway.url}/live`, bob);
  const ended = gateway.service.stop();
  await eventually("new connections are refused", () => Wire.isRefused(gateway.url));
  await finishing.echo("in its grace");
  finishing.socket.close(4002);
  await eventually("it ends as it wants", () => finishing.code === 4002);
  await eventually("the other is cut", () => staying.code === 1006);
  t.equal(await ended, 0);
  t.match(await auditOf(staying, gateway), { status: 101 });
});

/** So many that each of two processes almost certainly has some. */
const SOCKETS = 40;

t.test("a WebSocket is cut when its route accepts none any more", async (t) => {
  acceptSockets(t, upstream);
  const config = tables("routes", [{ path: "/live/:name", access: "public" }]);
  const own = await startGateway(t, {
    upstream: upstream.url,
    config: `${config}upgrade = true\n`,
  });
  const socket = await openSocket(`${own.url}/live/a`);
  const file = path.join(own.home, "gateway.toml");
  await putInPlace(file, readFileSync(file, "utf8").replace("upgrade = true", "upgrade = false"));
  await soon(t, "the socket is cut", () => socket.isClosed);
  t.match(await auditOf(socket, own), { status: 101, reason: "not_found" });
});

t.test("a handshake with a silent upstream is 504, and 502 if it is down", async (t) => {
  const mute = await new RawUpstream(() => {}).listen();
  const timeout = "response_timeout = 1\n";
  const behind = await startGateway(t, { upstream: mute.url, config: `${timeout}${socketRoutes}` });
  const refused = async (status: number, code: string) => {
    const answer = await ask(`${behind.url}/public/live`, { headers: handshake() });
    t.equal(answer.status, status);
    t.match(JSON.parse(answer.body.toString()), { status: "error", code, message: String });
  };
  await refused(504, "upstream_timeout");
  await mute.close();
  await refused(502, "upstream_unreachable");
});

t.test("WebSockets are served and cut in every worker", async (t) => {
  const setting = await openStaffed(
    t,
    ["bob main ReadWrite"],
    servedBy(2, { config: socketRoutes }),
  );
  const { gateway } = setting;
  const accepted = acceptSockets(t, setting.upstream);
  const token = await tokenOf(gateway, "bob");
  const clients = await Promise.all(
    Array.from({ length: SOCKETS }, () => openSocket(`${gateway.url}/live`, token)),
  );
  for (const client of clients) await client.echo("here");
  t.equal(accepted.length, SOCKETS);
  await succeed(gateway.send("POST", "/logout", undefined, token));
  await soon(t, "all are cut", () => clients.every(({ isClosed }) => isClosed));
  const lines = await Promise.all(clients.map((client) => auditOf(client, gateway)));
  t.equal(new Set(lines.map(({ worker }) => worker)).size, 2, "both had some");
});
