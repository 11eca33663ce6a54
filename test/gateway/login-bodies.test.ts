import { writeFileSync } from "node:fs";
import t from "tap";
import { ADMIN_PASSWORD, type Answer } from "../kit/gateway.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { checkRefusal, openSetting, type Setting, select } from "./kit.ts";

const right = { username: "admin", password: ADMIN_PASSWORD };

function post({ gateway }: Setting, body: string | Buffer<ArrayBuffer>): Promise<Answer> {
  const headers = { "content-type": "application/json" };
  return gateway.request("/login", { method: "POST", headers, body });
}

t.test("a login that is none is told what is wrong", async (t) => {
  const setting = await openSetting(t);
  const values = ["null", "7", "true", "[]", "{}", '["admin"]'];
  const bodies = [
    ...["", "null", "[]", '"admin"', "{", "{}", '{"username":"admin"}'],
    ...values.map((value) => `{"username":"admin","password":${value}}`),
    ...values.map((value) => `{"username":${value},"password":"x"}`),
    '{"username":"admin","password":"x","database":7}',
    '{"username":"admin","password":"x","remember":true}',
    '{"username":"admin","password":"\\ud800"}',
    `\ufeff${JSON.stringify(right)}`,
    `${JSON.stringify(right)}{}`,
  ];
  for (const body of bodies) {
    checkRefusal(t, await post(setting, body), { status: 400, code: "invalid_body" });
  }
  const bytes = Buffer.from(JSON.stringify(right));
  bytes[bytes.length - 3] = 0xff;
  checkRefusal(t, await post(setting, bytes), { status: 400, code: "invalid_body" });
});

t.test("a key that is given twice is refused, however it is spelled", async (t) => {
  const setting = await openSetting(t);
  for (const [key, again] of [
    ["password", "password"],
    ["password", "pass\\u0077ord"],
    ["username", "username"],
  ]) {
    const rest = key === "password" ? '"username":"admin"' : `"password":"${ADMIN_PASSWORD}"`;
    const value = key === "password" ? ADMIN_PASSWORD : "admin";
    const body = `{${rest},"${key}":"${value}","${again}":"${value}"}`;
    checkRefusal(t, await post(setting, body), { status: 400, code: "duplicate_key" });
  }
  const user = '{"username":"eve","password":"eve password","role":"ReadOnly","role":"Owner"}';
  const answer = await setting.gateway.send(
    "POST",
    "/api/users",
    user,
    await setting.gateway.login(),
  );
  checkRefusal(t, answer, { status: 400, code: "duplicate_key" });
});

t.test("passwords of every kind are judged alike", async (t) => {
  const setting = await openSetting(t, { auth: "max_failures_per_user_and_address = 1000" });
  const odd = [
    "",
    "\0",
    `${ADMIN_PASSWORD}\0`,
    ` ${ADMIN_PASSWORD}`,
    "x".repeat(15_000),
    "🔑".repeat(300),
  ];
  const code = "credentials_invalid";
  for (const password of odd) {
    const answer = await post(setting, JSON.stringify({ username: "admin", password }));
    checkRefusal(t, answer, { status: 401, code });
  }
  t.equal((await post(setting, JSON.stringify(right))).status, 200);
});

t.test("a body over the bound is refused before it is read", async (t) => {
  const setting = await openSetting(t);
  const body = JSON.stringify({ ...right, password: "x".repeat(16 * 1024) });
  checkRefusal(t, await post(setting, body), { status: 413, code: "body_too_large" });
  const wire = await Wire.open(setting.gateway.url);
  const json = { "Content-Type": "application/json" };
  wire.send(wireRequest("POST /login", { ...json, "Content-Length": "99999999" }));
  await wire.until(/^HTTP\/1\.1 413 /);
  wire.cut();
  const endless = await Wire.open(setting.gateway.url);
  endless.send(wireRequest("POST /login", { ...json, "Transfer-Encoding": "chunked" }));
  for (let at = 0; at < 20; at++) endless.send(`400\r\n${" ".repeat(1024)}\r\n`);
  await endless.until(/^HTTP\/1\.1 413 /);
  endless.cut();
});

t.test("a login is a POST, and wants no token", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
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

t.test("while the access file is broken, logins go by its last good state", async (t) => {
  const setting = await openSetting(t);
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
