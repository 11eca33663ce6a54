import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import t from "tap";
import { openGatewaySetup } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { isTaken, residentBytes } from "../kit/process-info.ts";

const MEGABYTE = 1024 * 1024;
const { gateway } = await openGatewaySetup(t);

t.test("a body in many chunks needs no more memory than its bytes", async (t) => {
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

t.test("revoking twice within a second revokes the token in between", async (t) => {
  await gateway.addUser("bob", "ReadOnly");
  for (let round = 0; round < 2; round++) {
    const token = await gateway.login("bob", "bob password");
    t.equal((await gateway.send("DELETE", "/api/users/bob/tokens", "", token)).status, 200);
    t.equal((await gateway.get("/api/me", token)).status, 401);
  }
});

t.test("a password hash pasted into the file revokes the old tokens permanently", async (t) => {
  const token = await gateway.addUser("ben", "ReadOnly");
  const status = async () => (await gateway.get("/api/me", token)).status;
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

t.test("an unknown path is not written to the audit", async (t) => {
  await gateway.request("/login/hunter2");
  const line = await gateway.service.logged(
    ({ msg, status }) => msg === "request" && status === 404,
  );
  t.notMatch(JSON.stringify(line), "hunter2");
});
