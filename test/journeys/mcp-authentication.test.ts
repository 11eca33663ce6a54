import t, { type Test } from "tap";
import { checkRefusal, sendRaw } from "../gateway/kit.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { runWarm } from "../kit/warm-command.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { authorize, exchange, obtainTokens } from "../oauth/flow.ts";
import { callTool, openProxied, refusalOf, revision, send, staff } from "./mcp.ts";
import { passwordOf, staffedHome, tokenOf } from "./staff.ts";

const people = ["root * Owner", "alice main ReadWrite"];

async function open(t: Test, config = "", auth = ""): Promise<TestGateway> {
  return startGateway(t, { home: await staffedHome(t, people), config, auth });
}

const metadataPath = "/.well-known/oauth-protected-resource";

const scopes = ["mcp:tools", "mcp:resources"];

const list = statelessCall("tools/list");

function challenge(url: string, error?: string, scope = scopes.join(" ")): string {
  const said = error === undefined ? "" : ` error="${error}",`;
  return `Bearer realm="mcp", resource_metadata="${url}${metadataPath}/mcp",${said} scope="${scope}"`;
}

const shared = await open(t);
const page = "https://app.example.com";
const published = await open(
  t,
  `[server]\npublic_url = "https://gate.example.com"\nallowed_origins = ["${page}"]\n`,
);

t.test("a request without a token gets a challenge with the metadata URL", async (t) => {
  const { url } = shared;
  const requests = [list, initialize, { method: "GET" }, { method: "DELETE" }, { body: "{" }];
  for (const request of requests) {
    const answer = await send(shared, request);
    t.equal(answer.status, 401);
    t.match(answer.body, { code: "unauthenticated", message: "Missing Authorization header" });
    t.equal(answer.headers.get("www-authenticate"), challenge(url));
  }
  for (const place of [metadataPath, `${metadataPath}/mcp`]) {
    const { status, body, headers } = await shared.request(place);
    t.equal(status, 200);
    t.match(headers.get("content-type"), /^application\/json/);
    t.strictSame(body, {
      resource: `${url}/mcp`,
      authorization_servers: [url],
      scopes_supported: scopes,
      bearer_methods_supported: ["header"],
    });
  }
  t.equal((await shared.request(`${metadataPath}/query`)).status, 404);
  for (const name of ["oauth-authorization-server", "openid-configuration"]) {
    for (const place of [name, `${name}/mcp`]) {
      const server = await shared.request(`/.well-known/${place}`);
      t.match(server.body, { issuer: url, code_challenge_methods_supported: ["S256"] }, place);
      t.ok(server.headers.get("x-request-id"));
    }
  }
});

t.test("an invalid token gets a challenge with the reason", async (t) => {
  const token = await tokenOf(shared, "alice");
  const bad = { "": "token_invalid", "no.jwt": "token_invalid", [`${token}x`]: "token_invalid" };
  for (const [text, code] of Object.entries(bad)) {
    const answer = await send(shared, list, text);
    t.equal(answer.status, 401);
    t.equal(refusalOf(answer), code);
    t.equal(answer.headers.get("www-authenticate"), challenge(shared.url, "invalid_token"));
  }
  const basic = { ...list, headers: { ...list.headers, authorization: "Basic YTpi" } };
  t.equal(refusalOf(await send(shared, basic)), "token_invalid");
  await shared.send("POST", "/logout", undefined, token);
  const late = await send(shared, list, token);
  t.equal(refusalOf(late), "token_revoked");
  t.equal(late.headers.get("www-authenticate"), challenge(shared.url, "invalid_token"));
});

t.test("behind a reverse proxy, metadata has the public URL", async (t) => {
  const url = "https://gate.example.com";
  const gateway = published;
  const { host } = new URL(gateway.url);
  for (const forwarded of ["gate.example.com", "evil.example.com"]) {
    const headers = { "x-forwarded-host": forwarded, "x-forwarded-proto": "http" };
    const answer = await send(gateway, { ...list, headers: { ...list.headers, ...headers } });
    t.equal(answer.headers.get("www-authenticate"), challenge(url), `by way of ${host}`);
  }
  const { body } = await gateway.request(`${metadataPath}/mcp`);
  t.match(body, { resource: `${url}/mcp`, authorization_servers: [url] });
  const server = await gateway.request("/.well-known/oauth-authorization-server");
  t.match(server.body, { issuer: url, token_endpoint: `${url}/oauth/token` });
  const raw = await sendRaw(gateway.url, ["GET /mcp HTTP/1.1", "Host: gate.example.com"]);
  t.equal(raw.status, 401, "the host of the front is the gateway's own");
});

t.test("a client on this machine may use any of its names", async (t) => {
  const { port } = new URL(shared.url);
  const get = async (host: string, path: string) =>
    sendRaw(shared.url, [`GET ${path} HTTP/1.1`, `Host: ${host}`]);
  const options = { username: "alice", password: passwordOf("alice") };
  for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`]) {
    const url = `http://${host}`;
    const refused = await get(host, "/mcp");
    t.match(refused.head, `WWW-Authenticate: ${challenge(url)}`, host);
    for (const path of [metadataPath, `${metadataPath}/mcp`]) {
      const { text } = await get(host.toUpperCase(), path);
      t.match(text, `"resource":"${url}/mcp","authorization_servers":["${shared.url}"]`);
    }
    const parameters = { resource: `${url}/mcp` };
    const authorized = await authorize(shared, { ...options, parameters });
    const { body } = await exchange(shared, authorized, parameters);
    const accessToken = String(body.access_token);
    t.equal((await send(shared, list, accessToken)).status, 200, host);
    const [, claims = ""] = accessToken.split(".");
    t.match(Buffer.from(claims, "base64url").toString(), `"aud":"${url}/mcp"`);
  }
  for (const host of ["localhost:1", "localhost", "evil.example.com", `localhost.:${port}`]) {
    const { text } = await get(host, metadataPath);
    t.match(text, `"resource":"${shared.url}/mcp"`, host);
  }
  const elsewhere = { parameters: { resource: "http://localhost:1/mcp" }, ...options };
  await t.rejects(obtainTokens(shared, elsewhere));
  const { port: other } = new URL(published.url);
  const lines = [`GET ${metadataPath} HTTP/1.1`, `Host: localhost:${other}`];
  t.match((await sendRaw(published.url, lines)).text, '"resource":"https://gate.example.com/mcp"');
});

t.test("a page of any origin may read the documents that are well known", async (t) => {
  for (const gateway of [shared, published]) {
    for (const origin of ["https://inspector.example.com", page, "null"]) {
      for (const name of [
        "oauth-protected-resource",
        "oauth-protected-resource/mcp",
        "jwks.json",
        "oauth-authorization-server",
        "oauth-authorization-server/mcp",
        "openid-configuration",
        "openid-configuration/mcp",
        "unknown",
      ]) {
        const path = `/.well-known/${name}`;
        const preflight = await gateway.request(path, {
          method: "OPTIONS",
          headers: {
            origin,
            "access-control-request-method": "GET",
            "access-control-request-headers": "mcp-protocol-version",
          },
        });
        const answer = await gateway.request(path, { headers: { origin } });
        for (const { headers } of [preflight, answer]) {
          t.equal(headers.get("access-control-allow-origin"), "*", `${path} for ${origin}`);
        }
        const isKnown = name !== "unknown";
        t.equal(answer.status, isKnown ? 200 : 404);
        t.equal(preflight.status, isKnown ? 204 : 404);
        const headers = preflight.headers.get("access-control-allow-headers");
        if (isKnown) t.match(headers, /MCP-Protocol-Version/i);
      }
    }
  }
  const other = await shared.request("/healthz", { headers: { origin: page } });
  t.equal(other.headers.get("access-control-allow-origin"), null);
});

t.test("foreign origins and rebound host names are refused", async (t) => {
  const token = await tokenOf(shared, "alice");
  const { port } = new URL(shared.url);
  const from = (origin: string, credential?: string) =>
    send(shared, { ...list, headers: { ...list.headers, origin } }, credential);
  for (const origin of ["https://evil.example.com", "null", "http://127.0.0.1.evil.test", "x"]) {
    checkRefusal(t, await from(origin, token), { status: 403, code: "origin_not_allowed" });
    t.equal((await from(origin)).status, 403, "with or without a token");
  }
  for (const origin of [shared.url, `http://localhost:${port}`, "http://[::1]:3000"]) {
    t.equal((await from(origin, token)).status, 200, origin);
  }
  const own = `localhost:${port}`;
  for (const host of ["evil.example.com", `rebound.test:${port}`, "127.0.0.1.evil.test"]) {
    for (const lines of [
      ["GET /mcp HTTP/1.1", `Host: ${host}`],
      [`GET http://${host}/mcp HTTP/1.1`, `Host: ${own}`],
    ]) {
      const raw = await sendRaw(shared.url, lines);
      t.equal(raw.status, 403, lines.join());
      t.match(raw.text, /"host_not_allowed"/);
      t.match(raw.text, /use the URL in server.public_url or a loopback address/);
    }
  }
  for (const host of [own, "127.0.0.1", "[::1]"]) {
    for (const lines of [
      ["GET /mcp HTTP/1.1", `Host: ${host}`],
      [`GET http://${host}/mcp HTTP/1.1`, "Host: evil.example.com"],
    ]) {
      t.equal((await sendRaw(shared.url, lines)).status, 401, lines.join());
    }
  }
});

t.test("a page of an allowed origin can use MCP and read its challenges", async (t) => {
  const gateway = published;
  const own = Object.keys(statelessCall("tools/call", { name: "select" }).headers);
  const needed = ["authorization", "mcp-param-a.b", ...own.filter((name) => name !== "accept")];
  const preflight = await gateway.request("/mcp", {
    method: "OPTIONS",
    headers: {
      origin: page,
      "access-control-request-method": "POST",
      "access-control-request-headers": needed.join(","),
    },
  });
  t.equal(preflight.status, 204);
  t.equal(preflight.headers.get("access-control-allow-origin"), page);
  t.match(preflight.headers.get("access-control-allow-methods"), /POST.*GET.*DELETE/);
  const allowed = preflight.headers.get("access-control-allow-headers")?.toLowerCase().split(", ");
  for (const name of [...needed, "mcp-session-id", "last-event-id"]) {
    t.ok(allowed?.includes(name), name);
  }
  const headers = { ...list.headers, origin: page };
  const refused = await send(gateway, { ...list, headers });
  t.equal(refused.status, 401);
  t.equal(refused.headers.get("access-control-allow-origin"), page);
  const readable = refused.headers.get("access-control-expose-headers");
  t.match(readable, /WWW-Authenticate/, "the challenge can be read");
  t.match(readable, /Mcp-Session-Id/);
  const answer = await send(gateway, { ...list, headers }, await tokenOf(gateway, "alice"));
  t.equal(answer.status, 200);
  t.equal(answer.headers.get("access-control-allow-origin"), page);
});

t.test("a missing scope is named and the call is not executed", async (t) => {
  const username = "alice";
  const parameters = { scope: "mcp:resources" };
  const options = { username, password: passwordOf(username), parameters };
  const { accessToken, body } = await obtainTokens(shared, options);
  t.equal(body.scope, "mcp:resources");
  const answer = await callTool(shared, "select", { database: "main" }, accessToken);
  t.equal(answer.status, 403);
  t.equal(refusalOf(answer), "insufficient_scope");
  const expected = challenge(shared.url, "insufficient_scope", "mcp:resources mcp:tools");
  t.equal(answer.headers.get("www-authenticate"), expected);
  const resources = await send(shared, statelessCall("resources/list"), accessToken);
  t.equal(resources.status, 200);
  t.equal((await send(shared, statelessCall("server/discover"), accessToken)).status, 200);
});

t.test("an access token is accepted only at its resource", async (t) => {
  const options = { username: "alice", password: passwordOf("alice") };
  const { accessToken } = await obtainTokens(shared, options);
  t.equal((await send(shared, list, accessToken)).status, 200);
  t.equal((await send(shared, list, await tokenOf(shared, "alice"))).status, 200, "a login token");
  const other = await open(t);
  const foreign = await obtainTokens(other, options);
  const answer = await send(shared, list, foreign.accessToken);
  t.equal(refusalOf(answer), "token_invalid", "one of another gateway");
  t.equal(refusalOf(await send(other, list, accessToken)), "token_invalid");
});

t.test("login tokens may have the gateway's URL as their issuer, too", async (t) => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const gateway = await startGateway(t, {
    home: await staffedHome(t, people),
    auth: `issuer = "${url}"`,
    config: `[server]\npublic_url = "${url}"`,
    port,
  });
  const login = await tokenOf(gateway, "alice");
  const options = { username: "alice", password: passwordOf("alice") };
  const { accessToken } = await obtainTokens(gateway, options);
  for (const token of [login, accessToken]) {
    t.equal((await send(gateway, list, token)).status, 200);
    const explained = await runWarm(gateway.home, ["token", "explain", "-"], token);
    t.match(explained, { code: 0, stdout: /^verdict: accepted$/m });
  }
  t.equal((await gateway.get("/api/me", login)).status, 200);
  t.equal((await gateway.get("/api/me", accessToken)).body.code, "token_invalid");
});

t.test("without authentication every local caller is accepted", async (t) => {
  const gateway = await open(t, "", "enabled = false");
  await gateway.query({ CreateDatabase: { database: "main" } });
  const created = await callTool(gateway, "create_table", {
    database: "main",
    table: "t",
    columns: [{ name: "id", type: "int", primary_key: true }],
  });
  t.equal(created.status, 200);
  t.equal(refusalOf(created), undefined);
  const { text } = await callTool(gateway, "whoami", {});
  t.match(text, '"database\\":\\"*\\",');
  t.equal((await send(gateway, list)).status, 200);
  const { headers } = list;
  const foreign = { ...list, headers: { ...headers, origin: "https://evil.example.com" } };
  t.equal((await send(gateway, foreign)).status, 403);
  const raw = await sendRaw(gateway.url, ["GET /mcp HTTP/1.1", "Host: evil.example.com"]);
  t.equal(raw.status, 403);
  t.equal((await send(gateway, { ...list, body: `[${list.body}]` })).status, 400);
});

t.test("with MCP disabled, /mcp and its metadata do not exist", async (t) => {
  const gateway = await open(t, "[mcp]\nenabled = false\n");
  const paths = ["/mcp", metadataPath, "/.well-known/oauth-authorization-server", "/oauth/token"];
  for (const path of paths) t.equal((await gateway.request(path)).status, 404, path);
});

t.test("an event stream ends its connection if the client says so", async (t) => {
  const token = await tokenOf(shared, "alice");
  const listen = statelessCall("subscriptions/listen", {
    notifications: { toolsListChanged: true },
  });
  const earlier = handshakeCall("tools/list", {}, revision);
  const name = "test_tool_with_progress";
  const policy = tables("mcp.tools", [{ name, permission: "SELECT", database: "main" }]);
  const proxied = await openProxied(t, staff, policy);
  for (const [gateway, { headers, body }] of [
    [shared, listen],
    [shared, earlier],
    [proxied.gateway, statelessCall("tools/call", { name, arguments: {} })],
  ] as const) {
    const bearer = gateway === shared ? token : await tokenOf(gateway, "alice");
    const lines = Object.entries({ ...headers, authorization: `Bearer ${bearer}` });
    const sent = ["POST /mcp HTTP/1.1", ...lines.map(([name, value]) => `${name}: ${value}`)];
    const { head, status } = await sendRaw(gateway.url, sent, body);
    t.equal(status, 200, "it is closed");
    t.match(head, /^content-type: text\/event-stream/im);
    t.match(head, /^connection: close$/im);
    t.notMatch(head, /keep-alive/i);
  }
});
