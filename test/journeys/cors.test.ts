import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { checkRefusal, openGatewaySetup, select, sendRaw } from "../gateway/kit.ts";
import { ADMIN_PASSWORD, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { tables } from "../kit/tables.ts";

const page = "https://app.example.com";
const config = `[server]\nallowed_origins = ["${page}", "http://localhost:3000"]\n`;

function preflight(origin: string, method = "POST"): RequestInit {
  const headers = {
    origin,
    "access-control-request-method": method,
    "access-control-request-headers": "authorization,content-type",
  };
  return { method: "OPTIONS", headers };
}

const shared = await openGatewaySetup(t, { config });

const auth = "enabled = false";
const open = await openGatewaySetup(t, { auth });
const { gateway, upstream } = open;

t.test("a page of an allowed origin may send queries and read the answers", async (t) => {
  const { gateway, upstream } = shared;
  const asked = await gateway.request("/query", preflight(page));
  t.equal(asked.status, 204);
  t.equal(asked.text, "");
  t.equal(asked.headers.get("access-control-allow-origin"), page);
  t.equal(asked.headers.get("access-control-allow-methods"), "POST");
  t.match(asked.headers.get("access-control-allow-headers"), /Authorization.*Content-Type/);
  t.match(asked.headers.get("access-control-allow-headers"), /X-Gatehouse-Approval/);
  t.equal(asked.headers.get("access-control-allow-credentials"), null, "tokens, not cookies");
  t.equal(asked.headers.get("vary"), "Origin");
  t.ok(asked.headers.get("x-request-id"));

  const headers = {
    origin: page,
    "content-type": "application/json",
    authorization: `Bearer ${await gateway.login()}`,
  };
  const init = { method: "POST", headers, body: JSON.stringify(select) };
  const answer = await gateway.request("/query", init);
  t.equal(answer.status, 200);
  t.equal(answer.headers.get("access-control-allow-origin"), page);
  t.match(
    answer.headers.get("access-control-expose-headers"),
    /X-Request-Id.*X-Gatehouse-Narrowed/,
  );
  t.equal(upstream.take().length, 1);
  const refused = await gateway.request("/query", { ...init, body: "{}" });
  t.equal(refused.status, 400);
  t.equal(refused.headers.get("access-control-allow-origin"), page, "a refusal can be read too");
});

t.test("a page of another origin gets no CORS headers", async (t) => {
  const { gateway, upstream } = shared;
  const others = [
    "https://app.example.com.evil",
    "http://app.example.com",
    "https://APP.example.com",
    "https://app.example.com:444",
    "null",
    "*",
    "http://localhost:3001",
  ];
  for (const origin of others) {
    const asked = await gateway.request("/query", preflight(origin));
    t.equal(asked.status, 405, origin);
    t.equal(asked.headers.get("access-control-allow-origin"), null);
    const answer = await gateway.request("/healthz", { headers: { origin } });
    t.equal(answer.status, 200);
    t.equal(answer.headers.get("access-control-allow-origin"), null);
    t.equal(answer.headers.get("vary"), "Origin", "so that no cache mixes answers up");
  }
  t.equal(upstream.take().length, 0);
});

t.test("a page may send headers that a route forwards, and read those it returns", async (t) => {
  const items = { path: "/items", access: "public", methods: ["GET", "OPTIONS"] };
  const added = { database_header: "X-Database", forward_headers: ["Prefer"] };
  const put = { path: "/items", access: "INSERT", methods: ["PUT"], ...added };
  const { gateway, upstream } = await openGatewaySetup(t, {
    config: `forward_headers = ["X-Tenant"]\n${config}\n${tables("routes", [items, put])}`,
  });
  const asked = await gateway.request("/items", preflight(page, "PUT"));
  t.equal(asked.status, 204, "it does not go upstream, although OPTIONS does");
  t.equal(upstream.take().length, 0);
  t.equal(asked.headers.get("access-control-allow-methods"), "GET, OPTIONS, PUT, HEAD");
  const allowed = asked.headers.get("access-control-allow-headers")?.toLowerCase().split(", ");
  for (const name of ["prefer", "x-database", "x-tenant", "if-match", "range", "baggage"]) {
    t.ok(allowed?.includes(name), name);
  }
  upstream.answer = (_, response) => response.writeHead(200, { "x-any": "1" }).end();
  const answer = await gateway.request("/items", { headers: { origin: page } });
  t.equal(answer.headers.get("x-any"), "1");
  t.match(answer.headers.get("access-control-expose-headers"), /\bETag, Location, \*$/);
  t.equal(answer.headers.get("access-control-allow-credentials"), null);
  const plain = await gateway.request("/items", { method: "OPTIONS", headers: { origin: page } });
  t.equal(plain.status, 200, "one that is no preflight goes upstream");
  const elsewhere = await gateway.request("/query", preflight(page));
  const others = elsewhere.headers.get("access-control-allow-headers")?.toLowerCase();
  t.match(others, "x-tenant");
  t.notMatch(others, "prefer");
});

t.test("OPTIONS without a preflight or on an unknown path is refused", async (t) => {
  const { gateway } = shared;
  const plain = await gateway.request("/query", { method: "OPTIONS", headers: { origin: page } });
  t.equal(plain.status, 405);
  t.equal(plain.headers.get("allow"), "POST");
  t.equal((await gateway.request("/nowhere", preflight(page))).status, 404);
});

t.test("without allowed origins no answer has CORS headers", async (t) => {
  const { gateway } = await openGatewaySetup(t);
  t.equal((await gateway.request("/query", preflight(page))).status, 405);
  const { headers } = await gateway.request("/healthz", { headers: { origin: page } });
  t.notOk([...headers.keys()].some((name) => name.startsWith("access-control-")));
  t.equal(headers.get("vary"), null);
});

const json = { "content-type": "application/json" };

t.test("without authentication every query passes and no user is forwarded", async (t) => {
  const warning = await gateway.service.logged(({ msg }) => String(msg).includes("IS OFF"));
  t.equal(warning.level, "warn");
  const { status, headers } = await gateway.query(select);
  t.equal(status, 200);
  t.equal(headers.get("x-gatehouse-decision"), "allow");
  const asked = { "x-gatehouse-user": "admin", x_gatehouse_role: "Owner", ...json };
  const init = { method: "POST", headers: asked, body: JSON.stringify(select) };
  t.equal((await gateway.request("/query", init)).status, 200);
  t.equal((await gateway.query({ DropDatabase: { database: "main" } })).status, 200);
  t.equal((await gateway.query(select, "an invalid token")).status, 200);
  for (const received of upstream.take()) {
    for (const name of Object.keys(received.headers)) t.notMatch(name, /gatehouse/i);
    t.equal(received.headers.authorization, undefined);
  }
});

t.test("without authentication bodies are still validated", async (t) => {
  for (const body of ["[]", "{}", '{"op":"select"}', '{"Select":{},"Insert":{}}', "\ufeff{}"]) {
    t.equal((await gateway.query(body)).status, 400, body);
  }
  const bad = { Select: { ...select.Select, database: "a/b" } };
  checkRefusal(t, await gateway.query(bad), { status: 400, code: "invalid_name" });
  t.equal((await gateway.request("/query", { method: "POST", body: "{}" })).status, 415);
  t.equal(upstream.take().length, 0);
});

t.test("without authentication login works and administration is disabled", async (t) => {
  const token = await gateway.login();
  const wrong = await gateway.send("POST", "/login", { username: "admin", password: "wrong one" });
  checkRefusal(t, wrong, { status: 401, code: "credentials_invalid" });
  const user = { username: "bob", password: "long enough", role: "ReadOnly" };
  const change = { old_password: ADMIN_PASSWORD, new_password: "another password" };
  const denied = { status: 403, code: "administration_disabled" };
  for (const shown of [undefined, token]) {
    checkRefusal(t, await gateway.send("POST", "/api/users", user, shown), denied);
    checkRefusal(t, await gateway.send("PUT", "/api/users/admin/password", change, shown), denied);
  }
});

t.test("without authentication only a local Host and Origin are accepted", async (t) => {
  const post = (...lines: string[]) =>
    sendRaw(
      gateway.url,
      ["POST /query HTTP/1.1", "Content-Type: application/json", ...lines],
      JSON.stringify(select),
    );
  const local = ["127.0.0.1", "localhost", "localhost:8080", "LOCALHOST", "[::1]:80", "127.9.9.9"];
  for (const host of local) t.equal((await post(`Host: ${host}`)).status, 200, host);
  upstream.take();
  const foreign = [
    "evil.example",
    "evil.example:80",
    "192.0.2.1",
    "localhost.evil.example",
    "127.0.0.1.nip.io",
    "0.0.0.0",
    "[::]",
  ];
  for (const host of foreign) {
    const { status, text } = await post(`Host: ${host}`);
    t.equal(status, 403, host);
    t.equal(JSON.parse(text).code, "host_not_allowed");
  }
  for (const host of ["localhost@evil.example", "a b"]) {
    t.equal((await post(`Host: ${host}`)).status, 400, "an invalid host");
  }
  const { host, port } = new URL(gateway.url);
  const pages = [
    "Origin: http://evil.example",
    "Origin: null",
    "Origin: https://localhost.evil.example",
    "Origin: x",
    "Origin: http://localhost:3000",
    "Origin: http://localhost",
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-site",
    `Origin: http://${host}\r\nSec-Fetch-Site: same-site`,
  ];
  for (const page of pages) {
    const { status, text } = await post(`Host: ${host}`, page);
    t.equal(status, 403, page);
    t.equal(JSON.parse(text).code, "origin_not_allowed");
  }
  for (const path of ["/login", "/healthz", "/readyz", "/.well-known/jwks.json"]) {
    const method = path === "/login" ? "POST" : "GET";
    const lines = [`${method} ${path} HTTP/1.1`, "Host: evil.example"];
    t.equal((await sendRaw(gateway.url, lines)).status, 403, path);
  }
  t.equal(upstream.take().length, 0, "the upstream received nothing");
  const own = [
    `Origin: http://${host}`,
    `Origin: http://localhost:${port}`,
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Site: none",
  ];
  for (const page of own) t.equal((await post(`Host: ${host}`, page)).status, 200, page);
});

t.test("without authentication public_url and allowed origins are accepted", async (t) => {
  const names =
    'public_url = "https://gate.example:8443"\nallowed_origins = ["https://app.example"]';
  const { gateway } = await openGatewaySetup(t, { auth, config: `[server]\n${names}\n` });
  for (const [status, ...lines] of [
    [200, "Host: gate.example:8443"],
    [403, "Host: gate.example.evil.example"],
    [200, "Origin: https://app.example"],
    [200, "Origin: https://app.example", "Sec-Fetch-Site: cross-site"],
    [200, "Origin: https://gate.example:8443"],
    [403, "Origin: https://gate.example"],
    [403, "Origin: https://app.example.evil"],
  ] as const) {
    const answer = await sendRaw(gateway.url, ["GET /healthz HTTP/1.1", ...lines]);
    t.equal(answer.status, status, lines.join());
  }
});

t.test("without authentication the gateway does not start on a public address", async (t) => {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), "[auth]\nenabled = false\n");
  const flags = ["serve", "--host", "0.0.0.0", "--port", "0"];
  const { code, stdout, stderr } = await runCommand(home, flags);
  t.equal(code, 1);
  t.match(`${stdout}${stderr}`, "insecure_allow_remote");
});

t.test("insecure_allow_remote accepts every Host and Origin", async (t) => {
  const remote = `${auth}\ninsecure_allow_remote = true`;
  const config = '[server]\nhost = "0.0.0.0"\n';
  const { gateway } = await openGatewaySetup(t, { auth: remote, config });
  const url = gateway.url.replace("0.0.0.0", "127.0.0.1");
  const lines = ["Host: elsewhere.example", "Origin: http://evil.example"];
  t.equal((await sendRaw(url, ["GET /healthz HTTP/1.1", ...lines])).status, 200);
  const exposed = await gateway.service.logged(({ msg }) =>
    String(msg).includes("set [server.tls]"),
  );
  t.equal(exposed.level, "warn");
});
