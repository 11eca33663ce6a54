import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import { grant, user } from "../access/kit.ts";
import { checkRefusal, openGatewaySetup } from "../gateway/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { Service } from "../kit/process.ts";
import { isTaken, residentBytes } from "../kit/process-info.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { insertRefusal, openStaffed, succeed, tokenOf } from "./staff.ts";

/**
 * Injects faults: a body with "boom" cannot be copied, and SIGUSR2 makes a timer throw, a promise
 * reject, and a socket emit an error without a listener.
 */
const faults = `
import { Socket } from "node:net";
const { copy } = Buffer.prototype;
Buffer.prototype.copy = function (...rest) {
  if (this.includes("boom")) throw new TypeError(this.toString());
  return copy.apply(this, rest);
};
process.on("SIGUSR2", () => {
  setTimeout(function strayError() { throw new Error("a private row"); });
  (async function forgottenPromise() { throw new Error("a private row"); })();
  setTimeout(() => { throw "a private row"; });
  setTimeout(function straySocket() { new Socket().emit("error", new Error("a private row")); });
});
`;

async function faultyGateway(): Promise<TestGateway> {
  const upstream = await new RecordingUpstream().listen(t);
  const preload = `data:text/javascript;base64,${btoa(faults)}`;
  const env = { NODE_OPTIONS: `--import=${preload}` };
  return startGateway(t, { upstream: upstream.url, env });
}

const MEGABYTE = 1024 * 1024;
const gateway = await faultyGateway();
const token = await gateway.login();

t.test("an unexpected error in a request is answered with 500 and logged", async (t) => {
  const body = insert.replace('"id":1', '"boom":"a private row"');
  // In chunks, since a body of known length may arrive in one piece and is not copied.
  const answer = await gateway.request("/query", {
    method: "POST",
    headers: queryHeaders(token),
    body: new Blob([body]).stream(),
    duplex: "half",
  });
  checkRefusal(t, answer, { status: 500, code: "internal_error", message: "Internal error" });
  t.notMatch(answer.text, /private|TypeError|\.ts/);
  const { requestId, err } = await gateway.service.logged(({ msg }) => msg === "unexpected error");
  t.equal(requestId, answer.headers.get("x-request-id"));
  t.match(err, { type: "TypeError", stack: /at .*http.body\.ts/s });
  t.notMatch(gateway.service.output, token);
  t.notMatch(gateway.service.output, "a private row");
  t.equal((await gateway.query(select, token)).status, 200);
});

t.test("uncaught errors are logged and the gateway continues", async (t) => {
  const kept = await Wire.open(gateway.url, t);
  const request = wireRequest("POST /query", queryHeaders(token), select);
  kept.send(request);
  await kept.until(/"success"/);
  gateway.service.child.kill("SIGUSR2");
  const caught = () => gateway.service.log.filter(({ msg }) => msg === "uncaught error");
  await eventually("all four are logged", () => caught().length === 4);
  const errors = caught().map(({ err }) => JSON.stringify(err));
  for (const text of ["strayError", "forgottenPromise", "straySocket", '"type":"string"']) {
    t.equal(errors.filter((error) => error.includes(text)).length, 1, text);
  }
  t.notMatch(gateway.service.output, "a private row");
  kept.send(request);
  await kept.until(/"success".*"success"/s);
  t.equal((await gateway.request("/readyz")).status, 200);
  t.equal(gateway.service.child.exitCode, null);
});

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

t.test("the gateway survives clients that reset their connections at any moment", async (t) => {
  const request = wireRequest("POST /query", queryHeaders(token), select);
  for (let length = 0; length <= request.length; length += 7) {
    const wire = await Wire.open(gateway.url);
    wire.socket.write(request.slice(0, length), () => wire.socket.resetAndDestroy());
  }
  t.equal((await gateway.query(select, token)).status, 200);
  t.equal(await gateway.service.stop(), 0, "and it still ends as it should");
});

/** SIGUSR2 sets the clock ahead beyond the lifetime of any token, and back again. */
const jumpingClock = `
const { setInterval: every } = globalThis;
globalThis.setInterval = (act, ms, ...rest) => every(act, Math.min(ms, 100), ...rest);
const { now } = Date;
let ahead = 0;
Date.now = () => now() + ahead;
process.on("SIGUSR2", () => (ahead = ahead === 0 ? 400 * 24 * 3600 * 1000 : 0));
`;

t.test("a clock that jumps ahead and back is logged and revives no token", async (t) => {
  const preload = `data:text/javascript;base64,${btoa(jumpingClock)}`;
  const env = { NODE_OPTIONS: `--import=${preload}` };
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"], { env });
  const { child } = gateway.service;
  const jumped = (isAhead: boolean) =>
    gateway.service.logged(
      ({ msg, seconds }) =>
        msg === "the system clock was changed" && Number(seconds) > 0 === isAhead,
    );
  const dead = await tokenOf(gateway, "bob");
  await succeed(gateway.send("POST", "/logout", undefined, dead));

  child.kill("SIGUSR2");
  await jumped(true);
  t.equal(await insertRefusal(gateway, dead), "token_expired");
  const later = await tokenOf(gateway, "bob");
  await succeed(gateway.send("POST", "/logout", undefined, later));

  child.kill("SIGUSR2");
  await jumped(false);
  t.equal(await insertRefusal(gateway, dead), "token_revoked");
  const written = readFileSync(path.join(gateway.home, "revocations"), "utf8");
  t.match(written, String(decodePart(dead, 1).jti), "nothing was pruned");
  await gateway.service.stop();
  const { gateway: restarted } = await openGatewaySetup(t, { home: gateway.home });
  t.equal(await insertRefusal(restarted, dead), "token_revoked");
});

async function startWith(t: Test, count: number): Promise<number> {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), '[upstream]\nurl = "http://127.0.0.1:1"\n');
  const names = Array.from({ length: count }, (_, index) => `user${index}`);
  const tables = names.map((name) => user(name) + grant(name, "main", "ReadOnly"));
  const text = tables.join("") + user("admin") + grant("admin", "*", "Owner");
  writeFileSync(path.join(home, "access_control.toml"), text, { mode: 0o600 });
  const service = new Service(home, ["serve", "--port", "0"]);
  t.teardown(() => service.stop());
  const { users } = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  t.equal(users, count + 1);
  return service.child.pid ?? 0;
}

t.test("the memory for reading many users is released after the start", async (t) => {
  const few = residentBytes(await startWith(t, 1));
  const many = await startWith(t, 5000);
  await eventually("the memory is given back", () => residentBytes(many) < few + 75e6);
});
