import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { calculateJwkThumbprint, decodeJwt, exportJWK } from "jose";
import t from "tap";
import { grant, groupGrant } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, TestGateway, temporaryHome } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { allowAll, refresh, signInAt } from "../oauth/flow.ts";
import { IdentityProvider } from "../oauth/identity-provider.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { authorizeUrl } from "../oauth/kit.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { staffedHome, tokenOf } from "./staff.ts";

const ann = { sub: "ann", groups: ["engineering"], tenant_id: "acme", acct: "employee" };
const provider = await IdentityProvider.start(t, ann, { sub: "bob", groups: [] });
const home = temporaryHome(t);
function secretFile(name: string, text: string): string {
  const file = path.join(home, name);
  writeFileSync(file, text, { mode: 0o600 });
  return file;
}
const secret = secretFile("secret", provider.clientSecret);
const rights = `${grant("staff:bob", "archive", "ReadOnly")}
${groupGrant("staff:engineering", "main", "ReadOnly")}
${groupGrant("staff:engineering", "main", "ReadOnly", 'tables = ["orders"]\nrow_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]')}
`;
const upstream = await new RecordingUpstream().listen(t);

function issuer(url: string, login: string, more = ""): string {
  return `[[issuers]]
issuer = "${url}"
prefix = "staff"
opens = ["mcp"]
groups_claim = "groups"
${more}
login = { client_id = "gatehouse", label = "Sign in with Example", ${login} }
`;
}

async function open(
  config: string,
  { idp = provider, auth = "", more = {} } = {},
): Promise<TestGateway> {
  const staffed = await staffedHome(t, ["root * Owner"], rights);
  const gateway = await startGateway(t, { upstream: upstream.url, home: staffed, config, auth });
  await idp.open({ redirectUris: [`${gateway.url}/oauth/callback/staff`], more });
  return gateway;
}

const gateway = await open(
  issuer(
    provider.url,
    `client_secret_file = "${secret}", recheck = 1`,
    'attribute_claims = { tenant = "tenant_id" }\nrequired_claims = { acct = "employee" }',
  ),
);

function browserOf(gateway: TestGateway, idp = provider): PlainBrowser {
  return new PlainBrowser(gateway.url, idp.url);
}

const signIn = (gateway: TestGateway, browser = browserOf(gateway), more = {}) =>
  signInAt(gateway, browser, more);

async function tokensOf(gateway: TestGateway, browser = browserOf(gateway)) {
  const signedIn = await signInAt(gateway, browser);
  const tokens = await allowAll(gateway, browser, signedIn);
  const { clientId, page: consent } = signedIn;
  return { ...tokens, clientId, consent, call: () => codeOf(gateway, tokens.accessToken) };
}

const loginEvent = (outcome: string) =>
  gateway.service.logged((line) => line.msg === "oauth_login" && line.outcome === outcome);
const from = (database: string, table = "t") => ({ database, from: table, columns: ["*"] });

async function codeOf(gateway: TestGateway, token: string, query = from("main")) {
  return refusalOf(await callTool(gateway, "select", query, token));
}

t.test("an MCP client signs in by the provider and has the rights of its groups", async (t) => {
  provider.user = "ann";
  const { accessToken, clientId, consent } = await tokensOf(gateway);
  t.match(await loginEvent("allowed"), { user: "staff:ann", client: clientId });
  t.match(consent.text, 'value="main"', "the consent page offers databases of the groups");
  t.equal(await codeOf(gateway, accessToken), undefined);
  t.equal(await codeOf(gateway, accessToken, from("archive")), "no_grant");
  await callTool(gateway, "select", from("main", "orders"), accessToken);
  const asked = String(upstream.received.at(-1)?.body);
  t.match(asked, '"acme"', "a row filter uses the claim as an attribute");
  t.match(await loginEvent("allowed"), { user: "staff:ann", issuer: provider.url });
});

t.test("groups count until the next check, and without them a user's own entries", async (t) => {
  provider.user = "ann";
  const { call, accessToken } = await tokensOf(gateway);
  t.equal(await call(), undefined);
  provider.users.set("ann", { ...ann, groups: ["sales"] });
  await eventually("the group is gone", async () => (await call()) === "no_grant");
  provider.users.set("ann", ann);
  await eventually("the group is back", async () => (await call()) === undefined);
  t.match(await send(gateway, statelessCall("tools/list"), accessToken), { status: 200 });
});

t.test("an open stream is cut when the groups of its sign-in change", async (t) => {
  provider.user = "ann";
  const { accessToken } = await tokensOf(gateway);
  const { answer } = upstream;
  const { promise: isAsked, resolve } = Promise.withResolvers<void>();
  upstream.answer = () => resolve();
  const asked = codeOf(gateway, accessToken).then(
    () => "answered",
    () => "cut",
  );
  await isAsked;
  provider.users.set("ann", { ...ann, groups: ["engineering", "sales"] });
  t.equal(await asked, "cut");
  upstream.answer = answer;
  t.equal(await codeOf(gateway, accessToken), undefined, "a new request has the new groups");
  provider.users.set("ann", ann);
});

t.test("a provider that refuses ends the sign-in with its tokens", async (t) => {
  provider.user = "ann";
  const { call, clientId, refreshToken } = await tokensOf(gateway);
  t.equal(await call(), undefined);
  provider.users.delete("ann");
  await eventually("the token is refused", async () => (await call()) === "token_revoked");
  provider.users.set("ann", ann);
  await delay(1100);
  t.equal(await call(), "token_revoked", "permanently");
  t.match(await refresh(gateway, clientId, refreshToken), { body: { error: "invalid_grant" } });
});

t.test("an unreachable provider is tolerated, and its next answer counts again", async (t) => {
  provider.user = "ann";
  const { call } = await tokensOf(gateway);
  provider.failure = 500;
  await delay(1100);
  t.equal(await call(), undefined);
  t.match((await browserOf(gateway).open(authorizeUrl(gateway, { client_id: "x" }))).status, 400);
  provider.failure = undefined;
  provider.users.set("ann", { ...ann, groups: [] });
  await eventually("the group is gone", async () => (await call()) === "no_grant");
  provider.users.set("ann", ann);
});

t.test("why a provider cannot be used is in audit and log, and not on the page", async (t) => {
  const broken = await TestIssuer.start(t);
  const place = "/staff/.well-known/openid-configuration";
  broken.others.set(place, { issuer: `${broken.url}/`, jwks_uri: `${broken.origin}/keys` });
  broken.place = "";
  const gateway = await startGateway(t, {
    upstream: upstream.url,
    home: await staffedHome(t, ["root * Owner"], rights),
    config: issuer(broken.url, `client_secret_file = "${secret}"`),
  });
  const cause = `${broken.origin}${place} has issuer "${broken.url}/", expected "${broken.url}"`;
  const why = { detail: "unreachable", issuer: broken.url, cause };
  const start = `${gateway.url}/oauth/sign-in/staff?next=/oauth/applications`;
  const page = await new PlainBrowser(gateway.url).open(start);
  t.match(page, { status: 503, text: /The identity provider does not respond as expected/ });
  t.notMatch(page.text, "expected &quot;");
  const ofSignIn = await gateway.service.logged(({ msg }) => msg === "oauth_login");
  t.match(ofSignIn, { ...why, outcome: "issuer_unreachable", level: "warn" });
  t.match(await gateway.service.logged(({ msg }) => /provider is unreachable/.test(`${msg}`)), why);
  const token = await broken.sign(`${gateway.url}/mcp`);
  const answer = await send(gateway, statelessCall("tools/list"), token);
  t.equal(answer.status, 503);
  t.notMatch(answer.text, broken.origin);
  t.match(await auditOf(gateway, answer), { ...why, reason: "issuer_unreachable" });
  t.match(await gateway.service.logged(({ msg }) => msg === "refused"), why);
});

t.test("claims that the issuer requires are required of a sign-in", async (t) => {
  provider.users.set("ann", { ...ann, acct: "guest" });
  const { page } = await signIn(gateway);
  t.match(page, { status: 403, text: /identity provider did not sign you in/ });
  t.match(await loginEvent("sign_in_refused"), { detail: "claim_mismatch", issuer: provider.url });
  provider.users.set("ann", ann);
});

t.test("a disabled user is refused, also in the audit", async (t) => {
  const root = await tokenOf(gateway, "root");
  const disable = (disabled: boolean) =>
    gateway.send("PATCH", "/api/users/staff:ann", { disabled }, root);
  provider.user = "ann";
  await disable(true);
  const { page } = await signIn(gateway);
  t.match(page, { status: 403, text: /The gateway does not admit this user/ });
  const refused = { outcome: "sign_in_refused", detail: "disabled", issuer: provider.url };
  t.match(await gateway.service.logged(({ detail }) => detail === refused.detail), refused);
  await disable(false);
});

t.test("a client may demand that the user authenticates again at the provider", async (t) => {
  provider.user = "ann";
  const browser = browserOf(gateway);
  await signIn(gateway, browser);
  const stopped = new PlainBrowser(gateway.url);
  const asked = async (more: object) => {
    const { searchParams } = new URL((await signIn(gateway, stopped, more)).page.url);
    return [searchParams.get("prompt"), searchParams.get("max_age")];
  };
  t.strictSame(await asked({}), [null, null]);
  t.strictSame(await asked({ prompt: "login" }), ["login", null]);
  t.strictSame(await asked({ max_age: "0" }), ["login", null]);
  t.strictSame(await asked({ max_age: "60", scope: "openid mcp:tools" }), [null, "60"]);

  const { login } = await signIn(gateway, browser);
  t.match(login.text, "Logged in as", "the browser is logged in");
  const other = await browser.submit(login, { action: "switch" });
  const [, link = ""] = /href="(\/oauth\/sign-in\/staff[^"]*)"/.exec(other.text) ?? [];
  const { searchParams } = new URL((await stopped.open(gateway.url + link)).url);
  t.equal(searchParams.get("prompt"), "login", "the provider asks who is there");
  const again = await signIn(gateway, browser, { prompt: "login" });
  t.match(again.login.text, "Sign in with Example", "prompt=login asks nonetheless");
  t.match(again.page.text, "Logged in as");
  await delay(2100);
  const late = await signIn(gateway, browser, { max_age: "1" });
  t.match(late.login.text, "Sign in with Example", "and so does a login that is too old");
  t.match(late.page.text, "Logged in as");
  provider.loginAge = 60;
  const refused = await signIn(gateway, browserOf(gateway), { max_age: "30" });
  provider.loginAge = 0;
  t.match(refused.page, { status: 403, text: /identity provider did not sign you in/ });
  t.match(await gateway.service.logged(({ detail }) => detail === "login_too_old"), {
    msg: "oauth_login",
    user: "staff:ann",
    issuer: provider.url,
  });
});

t.test("a sign-in ends in the browser in which it began, and only once", async (t) => {
  provider.user = "ann";
  const seen: string[] = [];
  const browser = new PlainBrowser(gateway.url, provider.url);
  const stopped = new PlainBrowser(gateway.url);
  const { link } = await signIn(gateway, stopped);
  const atProvider = await stopped.open(gateway.url + link);
  const answer = await new PlainBrowser(provider.url).open(atProvider.url);
  seen.push(answer.url);
  const refused = { status: 403, text: /another browser/ };
  t.match(await browser.open(answer.url), refused, "in another browser");
  const forged = new URL(answer.url);
  forged.searchParams.set("state", "made-up");
  t.match(await stopped.open(forged.href), refused, "with a made-up state");
  const mixedUp = new URL(answer.url);
  mixedUp.searchParams.set("iss", "https://other.example.com");
  t.match(await stopped.open(mixedUp.href), { status: 403 }, "from another issuer (RFC 9207)");
  t.match(await stopped.open(answer.url), refused, "after a first try");
  const { page } = await signIn(gateway, stopped);
  const failed = new URL(answer.url);
  failed.searchParams.set("state", new URL(page.url).searchParams.get("state") ?? "");
  failed.searchParams.set("error", "no word");
  t.match(await stopped.open(failed.href), { status: 403 }, "with an error of anyone");
  t.match(await gateway.service.logged(({ cause }) => cause === "no word"), {
    detail: "invalid_answer",
  });
});

t.test("the page of connected applications offers the sign-in too", async (t) => {
  provider.user = "ann";
  const browser = browserOf(gateway);
  const login = await browser.open(`${gateway.url}/oauth/applications`);
  const [, link = ""] = /href="(\/oauth\/sign-in\/staff[^"]*)"/.exec(login.text) ?? [];
  const page = await browser.open(gateway.url + link);
  t.match(page.text, /Logged in as <strong>staff:ann/);
  for (const next of ["https://evil.example.com/", "//evil.example.com", "/oauth/token", ""]) {
    const start = `${gateway.url}/oauth/sign-in/staff?next=${encodeURIComponent(next)}`;
    t.match(await browser.open(start), { status: 404 }, next);
  }
  t.match(
    await browser.open(
      link.replace(/.*/, `${gateway.url}/oauth/sign-in/other?next=/oauth/applications`),
    ),
    { status: 404 },
  );
});

t.test("a sign-in below a base path returns to the page that asked for it", async (t) => {
  const idp = await IdentityProvider.start(t, ann);
  const file = secretFile("other-secret", idp.clientSecret);
  const staffed = await staffedHome(t, ["root * Owner"], rights);
  const { url, home, service } = await startGateway(t, {
    upstream: upstream.url,
    home: staffed,
    config: `[server]\nbase_path = "/own/gate"\n${issuer(idp.url, `client_secret_file = "${file}"`)}`,
  });
  const own = new TestGateway(home, service, `${url}/own/gate`);
  await idp.open({ redirectUris: [`${own.url}/oauth/callback/staff`] });
  const browser = new PlainBrowser(url, idp.url);
  const signedIn = await signInAt(own, browser);
  t.match(signedIn.link, /^\/own\/gate\/oauth\/sign-in\/staff\?next=/);
  t.match(signedIn.page.text, 'href="/own/gate/oauth/applications"');
  const { accessToken } = await allowAll(own, browser, signedIn);
  t.equal(await codeOf(own, accessToken), undefined);
  const fresh = new PlainBrowser(url, idp.url);
  const page = await fresh.open(`${own.url}/oauth/applications`);
  const [, link = ""] = /href="([^"]*\/oauth\/sign-in\/staff[^"]*)"/.exec(page.text) ?? [];
  const applications = await fresh.open(new URL(link, own.url).href);
  t.equal(new URL(applications.url).pathname, "/own/gate/oauth/applications");
  t.match(applications.text, "Your connected applications");
  const local = own.url.replace("127.0.0.1", "localhost");
  const other = await fetch(`${local}/oauth/sign-in/staff?next=/oauth/applications`, {
    redirect: "manual",
  });
  t.equal(other.headers.get("location"), `${own.url}/oauth/sign-in/staff?next=/oauth/applications`);
});

t.test("a sign-in that begins at localhost continues at the gateway's own address", async (t) => {
  const start = "/oauth/sign-in/staff?next=%2Foauth%2Fapplications";
  const url = gateway.url.replace("127.0.0.1", "localhost");
  const answer = await fetch(url + start, { redirect: "manual" });
  t.equal(answer.headers.get("location"), gateway.url + start);
});

t.test("without a refresh token a sign-in lasts an hour", async (t) => {
  provider.user = "ann";
  provider.refreshes = false;
  const { accessToken, call } = await tokensOf(gateway);
  provider.refreshes = true;
  const [, until] = String(decodeJwt(accessToken).cred).split(".");
  t.ok(Math.abs(Number(until) - Date.now() / 1000 - 3600) < 30, `until ${until}`);
  provider.users.set("ann", { ...ann, groups: [] });
  await delay(1100);
  t.equal(await call(), undefined, "no one can ask for the groups again");
  provider.users.set("ann", ann);
});

/** A gateway without passwords, which authenticates with a key to a provider of its own. */
async function openKeyed() {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const pem = String(privateKey.export({ type: "pkcs8", format: "pem" }));
  const idp = await IdentityProvider.start(t, ann);
  const login = `private_key_file = "${secretFile("key.pem", pem)}", recheck = 1`;
  const jwk = await exportJWK(publicKey);
  const jwks = { keys: [{ ...jwk, alg: "ES256", kid: await calculateJwkThumbprint(jwk) }] };
  const more = { token_endpoint_auth_method: "private_key_jwt", jwks };
  const options = { idp, auth: "passwords = false", more };
  return { idp, gateway: await open(issuer(idp.url, login), options) };
}

const keyed = openKeyed();

t.test("passwords = false leaves only the sign-in, also with private_key_jwt", async (t) => {
  const { idp, gateway } = await keyed;
  const { login: page } = await signIn(gateway, browserOf(gateway, idp));
  t.notMatch(page.text, 'type="password"');
  const { call } = await tokensOf(gateway, browserOf(gateway, idp));
  t.equal(await call(), undefined);
  const fields = { username: "root", password: "root password" };
  t.match(await gateway.send("POST", "/login", fields), { status: 404 });
  t.match(await gateway.get("/login"), { status: 404 }, "the path is judged before the method");
  t.match(await gateway.request("/login", { method: "POST" }), { status: 404 }, "and the type");
});

t.test("opaque tokens of the provider are introspected, with their groups", async (t) => {
  const idp = await IdentityProvider.start(t, ann);
  const file = secretFile("introspection", idp.clientSecret);
  const introspection = `{ url = "${idp.url}/token/introspection", client_id = "gatehouse", client_secret_file = "${file}", cache = 1 }`;
  const config = issuer(idp.url, `client_secret_file = "${file}"`)
    .replace('["mcp"]', '["query"]\naudience = "gatehouse"')
    .concat(`[issuers.introspection]\n`)
    .concat(introspection.slice(2, -2).replaceAll(", ", "\n"));
  const gateway = await open(config, { idp });
  const token = await idp.issue("ann", "gatehouse");
  const select = { Select: from("main") };
  t.match(await gateway.query(select, token.value), { status: 200 });
  const other = await idp.issue("ann", "another");
  t.match(await gateway.query(select, other.value), { status: 401 }, "of another audience");
  const jwt = async (more: object) => {
    const claims = { aud: "gatehouse", sub: "ann", groups: ann.groups, ...more };
    return (await gateway.query(select, await idp.sign(claims))).status;
  };
  t.equal(await jwt({}), 401, "what may be an ID token of the sign-in");
  t.equal(await jwt({ client_id: "app" }), 200);
  await token.end();
  await eventually("its end counts within a second", async () => {
    return (await gateway.query(select, token.value)).status === 401;
  });
});

t.test("groups come from userinfo if the ID token has none", async (t) => {
  const { idp, gateway } = await keyed;
  idp.groupsInIdToken = false;
  const { call } = await tokensOf(gateway, browserOf(gateway, idp));
  t.equal(await call(), undefined);
  idp.users.set("ann", { ...ann, groups: [] });
  await eventually("the group is gone", async () => (await call()) === "no_grant");
  idp.users.set("ann", ann);
  await eventually("the group is back", async () => (await call()) === undefined);
  idp.failures.add("/me");
  await delay(1100);
  t.equal(await call(), undefined, "while only userinfo fails");
});

t.test("several workers use a rotating refresh token once each", async (t) => {
  const idp = await IdentityProvider.start(t, ann);
  const login = `client_secret_file = "${secretFile("third", idp.clientSecret)}", recheck = 1`;
  const config = `${issuer(idp.url, login)}[server]\nworkers = 2\n`;
  const gateway = await open(config, { idp });
  const { call } = await tokensOf(gateway, browserOf(gateway, idp));
  for (let round = 0; round < 3; round++) {
    await delay(1100);
    const codes = await Promise.all(Array.from({ length: 12 }, call));
    t.strictSame(new Set(codes), new Set([undefined]));
  }
  const refreshes = idp.requests.filter((one) => one === "/token").length;
  t.ok(refreshes <= 8, `${refreshes} requests to the token endpoint`);
});
