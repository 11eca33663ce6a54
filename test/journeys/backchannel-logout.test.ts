import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type JWTPayload, SignJWT, UnsecuredJWT } from "jose";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import { ask, open as openAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { queryHeaders } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { refresh, signInAt } from "../oauth/flow.ts";
import { IdentityProvider } from "../oauth/identity-provider.ts";
import { makeKey } from "../oauth/issuer.ts";
import { postForm } from "../oauth/kit.ts";
import { goodTokens, logoutClaims, type ProviderSession, signInAs } from "../oauth/logout.ts";
import { soon, staffedHome } from "./staff.ts";

const provider = await IdentityProvider.start(t, { sub: "ann" }, { sub: "bob" });
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, provider.clientSecret, { mode: 0o600 });
const upstream = await new RecordingUpstream().listen(t);
const fixture = new FixtureServer();
const mcpUrl = await fixture.listen(t);

function issuer(opens: string, more = ""): string {
  return `
[[issuers]]
issuer = "${provider.url}"
prefix = "staff"
opens = ${opens}
audience = "api"
default_scopes = ["mcp:tools"]
login = { client_id = "gatehouse", client_secret_file = "${secretFile}", label = "Sign in" }
${more}
`;
}
const config = `
[mcp]
upstream = "${mcpUrl}"
${tables("mcp.tools", [{ name: "wait", permission: "SELECT", database: "main" }])}
${issuer('["mcp", "query"]')}
[[issuers]]
issuer = "https://other.example"
prefix = "other"
opens = ["query"]
audience = "api"
`;
const rights = grant("staff:ann", "main", "ReadOnly") + grant("staff:bob", "main", "ReadOnly");
const home = await staffedHome(t, ["root * Owner"], rights);
const gateway = await startGateway(t, { upstream: upstream.url, home, config });
const endpoint = `${gateway.url}/oauth/backchannel-logout/staff`;
await provider.open({
  redirectUris: [`${gateway.url}/oauth/callback/staff`],
  backchannelLogoutUri: endpoint,
});

const good = ["good", "good", "good"];
const revoked = ["token_revoked", "token_revoked", "token_revoked"];
const signIn = (user: string) => signInAs(gateway, provider, user);
const post = (token: string, url = endpoint) => postForm(url, { logout_token: token });
const logouts = () => gateway.service.log.filter(({ msg }) => msg === "oauth_logout");

async function untilLogged(count: number) {
  await eventually("the logouts are in the audit", () => logouts().length >= count);
  return logouts();
}

async function checkEnded(t: Test, session: ProviderSession): Promise<void> {
  t.strictSame(await goodTokens(gateway, session), revoked);
  const { status, body } = await refresh(gateway, session.clientId, session.refreshToken);
  t.strictSame([status, body.error], [400, "invalid_grant"]);
}

t.test("a logout with sid ends what that session has, and no other", async (t) => {
  const [ended, other] = [await signIn("ann"), await signIn("ann")];
  t.not(ended.sid, other.sid);
  t.strictSame(await goodTokens(gateway, ended), good);
  const streams = await Promise.all([ended.accessToken, ended.jwt, other.jwt].map(openStream));
  await provider.logOut("ann", ended.sid);
  await checkEnded(t, ended);
  t.strictSame(await goodTokens(gateway, other), good);
  t.equal((await refresh(gateway, other.clientId, other.refreshToken)).status, 200);
  await soon(t, "its streams end", () => streams.slice(0, 2).every(({ destroyed }) => destroyed));
  t.notOk(streams[2]?.destroyed);
  streams[2]?.destroy();
  const [line] = await untilLogged(1);
  const expected = { user: "staff:ann", issuer: provider.url, outcome: "allowed", level: "info" };
  t.match(line, { ...expected, address: "127.0.0.1" });
});

async function openStream(token: string): Promise<IncomingMessage> {
  const { method, headers, body } = statelessCall("tools/call", { name: "wait", arguments: {} });
  const answer = await openAnswer(`${gateway.url}/mcp`, {
    headers: { ...headers, authorization: `Bearer ${token}` },
    ...(method && body ? { method, body } : {}),
  });
  answer.on("error", () => {}).resume();
  return answer;
}

t.test("a logout with sub alone ends all of the user, who can sign in at once", async (t) => {
  const sessions = [await signIn("bob"), await signIn("bob")];
  const other = await signIn("ann");
  await provider.logOut("bob", "");
  const again = await signIn("bob");
  for (const session of sessions) await checkEnded(t, session);
  for (const session of [other, again]) t.strictSame(await goodTokens(gateway, session), good);
  t.equal((await refresh(gateway, again.clientId, again.refreshToken)).status, 200);
  t.match((await untilLogged(2)).at(-1), { user: "staff:bob", outcome: "allowed" });
  const unknown = await post(await provider.sign({ ...logoutClaims(), sub: "not,a,user" }));
  t.strictSame([unknown.status, unknown.headers.get("content-length")], [200, "0"]);
});

t.test("a sign-in that ends before its user has allowed the app begins again", async (t) => {
  for (const sid of [undefined, ""]) {
    for (const step of ["reload", "allow"]) {
      provider.user = "ann";
      const browser = new PlainBrowser(gateway.url, provider.url);
      const { page } = await signInAt(gateway, browser);
      t.match(page.text, "staff:ann");
      await provider.logOut("ann", sid);
      const next = await (step === "allow"
        ? browser.submit(page, { database: "*", reach: "full", action: "allow" })
        : browser.open(page.url));
      t.equal(next.status, 200);
      t.match(next.text, 'href="/oauth/sign-in/staff', "the login page");
      t.notMatch(next.text, "staff:ann");
    }
  }
});

t.test("a token that is not a logout token of this provider ends nothing", async (t) => {
  const session = await signIn("ann");
  const { sid } = session;
  const claims = { ...logoutClaims(), sid, sub: "ann" };
  const now = Math.floor(Date.now() / 1000);
  const foreign = await makeKey("one", "RS256");
  const sign = (changes: Readonly<Record<string, unknown>>, header = {}) =>
    provider.sign({ ...claims, jti: randomUUID(), ...changes }, header);
  const member = Object.keys(claims.events)[0] ?? "";
  const others: [detail: string, token: string][] = [
    ["wrong_audience", await sign({ aud: "api" })],
    ["wrong_audience", await sign({ aud: [] })],
    ["bad_claim", await sign({ iss: "https://evil.example" })],
    ["wrong_type", await sign({}, { typ: "at+jwt" })],
    ["wrong_type", await sign({ nonce: "n" })],
    ["wrong_type", await sign({ nonce: null })],
    ["wrong_type", await sign({ events: undefined })],
    ["wrong_type", await sign({ events: {} })],
    ["wrong_type", await sign({ events: [member] })],
    ["wrong_type", await sign({ events: { [member]: true } })],
    ["wrong_type", await sign({ events: undefined, nonce: "n", at_hash: "h" })],
    ["bad_claim", await sign({ jti: undefined })],
    ["bad_claim", await sign({ jti: "" })],
    ["bad_claim", await sign({ exp: undefined })],
    ["bad_claim", await sign({ iat: undefined })],
    ["bad_claim", await sign({ sid: undefined, sub: undefined })],
    ["bad_claim", await sign({ sid: 7 })],
    ["expired", await sign({ exp: now - 60 })],
    ["issued_in_future", await sign({ iat: now + 120 })],
    [
      "bad_signature",
      await new SignJWT({ ...claims, iss: provider.url, iat: now, exp: now + 60 })
        .setProtectedHeader({ alg: "RS256", kid: "one" })
        .sign(foreign.privateKey),
    ],
    [
      "wrong_algorithm",
      await new SignJWT({ ...claims, iss: provider.url, iat: now, exp: now + 60 })
        .setProtectedHeader({ alg: "HS256", kid: "one" })
        .sign(Buffer.from(provider.clientSecret)),
    ],
    ["malformed", new UnsecuredJWT({ ...claims, iss: provider.url, exp: now + 60 }).encode()],
    ["malformed", ""],
    ["wrong_type", session.idToken],
  ];
  const before = logouts().length;
  for (const [detail, token] of others) {
    const { status, body, headers } = await post(token);
    t.strictSame([status, body], [400, { error: "invalid_request" }], detail);
    t.equal(headers.get("cache-control"), "no-store");
  }
  const logged = (await untilLogged(before + others.length)).slice(before);
  t.match(
    logged,
    others.map(([detail]) => ({ detail, issuer: provider.url, level: "warn", user: undefined })),
  );
  const twice = `logout_token=${await sign({})}&logout_token=${await sign({})}`;
  const form = { "content-type": "application/x-www-form-urlencoded" };
  const large = `logout_token=${"a".repeat(17_000)}`;
  for (const [status, body, headers] of [
    [400, twice, form],
    [413, large, form],
    [415, twice, { "content-type": "text/plain" }],
  ] as const) {
    const answer = await fetch(endpoint, { method: "POST", body, headers });
    t.strictSame([answer.status, await answer.json()], [status, { error: "invalid_request" }]);
  }
  for (const prefix of ["other", "unknown"]) {
    const url = `${gateway.url}/oauth/backchannel-logout/${prefix}`;
    t.equal((await post(await sign({}), url)).status, 404, prefix);
  }
  t.equal((await fetch(endpoint)).status, 405);
  t.strictSame(await goodTokens(gateway, session), good);

  const token = await sign({}, { typ: "logout+jwt" });
  t.equal((await post(token)).status, 200);
  t.strictSame(await goodTokens(gateway, session), revoked);
  t.equal((await post(token)).status, 400);
  await gateway.service.logged(({ detail }) => detail === "repeated");
});

t.test("a storm of made-up keys costs few fetches, and stops no logout", async (t) => {
  const session = await signIn("ann");
  const fetches = () => provider.requests.filter((path) => path === "/jwks").length;
  const before = fetches();
  const storm = await Promise.all(
    Array.from({ length: 100 }, async (_, at) =>
      post(await provider.sign({ ...logoutClaims(), sid: "s" }, { kid: `made-up-${at}` })),
    ),
  );
  t.ok(fetches() <= before + 1);
  // The keys that tokens of the storm have waited for do not have theirs.
  const busy = storm.filter(({ status }) => status !== 400);
  for (const { status, body, headers } of busy) {
    t.match({ status, body }, { status: /503|429/, body: { error: "temporarily_unavailable" } });
    t.match(headers.get("retry-after"), /^[1-9]\d?$/);
  }
  t.ok(busy.some(({ status }) => status === 429));
  t.ok(logouts().length < 80, "the audit does not fill up");
  await provider.logOut("ann", session.sid);
  t.strictSame(await goodTokens(gateway, session), revoked);
});

t.test("logouts work without /mcp, in each worker, and with another username_claim", async (t) => {
  const claim = 'username_claim = "preferred_username"';
  const other = await startGateway(t, {
    upstream: upstream.url,
    home: await staffedHome(t, ["root * Owner"], rights),
    config: `[server]\nworkers = 2\n[mcp]\nenabled = false\n${issuer('["query"]', claim)}`,
  });
  const url = `${other.url}/oauth/backchannel-logout/staff`;
  const codes = async (token: string) => {
    const headers = { ...queryHeaders(token), connection: "close" };
    const body = JSON.stringify({ Select: { database: "main", from: "t", columns: ["*"] } });
    const options = { method: "POST", headers, body };
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => ask(`${other.url}/query`, options)),
    );
    return [...new Set(answers.map(({ status }) => status))];
  };
  provider.failure = 500;
  const early = await provider.sign({ ...logoutClaims(), sid: "s-0" });
  const { status, body, headers } = await post(early, url);
  t.strictSame([status, body], [503, { error: "temporarily_unavailable" }], "without keys");
  t.match(headers.get("retry-after"), /^[12]$/);
  provider.failure = undefined;
  await delay(2000);
  t.equal((await post(early, url)).status, 200, "the same token");

  const now = Math.floor(Date.now() / 1000);
  const external = (changes: JWTPayload = {}) =>
    provider.sign({
      aud: "api",
      sub: "u-1",
      preferred_username: "ann",
      jti: randomUUID(),
      ...changes,
    });
  // The provider's clock may be ahead.
  const [first, ahead] = [await external({ sid: "s-1" }), await external({ iat: now + 30 })];
  const stranger = await external({ sub: "u-2", preferred_username: "bob", iat: now + 30 });
  for (const token of [first, ahead, stranger]) t.strictSame(await codes(token), [200]);
  const bySid = await provider.sign({ ...logoutClaims(), sub: "u-1", sid: "s-1" });
  t.equal((await post(bySid, url)).status, 200);
  t.strictSame(await codes(first), [401]);
  t.strictSame(await codes(ahead), [200]);
  const answers = await Promise.all(Array.from({ length: 4 }, () => post(bySid, url)));
  t.strictSame([...new Set(answers.map(({ status }) => status))], [400]);
  const bySub = await provider.sign({ ...logoutClaims(), sub: "u-1", iat: now + 30 });
  t.equal((await post(bySub, url)).status, 200);
  t.strictSame(await codes(ahead), [401]);
  t.strictSame(await codes(stranger), [200]);

  const month = 31 * 86_400;
  t.strictSame(await codes(await external({ sub: "u-2", iat: now - month })), [200]);
  const long = await external({ sub: "u-2", iat: now - month, sid: "s-2" });
  t.strictSame(await codes(long), [401], "ends of sessions are forgotten after a month");
});
