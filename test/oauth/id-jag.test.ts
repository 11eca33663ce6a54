import { createHmac, randomUUID } from "node:crypto";
import { SignJWT } from "jose";
import t, { type Test } from "tap";
import { grant, groupGrant, refusedBy, user } from "../access/kit.ts";
import { encodePart } from "../identity/forge.ts";
import { stopClock } from "../kit/clock.ts";
import { authorize, exchange as exchangeCode } from "./flow.ts";
import { type IssuerKey, issuerSettings, makeKey, TestIssuer } from "./issuer.ts";
import {
  defaultUsers,
  documentsOf,
  type OAuthSetup,
  openOAuthSetup,
  postForm,
  REDIRECT,
} from "./kit.ts";

const CLIENT = "https://agent.example.com/client.json";
const OTHER = "https://other.example.com/client.json";
const PUBLIC = "https://public.example.com/client.json";
const JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const rights = `${grant("staff:alice", "main", "ReadOnly")}
${groupGrant("staff:engineering", "main", "ReadOnly")}
`;

type Fields = Readonly<Record<string, string | undefined>>;
type Claims = Readonly<Record<string, unknown>>;

function now(): number {
  return Math.floor(Date.now() / 1000);
}

const keys: Readonly<Record<string, IssuerKey>> = {
  [CLIENT]: await makeKey("client"),
  [OTHER]: await makeKey("other", "PS256"),
};
const keySet = { keys: [keys[OTHER]?.jwk] };

const documents: Readonly<Record<string, object>> = {
  [CLIENT]: {
    client_id: CLIENT,
    client_name: "Agent",
    grant_types: [JWT_BEARER],
    token_endpoint_auth_method: "private_key_jwt",
    jwks: { keys: [keys[CLIENT]?.jwk] },
  },
  [OTHER]: {
    client_id: OTHER,
    grant_types: ["authorization_code", JWT_BEARER],
    redirect_uris: [REDIRECT],
    token_endpoint_auth_method: "private_key_jwt",
    jwks_uri: "https://other.example.com/keys.json",
  },
  "https://other.example.com/keys.json": keySet,
  [PUBLIC]: {
    client_id: PUBLIC,
    grant_types: ["authorization_code", JWT_BEARER],
    redirect_uris: ["https://public.example.com/callback"],
  },
};

async function openServer(t: Test, { users = rights, isOn = true, more = {} } = {}) {
  const issuer = await TestIssuer.start(t);
  const fetched: string[] = [];
  const changes = { groups_claim: "groups", id_jag: true, required_claims: { tenant: "acme" } };
  const setting = await openOAuthSetup(t, {
    users,
    documents: (url) => {
      fetched.push(url);
      return documentsOf({ ...documents, ...more })(url);
    },
    ...(isOn && { providers: [issuerSettings(issuer.url, changes)] }),
  });
  return { issuer, setting, fetched };
}

type Opened = Awaited<ReturnType<typeof openServer>>;

function assertion({ issuer, setting }: Opened, claims: Claims = {}, more = {}): Promise<string> {
  const usual = {
    resource: `${setting.url}/mcp`,
    client_id: CLIENT,
    tenant: "acme",
    groups: ["engineering"],
    jti: randomUUID(),
    exp: now() + 300,
    ...claims,
  };
  return issuer.sign(setting.url, { claims: usual, header: { typ: "oauth-id-jag+jwt" }, ...more });
}

/** RFC 7523, section 3. */
function clientAssertion(
  { url }: OAuthSetup,
  client = CLIENT,
  key: IssuerKey | undefined = keys[client],
  claims: Claims = {},
): Promise<string> {
  const { kid, alg, privateKey } = key ?? { kid: "", alg: "", privateKey: "" };
  if (typeof privateKey === "string") throw new Error("no key");
  const usual = { iss: client, sub: client, aud: url, jti: randomUUID(), exp: now() + 60 };
  return new SignJWT({ ...usual, ...claims }).setProtectedHeader({ alg, kid }).sign(privateKey);
}

async function exchange({ setting }: Opened, fields: Fields) {
  const all: Fields = {
    grant_type: JWT_BEARER,
    client_assertion_type: ASSERTION_TYPE,
    client_assertion: fields.client_id === undefined ? await clientAssertion(setting) : undefined,
    ...fields,
  };
  // JSON leaves out members that are undefined.
  const sent = JSON.parse(JSON.stringify(all));
  const answer = await postForm(`${setting.url}/oauth/token`, sent);
  const event = setting.events.findLast(({ name }) => name === "oauth_token")?.fields;
  return { ...answer, event };
}

t.test("an assertion is exchanged for an access token without a refresh token", async (t) => {
  const opened = await openServer(t);
  const { setting, issuer } = opened;
  const answer = await exchange(opened, { assertion: await assertion(opened) });
  t.match(answer, {
    status: 200,
    body: {
      token_type: "Bearer",
      expires_in: 600,
      scope: "mcp:tools mcp:resources",
      resource: `${setting.url}/mcp`,
      refresh_token: undefined,
      id_token: undefined,
    },
    event: {
      outcome: "allowed",
      user: "staff:alice",
      client: CLIENT,
      issuer: issuer.url,
      grant_type: JWT_BEARER,
    },
  });
  t.equal(answer.headers.get("cache-control"), "no-store");
  const token = await setting.server.verify(String(answer.body.access_token));
  const limits = { database: "*", readOnly: false, clientId: CLIENT, username: "staff:alice" };
  t.match(token, { ...limits, tokenId: answer.event?.token });
  const { subject } = (await setting.signIns?.current(token.credential, token.username)) ?? {};
  t.strictSame(subject, { username: "staff:alice", groups: ["staff:engineering"] });
});

t.test("a scope is what the client asks for and the assertion allows", async (t) => {
  const opened = await openServer(t);
  const tools = { scope: "mcp:tools openid" };
  const both = "mcp:tools mcp:resources";
  const cases: [claims: Claims, asked: string | undefined, expected: Claims][] = [
    [tools, undefined, { scope: "mcp:tools" }],
    [tools, both, { scope: "mcp:tools" }],
    [{}, "mcp:resources", { scope: "mcp:resources" }],
    [tools, "mcp:resources", { error: "invalid_scope" }],
    [{ scope: "openid" }, "mcp:tools", { error: "invalid_grant" }],
    [{ scope: undefined }, "mcp:tools", { error: "invalid_grant" }],
  ];
  for (const [claims, scope, expected] of cases) {
    const { body } = await exchange(opened, { assertion: await assertion(opened, claims), scope });
    t.match(body, expected, `${claims.scope} ${scope}`);
  }
});

t.test("an invalid assertion is refused, with the reason in the audit only", async (t) => {
  const opened = await openServer(t);
  const { setting, issuer } = opened;
  const { url } = setting;
  const foreign = await makeKey("first");
  const header = (typ: string) => ({ header: { typ } });
  const cases: [detail: string, claims: Claims, more?: object][] = [
    ["wrong_type", {}, header("JWT")],
    ["wrong_type", {}, header("at+jwt")],
    ["wrong_audience", { aud: `${url}/mcp` }],
    ["wrong_audience", { aud: `${url}/` }],
    ["wrong_audience", { aud: [url, "https://other.example.com"] }],
    ["unknown_issuer", { iss: "https://login.example.com" }],
    ["bad_signature", {}, { key: foreign }],
    ["expired", { exp: now() - 60 }],
    ["too_old", { iat: now() - 400 }],
    ["bad_claim", { iat: now() + 400 }],
    ["bad_claim", { jti: undefined }],
    ["bad_claim", { jti: "" }],
    ["bad_claim", { authorization_details: [] }],
    ["bound_to_key", { cnf: { jkt: "x" } }],
    ["wrong_client", { client_id: OTHER }],
    ["wrong_resource", { resource: "https://other.example.com/mcp" }],
    ["wrong_resource", { resource: null }],
    ["claim_mismatch", { tenant: "other" }],
    ["groups_missing", { groups: undefined }],
    ["bad_username", { sub: "a  b" }],
    ["no_grant", { sub: "bob", groups: [] }],
  ];
  for (const [detail, claims, more] of cases) {
    const text = await assertion(opened, claims, more);
    const { status, body, event } = await exchange(opened, { assertion: text });
    const description = "grant request is invalid";
    const error = { error: "invalid_grant", error_description: description };
    t.strictSame({ status, body }, { status: 400, body: error }, detail);
    const known = detail === "unknown_issuer" ? undefined : issuer.url;
    t.match(event, { outcome: "invalid_grant", detail, issuer: known, client: CLIENT });
  }
  const good = await assertion(opened, { resource: undefined });
  t.equal((await exchange(opened, { assertion: good })).status, 200, "there is one resource");
});

t.test("the algorithm is the key's, and no shared secret", async (t) => {
  const opened = await openServer(t);
  const { jwk, kid } = opened.issuer.keys[0] ?? (await makeKey("first"));
  const [, payload = ""] = (await assertion(opened)).split(".");
  for (const alg of ["HS256", "none"]) {
    const head = `${encodePart({ alg, kid, typ: "oauth-id-jag+jwt" })}.${payload}`;
    const mac = createHmac("sha256", JSON.stringify(jwk)).update(head).digest("base64url");
    const text = `${head}.${alg === "none" ? "" : mac}`;
    t.match(await exchange(opened, { assertion: text }), { body: { error: "invalid_grant" } }, alg);
  }
});

t.test("an assertion is used once, also by parallel requests and after a restart", async (t) => {
  const opened = await openServer(t);
  // Times need not be whole numbers (RFC 7519, section 2).
  const text = await assertion(opened, { iat: now() - 0.5 });
  const answers = await Promise.all(
    Array.from({ length: 5 }, () => exchange(opened, { assertion: text })),
  );
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  await opened.setting.restart();
  const again = await exchange(opened, { assertion: text });
  t.match(again, { body: { error: "invalid_grant" }, event: { detail: "replayed" } });
  const refused = await assertion(opened, { jti: "one" });
  await exchange(opened, { assertion: refused, client_assertion: await otherClient(opened) });
  t.equal((await exchange(opened, { assertion: refused })).status, 200, "a refusal uses nothing");
});

function otherClient({ setting }: Opened): Promise<string> {
  return clientAssertion(setting, OTHER);
}

t.test("only a client that authenticates with its own key may use an assertion", async (t) => {
  const opened = await openServer(t);
  const { setting } = opened;
  const forged = await makeKey("client");
  const own = await clientAssertion(setting);
  const [, payload = ""] = own.split(".");
  const head = `${encodePart({ alg: "HS256", kid: "client" })}.${payload}`;
  const secret = JSON.stringify(keys[CLIENT]?.jwk);
  const mac = createHmac("sha256", secret).update(head).digest("base64url");
  const cases: [name: string, fields: Fields][] = [
    ["none", { client_id: CLIENT, client_assertion_type: undefined }],
    ["another key", { client_assertion: await clientAssertion(setting, CLIENT, forged) }],
    ["another client's", { client_id: CLIENT, client_assertion: await otherClient(opened) }],
    ["a confused algorithm", { client_assertion: `${head}.${mac}` }],
    ["expired", { client_assertion: await signed({ exp: now() - 60 }) }],
    ["another audience", { client_assertion: await signed({ aud: "https://x.example" }) }],
    ["without an id", { client_assertion: await signed({ jti: undefined }) }],
  ];
  function signed(claims: Claims) {
    return clientAssertion(setting, CLIENT, keys[CLIENT], claims);
  }
  for (const [name, fields] of cases) {
    const { body } = await exchange(opened, { assertion: await assertion(opened), ...fields });
    const error = name === "another client's" ? "invalid_request" : "invalid_client";
    t.match(body, { error, access_token: undefined }, name);
  }
  const use = async () =>
    exchange(opened, { assertion: await assertion(opened), client_assertion: own });
  const answers = await Promise.all([use(), use(), use()]);
  t.equal(answers.filter(({ status }) => status === 200).length, 1, "once");
  t.match(await use(), { status: 401, body: { error: "invalid_client" } }, "replayed");
  const optional = { token_endpoint_auth_methods_supported: ["none"] };
  const lax = await openServer(t, { more: { [CLIENT]: { ...documents[CLIENT], ...optional } } });
  const unsigned = { client_id: CLIENT, client_assertion_type: undefined };
  const refused = await exchange(lax, { assertion: await assertion(lax), ...unsigned });
  t.match(refused, { status: 401, body: { error: "invalid_client" } }, "the key is optional");
  t.equal((await exchange(lax, { assertion: await assertion(lax) })).status, 200);
  const text = await assertion(opened, { client_id: PUBLIC });
  const anonymous = { client_id: PUBLIC, client_assertion_type: undefined, assertion: text };
  t.match(await exchange(opened, anonymous), { status: 400, body: { error: "invalid_request" } });
});

t.test("a document with invalid keys or redirect URIs is refused", async (t) => {
  const jwks = { keys: [keys[CLIENT]?.jwk] };
  for (const changes of [
    { jwks: undefined },
    { jwks, jwks_uri: "https://agent.example.com/keys.json" },
    { jwks: undefined, jwks_uri: "http://agent.example.com/keys.json" },
    { jwks: { keys: [{ kty: "oct", k: "c2VjcmV0", kid: "client" }] } },
    { jwks: { keys: "none" } },
    { grant_types: ["authorization_code", JWT_BEARER] },
    { grant_types: ["authorization_code", JWT_BEARER], redirect_uris: ["http://x.example/"] },
    { grant_types: ["authorization_code"], redirect_uris: [REDIRECT] },
    { token_endpoint_auth_method: "client_secret_jwt" },
  ]) {
    const document = { ...documents[CLIENT], ...changes };
    const opened = await openServer(t, { more: { [CLIENT]: document } });
    const { status, body } = await exchange(opened, { assertion: await assertion(opened) });
    t.match({ status, body }, { status: /^40[01]$/, body: { access_token: undefined } });
  }
});

t.test("the keys at jwks_uri are fetched once a minute", async (t) => {
  const opened = await openServer(t);
  const use = async () => {
    const text = await assertion(opened, { client_id: OTHER });
    return exchange(opened, { assertion: text, client_assertion: await otherClient(opened) });
  };
  t.equal((await use()).status, 200);
  t.equal((await use()).status, 200);
  t.strictSame(opened.fetched, [OTHER, "https://other.example.com/keys.json"]);
});

t.test("a client that authenticates may also send its users to the pages", async (t) => {
  const users = await defaultUsers();
  const opened = await openServer(t, { users });
  const { setting } = opened;
  const anonymous = await exchangeCode(setting, await authorize(setting, { clientId: OTHER }));
  t.match(anonymous, { status: 401, body: { error: "invalid_client" } });
  const authorized = await authorize(setting, { clientId: OTHER });
  const own = {
    client_assertion_type: ASSERTION_TYPE,
    client_assertion: await otherClient(opened),
  };
  t.equal((await exchangeCode(setting, authorized, own)).status, 200);
});

t.test("another resource is refused", async (t) => {
  const opened = await openServer(t);
  const { url } = opened.setting;
  const use = async (resource: string) =>
    exchange(opened, { assertion: await assertion(opened), resource });
  t.match(await use("https://other.example.com/mcp"), { body: { error: "invalid_target" } });
  t.equal((await use(`${url}/mcp`)).status, 200);
  t.match(await exchange(opened, {}), { status: 400, body: { error: "invalid_request" } });
});

t.test("a disabled user and an earlier assertion of a revoked one get no token", async (t) => {
  const opened = await openServer(t);
  const { setting } = opened;
  const text = await assertion(opened);
  setting.setUsers(user("staff:alice", "disabled = true") + rights);
  const disabled = await exchange(opened, { assertion: text });
  t.match(disabled, { body: { error: "invalid_grant" }, event: { detail: "disabled" } });
  setting.setUsers(rights);
  setting.revokedBefore.set("staff:alice", now() + 1);
  const revoked = await exchange(opened, { assertion: text });
  t.match(revoked, { body: { error: "invalid_grant" }, event: { detail: "revoked" } });
  setting.revokedBefore.clear();
  t.equal((await exchange(opened, { assertion: text })).status, 200);

  const until = now() + 1;
  let checks = 0;
  setting.revokedBefore.get = () => (checks++ === 0 ? undefined : until);
  const late = await exchange(opened, { assertion: await assertion(opened) });
  t.match(late, { body: { error: "invalid_grant" }, event: { detail: "revoked" } });
});

t.test("an unreachable provider is not a refusal", async (t) => {
  const opened = await openServer(t);
  opened.issuer.failure = 500;
  const { status, headers, body, event } = await exchange(opened, {
    assertion: await assertion(opened),
  });
  t.match({ status, body }, { status: 503, body: { error: "temporarily_unavailable" } });
  t.equal(headers.get("retry-after"), "2");
  t.match(event, { issuer: opened.issuer.url, outcome: "temporarily_unavailable" });
});

t.test("the token and its record end after its lifetime", async (t) => {
  const pass = stopClock(t);
  const opened = await openServer(t);
  const { body } = await exchange(opened, { assertion: await assertion(opened) });
  const { credential, username } = await opened.setting.server.verify(String(body.access_token));
  pass(601);
  await t.rejects(opened.setting.server.verify(String(body.access_token)), {
    code: "token_expired",
  });
  const current = opened.setting.signIns?.current(credential, username);
  t.match(await refusedBy(Promise.resolve(current)), { code: "token_revoked" });
});

t.test("the metadata announces assertions only if they are accepted", async (t) => {
  const announced = async (isOn: boolean) => {
    const { setting } = await openServer(t, { isOn });
    const answer = await fetch(`${setting.url}/.well-known/oauth-authorization-server`);
    const metadata: Record<string, unknown> = JSON.parse(await answer.text());
    return { setting, metadata };
  };
  const { metadata } = await announced(true);
  t.match(metadata, {
    grant_types_supported: ["authorization_code", "refresh_token", JWT_BEARER],
    token_endpoint_auth_methods_supported: ["none", "private_key_jwt"],
    token_endpoint_auth_signing_alg_values_supported: /ES256/,
    authorization_grant_profiles_supported: ["urn:ietf:params:oauth:grant-profile:id-jag"],
  });
  const off = await announced(false);
  t.strictSame(off.metadata.grant_types_supported, ["authorization_code", "refresh_token"]);
  t.strictSame(off.metadata.token_endpoint_auth_methods_supported, ["none", "private_key_jwt"]);
  t.notOk(Object.hasOwn(off.metadata, "authorization_grant_profiles_supported"));
  const { body } = await postForm(`${off.setting.url}/oauth/token`, {
    grant_type: JWT_BEARER,
    assertion: "x",
    client_id: "inspector",
  });
  t.match(body, { error: "unsupported_grant_type" });
});
