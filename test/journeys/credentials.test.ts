import type { ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { hashPassword } from "../../src/core/identity/password.ts";
import { type GatewaySetup, sendRaw } from "../gateway/kit.ts";
import { ask, type PlainAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, type TestGateway } from "../kit/gateway.ts";
import { select } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { initialize, statelessCall } from "../mcp/messages.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { send } from "./mcp.ts";
import { openStaffed, passwordOf, putInForce, textOf, tokenOf } from "./staff.ts";

const ACCEPT = 'accept = ["bearer", "basic", "apikey", "header:X-Api-Key"]';
const routes = tables("routes", [
  { path: "/db/:database", access: "SELECT", forward_headers: ["Prefer"] },
  { path: "/status", access: "public" },
  { path: "/events", access: "authenticated" },
]);
const people = [
  "root * Owner",
  "alice main ReadWrite",
  "bob main ReadOnly",
  "carl main ReadOnly",
  "dina main ReadOnly",
  "erin main ReadOnly",
];

/** All kinds of credentials, before an upstream that gets what may be forwarded. */
async function open(t: Test, options: { auth?: string; config?: string; more?: string } = {}) {
  const { auth = "", config = "", ...rest } = options;
  return openStaffed(t, people, {
    auth: `${ACCEPT}\n${auth}`,
    config: `forward_authorization = true\n${config}${routes}`,
    ...rest,
  });
}

type Headers = Readonly<Record<string, string>>;

function basic(username: string, password: string): Headers {
  return { Authorization: `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}` };
}

function query(gateway: TestGateway, headers: Headers): Promise<PlainAnswer> {
  const all = { "Content-Type": "application/json", ...headers };
  return ask(`${gateway.url}/query`, { method: "POST", headers: all, body: select });
}

function codeOf({ status, body }: PlainAnswer): string {
  const code = /"code":"(\w+)"/.exec(body.toString())?.[1];
  return code === undefined ? String(status) : `${status} ${code}`;
}

function challengesIn({ rawHeaders }: PlainAnswer): string[] {
  return rawHeaders.filter((_, at) => rawHeaders[at - 1]?.toLowerCase() === "www-authenticate");
}

const page = "https://app.example.com";
const metrics = await reserveMetrics();
const staff = await TestIssuer.start(t);
const shared = await open(t, {
  auth: "max_failures_per_user_and_address = 1000",
  config: `${metrics.section}[server]
allowed_origins = ["${page}"]
${staff.section()}`,
  more: '[[acl]]\nusername = "staff:alice"\ndatabase = "main"\nrole = "ReadOnly"\n',
});
const { gateway, upstream } = shared;
const usual = shared.upstream.answer;
const alice = await tokenOf(shared.gateway, "alice");

/** Each way in which alice may present herself. */
const ways: Readonly<Record<string, Headers>> = {
  bearer: { Authorization: `Bearer ${alice}` },
  apikey: { Authorization: `ApiKey ${alice}` },
  "apikey in another case": { Authorization: `apikey  ${alice}` },
  header: { "x-api-key": alice },
  password: basic("alice", passwordOf("alice")),
  "password in another case": {
    Authorization:
      basic("alice", passwordOf("alice")).Authorization?.replace("Basic", "BASIC") ?? "",
  },
  "token as the password": basic("elastic", alice),
  "token without a username": basic("", alice),
};

t.beforeEach(() => {
  shared.upstream.take();
  shared.upstream.answer = usual;
});

t.test("each credential opens /query, /schema and routes, and does not go upstream", async (t) => {
  for (const [way, headers] of Object.entries(ways)) {
    const answers = [
      await query(gateway, headers),
      await ask(`${gateway.url}/db/main`, { headers: { ...headers, X_Api_Key: "folded" } }),
    ];
    for (const answer of answers) {
      t.equal(answer.status, 200, `${way}: ${answer.body}`);
      t.match(answer.headers.vary, "x-api-key", "no shared cache gives it to another user");
    }
    const received = upstream.take();
    t.equal(received.length, 2, way);
    for (const { headers: sent } of received) {
      t.equal(sent["x-gatehouse-user"], "alice", way);
      t.notOk("x-api-key" in sent || "x_api_key" in sent, way);
      // The operator has asked for it.
      t.equal(sent.authorization, way === "bearer" ? headers.Authorization : undefined, way);
    }
    const denied = await ask(`${gateway.url}/db/other`, { headers });
    t.equal(codeOf(denied), "403 no_grant", way);
    const schema = await ask(`${gateway.url}/schema`, { headers });
    t.equal(codeOf(schema), "404 schema_not_offered", way);
    upstream.take();
  }
});

t.test("a public route forwards no credential of the gateway either", async (t) => {
  for (const way of ["password", "apikey", "header"]) {
    await ask(`${gateway.url}/status`, { headers: ways[way] ?? {} });
    const { headers } = upstream.takeOne();
    t.notOk(headers.authorization ?? headers["x-api-key"], way);
  }
});

t.test("only a bearer token opens /api, /logout and /mcp", async (t) => {
  const { headers: mcp, body } = statelessCall("tools/list");
  for (const [way, headers] of Object.entries(ways)) {
    const isBearer = way === "bearer";
    const answers = {
      "/api/me": await ask(`${gateway.url}/api/me`, { headers }),
      "/mcp": await ask(`${gateway.url}/mcp`, {
        method: "POST",
        headers: { ...mcp, ...headers },
        body,
      }),
    };
    for (const [path, answer] of Object.entries(answers)) {
      t.equal(answer.status, isBearer ? 200 : 401, `${way} at ${path}`);
      const challenges = challengesIn(answer);
      t.equal(challenges.length, isBearer ? 0 : 1, path);
      if (!isBearer) t.match(challenges[0], /^Bearer realm=/, path);
    }
  }
  const logout = await ask(`${gateway.url}/logout`, {
    method: "POST",
    headers: ways.password ?? {},
  });
  t.equal(codeOf(logout), "401 token_invalid");
});

t.test("a refusal has a challenge for each credential that is accepted", async (t) => {
  const answer = await query(gateway, {});
  t.equal(codeOf(answer), "401 unauthenticated");
  t.strictSame(challengesIn(answer), [
    'Bearer realm="gatehouse"',
    'Basic realm="gatehouse", charset="UTF-8"',
    "ApiKey",
    'Header realm="gatehouse", name="X-Api-Key"',
  ]);
  const { message } = JSON.parse(answer.body.toString());
  t.equal(
    message,
    "Missing credential; accepted: Authorization: Bearer, Authorization: Basic, Authorization: ApiKey, the header X-Api-Key",
  );
  const expired = await query(gateway, { "x-api-key": `${alice}x` });
  t.equal(codeOf(expired), "401 token_invalid");
  t.match(challengesIn(expired)[0], /^Bearer realm="gatehouse", error="invalid_token"$/);
  const digest = await query(gateway, { Authorization: 'Digest username="alice"' });
  t.equal(codeOf(digest), "401 token_invalid");
  t.match(digest.body.toString(), /Invalid credential; accepted: Authorization: Bearer/);
});

t.test("by default, nothing but a bearer token is accepted", async (t) => {
  const { gateway, upstream } = await openStaffed(t, people, { config: routes });
  const token = await tokenOf(gateway, "alice");
  const expected: [Headers, string][] = [
    [basic("alice", passwordOf("alice")), "401 token_invalid"],
    [basic("alice", token), "401 token_invalid"],
    [{ Authorization: `ApiKey ${token}` }, "401 token_invalid"],
    [{ "X-Api-Key": token }, "401 unauthenticated"],
    [{ "X-Api-Key": token, Authorization: `Bearer ${token}` }, "200"],
  ];
  for (const [headers, code] of expected) {
    const answer = await query(gateway, headers);
    t.equal(codeOf(answer), code);
    if (answer.status === 401) t.equal(challengesIn(answer).length, 1);
  }
  t.equal(upstream.take().length, 1);
});

t.test("without bearer, a bearer token opens nothing but /api and /mcp", async (t) => {
  const { gateway } = await openStaffed(t, people, { auth: 'accept = ["header:x-key"]' });
  const token = await tokenOf(gateway, "alice");
  const refused = await query(gateway, { Authorization: `Bearer ${token}` });
  t.equal(codeOf(refused), "401 token_invalid");
  t.strictSame(challengesIn(refused), ['Header realm="gatehouse", name="x-key"']);
  t.equal((await query(gateway, { "x-key": token })).status, 200);
  t.equal((await gateway.get("/api/me", token)).status, 200);
});

t.test("two credentials in one request are refused", async (t) => {
  const key = `X-Api-Key: ${alice}`;
  const bearer = `Authorization: Bearer ${alice}`;
  const other = `Authorization: ${basic("alice", passwordOf("alice")).Authorization}`;
  const table: [paths: string[], lines: string[], code: string][] = [
    [["/db/main", "/status", "/api/me", "/healthz"], [bearer, key], "several_credentials"],
    [["/db/main"], [other, key], "several_credentials"],
    [["/db/main"], ["Authorization: Digest x", key], "several_credentials"],
    [["/db/main"], [key, key], "several_credentials"],
    [["/db/main"], [key, "x-api-key: x"], "several_credentials"],
    [["/db/main"], [bearer, other], "several_authorization_headers"],
    [["/db/main"], [bearer, other, key], "several_authorization_headers"],
  ];
  for (const [paths, lines, code] of table) {
    for (const path of paths) {
      const answer = await sendRaw(gateway.url, [`GET ${path} HTTP/1.1`, ...lines]);
      t.equal(answer.status, 400, `${path} ${lines}`);
      t.match(answer.text, `"code":"${code}"`);
    }
  }
  t.equal(upstream.take().length, 0);
});

t.test("a malformed or wrong Basic credential is refused as a wrong password is", async (t) => {
  const encoded = (text: string | Buffer) => Buffer.from(text).toString("base64");
  const values = [
    "",
    "!",
    encoded("alice"),
    encoded(Buffer.from("alice:\xff", "latin1")),
    `${encoded(`alice:${passwordOf("alice")}`)} x`,
    encoded(`alice:${passwordOf("bob")}`),
    encoded(`stranger:${passwordOf("alice")}`),
    encoded(`:${passwordOf("alice")}`),
    encoded(`alice:`),
    encoded(`alice:${"x".repeat(2000)}`),
    encoded(`staff:ann:${passwordOf("alice")}`),
  ];
  for (const value of values) {
    const answer = await query(gateway, { Authorization: `Basic ${value}` });
    t.match(codeOf(answer), /^401 (?:credentials_invalid|token_invalid)$/, value);
  }
  const wrong = await query(gateway, basic("alice", "a wrong one"));
  t.match(JSON.parse(wrong.body.toString()), {
    code: "credentials_invalid",
    message: "Invalid username or password",
  });
  const unicode = await query(gateway, basic("alice", "pässwörd"));
  t.equal(codeOf(unicode), "401 credentials_invalid");
  t.equal(upstream.take().length, 0);
});

t.test("the audit names the user of a password, and never a name that is not one", async (t) => {
  const headers = { "content-type": "application/json" };
  const send = async (credential: Headers) =>
    auditOf(
      gateway,
      await gateway.request("/query", {
        method: "POST",
        headers: { ...headers, ...credential },
        body: select,
      }),
    );
  const good = await send(basic("alice", passwordOf("alice")));
  t.match(good, { user: "alice", via: "query", decision: "allow" });
  t.notOk("tokenId" in good);
  const bad = await send(basic("alice", "wrong password"));
  t.match(bad, { user: "alice", decision: "deny", reason: "credentials_invalid" });
  t.notOk("user" in (await send(basic("secret-in-the-wrong-field", "x"))));
  const log = JSON.stringify(gateway.service.log);
  t.notMatch(log, passwordOf("alice"));
  t.notMatch(log, "wrong-field");
});

t.test("wrong passwords are limited together with those of logins", async (t) => {
  const { gateway } = await open(t);
  const right = basic("alice", passwordOf("alice"));
  t.equal((await query(gateway, right)).status, 200, "the password is remembered now");
  const login = { username: "alice", password: "a wrong one" };
  for (let at = 0; at < 5; at++) {
    t.equal(codeOf(await query(gateway, basic("alice", `wrong ${at}`))), "401 credentials_invalid");
    t.equal((await gateway.send("POST", "/login", login)).status, 401);
  }
  const limited = await query(gateway, right);
  t.equal(codeOf(limited), "429 too_many_attempts", "the memory does not help who guesses");
  t.ok(Number(limited.headers["retry-after"]) > 0);
  t.equal((await query(gateway, basic("bob", passwordOf("bob")))).status, 200, "others go on");
  t.equal((await gateway.send("POST", "/login", login)).status, 429);
});

/** How many hashes the gateway has computed. */
const hashes = () => metrics.value("gatehouse_hash_seconds_count");

t.test("a verified password is remembered for its address, until it is wrong once", async (t) => {
  const right = basic("alice", passwordOf("alice"));
  await query(gateway, basic("alice", "wrong"));
  const before = await hashes();
  const many = await Promise.all(Array.from({ length: 30 }, () => query(gateway, right)));
  t.strictSame([...new Set(many.map(({ status }) => status))], [200]);
  t.equal((await query(gateway, right)).status, 200);
  t.equal((await hashes()) - before, 1, "requests at one time share a verification");
  await query(gateway, basic("alice", "wrong"));
  t.equal((await hashes()) - before, 2);
  await query(gateway, right);
  t.equal((await hashes()) - before, 3, "the memory was dropped");
  await query(gateway, basic("stranger", "wrong"));
  t.equal((await hashes()) - before, 4, "an unknown user takes as long");
});

t.test("a changed password, a disabled and a removed user are refused at once", async (t) => {
  const root = await tokenOf(gateway, "root");
  const [old, next] = [passwordOf("carl"), "another password"];
  const status = async (name: string, password: string) =>
    codeOf(await query(gateway, basic(name, password)));
  t.equal(await status("carl", old), "200");
  await gateway.send("PUT", "/api/users/carl/password", { new_password: next }, root);
  t.equal(await status("carl", old), "401 credentials_invalid");
  t.equal(await status("carl", next), "200");
  await gateway.send("PATCH", "/api/users/carl", { disabled: true }, root);
  t.equal(await status("carl", next), "401 credentials_invalid");
  await gateway.send("PATCH", "/api/users/carl", { disabled: false }, root);
  t.equal(await status("carl", next), "200");
  await gateway.send("DELETE", "/api/users/carl", undefined, root);
  t.equal(await status("carl", next), "401 credentials_invalid");
  t.equal(await status("dina", passwordOf("dina")), "200");
  // A hand edit that takes the password away.
  await putInForce(
    gateway,
    textOf(gateway).replace(/(username = "dina"\n)password_hash.*\n/, "$1"),
  );
  t.equal(await status("dina", passwordOf("dina")), "401 credentials_invalid");
});

t.test("a stream is cut when the password that opened it is changed", async (t) => {
  const streams: ServerResponse[] = [];
  upstream.answer = (_, response) => {
    response.write("first");
    streams.push(response);
  };
  const start = async (name: string) => {
    const wire = await Wire.open(gateway.url);
    wire.send(wireRequest("GET /events", basic(name, passwordOf(name))));
    await wire.until(/first/);
    return wire;
  };
  const [mine, other] = [await start("erin"), await start("bob")];
  const root = await tokenOf(gateway, "root");
  await gateway.send("PUT", "/api/users/erin/password", { new_password: "another one" }, root);
  await mine.untilClosed();
  await eventually("the log says why", () =>
    gateway.service.log.some(
      ({ msg, code }) => msg === "an open stream is cut" && code === "credentials_invalid",
    ),
  );
  t.notOk(other.isClosed);
  other.cut();
});

t.test("a stream is not cut when a login raises the costs of its password's hash", async (t) => {
  upstream.answer = (_, response) => response.write("first");
  const cheaper = await hashPassword(passwordOf("bob"), { memory: 8, time: 1, parallelism: 1 });
  // The salt after a `$` may begin with a 1.
  const lowered = textOf(gateway).replace(
    /(username = "bob"\n.*").+"/,
    (_, start) => `${start}${cheaper}"`,
  );
  await putInForce(gateway, lowered);
  const wire = await Wire.open(gateway.url);
  wire.send(wireRequest("GET /events", basic("bob", passwordOf("bob"))));
  await wire.until(/first/);
  await tokenOf(gateway, "bob");
  t.not(textOf(gateway), lowered, "the hash is another");
  // Streams are checked once a second.
  await delay(2500);
  t.notOk(wire.isClosed);
  wire.cut();
});

t.test("a token of an issuer may be sent in each way, and a password may not", async (t) => {
  const token = await staff.sign("gatehouse");
  const sent: Headers[] = [
    { Authorization: `Bearer ${token}` },
    { Authorization: `ApiKey ${token}` },
    { "X-Api-Key": token },
    basic("anyone", token),
  ];
  for (const headers of [...sent, ...sent]) {
    t.equal(codeOf(await query(gateway, headers)), "200");
    t.equal(upstream.takeOne().headers["x-gatehouse-user"], "staff:alice");
  }
  t.equal(codeOf(await query(gateway, basic("staff:alice", "x"))), "401 credentials_invalid");
  t.equal(codeOf(await query(gateway, { "X-Api-Key": `${token}x` })), "401 token_invalid");
});

t.test("a foreign MCP server gets no header that may carry a token", async (t) => {
  const fixture = new FixtureServer();
  const config = `[mcp]\nupstream = "${await fixture.listen(t)}"\n`;
  const { gateway } = await openStaffed(t, people, { auth: ACCEPT, config });
  const token = await tokenOf(gateway, "root");
  const { headers, ...call } = initialize;
  const folded = { ...headers, X_Api_Key: "folded", "x.api.key": "folded", "X-Other": "kept" };
  t.equal((await send(gateway, { ...call, headers: folded }, token)).status, 200);
  const [received] = fixture.received;
  t.equal(received?.headers["x-other"], "kept");
  t.notMatch(JSON.stringify(received?.headers), "folded");
});

t.test("pages of other sites cannot use Basic credentials that a browser adds", async (t) => {
  const token = await tokenOf(gateway, "alice");
  const table: [Headers, number][] = [
    [{ Origin: "https://evil.example.com" }, 403],
    [{ Origin: "null" }, 403],
    [{ "Sec-Fetch-Site": "cross-site" }, 403],
    [{ "Sec-Fetch-Site": "same-site" }, 403],
    [{ "Sec-Fetch-Site": "same-origin" }, 200],
    [{ "Sec-Fetch-Site": "none" }, 200],
    [{ Origin: gateway.url, "Sec-Fetch-Site": "same-origin" }, 200],
    [{ Origin: page, "Sec-Fetch-Site": "cross-site" }, 200],
  ];
  for (const [headers, status] of table) {
    for (const credential of [basic("alice", passwordOf("alice")), basic("x", token)]) {
      const answer = await ask(`${gateway.url}/db/main`, {
        headers: { ...credential, ...headers },
      });
      t.equal(answer.status, status, JSON.stringify(headers));
      if (status === 403) t.match(codeOf(answer), "403 origin_not_allowed");
    }
  }
  const foreign = { Origin: "https://evil.example.com", Authorization: `ApiKey ${token}` };
  const plain = await ask(`${gateway.url}/db/main`, { headers: foreign });
  t.equal(plain.status, 200, "no browser adds a token by itself");
  t.equal(upstream.take().length, 9);

  const preflight = { Origin: page, "Access-Control-Request-Method": "POST" };
  const asked = await ask(`${gateway.url}/query`, { method: "OPTIONS", headers: preflight });
  t.equal(asked.status, 204, "a page of an allowed origin may send the header with its token");
  t.match(asked.headers["access-control-allow-headers"], /Authorization.*x-api-key/);
});

t.test("while authentication is off, no credential is asked for or forwarded", async (t) => {
  const { gateway, upstream }: GatewaySetup = await open(t, { auth: "enabled = false" });
  for (const way of ["password", "header"]) {
    t.equal((await query(gateway, ways[way] ?? {})).status, 200);
    const { headers } = upstream.takeOne();
    t.notOk(headers.authorization ?? headers["x-api-key"], way);
  }
});
