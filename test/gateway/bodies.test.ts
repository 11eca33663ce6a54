import t from "tap";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { checkRefusal, openSetting, select } from "./kit.ts";

const login = { username: "admin", password: ADMIN_PASSWORD };

const shared = await openSetting(t);

t.test("a body is JSON in UTF-8, whatever the spelling of its type", async (t) => {
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
  upstream.take();

  const others = ["text/plain", "application/json5", "application/vnd.api+json", "text/json", ""];
  const charsets = [
    "utf-16",
    "iso-8859-1",
    "utf-8; charset=utf-16",
    "utf-16; charset=utf-8",
    '"utf-8',
  ];
  const types = charsets.map((charset) => `application/json; charset=${charset}`);
  const broken = [
    "application/json, text/plain",
    "application/json x",
    "application/json; a",
    `application/json${"; ".repeat(2000)}x`,
  ];
  for (const type of [undefined, ...others, ...types, ...broken]) {
    t.equal(await ask(type), 415, String(type));
  }
  for (const encoding of ["gzip", "br", "identity, gzip", "x"]) {
    t.equal(await ask("application/json", { "content-encoding": encoding }), 415, encoding);
  }
  t.equal(upstream.take().length, 0);
});

t.test("a field that the route does not know is refused, and so is a missing one", async (t) => {
  const { gateway } = shared;
  const token = await gateway.login();
  const user = { username: "bob", password: "long enough", role: "ReadOnly" };
  const bodies: [method: string, path: string, body: unknown][] = [
    ["POST", "/login", { ...login, admin: true }],
    ["POST", "/login", { username: "admin" }],
    ["POST", "/login", { ...login, password: 12345678 }],
    ["POST", "/login", { ...login, password: null }],
    ["POST", "/login", { ...login, database: null }],
    ["POST", "/login", { ...login, username: ["admin"] }],
    ["POST", "/login", [login]],
    ["POST", "/login", null],
    ["POST", "/login", '"text"'],
    ["POST", "/login", '{"username":"admin","password":"correct horse","__proto__":{"a":1}}'],
    ["POST", "/api/users", { ...user, disabled: true }],
    ["POST", "/api/users", { ...user, password_hash: "$argon2id$" }],
    ["POST", "/api/users", { ...user, role: undefined }],
    ["PUT", "/api/users/admin/password", { old_password: ADMIN_PASSWORD, newPassword: "x" }],
    ["PUT", "/api/users/admin/password", { new_password: "without the old one" }],
  ];
  for (const [method, path, body] of bodies) {
    const answer = await gateway.send(method, path, body, token);
    checkRefusal(t, answer, { status: 400, code: "invalid_body" });
    t.notMatch(answer.text, ADMIN_PASSWORD, "a value is never repeated");
  }
});

t.test("text that is no JSON is refused without a word of it", async (t) => {
  const { gateway } = shared;
  const texts = ["", "{", "{'username':1}", '{"password":"hunter2hunter2"', "\ufeff{}", "{}{}"];
  for (const text of texts) {
    const answer = await gateway.send("POST", "/login", text);
    checkRefusal(t, answer, { status: 400, code: "invalid_body" });
    t.notMatch(answer.text, "hunter2");
  }
  const headers = { "content-type": "application/json" };
  const body = Buffer.from('{"username":"admin","password":"caf\xe9 au lait"}', "latin1");
  const answer = await gateway.request("/login", { method: "POST", headers, body });
  checkRefusal(t, answer, { status: 400, code: "invalid_body" });
});

t.test("routes of the gateway's own take at most 16 KiB", async (t) => {
  const { gateway } = shared;
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

t.test("bodies beyond what is held at one time are told to come again", async (t) => {
  const config = "[server]\nmax_body_bytes = 65536\nmax_buffered_bytes = 65536\n";
  const { gateway, upstream } = await openSetting(t, { config });
  const token = await gateway.login();
  const held = Promise.withResolvers<void>();
  upstream.answer = async (_request, response) => {
    await held.promise;
    response.end("{}");
  };
  const large = JSON.stringify(select).padEnd(60_000);
  const first = gateway.query(large, token);
  while (upstream.received.length === 0) await new Promise(setImmediate);
  const second = await gateway.query(large, token);
  checkRefusal(t, second, { status: 503, code: "busy" });
  t.equal(second.headers.get("retry-after"), "1");
  held.resolve();
  t.equal((await first).status, 200);
  t.equal((await gateway.query(large, token)).status, 200, "what was held is given back");
});
