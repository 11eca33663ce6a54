import { createHash, generateKeyPairSync } from "node:crypto";
import { mock } from "node:test";
import { exportJWK } from "jose";
import { pino } from "pino";
import t, { type Test } from "tap";
import { Issuers } from "../../src/features/issuers/issuers.ts";
import { mcpResources } from "../../src/features/oauth/server/protocol.ts";
import { refusedBy } from "../access/kit.ts";
import { stopClock } from "../kit/clock.ts";
import { eventually } from "../kit/eventually.ts";
import {
  type IssuerKey,
  issuerSettings,
  issuersWith,
  makeKey,
  metadataPlaces,
  mcpResource as resource,
  TestIssuer,
  type TokenChanges,
} from "./issuer.ts";

async function openIssuer(t: Test) {
  const issuer = await TestIssuer.start(t);
  const fresh = (username_claim = "sub") =>
    issuersWith(issuerSettings(issuer.url, { username_claim }));
  const verify = async (token: string, issuers = fresh()) =>
    (await issuers.verify(token, "mcp")).user;
  const refused = async (changes: TokenChanges | string, issuers?: Issuers) => {
    const token = typeof changes === "string" ? changes : await issuer.sign(resource, changes);
    return refusedBy(verify(token, issuers));
  };
  const refusal = async (...args: Parameters<typeof refused>) => (await refused(...args)).code;
  return { issuer, fresh, verify, refused, refusal };
}

t.test("an issuer's keys are found wherever its metadata may be", async (t) => {
  const { issuer, verify, refusal } = await openIssuer(t);
  for (const [name, place] of Object.entries(metadataPlaces)) {
    issuer.place = place;
    t.equal(await verify(await issuer.sign(resource)), "staff:alice", name);
  }
  issuer.place = "/elsewhere";
  t.equal(await refusal({}), "issuer_unreachable", "and nowhere else");
});

t.test("a token is read with its user, id, scopes and expiry", async (t) => {
  const { issuer, fresh, verify } = await openIssuer(t);
  const claims = { scope: "mcp:tools other", jti: "j", aud: ["https://other.test/", resource] };
  const token = await issuer.sign(resource, { claims });
  const read = await fresh().verify(token, "mcp");
  t.match(read, { user: "staff:alice", tokenId: "j", scopes: new Set(["mcp:tools", "other"]) });
  t.equal(read.expiresAt - read.issuedAt, 630);
  for (const alg of ["RS256", "PS384", "ES384", "EdDSA"]) {
    const key = await makeKey(alg, alg);
    issuer.keys.push(key);
    t.equal(await verify(await issuer.sign(resource, { key })), "staff:alice", alg);
  }
});

t.test("an invalid token is refused with the reason", async (t) => {
  const { issuer, fresh, verify, refused } = await openIssuer(t);
  const issuers = fresh();
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
  const key = await makeKey("first");
  const now = Date.now() / 1000;
  const user = "staff:alice";
  const wrong: [name: string, detail: string, claims: object, changes?: TokenChanges][] = [
    ["another audience", "wrong_audience", { aud: "https://gate.example.com" }],
    ["an audience with a slash", "wrong_audience", { aud: `${resource}/` }],
    ["no audience", "wrong_audience", { aud: undefined }],
    ["another key with the same id", "bad_signature", {}, { key }],
    ["the type of an ID token", "wrong_type", {}, { header: { typ: "id+jwt" } }],
    ["no expiry", "no_expiry", { exp: undefined }],
    ["no issue time", "no_issue_time", { iat: undefined }],
    ["an issue time in the future", "issued_in_future", { iat: now + 3600 }],
    ["not yet valid", "not_yet_valid", { nbf: now + 3600 }],
    ["not yet valid, above the clock skew", "not_yet_valid", { nbf: now + 45 }],
    ["no user", "no_username", { sub: undefined }],
    ["an invalid username", "bad_username", { sub: "a  b" }],
    ["scopes that are an object", "bad_scope", { scope: { "mcp:tools": true } }],
    ["scopes that are null", "bad_scope", { scope: null, scp: "mcp:tools" }],
    ["a token bound to a DPoP key", "bound_to_key", { cnf: { jkt: "x" } }],
    ["a token bound to a certificate", "bound_to_key", { cnf: { "x5t#S256": "x" } }],
    ["a binding of null", "bound_to_key", { cnf: null }],
    ["a token over 16 KiB", "too_long", { filler: "x".repeat(20_000) }],
  ];
  const withoutUser = ["bad_signature", "no_username", "bad_username", "too_long"];
  for (const [name, detail, claims, changes] of wrong) {
    const refusal = await refused({ claims: { ...claims }, ...changes }, issuers);
    t.match(refusal, { code: "token_invalid", detail, token: { issuer: issuer.url } }, name);
    const expected = withoutUser.includes(detail) ? undefined : user;
    t.equal(refusal.token?.user, expected, `${name}: the user, if the issuer has signed it`);
  }
  for (const iss of [issuer.origin, `${issuer.url}/`, undefined, 7]) {
    t.match(await refused({ claims: { iss } }, issuers), { detail: "unknown_issuer" }, `${iss}`);
  }
  const past = Math.floor(Date.now() / 1000) - 45;
  const expired = await refused({ claims: { exp: past, client_id: "app" } }, issuers);
  t.match(expired, { code: "token_expired", detail: "expired", token: { user, client: "app" } });
});

t.test("without a valid jti, the token id is a digest of the signed part", async (t) => {
  const { issuer, fresh } = await openIssuer(t);
  const idOf = async (token: string) => (await fresh().verify(token, "mcp")).tokenId;
  for (const jti of [undefined, 7, "", "two words", "x".repeat(129)]) {
    const token = await issuer.sign(resource, { claims: { jti } });
    const [header, payload] = token.split(".");
    const digest = createHash("sha256").update(`${header}.${payload}`).digest("hex");
    t.equal(await idOf(token), digest, `${jti}`);
  }
  t.equal(await idOf(await issuer.sign(resource, { claims: { jti: "{urn:1/2}" } })), "{urn:1/2}");
});

t.test("the issuer's clock may be off by 30 seconds", async (t) => {
  const { issuer, fresh } = await openIssuer(t);
  stopClock(t);
  const now = Math.floor(Date.now() / 1000);
  for (const claims of [{ exp: now - 29 }, { nbf: now + 30 }, { nbf: now + 29, exp: now - 29 }]) {
    const { expiresAt } = await fresh().verify(await issuer.sign(resource, { claims }), "mcp");
    t.ok(expiresAt > now, "streams of the token stay open as long");
  }
  const late = await issuer.sign(resource, { claims: { exp: now - 30 } });
  t.equal((await refusedBy(fresh().verify(late, "mcp"))).code, "token_expired");
});

t.test("scopes may be text or a list, in scope or else in scp", async (t) => {
  const { issuer, fresh } = await openIssuer(t);
  const both = new Set(["mcp:tools", "mcp:resources"]);
  const ways: [claims: Record<string, unknown>, scopes: Set<string>][] = [
    [{ scope: ["mcp:tools", "mcp:resources"] }, both],
    [{ scope: undefined, scp: "mcp:tools  mcp:resources" }, both],
    [{ scope: undefined, scp: ["mcp:tools", "mcp:resources", "", 1, null] }, both],
    [{ scope: "mcp:tools", scp: ["mcp:resources"] }, new Set(["mcp:tools"])],
    [{ scope: "", scp: "mcp:tools" }, new Set()],
    [{ scope: undefined }, new Set()],
    [{ scope: ["mcp:tools mcp:resources"] }, new Set(["mcp:tools mcp:resources"])],
  ];
  for (const [claims, scopes] of ways) {
    const read = await fresh().verify(await issuer.sign(resource, { claims }), "mcp");
    t.strictSame(read.scopes, scopes, JSON.stringify(claims));
  }
});

t.test("each name of a local resource is an audience of its tokens", async (t) => {
  const issuer = await TestIssuer.start(t);
  const names = mcpResources("http://127.0.0.1:8080");
  const hosts = ["127.0.0.1", "localhost", "[::1]"];
  t.strictSame(
    names,
    hosts.map((host) => `http://${host}:8080/mcp`),
  );
  t.equal(mcpResources("http://[::]:8080").length, 4);
  t.strictSame(mcpResources("https://gate.example.com"), [resource]);
  const log = pino({ level: "silent" });
  const issuers = new Issuers([issuerSettings(issuer.url)], () => names, log);
  t.teardown(() => issuers.close());
  for (const name of names) {
    t.match(await issuers.verify(await issuer.sign(name), "mcp"), { user: "staff:alice" });
  }
  const other = await issuer.sign("http://localhost:8081/mcp");
  t.match(await refusedBy(issuers.verify(other, "mcp")), { detail: "wrong_audience" });
});

t.test("an invalid username is refused, never normalized", async (t) => {
  const { issuer, verify, refusal } = await openIssuer(t);
  const sub = (name: unknown) => ({ claims: { sub: name } });
  const valid = ["a", "a.b-c_d@example.com", "x".repeat(200), "auth0|1234", "a:b", "Zoë Ç", "山田"];
  for (const name of valid) {
    t.equal(await verify(await issuer.sign(resource, sub(name))), `staff:${name}`);
  }
  const names = ["", " a", "a  b", "alice\n", "*", "a\u0308", "x".repeat(201), "alice\u0000"];
  for (const name of [...names, 7, ["alice"], "a%20b", "a,b", "a\u200bb"]) {
    t.equal(await refusal(sub(name)), "token_invalid", JSON.stringify(name));
  }
});

t.test("the username comes from the configured claim, an email only if verified", async (t) => {
  const { issuer, fresh, verify, refusal } = await openIssuer(t);
  const claims = { preferred_username: "bob", email: "carol@example.com" };
  const token = await issuer.sign(resource, { claims });
  t.equal(await verify(token, fresh("preferred_username")), "staff:bob");
  t.equal(await refusal({}, fresh("preferred_username")), "token_invalid", "it is not there");
  const verified = { ...claims, email_verified: true };
  const email = await issuer.sign(resource, { claims: verified });
  t.equal(await verify(email, fresh("email")), "staff:carol@example.com");
  for (const email_verified of [undefined, false, "true", 1]) {
    const doubtful = { claims: { ...claims, email_verified } };
    t.equal(await refusal(doubtful, fresh("email")), "token_invalid", `${email_verified}`);
  }
});

const COOLDOWN_MS = 5100;

t.test("rotated keys are fetched, and unknown key ids cause few fetches", async (t) => {
  const { issuer, fresh, verify, refusal } = await openIssuer(t);
  stopClock(t);
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  await verify(await issuer.sign(resource), issuers);
  t.equal(issuer.fetches, 1, "keys are cached");

  const old = issuer.keys[0];
  issuer.keys = [await makeKey("second")];
  mock.timers.tick(COOLDOWN_MS);
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice", "the new key");
  t.equal(issuer.fetches, 2, "fetched again");
  const header = { kid: "made-up" };
  const outdated = old === undefined ? {} : { key: old };
  for (let count = 0; count < 20; count++) {
    t.equal(await refusal(count % 2 === 0 ? { header } : outdated, issuers), "issuer_unreachable");
  }
  t.equal(issuer.fetches, 2, "not during the cooldown");
  mock.timers.tick(COOLDOWN_MS);
  await Promise.all(Array.from({ length: 20 }, () => refusal({ header }, issuers)));
  t.equal(issuer.fetches, 3, "once after the cooldown");
  mock.timers.tick(COOLDOWN_MS);
  t.equal(await refusal(outdated, issuers), "token_invalid", "a key that no longer exists");
});

t.test("a valid token with a new key has to wait for the end of the cooldown", async (t) => {
  const { issuer, fresh, verify, refused } = await openIssuer(t);
  stopClock(t);
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  mock.timers.tick(COOLDOWN_MS);
  t.match(await refused({ header: { kid: "made-up" } }, issuers), { code: "token_invalid" });
  mock.timers.tick(1500);
  issuer.keys = [await makeKey("second")];
  const soon = { code: "issuer_unreachable", status: 503, retryAfter: 4, detail: "unknown_key" };
  t.match(await refused({}, issuers), soon);
  mock.timers.tick(4000);
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
});

t.test("an unreachable issuer is tried again", async (t) => {
  const { issuer, fresh, verify, refusal } = await openIssuer(t);
  const issuers = fresh();
  const token = await issuer.sign(resource);
  await issuer.stop();
  const refused = await refusedBy(verify(token, issuers));
  t.match(refused, { code: "issuer_unreachable", status: 503, retryAfter: 2 });
  await issuer.listen();
  t.equal(await refusal(token, issuers), "issuer_unreachable", "not tried again at once");
  t.equal(issuer.fetches, 0);
  await eventually(
    "it is tried again",
    async () => (await verify(token, issuers).catch(() => "")) === "staff:alice",
  );
});

t.test("known keys stay in use while their issuer is unreachable", async (t) => {
  const { issuer, fresh, verify, refusal } = await openIssuer(t);
  stopClock(t);
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  issuer.failure = 500;
  mock.timers.tick(COOLDOWN_MS);
  t.equal(await refusal({ header: { kid: "made-up" } }, issuers), "issuer_unreachable");
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
  mock.timers.tick(660_000);
  t.equal(await refusal({}, issuers), "issuer_unreachable", "but not forever");
});

t.test("an invalid key set is refused", async (t) => {
  const { issuer, refusal } = await openIssuer(t);
  for (const answer of [{}, { keys: "none" }, { keys: [1] }, [], "keys"]) {
    issuer.others.set("/keys", answer);
    t.equal(await refusal({}), "issuer_unreachable", JSON.stringify(answer));
  }
  issuer.others.set("/keys", { keys: [{ kty: "oct", kid: "first", alg: "HS256", k: "c2VjcmV0" }] });
  t.equal(await refusal({}), "token_invalid", "a shared secret");
});

t.test("entries of a key set that are no keys, or that repeat one, do not matter", async (t) => {
  const { issuer, verify, refused } = await openIssuer(t);
  const [{ jwk } = await makeKey("first")] = issuer.keys;
  const other = await makeKey("other");
  const { kid: _, ...nameless } = jwk;
  const sets: Record<string, unknown[]> = {
    "no kty": [{ kid: "first" }, jwk],
    null: [null, jwk],
    "no object": [7, "key", [], jwk],
    "a kty that is no text": [{ kty: 5, kid: "first" }, jwk],
    "a member of a wrong type": [{ ...jwk, x: 5, kid: "bad" }, jwk],
    repeated: [jwk, jwk],
    "repeated with and without alg": [jwk, { ...jwk, alg: undefined }],
    "repeated for encryption": [jwk, { ...jwk, use: "enc" }],
    "beside a broken one of its name": [{ ...jwk, x: "AAAA" }, jwk],
  };
  for (const [name, keys] of Object.entries(sets)) {
    issuer.others.set("/keys", { keys });
    t.equal(await verify(await issuer.sign(resource)), "staff:alice", name);
  }
  const header = { kid: undefined } as const;
  issuer.others.set("/keys", { keys: [jwk, { ...jwk, kid: "second" }, nameless] });
  t.equal(await verify(await issuer.sign(resource, { header })), "staff:alice", "without kid");
  issuer.others.set("/keys", { keys: [jwk, { ...other.jwk, kid: "first" }] });
  t.match(await refused({}), { code: "token_invalid", detail: "unknown_key" }, "really ambiguous");
});

t.test("a key that cannot be used is named", async (t) => {
  const { issuer, refused } = await openIssuer(t);
  const pair = (modulusLength: number) =>
    generateKeyPairSync("rsa", { modulusLength }).publicKey.export({ format: "jwk" });
  const rsa = { kid: "first", alg: "RS256" };
  const key = { ...(await makeKey("first", "RS256")), ...rsa };
  const [{ jwk, privateKey } = await makeKey("first")] = issuer.keys;
  const unusable: [cause: RegExp, keys: object[], signer?: IssuerKey][] = [
    [/found RSA of 1024 bits, expected at least 2048$/, [{ ...pair(1024), ...rsa }], key],
    [/cannot be used: ./, [{ kty: "RSA", x5c: ["MIIB"], ...rsa }], key],
    [/cannot be used: ./, [{ ...jwk, x: "AAAA" }]],
    [/public keys/, [{ ...(await exportJWK(privateKey)), kid: "first" }]],
    [
      /none of its entries/,
      [
        { ...jwk, x: "AAAA" },
        { ...jwk, x: "BBBB" },
      ],
    ],
  ];
  for (const [cause, keys, signer] of unusable) {
    issuer.others.set("/keys", { keys });
    const refusal = await refused({ ...(signer && { key: signer }) });
    t.match(refusal, { code: "token_invalid", detail: "unusable_key", token: { cause } });
    t.match(refusal.token?.cause, `The key "first" of ${issuer.origin}/keys cannot be used`);
  }
});

t.test("why an issuer's documents cannot be used is said", async (t) => {
  const { issuer, refused } = await openIssuer(t);
  const { origin, url } = issuer;
  const place = "/staff/.well-known/openid-configuration";
  const at = `${origin}${place}`;
  issuer.place = "";
  const document = { issuer: url, jwks_uri: `${origin}/keys` };
  const body = JSON.stringify(document);
  const cases: Record<string, { status?: number; headers?: object; body?: string }> = {
    [`${at} answered 404`]: { status: 404 },
    [`${at} answered 500`]: { status: 500 },
    [`${at} redirects to "https://elsewhere.example/x", which the gateway does not follow`]: {
      status: 302,
      headers: { location: "https://elsewhere.example/x" },
    },
    [`${at} has issuer "${url}/", expected "${url}"`]: {
      body: JSON.stringify({ ...document, issuer: `${url}/` }),
    },
    [`${at} has issuer "https://login.example/{tenantid}/v2.0", expected "${url}"`]: {
      body: JSON.stringify({ ...document, issuer: "https://login.example/{tenantid}/v2.0" }),
    },
    [`${at} has issuer nothing, expected "${url}"`]: { body: "{}" },
    [`${at} has jwks_uri "http://keys.example/k", expected an https URL`]: {
      body: JSON.stringify({ ...document, jwks_uri: "http://keys.example/k" }),
    },
    [`${at} has jwks_uri nothing, expected an https URL`]: {
      body: JSON.stringify({ issuer: url }),
    },
    [`${at} begins with a byte-order mark, which JSON does not allow`]: { body: `\u{feff}${body}` },
    [`${at} is not JSON`]: { body: "<html>Sign in</html>" },
    [`${at} is not a JSON object`]: { body: "[]" },
    [`${at} cannot be read: the document is larger than 262144 bytes`]: {
      body: " ".repeat(262_145),
    },
  };
  for (const [cause, answer] of Object.entries(cases)) {
    issuer.raw.set(place, answer);
    const expected = { code: "issuer_unreachable", detail: "unreachable", token: { cause } };
    t.match(await refused({}), { ...expected, message: /^(?!.*127)/ }, cause);
  }
  issuer.raw.set(place, { body });
  for (const [cause, answer] of Object.entries({
    [`${origin}/keys is not JSON`]: { body: "-----BEGIN" },
    [`${origin}/keys answered 403`]: { status: 403 },
    [`${origin}/keys begins with a byte-order mark`]: { body: '\u{feff}{"keys": []}' },
    [`${origin}/keys is not a key set: it has no list keys`]: { body: '{"keys": {}}' },
    [`${origin}/keys has no key`]: { body: '{"keys": [null]}' },
  })) {
    issuer.raw.set("/keys", answer);
    const { token } = await refused({});
    t.match(token?.cause, cause);
  }
  await issuer.stop();
  const { token } = await refused({});
  t.match(token?.cause, /cannot be read: connect ECONNREFUSED 127\.0\.0\.1/);
});

t.test("an unreachable issuer is rechecked without a token", async (t) => {
  const { issuer, fresh, refusal } = await openIssuer(t);
  const issuers = fresh();
  t.strictSame(issuers.states, { staff: "unused" });
  await issuer.stop();
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  t.equal(await refusal({}, issuers), "issuer_unreachable");
  t.strictSame(issuers.states, { staff: "unreachable" });
  await issuer.listen();
  const later = performance.now() + 30_000;
  const passed = mock.method(performance, "now", () => later);
  mock.timers.tick(30_000);
  passed.mock.restore();
  mock.timers.reset();
  await eventually("it is found", () => issuers.states.staff === "ok");
  issuers.close();
});
