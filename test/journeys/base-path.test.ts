import { writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { ask } from "../kit/client.ts";
import { ADMIN_PASSWORD, auditOf, startGateway, TestGateway } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { select } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorize, exchange } from "../oauth/flow.ts";
import { callTool, send, textOf } from "./mcp.ts";

const BASE = "/_gatehouse";
const server = `[server]\nbase_path = "${BASE}"\n`;

const routes = tables("routes", [
  { path: "/login", methods: ["GET", "POST"], access: "public" },
  { path: "/api/:version/heartbeat", access: "authenticated" },
  { path: "/query", methods: ["POST"], access: "administrator" },
  { path: "/healthz", access: "public" },
  { path: "/", access: "public" },
  { path: "/*", methods: ["GET", "POST"], access: "administrator" },
]);

/** Both views of one gateway: its own paths, and those of the upstream. */
async function scene(t: Test, config = server) {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = (_, response) => response.end('{"status":"success","data":[]}');
  const root = await startGateway(t, { upstream: upstream.url, config: `${config}${routes}` });
  const own = new TestGateway(root.home, root.service, `${root.url}${BASE}`);
  return { upstream, root, own, admin: await own.login() };
}

const shared = await scene(t);

t.beforeEach(() => void shared.upstream.take());

t.test("below the base path, the gateway logs in, administers and queries", async (t) => {
  const { own, upstream, admin } = shared;
  const token = await own.addUser("reader", "ReadOnly");
  const me = await own.get("/api/me", token);
  t.match(me.body, { user: { username: "reader" } });
  t.match(await auditOf(own, me), { path: `${BASE}/api/me`, user: "reader", decision: "allow" });
  const answer = await own.query(select, token);
  t.equal(answer.status, 200, answer.text);
  t.strictSame(
    upstream.take().map(({ url }) => url),
    ["/query"],
    "the upstream gets the path that it serves",
  );
  t.match(await auditOf(own, answer), { via: "query", path: `${BASE}/query` });
  for (const path of ["/healthz", "/readyz"]) t.equal((await own.request(path)).status, 200);
  t.equal((await own.get("/api/users", admin)).status, 200);
  const login = { username: "admin", password: ADMIN_PASSWORD };
  const line = await auditOf(own, await own.send("POST", "/login", login));
  t.match(line, { operations: [{ operation: "login" }], path: `${BASE}/login` });
  t.notOk("via" in line, "a login has no entry point");
  t.equal((await own.send("POST", "/logout", undefined, token)).status, 200);
});

t.test("all other paths are the upstream's, also those of a gateway at the root", async (t) => {
  const { root, upstream, admin } = shared;
  const reached: [method: string, path: string][] = [
    ["POST", "/login"],
    ["GET", "/api/v2/heartbeat"],
    ["POST", "/query"],
    ["GET", "/healthz"],
    ["GET", "/"],
    ["GET", "/mcp"],
    ["GET", "/oauth/authorize"],
    ["GET", "/_gatehouses"],
    ["GET", "/x/_gatehouse/login"],
  ];
  for (const [method, path] of reached) {
    const init = { method, headers: { authorization: `Bearer ${admin}` } };
    const answer = await root.request(path, init);
    t.equal(answer.status, 200, `${method} ${path}: ${answer.text}`);
    t.strictSame(
      upstream.take().map(({ url }) => url),
      [path],
    );
  }
  const anonymous = await root.request("/api/v2/heartbeat");
  t.equal(anonymous.status, 401, "the right of the route decides");
  t.equal(upstream.take().length, 0);
});

t.test("what is below the base path and unknown is 404, whatever the routes", async (t) => {
  const { root, upstream, admin } = shared;
  const paths = `/x /login/ /login/x /api /Login /_all /oauth//x`.split(" ");
  const spellings = ["/_GATEHOUSE/login", "/%5fgatehouse/login", "/_gatehous%65/x", "/_Gatehouse"];
  const all = [...paths.map((path) => `${BASE}${path}`), ...spellings];
  for (const path of [...all, "/.well-known/x", "/.Well-Known/x"]) {
    const answer = await ask(`${root.url}${path}`, {
      headers: { authorization: `Bearer ${admin}` },
    });
    t.equal(answer.status, 404, path);
  }
  t.equal(upstream.take().length, 0);
});

t.test("a browser finds the home page at the base path alone", async (t) => {
  const { root, own } = shared;
  const headers = { accept: "text/html" };
  for (const path of ["", "/"]) {
    const { status, text } = await own.request(path, { headers });
    t.equal(status, 200);
    t.match(text, "This is a gateway to a database");
    t.match(text, `POST ${BASE}/login`);
    t.match(text, `href="${own.url}/oauth/applications"`);
    t.equal((await own.request(path)).status, 404, "a program finds nothing");
  }
  t.notMatch((await root.request("/", { headers })).text, "This is a gateway");
});

t.test("an MCP client finds its way from the challenge to a tool's result", async (t) => {
  const { root, own, upstream } = shared;
  const list = statelessCall("tools/list");
  const challenge = (await send(own, list)).headers.get("www-authenticate") ?? "";
  const [, metadata = ""] = /resource_metadata="([^"]*)"/.exec(challenge) ?? [];
  t.equal(metadata, `${root.url}/.well-known/oauth-protected-resource${BASE}/mcp`);
  const resource = await root.request(new URL(metadata).pathname);
  t.match(resource.body, { resource: `${own.url}/mcp`, authorization_servers: [own.url] });
  for (const document of ["oauth-authorization-server", "openid-configuration"]) {
    for (const path of [BASE, `${BASE}/mcp`]) {
      const { body } = await root.request(`/.well-known/${document}${path}`);
      t.match(body, { issuer: own.url, token_endpoint: `${own.url}/oauth/token` }, document);
    }
    t.equal((await root.request(`/.well-known/${document}`)).status, 404, "not that of the root");
  }
  t.equal((await root.request("/.well-known/oauth-protected-resource")).status, 404);
  t.equal((await root.request("/.well-known/jwks.json")).status, 200);

  const browser = new PlainBrowser(root.url);
  const options = { username: "admin", password: ADMIN_PASSWORD, browser };
  const authorized = await authorize(own, options);
  for (const { name, path } of browser.cookies) t.ok(path.startsWith(`${BASE}/oauth`), name);
  const { body } = await exchange(own, authorized);
  const accessToken = String(body.access_token);
  t.equal(authorized.callback.searchParams.get("iss"), own.url);
  const args = { database: "main", from: "t", columns: ["*"] };
  const called = await callTool(own, "select", args, accessToken);
  t.equal(called.status, 200, textOf(called));
  t.ok(upstream.take().some(({ url }) => url === "/query"));
  t.equal((await own.get("/api/me", accessToken)).status, 401, "it opens /mcp alone");

  const page = await browser.open(`${own.url}/oauth/applications`);
  const login = { username: "admin", password: ADMIN_PASSWORD, action: "login" };
  const applications = page.text.includes("password") ? await browser.submit(page, login) : page;
  t.equal(applications.url, `${own.url}/oauth/applications`);
  t.match(applications.text, "Disconnect");
});

t.test("with a public URL, its metadata and cookies carry the base path", async (t) => {
  const url = "https://gate.example.com";
  const { root, own } = await scene(t, `${server}public_url = "${url}"\n`);
  const challenge = (await send(own, statelessCall("tools/list"))).headers.get("www-authenticate");
  t.match(challenge, `="${url}/.well-known/oauth-protected-resource${BASE}/mcp"`);
  const { body } = await root.request(`/.well-known/oauth-authorization-server${BASE}`);
  t.match(body, { issuer: `${url}${BASE}`, jwks_uri: `${url}${BASE}/oauth/jwks` });
  const page = await own.request("/oauth/applications", { headers: { accept: "text/html" } });
  t.match(page.headers.getSetCookie(), [/^__Host-gatehouse_browser=.*path=\/;/i]);
});

t.test("a browser of another name of this machine gets the metadata of that name", async (t) => {
  const { root } = shared;
  const local = root.url.replace("127.0.0.1", "localhost");
  const gateway = new TestGateway(root.home, root.service, `${local}${BASE}`);
  const challenge = (await send(gateway, statelessCall("tools/list"))).headers;
  t.match(challenge.get("www-authenticate"), `="${local}/.well-known/oauth-protected-resource`);
});

t.test("a path of several segments works as one does", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const config = `[server]\nbase_path = "/internal/gate"\n${tables("routes", [
    { path: "/internal/:name", access: "public" },
  ])}`;
  const root = await startGateway(t, { upstream: upstream.url, config });
  const own = new TestGateway(root.home, root.service, `${root.url}/internal/gate`);
  t.equal((await own.query(select, await own.login())).status, 200);
  upstream.take();
  t.equal((await root.request("/internal/gates")).status, 200);
  t.equal(upstream.take().length, 1);
  for (const path of ["/internal/gate", "/internal/Gate", "/internal/gate/x", "/api/v2/x"]) {
    t.match(await root.get(path), { status: 404, body: { message: /^Not found$/ } }, path);
  }
  const message = "Not found: the gateway's own paths are below /internal/gate";
  for (const path of ["/login", "/Query", "/api/me"]) {
    t.match(await root.get(path), { status: 404, body: { code: "not_found", message } }, path);
  }
  t.equal(upstream.take().length, 0);
});

t.test("commands find the gateway below its base path", async (t) => {
  const gateway = await startGateway(t, { config: server });
  const own = new TestGateway(gateway.home, gateway.service, `${gateway.url}${BASE}`);
  const token = await own.login();
  const { port } = new URL(gateway.url);
  const config = path.join(gateway.home, "client.toml");
  writeFileSync(config, `[server]\nbase_path = "${BASE}"\nport = ${port}\n`);
  const list = `${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" })}\n`;
  const ways: [flags: string[], env: NodeJS.ProcessEnv][] = [
    [["--url", own.url], {}],
    [["--url", `${own.url}/mcp`], {}],
    [[], { GATEHOUSE_URL: own.url }],
    [["--config", config], {}],
  ];
  for (const [flags, more] of ways) {
    const env = { GATEHOUSE_TOKEN: token, ...more };
    const types = await runWarm(gateway.home, ["types", ...flags], "", env);
    t.match(types, { code: 0, stdout: /export interface Databases/ }, `types ${flags}`);
    t.match(types.stdout, `\`gatehouse types\` from ${own.url}. Run it again`);
  }
  const bridge = await runCommand(gateway.home, ["mcp", "--stdio", "--config", config], {
    env: { GATEHOUSE_TOKEN: token },
    input: list,
  });
  t.match(bridge.stdout, /"name":"select"/, bridge.stderr);
  const env = { GATEHOUSE_TOKEN: token };
  const root = await runWarm(gateway.home, ["types", "--url", gateway.url], "", env);
  t.match(root, { code: 1, stderr: new RegExp(`${gateway.url}/schema: Not found`) });
  const odd = await runWarm(gateway.home, ["types", "--url", `${gateway.url}/a//b`], "", env);
  t.match(odd, { code: 2, stderr: /--url is not the URL of a gateway/ });
});

t.test("`token explain` knows the issuer below the base path", async (t) => {
  const { own, root } = shared;
  const options = {
    username: "admin",
    password: ADMIN_PASSWORD,
    browser: new PlainBrowser(root.url),
  };
  const { body } = await exchange(own, await authorize(own, options));
  const config = path.join(own.home, "explain.toml");
  const { port } = new URL(root.url);
  writeFileSync(config, `[server]\nbase_path = "${BASE}"\nport = ${port}\n`);
  const input = String(body.access_token);
  const explained = await runWarm(own.home, ["token", "explain", "-", "--config", config], input);
  t.match(explained, { code: 0, stdout: /verdict: accepted/ });
});

t.test("the log names the listener and the public URL", async (t) => {
  const log = shared.root.service.log.find(({ msg }) => String(msg).startsWith("listening on"));
  t.match(log, { url: shared.root.url, publicUrl: shared.own.url });
});
