import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import t from "tap";
import { openSetting } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { isTaken, residentBytes } from "../kit/process-info.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

const MEGABYTE = 1024 * 1024;
const { gateway } = await openSetting(t);

t.test("a body in a hundred thousand pieces costs no more memory than its bytes", async (t) => {
  const { hostname, port } = new URL(gateway.url);
  const before = residentBytes(gateway.service.child.pid ?? 0);
  const head = "POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  const pieces = "1\r\n \r\n".repeat(10_000);
  const sockets = Array.from({ length: 40 }, () => connect(Number(port), hostname));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  for (const socket of sockets) {
    await once(socket, "connect");
    socket.on("error", () => {});
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n${pieces}`);
  }
  await eventually("all is read", () => sockets.every(isTaken));
  const grown = residentBytes(gateway.service.child.pid ?? 0) - before;
  t.ok(grown < 60 * MEGABYTE, `${Math.round(grown / MEGABYTE)} MB for 400 KB of body`);
  t.equal((await gateway.request("/healthz")).status, 200);
});

t.test("who holds no entry of its own brings no database into the file", async (t) => {
  const eve = await gateway.addUser("eve", "ReadWrite", "*");
  const answer = await gateway.send("PUT", "/api/access/eve/PROD", { role: "ReadOnly" }, eve);
  t.equal(answer.status, 403);
});

t.test("only an administrator removes a disabled user", async (t) => {
  const mallory = await gateway.addUser("mallory", "DbAdmin");
  await gateway.addUser("carol", "ReadOnly");
  const admin = await gateway.login();
  await gateway.send("PATCH", "/api/users/carol", { disabled: true }, admin);
  t.equal((await gateway.send("DELETE", "/api/users/carol", "", mallory)).status, 403);
  t.equal((await gateway.send("DELETE", "/api/users/carol", "", admin)).status, 200);
});

t.test("the header that names the database goes up as it was judged", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const route = 'path = "/stats"\naccess = "SELECT"\ndatabase_header = "X-Database"';
  const gateway = await startGateway(t, {
    upstream: upstream.url,
    config: `[[routes]]\n${route}\n`,
  });
  const token = await gateway.addUser("bob", "ReadOnly", "bobdb");
  const authorization = `Bearer ${token}`;
  const odd = { authorization, "x-database": "bobdb", x_database: "secret" };
  t.equal((await gateway.request("/stats", { headers: odd })).status, 200);
  const [received] = upstream.take();
  t.equal(received?.headers["x-database"], "bobdb");
  t.equal(received?.headers.x_database, undefined);

  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname);
  socket.write(
    `GET /stats HTTP/1.1\r\nHost: x\r\nAuthorization: ${authorization}\r\nX-Database: bobdb\r\nConnection: close, X-Database\r\n\r\n`,
  );
  socket.resume();
  await once(socket, "close");
  t.equal(upstream.take()[0]?.headers["x-database"], "bobdb", "also as a header of the connection");

  const missing = await gateway.request("/stats", { headers: { authorization } });
  t.equal(missing.status, 400);
  t.match(missing.body.message, /header X-Database must name a database/);
});

t.test("an upstream that switches protocols unasked is answered for with 502", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = (_request, response) => {
    response.socket?.end(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    );
  };
  const gateway = await startGateway(t, {
    upstream: upstream.url,
    config: '[[routes]]\npath = "/s"\naccess = "public"\n',
  });
  t.equal((await gateway.request("/s")).status, 502);
});

t.test("revoking twice in a second ends the token in between", async (t) => {
  await gateway.addUser("bob", "ReadOnly");
  for (let round = 0; round < 2; round++) {
    const token = await gateway.login("bob", "bob password");
    t.equal((await gateway.send("DELETE", "/api/users/bob/tokens", "", token)).status, 200);
    t.equal(
      (await gateway.request("/api/me", { headers: { authorization: `Bearer ${token}` } })).status,
      401,
    );
  }
});

t.test("a password pasted into the file ends the old tokens for good", async (t) => {
  const token = await gateway.addUser("ben", "ReadOnly");
  const headers = { authorization: `Bearer ${token}` };
  const status = async () => (await gateway.request("/api/me", { headers })).status;
  const revocations = path.join(gateway.home, "revocations");
  const reloads = () =>
    gateway.service.log.filter(({ msg }) => msg === "access file reloaded").length;
  let original = "";
  await gateway.edit((text) => {
    original = text;
    const [, hashOfAdmin = ""] = /password_hash = "([^"]+)"/.exec(text) ?? [];
    return text.replace(/(username = "ben"\n.*?password_hash = ")[^"]+/s, `$1${hashOfAdmin}`);
  });
  await eventually("it is refused", async () => (await status()) === 401);
  const isLasting = () =>
    existsSync(revocations) && readFileSync(revocations, "utf8").includes('"ben"');
  await eventually("the edit counts as meant", isLasting);
  const before = reloads();
  await gateway.edit(() => original);
  await eventually("the old file is in force", () => reloads() > before);
  t.equal(await status(), 401, "the old file revives nothing");
});

t.test("a path that is none of the gateway's is not written into the audit", async (t) => {
  await gateway.request("/login/hunter2");
  const line = await gateway.service.logged(
    ({ msg, status }) => msg === "request" && status === 404,
  );
  t.notMatch(JSON.stringify(line), "hunter2");
});
