import { createServer } from "node:http";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { callTool, refusalOf, send } from "../journeys/mcp.ts";
import { passwordOf, staffedHome } from "../journeys/staff.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { select } from "../kit/queries.ts";
import { Wire } from "../kit/wire.ts";
import { words } from "../kit/words.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorize, exchange, obtainTokens } from "../oauth/flow.ts";
import {
  authorizeUrl,
  type OAuthSetup,
  onServer,
  openOAuthSetup,
  PASSWORD,
  postForm,
  REDIRECT,
  registered,
} from "../oauth/kit.ts";
import { statusesOf } from "./kit.ts";

// Everything is started before the first test, since tap may end a file whose tests have all run.
const grants = ["root * Owner", "alice main ReadWrite", "alice side ReadWrite"];
const gateway = await startGateway(t, {
  home: await staffedHome(t, grants),
  config: '[server]\nrequest_timeout = 1\n[[routes]]\npath = "/me"\naccess = "authenticated"\n',
});

// The first request loads the authorization server.
await gateway.request("/oauth/jwks");

const narrow = { database: "archive", reach: "read" } as const;
/** Asks for more than the user has granted. */
const wide = JSON.stringify([{ type: "database_access", database: "*", read_only: false }]);
const wishes: Readonly<Record<string, string>> = {
  authorization_details: wide,
  database: "*",
  read_only: "false",
  reach: "full",
  role: "Owner",
  sub: "root",
  claims: '{"userinfo":{"email":null}}',
  audience: "gatehouse",
  cred: "x",
  grant: "x",
  login_hint: "root",
  display: "popup",
  ui_locales: "de",
  dpop_jkt: "x",
  scope: "openid profile email mcp:resources",
};

async function reachOf(setting: OAuthSetup, body: Record<string, unknown>) {
  const token = await setting.server.verify(String(body.access_token));
  const { username, database, readOnly, scopes } = token;
  return { username, database, readOnly, scopes: [...scopes].sort().join(" ") };
}

const granted = { username: "alice", database: "archive", readOnly: true, scopes: "mcp:resources" };

onServer("a client cannot widen what the user has narrowed at any step", async (t, setting) => {
  const parameters = { scope: "mcp:resources" };
  const clientId = await registered(setting);
  const { verifier, callback } = await authorize(setting, { clientId, ...narrow, parameters });
  const exchanged = await postForm(`${setting.url}/oauth/token`, {
    grant_type: "authorization_code",
    client_id: clientId,
    code: callback.searchParams.get("code") ?? "",
    code_verifier: verifier,
    redirect_uri: REDIRECT,
    ...wishes,
    scope: "mcp:tools mcp:resources",
  });
  t.strictSame(await reachOf(setting, exchanged.body), granted, "in the exchange of the code");
  let refreshToken = String(exchanged.body.refresh_token);
  for (const [name, value] of Object.entries(wishes)) {
    const options = { clientId, ...narrow, parameters: { ...parameters, [name]: value } };
    const { body } = await exchange(setting, await authorize(setting, options));
    t.strictSame(await reachOf(setting, body), granted, `${name} in the authorization request`);
    t.notOk("id_token" in body);
    const more = name === "scope" ? parameters : { [name]: value };
    const refreshed = await postForm(`${setting.url}/oauth/token`, {
      grant_type: "refresh_token",
      client_id: clientId,
      refresh_token: refreshToken,
      ...more,
    });
    t.strictSame(await reachOf(setting, refreshed.body), granted, `${name} in a refresh`);
    refreshToken = String(refreshed.body.refresh_token);
  }
});

onServer("a request consists only of unique parameters in its URL", async (t, setting) => {
  const { url, fetched } = await openTrap(t);
  const client_id = await registered(setting);
  const good = authorizeUrl(setting, { client_id });
  const odd = [
    ...words(`
    request_uri=urn:ietf:params:oauth:request_uri:x request=eyJhbGciOiJub25lIn0.e30. registration={}
    id_token_hint=eyJhbGciOiJub25lIn0.e30. id_token_hint=x max_age=-1 state=s2 code_challenge=x
    code_challenge_method=plain response_type=token response_mode=fragment response_mode=jwt
    response_mode=web_message prompt=none&prompt=login prompt=&prompt=login scope=x
  `),
    `request_uri=${url}/request`,
    `client_id=${client_id}`,
    `redirect_uri=${encodeURIComponent(REDIRECT)}`,
  ];
  for (const more of odd) {
    const page = await new PlainBrowser(setting.url).open(`${good}&${more}`);
    t.notMatch(page.url, /interaction|code=/, more);
    t.ok(page.status === 400 || page.url.includes("error="), more);
  }
  t.strictSame(fetched, []);
});

onServer("a consent can be used once", async (t, setting) => {
  const browser = new PlainBrowser(setting.url);
  const url = authorizeUrl(setting, { client_id: await registered(setting) });
  const login = await browser.open(url);
  const consent = await browser.submit(login, {
    username: "alice",
    password: PASSWORD,
    action: "login",
  });
  const yes = { database: "*", reach: "full", action: "allow" };
  const twice = await Promise.all([browser.submit(consent, yes), browser.submit(consent, yes)]);
  const codes = twice.filter((page) => page.url.includes("code="));
  t.ok(codes.length <= 1, "at most one of two concurrent consents leads to a code");
  for (const page of [
    await browser.submit(consent, yes),
    await browser.open(consent.url),
    await browser.open(consent.url.replace("/interaction/", "/authorize/")),
    await browser.submit(login, { username: "alice", password: PASSWORD, action: "login" }),
  ]) {
    t.equal(page.status, 400);
    t.notMatch(page.url, "code=");
  }
});

/** A local server that records what is fetched from it. */
async function openTrap(t: Test): Promise<{ url: string; fetched: string[] }> {
  const fetched: string[] = [];
  const server = createServer((request, response) => {
    fetched.push(request.url ?? "");
    response.end("{}");
  });
  return { url: `http://127.0.0.1:${await listening(t, server)}`, fetched };
}

onServer("URLs in a registration are neither fetched nor kept nor shown", async (t, setting) => {
  const { url, fetched } = await openTrap(t);
  const named = Object.fromEntries(
    words(`
      jwks_uri sector_identifier_uri logo_uri client_uri policy_uri tos_uri initiate_login_uri
      backchannel_logout_uri software_statement client_id registration_client_uri
      backchannel_client_notification_endpoint request_uris post_logout_redirect_uris client_secret
      scope default_acr_values
    `).map((name) => [name, `${url}/${name}`]),
  );
  const polluting = '"__proto__":{"client_name":"x","is_admin":true},"constructor":{"x":1}';
  const text = JSON.stringify({ ...named, redirect_uris: [REDIRECT], client_name: "Notebook" });
  const answer = await fetch(`${setting.url}/oauth/register`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: text.replace("{", `{${polluting},`),
  });
  t.equal(answer.status, 201);
  const client: Record<string, unknown> = { ...Object(await answer.json()) };
  t.strictSame(Object.keys(client).sort(), [
    "application_type",
    "client_id",
    "client_id_issued_at",
    "client_name",
    "grant_types",
    "redirect_uris",
    "response_types",
    "token_endpoint_auth_method",
  ]);
  const client_id = String(client.client_id);
  const page = await new PlainBrowser(setting.url).open(authorizeUrl(setting, { client_id }));
  t.equal(page.status, 200);
  t.notMatch(page.text, url);
  t.notOk("is_admin" in {});
  t.strictSame(fetched, []);
});

const CLIENT = "https://app.example.com/client.json";
const document = { client_id: CLIENT, redirect_uris: [REDIRECT] };

const absent = [
  ...words(`
  request par pushed_authorization_request device device/auth device/x me userinfo introspect
  introspection token/introspection token/revocation session/end session/end/confirm logout
  end_session backchannel reg reg/x register/x challenge ciba auth auth/x certs keys jwks.json
  jwks/x interaction interaction/ interaction/a/b authorize/ authorize/a/b token/ %61uthorize TOKEN
  token%00 token;x .well-known/openid-configuration interaction/..%2ftoken interaction/%2e%2e
  ../query
`),
  "",
  `interaction/${"a".repeat(65)}`,
];

t.test("only the documented paths are served", async (t) => {
  const { url } = await openOAuthSetup(t);
  for (const name of absent) {
    for (const method of ["GET", "POST", "PUT", "DELETE", "PATCH"]) {
      const { status } = await fetch(`${url}/oauth/${name}`, { method, redirect: "manual" });
      t.equal(status, 404, `${method} ${name}`);
    }
  }
  const { status, headers } = await fetch(`${url}/oauth/token`);
  t.strictSame([status, headers.get("allow")], [405, "POST, OPTIONS"]);
});

t.test("no other grant type is known", async (t) => {
  const { url } = await openOAuthSetup(t);
  const grants = [
    "client_credentials",
    "password",
    "implicit",
    "",
    "authorization_code ",
    "AUTHORIZATION_CODE",
    ...["device_code", "jwt-bearer", "saml2-bearer", "token-exchange"].map(
      (name) => `urn:ietf:params:oauth:grant-type:${name}`,
    ),
    "urn:openid:params:grant-type:ciba",
    "__proto__",
    "constructor",
    "toString",
  ];
  const client_id = await registered({ url });
  for (const grant_type of grants) {
    const more = { username: "alice", password: "correct horse", scope: "mcp:tools" };
    const { status, body } = await postForm(`${url}/oauth/token`, {
      grant_type,
      client_id,
      ...more,
    });
    t.equal(status, 400, grant_type);
    t.match(body.error, /^(?:unsupported_grant_type|invalid_request)$/, grant_type);
  }
});

onServer("pages show all input as text", async (t, setting) => {
  const evil = `"'><svg/onload=alert(1)>\${1}{{1}}</title></style><script>x</script>`;
  const raw = /<svg|<script|<\/title>(?!\n<style>)|onload=alert\(1\)>/;
  const client_id = await registered(setting, {
    client_name: evil.slice(0, 90),
    redirect_uris: [REDIRECT],
  });
  const names = [
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "resource",
    "response_type",
    "prompt",
    "response_mode",
    "code_challenge",
    "code_challenge_method",
    "request",
    evil,
  ];
  const urls = names.map((name) => authorizeUrl(setting, { client_id, [name]: evil }));
  const encoded = encodeURIComponent(evil);
  urls.push(
    authorizeUrl(setting, { client_id }),
    ...["authorize/x", "interaction/x", encoded].map((end) => `${setting.url}/oauth/${end}`),
    ...["authorize/x", "interaction/x"].map((end) => `${setting.url}/oauth/${end}?${encoded}`),
  );
  for (const url of urls) {
    const answer = await fetch(url, { headers: { accept: "text/html" }, redirect: "manual" });
    const page =
      answer.status === 303
        ? await new PlainBrowser(setting.url).open(url).catch(() => null)
        : null;
    const text = page?.text ?? (await answer.text());
    t.notMatch(text, raw, url.slice(setting.url.length, 400));
  }
  const page = await new PlainBrowser(setting.url).open(authorizeUrl(setting, { client_id }));
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(authorizeUrl(setting, { client_id }));
  const again = await browser.submit(login, { username: evil, password: evil, action: "login" });
  for (const { text } of [page, again]) t.notMatch(text, raw);
  const forms = [{ action: evil }, { [evil]: evil }, { csrf: evil }, { username: evil }];
  for (const form of forms) t.notMatch((await browser.submit(again, { ...form })).text, raw);
});

onServer("a page is not given to scripts", async (t, setting) => {
  const { url, headers } = await new PlainBrowser(setting.url).open(
    authorizeUrl(setting, { client_id: await registered(setting) }),
  );
  t.match(headers.get("content-type"), "text/html");
  const targets = [url, url.replace("/interaction/", "/authorize/"), authorizeUrl(setting, {})];
  for (const site of ["same-origin", "same-site", "cross-site"]) {
    for (const mode of ["cors", "no-cors", "same-origin", "websocket"]) {
      for (const target of targets) {
        const headers = { "sec-fetch-site": site, "sec-fetch-mode": mode };
        const { status, body } = await ask(target, { headers });
        t.equal(status, 403, `${site} ${mode}`);
        t.notMatch(body.toString(), "csrf");
      }
    }
    const navigation = { "sec-fetch-site": site, "sec-fetch-mode": "navigate" };
    t.not((await ask(url, { headers: navigation })).status, 403, "a browser may navigate there");
  }
});

onServer("invented cookies create no state", async (t, setting) => {
  const kept = () => {
    const database = new DatabaseSync(path.join(setting.directory, "state.sqlite"), {
      readOnly: true,
    });
    const row = database.prepare("SELECT count(*) AS n FROM records").get();
    database.close();
    return row?.n;
  };
  const before = kept();
  for (const name of ["gatehouse_session", "gatehouse_interaction", "gatehouse_resume"]) {
    for (const value of ["x", "../x", "%00", "' OR 1=1 --", "a".repeat(3000), '"x"']) {
      for (const place of ["authorize/x", "interaction/x", "interaction/x?"]) {
        const url = `${setting.url}/oauth/${place}`;
        const cookie = `${name}=${value}; gatehouse_session=y; gatehouse_session.sig=z`;
        const { status } = await fetch(url, { headers: { cookie, accept: "text/html" } });
        t.equal(status, 400, `${place} with ${name}=${value.slice(0, 20)}`);
      }
    }
  }
  t.equal(kept(), before);
});

t.test("fetches of client documents are limited", async (t) => {
  let fetched = 0;
  const setting = await openOAuthSetup(t, {
    documents: async (url) => {
      fetched++;
      if (url !== CLIENT) throw new Error("there is no such document");
      return { body: JSON.stringify(document), cacheControl: undefined };
    },
  });
  for (let at = 0; at < 40; at++) {
    const client_id = `https://app.example.com/${at}.json`;
    const revoked = { token: "x", client_id };
    const { status } = await postForm(`${setting.url}/oauth/revoke`, revoked);
    t.equal(status, 200, "an unknown token counts as revoked");
  }
  t.equal(fetched, 0, "a revocation fetches nothing");
  for (let at = 0; at < 40; at++) {
    const client_id = `https://app.example.com/${at}.json`;
    const form = { grant_type: "refresh_token", refresh_token: "x", client_id };
    const { body } = await postForm(`${setting.url}/oauth/token`, form);
    t.equal(body.error, "invalid_client");
  }
  t.equal(fetched, 30, "30 a minute for all other requests");
});

const form = "application/x-www-form-urlencoded";
const places = { register: "application/json", token: form, revoke: form };

function head(place: string, type: string, lines: string): string {
  return `POST /oauth/${place} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: ${type}\r\n${lines}\r\n`;
}

async function sendBytes(bytes: string): Promise<string> {
  const wire = await Wire.open(gateway.url);
  wire.send(bytes);
  return wire.untilClosed();
}

for (const [place, type] of Object.entries(places)) {
  t.test(`a body that is too large gets 413 at /oauth/${place}`, async (t) => {
    const large = "x".repeat(100_000);
    const announced = head(place, type, `Content-Length: ${large.length}\r\n`);
    t.strictSame(statusesOf(await sendBytes(announced + large)), [413]);
    t.strictSame(statusesOf(await sendBytes(announced)), [413], "before it has arrived");
    const waits = head(place, type, `Content-Length: ${large.length}\r\nExpect: 100-continue\r\n`);
    t.strictSame(statusesOf(await sendBytes(waits)), [413], "without 100 Continue");
    const chunk = `${large.length.toString(16)}\r\n${large}\r\n0\r\n\r\n`;
    const chunked = head(place, type, "Transfer-Encoding: chunked\r\nConnection: close\r\n");
    t.match(statusesOf(await sendBytes(chunked + chunk)), [/^4(?:13|00)$/], "in chunks");
  });

  t.test(`a client that expects 100 Continue gets it at /oauth/${place}`, async (t) => {
    const wire = await Wire.open(gateway.url);
    wire.send(head(place, type, "Content-Length: 2\r\nExpect: 100-continue\r\n"));
    await wire.until(/^HTTP\/1\.1 100 /);
    wire.send("{}");
    t.match(await wire.untilClosed(), /HTTP\/1\.1 40[01] .*"error":"invalid_/s);
  });
}

t.test("an incomplete body causes no error in the log", async (t) => {
  const start = gateway.service.log.length;
  await Promise.all(
    Object.entries(places).map(async ([place, type]) => {
      const slow = await Wire.open(gateway.url);
      slow.send(`${head(place, type, "Content-Length: 20\r\n")}{`);
      const broken = await Wire.open(gateway.url);
      broken.send(`${head(place, type, "Content-Length: 20\r\n")}{`);
      const odd = head(place, type, "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n");
      t.strictSame(statusesOf(await sendBytes(`${odd}0\r\n\r\n`)), [400]);
      broken.socket.resetAndDestroy();
      t.strictSame(statusesOf(await slow.untilClosed()), [408]);
      await eventually("both have ended", () => {
        const lines = gateway.service.log.filter(({ path }) => path === `/oauth/${place}`);
        return lines.some(({ status }) => status === 499);
      });
    }),
  );
  const loud = gateway.service.log
    .slice(start)
    .filter(({ level, audit }) => audit !== true && (level === "error" || level === "warn"));
  t.strictSame(loud, [], "nothing is logged as a warning or an error");
});

t.test("a narrowed token grants no more than its user chose, at any endpoint", async (t) => {
  const root = await gateway.login("root", passwordOf("root"));
  const columns = [{ name: "id", type: "int", primary_key: true }];
  for (const database of ["main", "side"]) {
    await gateway.query({ CreateDatabase: { database } }, root);
    await gateway.query({ CreateTable: { database, table: "t", columns } }, root);
  }
  const user = { username: "alice", password: passwordOf("alice") };
  const { accessToken } = await obtainTokens(gateway, { ...user, database: "main", reach: "read" });
  const rows = (database: string) => ({ database, from: "t", columns: ["*"] });
  t.equal(refusalOf(await callTool(gateway, "select", rows("main"), accessToken)), undefined);
  const denied: [name: string, args: Record<string, unknown>][] = [
    ["select", rows("side")],
    ["delete", { database: "main", table: "t", where: null }],
    ["list_tables", { database: "side" }],
    ["describe_table", { database: "side", table: "t" }],
  ];
  for (const [name, args] of denied) {
    const answer = await callTool(gateway, name, args, accessToken);
    t.ok(refusalOf(answer), `${name} ${JSON.stringify(args)}`);
  }
  for (const uri of ["gatehouse:///side/t", "gatehouse:///main/../side/t"]) {
    const answer = await send(gateway, statelessCall("resources/read", { uri }), accessToken);
    t.match(answer.body, { error: { code: Number } }, uri);
    t.notMatch(answer.text, /"columns"/);
  }
  for (const method of ["tools/list", "resources/list", "resources/templates/list"]) {
    const { text, status } = await send(gateway, statelessCall(method), accessToken);
    t.equal(status, 200);
    t.notMatch(text, /"name":"(?:insert|drop_table)"|\bside\b/, method);
  }
  const routes = [
    "POST /query",
    "POST /logout",
    "GET /me",
    "GET /api/me",
    "PUT /api/users/alice/password",
  ];
  for (const route of routes) {
    const [method = "", place = ""] = route.split(" ");
    const body = method === "GET" ? {} : { body: select };
    const headers = { authorization: `Bearer ${accessToken}`, "content-type": "application/json" };
    const answer = await gateway.request(place, { method, headers, ...body });
    t.match(answer, { status: 401, body: { code: "token_invalid" } }, route);
  }
});
