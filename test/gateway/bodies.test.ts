import { writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { pipeline, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import t, { type Test } from "tap";
import { limitAnswers } from "../../src/core/http/connections.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { open } from "../kit/client.ts";
import { ADMIN_PASSWORD, type Answer, startGateway } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { checkRefusal, type GatewaySetup, openGatewaySetup, select } from "./kit.ts";

const login = { username: "admin", password: ADMIN_PASSWORD };

const shared = await openGatewaySetup(t);
const { gateway } = shared;

t.test("only JSON in UTF-8 without an encoding is accepted", async (t) => {
  const { gateway, upstream } = shared;
  const token = await gateway.login();
  const ask = async (type: string | undefined, more: Record<string, string> = {}) => {
    const headers = { authorization: `Bearer ${token}`, ...more };
    const typed = type === undefined ? headers : { ...headers, "content-type": type };
    const body = Buffer.from(JSON.stringify(select));
    return (await gateway.request("/query", { method: "POST", headers: typed, body })).status;
  };
  const good = ["application/json", "Application/JSON", "application/json; charset=utf-8"];
  const quoted = ['application/json;charset="UTF-8"', "application/json ; charset=UTF8; a=b"];
  for (const type of [...good, ...quoted, "application/json;"]) t.equal(await ask(type), 200, type);
  t.equal(await ask("application/json", { "content-encoding": "identity" }), 200);
  for (const { headers } of upstream.take()) {
    t.equal(headers["content-type"], "application/json", "no parameter is forwarded");
  }

  const others = ["text/plain", "application/json5", "application/vnd.api+json", "text/json", ""];
  const endings = [", text/plain", " x", "; a", `${"; ".repeat(2000)}x`];
  const charsets = ["utf-16", "iso-8859-1", "utf-8; charset=utf-16", "utf-16; charset=utf-8"];
  for (const charset of [...charsets, '"utf-8']) endings.push(`; charset=${charset}`);
  // Some parsers decode RFC 8187, ignore quotes, or look for the word anywhere.
  endings.push("; charset*=utf-8''utf-7", "; charset*0=utf-; charset*1=7", "; xcharset=utf-7");
  endings.push('; x=";charset=utf-7;"', "; charset=utf-8; Charset*=utf-8''utf-7");
  for (const ending of endings) others.push(`application/json${ending}`);
  for (const type of [undefined, ...others]) t.equal(await ask(type), 415, String(type));
  for (const encoding of ["gzip", "br", "identity, gzip", "x"]) {
    t.equal(await ask("application/json", { "content-encoding": encoding }), 415, encoding);
  }
  t.equal(upstream.take().length, 0);
});

t.test("unknown and missing fields are refused", async (t) => {
  const token = await gateway.login();
  const user = { username: "bob", password: "long enough", role: "ReadOnly" };
  const bodies: [method: string, path: string, body: unknown, message?: RegExp][] = [
    ["PATCH", "/api/users/bob", { name: "bob" }, /"name"; allowed: email, disabled, same_as$/],
    ["PUT", "/api/groups/staff", { members: "bob" }, /members must be an array$/],
    ["POST", "/api/users", { ...user, role: 7 }, /role must be a string$/],
    ["POST", "/api/users", { ...user, disabled: true }],
    ["POST", "/api/users", { ...user, password_hash: "$argon2id$" }],
    ["POST", "/api/users", { ...user, role: undefined }],
    ["PUT", "/api/users/admin/password", { old_password: ADMIN_PASSWORD, newPassword: "x" }],
    ["PUT", "/api/users/admin/password", { new_password: "without the old one" }],
  ];
  for (const [method, path, body, message = /./] of bodies) {
    const answer = await gateway.send(method, path, body, token);
    checkRefusal(t, answer, { status: 400, code: "invalid_body" });
    t.match(answer.body.message, message);
    t.notMatch(answer.text, ADMIN_PASSWORD, "values are not repeated");
  }
});

t.test("the gateway's own routes accept at most 16 KiB", async (t) => {
  const text = JSON.stringify(login);
  const padded = (bytes: number) => text.padEnd(bytes);
  t.equal((await gateway.send("POST", "/login", padded(16_384))).status, 200);
  const answer = await gateway.send("POST", "/login", padded(16_385));
  const message = "Request body too large: the limit is 16384 bytes";
  checkRefusal(t, answer, { status: 413, code: "body_too_large", message });
  const token = await gateway.login();
  for (const [method, path] of [
    ["POST", "/logout"],
    ["DELETE", "/api/users/nobody"],
    ["DELETE", "/api/access/nobody/main"],
  ] as const) {
    const unwanted = await gateway.send(method, path, padded(16_385), token);
    checkRefusal(t, unwanted, { status: 413, code: "body_too_large", message });
  }

  const chunks = new ReadableStream({
    start(controller) {
      for (let at = 0; at < 20; at++) controller.enqueue(new Uint8Array(1024).fill(0x20));
      controller.close();
    },
  });
  const headers = { "content-type": "application/json" };
  const init = { method: "POST", headers, body: chunks, duplex: "half" } satisfies RequestInit;
  const chunked = await gateway.request("/login", init);
  checkRefusal(t, chunked, { status: 413, code: "body_too_large", message });
});

const right = { username: "admin", password: ADMIN_PASSWORD };

function post({ gateway }: GatewaySetup, body: string | Buffer<ArrayBuffer>): Promise<Answer> {
  const headers = { "content-type": "application/json" };
  return gateway.request("/login", { method: "POST", headers, body });
}

t.test("an invalid login body is refused", async (t) => {
  const values = ["null", "7", "[]", "{}"];
  const bodies = [
    "",
    "null",
    "[]",
    "{",
    "{}",
    '{"username":"admin"}',
    ...values.map((value) => `{"username":"admin","password":${value}}`),
    ...values.map((value) => `{"username":${value},"password":"x"}`),
    '{"username":"admin","password":"x","database":7}',
    '{"username":"admin","password":"x","remember":true}',
    '{"username":"admin","password":"\\ud800"}',
    `${JSON.stringify(right)}{}`,
  ];
  for (const body of bodies) {
    checkRefusal(t, await post(shared, body), { status: 400, code: "invalid_body" });
  }
  const bytes = Buffer.from(JSON.stringify(right));
  bytes[bytes.length - 3] = 0xff;
  checkRefusal(t, await post(shared, bytes), { status: 400, code: "invalid_body" });
});

t.test("a duplicate key is refused in every spelling", async (t) => {
  for (const [key, again] of [
    ["password", "password"],
    ["password", "pass\\u0077ord"],
    ["username", "username"],
  ]) {
    const rest = key === "password" ? '"username":"admin"' : `"password":"${ADMIN_PASSWORD}"`;
    const value = key === "password" ? ADMIN_PASSWORD : "admin";
    const body = `{${rest},"${key}":"${value}","${again}":"${value}"}`;
    checkRefusal(t, await post(shared, body), { status: 400, code: "duplicate_key" });
  }
  const user = '{"username":"eve","password":"eve password","role":"ReadOnly","role":"Owner"}';
  const answer = await shared.gateway.send(
    "POST",
    "/api/users",
    user,
    await shared.gateway.login(),
  );
  checkRefusal(t, answer, { status: 400, code: "duplicate_key" });
});

t.test("a login is a POST and ignores tokens", async (t) => {
  for (const method of ["GET", "PUT", "DELETE"]) {
    const answer = await gateway.request("/login?username=admin", { method });
    checkRefusal(t, answer, { status: 405, code: "method_not_allowed" });
    t.equal(answer.headers.get("allow"), "POST");
  }
  for (const token of ["no token at all", await gateway.login()]) {
    t.equal((await gateway.send("POST", "/login", right, token)).status, 200);
    const wrong = { ...right, password: "a wrong one" };
    t.equal((await gateway.send("POST", "/login", wrong, token)).status, 401);
  }
  const form = await gateway.request("/login", {
    method: "POST",
    body: new URLSearchParams(right),
  });
  checkRefusal(t, form, { status: 415, code: "unsupported_media_type" });
});

t.test("while the access file is broken, logins use its last good state", async (t) => {
  const setting = await openGatewaySetup(t);
  const { gateway } = setting;
  writeFileSync(gateway.accessFile, "[[users]]\nusername = ");
  await gateway.service.logged(
    ({ level, msg }) => level === "error" && /access file/.test(String(msg)),
  );
  const token = await gateway.login();
  t.equal((await gateway.query(select, token)).status, 200);
  const wrong = await gateway.send("POST", "/login", { ...right, password: "a wrong one" });
  checkRefusal(t, wrong, { status: 401, code: "credentials_invalid" });
});

/** More than the buffers of a connection hold. */
const whole = Buffer.alloc(50 * 1024 * 1024, "x");

/** @returns a list: an answer in it is cut once its client has read nothing for 600 ms */
function limited(t: Test): { response: ServerResponse }[] {
  const answers: { response: ServerResponse }[] = [];
  const timer = limitAnswers(
    () => answers,
    () => {},
    600,
  );
  t.teardown(() => clearInterval(timer));
  return answers;
}

t.test("a response that the client does not read is cut", async (t) => {
  const cut = Promise.withResolvers<ServerResponse>();
  const answers = limited(t);
  const server = createServer((_request, response) => {
    answers.push({ response });
    response.once("close", () => cut.resolve(response));
    response.end(whole);
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;
  const stalled = await open(url);
  const response = await cut.promise;
  t.notOk(response.writableFinished);
  await t.rejects(
    buffer(stalled),
    { code: "ECONNRESET" },
    "the client notices that it is incomplete",
  );
});

t.test("a response that the client reads slowly is not cut", async (t) => {
  const answers = limited(t);
  const server = createServer((_request, response) => {
    answers.push({ response });
    pipeline(Readable.from(Array(200).fill(whole.subarray(0, 65_536))), response, () => {});
  });
  const slow = await open(`http://127.0.0.1:${await listening(t, server)}`);
  let length = 0;
  let pauses = 0;
  for await (const piece of slow) {
    length += piece.length;
    // Longer in all than a client may read nothing.
    if (length > pauses * 2_000_000) {
      pauses++;
      await setTimeout(250);
    }
  }
  t.equal(length, 200 * 65_536);
});

t.test("concurrent requests are each judged by their own token", async (t) => {
  const names = Array.from({ length: 20 }, (_, at) => `user${at}`);
  const home = await staffedHome(
    t,
    names.map((name) => `${name} main ReadOnly`),
  );
  const gateway = await startGateway(t, { home, upstream: "http://127.0.0.1:1" });
  const tokens = await Promise.all(names.map((name) => tokenOf(gateway, name)));
  const answers = tokens.flatMap((token, at) => [
    { token, expected: { user: { username: names[at] } } },
    { token: `${token.slice(0, -9)}${token.slice(-8)}`, expected: { code: "token_invalid" } },
  ]);
  const requests = answers.map(async ({ token, expected }) => {
    t.match((await gateway.get("/api/me", token)).body, expected);
  });
  await Promise.all(requests);
});
