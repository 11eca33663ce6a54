import { createServer } from "node:http";
import t, { type Test } from "tap";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorize, exchange, obtainTokens } from "../oauth/flow.ts";
import {
  authorizeUrl,
  openSetting,
  PASSWORD,
  postForm,
  REDIRECT,
  registered,
  type Setting,
} from "../oauth/kit.ts";

const narrow = { database: "archive", reach: "read" } as const;
/** By which a client would like to have more than the user has let it have. */
const wide = JSON.stringify([{ type: "database_access", database: "*", read_only: false }]);
const wishes: Readonly<Record<string, string>> = {
  authorization_details: wide,
  ...{ database: "*", read_only: "false", reach: "full", role: "Owner", sub: "root" },
  ...{ claims: '{"userinfo":{"email":null}}', audience: "gatehouse", cred: "x", grant: "x" },
  ...{ login_hint: "root", display: "popup", ui_locales: "de", dpop_jkt: "x" },
  scope: "openid profile email mcp:resources",
};

/** What a token says of its reach. */
async function reachOf(setting: Setting, body: Record<string, unknown>) {
  const token = await setting.server.verify(String(body.access_token));
  const { username, database, readOnly, scopes } = token;
  return { username, database, readOnly, scopes: [...scopes].sort().join(" ") };
}

const asked = { username: "alice", database: "archive", readOnly: true, scopes: "mcp:resources" };

t.test("what a user has narrowed stays so, whatever a client says at any step", async (t) => {
  const setting = await openSetting(t);
  const parameters = { scope: "mcp:resources" };
  const clientId = await registered(setting);
  const first = await obtainTokens(setting, { clientId, ...narrow, parameters });
  t.strictSame(await reachOf(setting, first.body), asked);
  let { refreshToken } = first;
  for (const [name, value] of Object.entries(wishes)) {
    const options = { clientId, ...narrow, parameters: { ...parameters, [name]: value } };
    const { body } = await exchange(setting, await authorize(setting, options));
    t.strictSame(await reachOf(setting, body), asked, `${name} in the authorization request`);
    t.notOk("id_token" in body);
    const more = name === "scope" ? parameters : { [name]: value };
    const refreshed = await postForm(`${setting.url}/oauth/token`, {
      grant_type: "refresh_token",
      client_id: clientId,
      refresh_token: refreshToken,
      ...more,
    });
    t.strictSame(await reachOf(setting, refreshed.body), asked, `${name} in a refresh`);
    refreshToken = String(refreshed.body.refresh_token);
  }
});

t.test("at the exchange of a code nothing can be added either", async (t) => {
  const setting = await openSetting(t);
  const parameters = { scope: "mcp:resources" };
  const { clientId, verifier, callback } = await authorize(setting, { ...narrow, parameters });
  const { body } = await postForm(`${setting.url}/oauth/token`, {
    grant_type: "authorization_code",
    client_id: clientId,
    code: callback.searchParams.get("code") ?? "",
    code_verifier: verifier,
    redirect_uri: REDIRECT,
    ...{ ...wishes, scope: "mcp:tools mcp:resources" },
  });
  t.strictSame(await reachOf(setting, body), asked);
});

t.test("a request is what stands in its URL, once, and nothing fetched or signed", async (t) => {
  const setting = await openSetting(t);
  const { url, fetched } = await openTrap(t);
  const client_id = await registered(setting);
  const good = authorizeUrl(setting, { client_id });
  const odd = [
    ...[`request_uri=${url}/request`, "request_uri=urn:ietf:params:oauth:request_uri:x"],
    ...["request=eyJhbGciOiJub25lIn0.e30.", "registration={}", `client_id=${client_id}`],
    ...["id_token_hint=eyJhbGciOiJub25lIn0.e30.", "id_token_hint=x", "max_age=-1"],
    ...[`redirect_uri=${encodeURIComponent(REDIRECT)}`, "state=s2", "code_challenge=x"],
    ...["code_challenge_method=plain", "response_type=token", "response_mode=fragment"],
    ...["response_mode=jwt", "response_mode=web_message", "prompt=none&prompt=login", "scope=x"],
  ];
  for (const more of odd) {
    const page = await new PlainBrowser(setting.url).open(`${good}&${more}`);
    t.notMatch(page.url, /interaction|code=/, more);
    t.ok(page.status === 400 || page.url.includes("error="), more);
  }
  t.strictSame(fetched, []);
});

t.test("a consent counts once", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const url = authorizeUrl(setting, { client_id: await registered(setting) });
  const login = await browser.open(url);
  const consent = await browser.submit(login, {
    ...{ username: "alice", password: PASSWORD, action: "login" },
  });
  const yes = { database: "*", reach: "full", action: "allow" };
  const twice = await Promise.all([browser.submit(consent, yes), browser.submit(consent, yes)]);
  const codes = twice.filter((page) => page.url.includes("code="));
  t.ok(codes.length <= 1, "of two at one moment one at most leads to a code");
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

/** A server on this machine that would like to be asked for something. */
async function openTrap(t: Test): Promise<{ url: string; fetched: string[] }> {
  const fetched: string[] = [];
  const server = createServer((request, response) => {
    fetched.push(request.url ?? "");
    response.end("{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === "object" ? address?.port : "";
  return { url: `http://127.0.0.1:${port}`, fetched };
}

t.test("nothing that a registration names is fetched, kept or shown", async (t) => {
  const setting = await openSetting(t);
  const { url, fetched } = await openTrap(t);
  const named = Object.fromEntries(
    [
      ...["jwks_uri", "sector_identifier_uri", "logo_uri", "client_uri", "policy_uri", "tos_uri"],
      ...["initiate_login_uri", "backchannel_logout_uri", "software_statement", "client_id"],
      ...["registration_client_uri", "backchannel_client_notification_endpoint", "request_uris"],
      ...["post_logout_redirect_uris", "client_secret", "scope", "default_acr_values"],
    ].map((name) => [name, `${url}/${name}`]),
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
    ...["application_type", "client_id", "client_id_issued_at", "client_name", "grant_types"],
    ...["redirect_uris", "response_types", "token_endpoint_auth_method"],
  ]);
  const client_id = String(client.client_id);
  const page = await new PlainBrowser(setting.url).open(authorizeUrl(setting, { client_id }));
  t.equal(page.status, 200);
  t.notMatch(page.text, url);
  t.notOk("is_admin" in {});
  t.strictSame(fetched, []);
});

t.test("what is no client's metadata is refused, however odd", async (t) => {
  const setting = await openSetting(t);
  const uris = ["https://a;frame-ancestors/cb", "https://a,b/cb", "https://a'b/cb", "https://*/cb"];
  const bodies: unknown[] = [
    ...[null, [], 1, "x", {}, { redirect_uris: null }, { redirect_uris: {} }],
    ...uris.map((uri) => ({ redirect_uris: [uri] })),
  ];
  for (const body of bodies) {
    const answer = await fetch(`${setting.url}/oauth/register`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    t.equal(answer.status, 400, JSON.stringify(body));
    t.match(await answer.json(), { error: /^invalid_/ });
  }
});
