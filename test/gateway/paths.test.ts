import t from "tap";
import { openSetting, select, sendRaw } from "./kit.ts";

const body = JSON.stringify(select);

const shared = await openSetting(t);

t.test("fixed parts of a path match exactly as sent", async (t) => {
  const { gateway, upstream } = shared;
  const token = await gateway.login();
  const headers = ["Content-Type: application/json", `Authorization: Bearer ${token}`];
  const post = (target: string) =>
    sendRaw(gateway.url, [`POST ${target} HTTP/1.1`, ...headers], body);
  const others = [
    ...["//query", "/query/", "/%71uery", "/QUERY", "/./query", "/a/../query", "/query;a=b"],
    ...["/query%00", "/query#", "/", "*", `${gateway.url}/query`, "/api/users/", "/api//users"],
    ...["/api/users//password", "/api/users/a/b/password", "/api/users/a/password/"],
  ];
  for (const target of others) {
    const { status, text } = await post(target);
    t.equal(status, 404, target);
    t.equal(JSON.parse(text).status, "error");
  }
  t.equal(upstream.take().length, 0, "the upstream received nothing");
  t.equal((await post("/query")).status, 200);
});

t.test("a query string is ignored and never carries a token", async (t) => {
  const { gateway, upstream } = shared;
  const token = await gateway.login();
  t.equal((await gateway.send("POST", "/query?a=b&c", select, token)).status, 200);
  t.equal(upstream.take()[0]?.url, "/query", "and does not go up");
  const names = ["access_token", "token", "authorization"];
  for (const name of names) {
    const answer = await gateway.send("POST", `/query?${name}=${token}`, select);
    t.equal(answer.body.code, "unauthenticated");
  }
  t.equal((await gateway.request("/healthz?x")).status, 200);
});

t.test("a path's username is decoded once and must then be one", async (t) => {
  const { gateway } = shared;
  const token = await gateway.login();
  const content = { new_password: "long enough" };
  const put = (name: string) => gateway.send("PUT", `/api/users/${name}/password`, content, token);
  await gateway.addUser("a.b@c", "ReadOnly");
  t.equal((await put("a.b%40c")).status, 200);
  t.equal((await put("%61.b@c")).status, 200);
  t.equal((await put("a.b%2540c")).body.code, "invalid_username", "not decoded twice");
  for (const name of ["a%2Fb", "%2e%2e%20", "%ff", "%", "%zz", "a%00", "b%20", "%C3%A9"]) {
    const answer = await sendRaw(
      gateway.url,
      [
        `PUT /api/users/${name}/password HTTP/1.1`,
        "Content-Type: application/json",
        `Authorization: Bearer ${token}`,
      ],
      JSON.stringify(content),
    );
    t.equal(JSON.parse(answer.text).code, "invalid_username", name);
  }
});

t.test("the scheme's case does not matter, everything else of the header does", async (t) => {
  const { gateway } = shared;
  const token = await gateway.login();
  const ask = async (value: string) => {
    const headers = { "content-type": "application/json", authorization: value };
    return (await gateway.request("/query", { method: "POST", headers, body })).status;
  };
  for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "]) {
    t.equal(await ask(`${scheme} ${token}`), 200, scheme);
  }
  const wrong = ["", "Bearer", "Bearer ", token, `Token ${token}`, `Basic ${token}`];
  const strange = [`Bearer ${token} x`, `Bearer ${token},Bearer ${token}`, `Bearer "${token}"`];
  const joined = [`Bearer${token}`, `Bearer\t${token}`, `Bearer: ${token}`, `Bearer ${token}, `];
  for (const value of [...wrong, ...strange, ...joined]) {
    t.equal(await ask(value), 401, JSON.stringify(value).slice(0, 30));
  }
});

t.test("two Authorization headers are refused, whichever is good", async (t) => {
  const { gateway, upstream } = shared;
  const token = await gateway.login();
  upstream.take();
  const good = `Authorization: Bearer ${token}`;
  for (const pair of [
    [good, good],
    [good, "authorization: Basic x"],
    ["AUTHORIZATION: x", good],
  ]) {
    const lines = ["POST /query HTTP/1.1", "Content-Type: application/json", ...pair];
    const { status, text } = await sendRaw(gateway.url, lines, body);
    t.equal(status, 400);
    t.equal(JSON.parse(text).code, "several_authorization_headers");
  }
  t.equal(upstream.take().length, 0);
});

t.test("HEAD is answered where GET is, without a body", async (t) => {
  const { gateway } = shared;
  for (const path of ["/healthz", "/readyz", "/.well-known/jwks.json"]) {
    const { status, head, text } = await sendRaw(gateway.url, [`HEAD ${path} HTTP/1.1`]);
    t.equal(status, 200, path);
    t.equal(text, "");
    t.match(head, /Content-Length: [1-9]/);
  }
  const refused = await sendRaw(gateway.url, ["HEAD /query HTTP/1.1"]);
  t.equal(refused.status, 405);
  t.equal(refused.text, "");
});

t.test("a request id is the gateway's own unless a trusted proxy gives a plain one", async (t) => {
  const { gateway } = shared;
  const ids = new Set<string | null>();
  for (let at = 0; at < 3; at++) {
    const headers = { "x-request-id": "mine" };
    ids.add((await gateway.request("/healthz", { headers })).headers.get("x-request-id"));
  }
  t.equal(ids.size, 3);
  t.notOk(ids.has("mine"));

  const config = '[server]\ntrusted_proxies = ["127.0.0.1"]\n';
  const { gateway: trusting } = await openSetting(t, { config });
  const ask = async (id: string) => {
    const answer = await trusting.request("/healthz", { headers: { "x-request-id": id } });
    return answer.headers.get("x-request-id");
  };
  t.equal(await ask("proxy-1:2/3"), "proxy-1:2/3");
  t.equal(await ask("x".repeat(128)), "x".repeat(128));
  for (const id of ["x".repeat(129), "a b", 'a"', "a,b", "é"]) t.not(await ask(id), id);
});

t.test(
  "a browser at / is told what this is, and for all others that path is unknown",
  async (t) => {
    const { gateway } = shared;
    const accept = "text/html,application/xhtml+xml,*/*;q=0.8";
    const page = await gateway.request("/", { headers: { accept } });
    t.equal(page.status, 200);
    t.equal(page.headers.get("content-type"), "text/html; charset=utf-8");
    t.match(page.headers.get("content-security-policy"), /^default-src 'none'; /);
    t.type(page.headers.get("x-request-id"), "string");
    for (const place of ["POST /login", "POST /query", `${gateway.url}/mcp`]) {
      t.ok(page.text.includes(`<code>${place}</code>`), place);
    }
    const applications = `${gateway.url}/oauth/applications`;
    t.ok(page.text.includes(`<a href="${applications}">${applications}</a>`));
    const head = await gateway.request("/", { method: "HEAD", headers: { accept } });
    t.strictSame([head.status, head.text], [200, ""]);
    t.equal(head.headers.get("content-length"), page.headers.get("content-length"));
    for (const [method, path, accepted] of [
      ["GET", "/", "*/*"],
      ["GET", "/", "application/json"],
      ["POST", "/", accept],
      ["GET", "/index.html", accept],
      ["GET", "//", accept],
    ] satisfies [string, string, string][]) {
      const other = await gateway.request(path, { method, headers: { accept: accepted } });
      t.strictSame([other.status, other.body.code], [404, "not_found"], `${method} ${path}`);
    }
  },
);
