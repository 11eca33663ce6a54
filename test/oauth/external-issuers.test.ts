import { createHash } from "node:crypto";
import { mock } from "node:test";
import { UnsecuredJWT } from "jose";
import { pino } from "pino";
import t, { type Test } from "tap";
import { createExternalIssuers, type ExternalIssuers } from "../../src/oauth/external-issuers.ts";
import type { Refusal } from "../../src/refusal.ts";
import { refusedBy } from "../access/kit.ts";
import { encodePart } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { makeKey, metadataPlaces, TestIssuer, type TokenChanges } from "./issuer.ts";

const resource = "https://gate.example.com/mcp";

interface Setting {
  readonly issuer: TestIssuer;
  fresh(claim?: string): ExternalIssuers;
  verify(token: string, issuers?: ExternalIssuers): Promise<string>;
  refusal(changes: TokenChanges | string, issuers?: ExternalIssuers): Promise<string>;
  refused(changes: TokenChanges | string, issuers?: ExternalIssuers): Promise<Refusal>;
}

async function openSetting(t: Test): Promise<Setting> {
  const issuer = await TestIssuer.start(t);
  const fresh = (username_claim = "sub") => {
    const settings = { issuer: issuer.url, prefix: "staff", username_claim };
    return createExternalIssuers([settings], () => resource, pino({ level: "silent" }));
  };
  const verify = async (token: string, issuers = fresh()) =>
    (await issuers.verify(issuer.url, token)).user;
  const refused: Setting["refused"] = async (changes, issuers) => {
    const token = typeof changes === "string" ? changes : await issuer.sign(resource, changes);
    return refusedBy(verify(token, issuers));
  };
  return {
    ...{ issuer, fresh, verify, refused },
    refusal: async (changes, issuers) => (await refused(changes, issuers)).code,
  };
}

t.test("an issuer's keys are found wherever its metadata may be", async (t) => {
  const { issuer, verify, refusal } = await openSetting(t);
  for (const [name, place] of Object.entries(metadataPlaces)) {
    issuer.place = place;
    t.equal(await verify(await issuer.sign(resource)), "staff:alice", name);
  }
  issuer.place = "/elsewhere";
  t.equal(await refusal({}), "issuer_unreachable", "and nowhere else");
});

t.test("metadata of another issuer is no issuer's metadata", async (t) => {
  const { issuer, refusal } = await openSetting(t);
  const keys = `${issuer.origin}/keys`;
  const foreign = [
    ["another issuer's", { issuer: issuer.origin, jwks_uri: keys }],
    ["one with a slash at the end", { issuer: `${issuer.url}/`, jwks_uri: keys }],
    ["keys that would travel in the clear", { issuer: issuer.url, jwks_uri: "http://k.test/" }],
    ["without keys", { issuer: issuer.url }],
    ["far too long", { issuer: issuer.url, jwks_uri: keys, filler: "x".repeat(300_000) }],
  ] as const;
  for (const [name, metadata] of foreign) {
    issuer.others.set(issuer.place, metadata);
    t.equal(await refusal({}), "issuer_unreachable", name);
  }
  t.equal(issuer.fetches, 0);
});

t.test("a token says whose it is, and what it opens", async (t) => {
  const { issuer, fresh } = await openSetting(t);
  const claims = { scope: "mcp:tools other", jti: "j", aud: ["https://other.test/", resource] };
  const token = await issuer.sign(resource, { claims });
  const read = await fresh().verify(issuer.url, token);
  t.match(read, { user: "staff:alice", tokenId: "j", scopes: new Set(["mcp:tools", "other"]) });
  t.equal(read.expiresAt - read.issuedAt, 630);
  t.ok(fresh().knows(issuer.url));
  t.notOk(fresh().knows(`${issuer.url}/`));
  for (const alg of ["RS256", "PS384", "ES384", "EdDSA"]) {
    const key = await makeKey(alg, alg);
    issuer.keys.push(key);
    t.equal(
      (await fresh().verify(issuer.url, await issuer.sign(resource, { key }))).user,
      "staff:alice",
    );
  }
});

t.test("a token for somebody else, or of somebody else, opens nothing", async (t) => {
  const { issuer, fresh, verify, refused } = await openSetting(t);
  const issuers = fresh();
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
  const impostor = await makeKey("first");
  const user = "staff:alice";
  const audience = { detail: "wrong_audience", user };
  const bound = { detail: "bound_to_key", user };
  const wrong: Record<string, TokenChanges & { detail: string; user?: string }> = {
    "another issuer": { claims: { iss: issuer.origin }, detail: "bad_claim", user },
    "no issuer": { claims: { iss: undefined }, detail: "bad_claim", user },
    "another audience": { claims: { aud: "https://gate.example.com" }, ...audience },
    "an audience with a slash": { claims: { aud: `${resource}/` }, ...audience },
    "no audience": { claims: { aud: undefined }, ...audience },
    "a key of the same name": { key: impostor, detail: "bad_signature" },
    "an ID token's type": { header: { typ: "id+jwt" }, detail: "wrong_type", user },
    "no expiry": { claims: { exp: undefined }, detail: "no_expiry", user },
    "no time of issue": { claims: { iat: undefined }, detail: "no_issue_time", user },
    "a time of issue that is to come": {
      claims: { iat: Date.now() / 1000 + 3600 },
      ...{ detail: "issued_in_future", user },
    },
    "not valid yet": { claims: { nbf: Date.now() / 1000 + 3600 }, detail: "not_yet_valid", user },
    "no user": { claims: { sub: undefined }, detail: "no_username" },
    "a user that no file can name": { claims: { sub: "a b" }, detail: "bad_username" },
    "scopes that are neither text nor list": {
      claims: { scope: { "mcp:tools": true } },
      ...{ detail: "bad_scope", user },
    },
    "scopes that are nothing": {
      claims: { scope: null, scp: "mcp:tools" },
      ...{ detail: "bad_scope", user },
    },
    "a key that it is bound to, for DPoP": { claims: { cnf: { jkt: "x" } }, ...bound },
    "a key that it is bound to, by a certificate": {
      claims: { cnf: { "x5t#S256": "x" } },
      ...bound,
    },
    "a binding to nothing": { claims: { cnf: null }, ...bound },
    "not valid for longer than clocks differ": {
      claims: { nbf: Date.now() / 1000 + 45 },
      ...{ detail: "not_yet_valid", user },
    },
    "more than anyone needs to say": { claims: { filler: "x".repeat(20_000) }, detail: "too_long" },
  };
  for (const [name, { detail, user, ...changes }] of Object.entries(wrong)) {
    const { code, detail: found, token } = await refused(changes, issuers);
    t.equal(code, "token_invalid", name);
    t.equal(found, detail, name);
    t.equal(token?.issuer, issuer.url);
    t.equal(token?.user, user, `${name}: whose it is, if its issuer has signed that`);
  }
  const past = Math.floor(Date.now() / 1000) - 45;
  const expired = await refused({ claims: { exp: past, client_id: "app" } }, issuers);
  t.match(expired, { code: "token_expired", detail: "expired", token: { user, client: "app" } });
});

t.test("a token without an id, or with one that is none, has one of what is signed", async (t) => {
  const { issuer, fresh } = await openSetting(t);
  const idOf = async (token: string) => (await fresh().verify(issuer.url, token)).tokenId;
  for (const jti of [undefined, 7, "", "two words", "x".repeat(129)]) {
    const token = await issuer.sign(resource, { claims: { jti } });
    const [header, payload] = token.split(".");
    const digest = createHash("sha256").update(`${header}.${payload}`).digest("hex");
    t.equal(await idOf(token), digest, `${jti}`);
  }
  t.equal(await idOf(await issuer.sign(resource, { claims: { jti: "{urn:1/2}" } })), "{urn:1/2}");
});

t.test("the issuer's clock may differ by half a minute", async (t) => {
  const { issuer, fresh } = await openSetting(t);
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
  const now = Math.floor(Date.now() / 1000);
  for (const claims of [{ exp: now - 29 }, { nbf: now + 30 }, { nbf: now + 29, exp: now - 29 }]) {
    const { expiresAt } = await fresh().verify(issuer.url, await issuer.sign(resource, { claims }));
    t.ok(expiresAt > now, "and what lives on with the token does so too");
  }
  const late = await issuer.sign(resource, { claims: { exp: now - 30 } });
  t.equal((await refusedBy(fresh().verify(issuer.url, late))).code, "token_expired");
});

t.test("scopes are a text or a list, in scope or else in scp", async (t) => {
  const { issuer, fresh } = await openSetting(t);
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
    const read = await fresh().verify(issuer.url, await issuer.sign(resource, { claims }));
    t.strictSame(read.scopes, scopes, JSON.stringify(claims));
  }
});

t.test("an issuer may have an audience of its own, and then no other", async (t) => {
  const { issuer } = await openSetting(t);
  const settings = { issuer: issuer.url, prefix: "staff", username_claim: "sub" };
  const log = pino({ level: "silent" });
  const audience = "api://gatehouse";
  const issuers = createExternalIssuers([{ ...settings, audience }], () => resource, log);
  const verify = async (aud: unknown) =>
    issuers.verify(issuer.url, await issuer.sign(resource, { claims: { aud } }));
  t.match(await verify(audience), { user: "staff:alice" });
  t.match(await verify(["other", audience]), { user: "staff:alice" });
  for (const aud of [resource, `${audience}/`, [resource], undefined]) {
    t.equal((await refusedBy(verify(aud))).code, "token_invalid", String(aud));
  }
});

t.test("a signature that anyone could make is none", async (t) => {
  const { issuer, fresh, refusal } = await openSetting(t);
  const issuers = fresh();
  const signed = await issuer.sign(resource);
  const [, payload = "", signature = ""] = signed.split(".");
  const claims = { iss: issuer.url, aud: resource, sub: "alice", iat: 1, exp: 9_999_999_999 };
  t.equal(await refusal(new UnsecuredJWT(claims).encode(), issuers), "token_invalid", "none");
  for (const alg of ["none", "HS256", "RS1", "ES256K"]) {
    const header = encodePart({ alg, kid: "first", typ: "at+jwt" });
    t.equal(await refusal(`${header}.${payload}.${signature}`, issuers), "token_invalid", alg);
  }
  const { jwk, kid } = issuer.keys[0] ?? (await makeKey("first"));
  const secret = new TextEncoder().encode(JSON.stringify(jwk));
  const head = `${encodePart({ alg: "HS256", kid, typ: "at+jwt" })}.${payload}`;
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", secret, algorithm, false, ["sign"]);
  const mac = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(head));
  const confused = `${head}.${Buffer.from(mac).toString("base64url")}`;
  t.equal(await refusal(confused, issuers), "token_invalid", "the public key as a secret");
  t.equal(await refusal(`${signed.slice(0, -4)}AAAA`, issuers), "token_invalid", "another one");
});

t.test("a name that does not fit is refused, never cleaned", async (t) => {
  const { issuer, verify, refusal } = await openSetting(t);
  const sub = (name: string) => ({ claims: { sub: name } });
  for (const name of ["a", "a.b-c_d@example.com", "x".repeat(64)]) {
    t.equal(await verify(await issuer.sign(resource, sub(name))), `staff:${name}`);
  }
  const names = ["", ".", "..", "a b", "a:b", "staff:alice", "alice\n", "*", "ä", "x".repeat(65)];
  for (const name of [...names, "auth0|1234", "../alice", "alice\u0000"]) {
    t.equal(await refusal(sub(name)), "token_invalid", JSON.stringify(name));
  }
});

t.test("a name is taken from the configured claim, an email only if verified", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
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

t.test("keys rotate under their issuer, and made-up ones cost it nothing", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  await verify(await issuer.sign(resource), issuers);
  t.equal(issuer.fetches, 1, "keys are remembered");

  const old = issuer.keys[0];
  issuer.keys = [await makeKey("second")];
  mock.timers.tick(COOLDOWN_MS);
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice", "the new key");
  t.equal(issuer.fetches, 2, "it was asked for");
  const header = { kid: "made-up" };
  const outdated = old === undefined ? {} : { key: old };
  for (let count = 0; count < 20; count++) {
    t.equal(await refusal(count % 2 === 0 ? { header } : outdated, issuers), "issuer_unreachable");
  }
  t.equal(issuer.fetches, 2, "which was just done");
  mock.timers.tick(COOLDOWN_MS);
  await Promise.all(Array.from({ length: 20 }, () => refusal({ header }, issuers)));
  t.equal(issuer.fetches, 3, "it is asked once more, later");
  mock.timers.tick(COOLDOWN_MS);
  t.equal(
    await refusal(outdated, issuers),
    "token_invalid",
    "a key that was looked for and is gone",
  );
});

t.test("a good token waits for the next fetch after a made-up one has used this one", async (t) => {
  const { issuer, fresh, verify, refused } = await openSetting(t);
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
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

t.test("an issuer that is out of reach is waited for", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
  const issuers = fresh();
  const token = await issuer.sign(resource);
  await issuer.stop();
  const refused = await refusedBy(verify(token, issuers));
  t.match(refused, { code: "issuer_unreachable", status: 503, retryAfter: 2 });
  await issuer.listen();
  t.equal(await refusal(token, issuers), "issuer_unreachable", "it is left alone for a moment");
  t.equal(issuer.fetches, 0);
  await eventually(
    "it is asked again",
    async () => (await verify(token, issuers).catch(() => "")) === "staff:alice",
  );
});

t.test("keys that are known serve while their issuer is out of reach", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
  const issuers = fresh();
  await verify(await issuer.sign(resource), issuers);
  issuer.failure = 500;
  mock.timers.tick(COOLDOWN_MS);
  t.equal(await refusal({ header: { kid: "made-up" } }, issuers), "issuer_unreachable");
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
  mock.timers.tick(660_000);
  t.equal(await refusal({}, issuers), "issuer_unreachable", "but not for ever");
});

t.test("an answer that holds no keys is none", async (t) => {
  const { issuer, refusal } = await openSetting(t);
  for (const answer of [{}, { keys: "none" }, { keys: [1] }, [], "keys"]) {
    issuer.others.set("/keys", answer);
    t.equal(await refusal({}), "issuer_unreachable", JSON.stringify(answer));
  }
  issuer.others.set("/keys", { keys: [{ kty: "oct", kid: "first", alg: "HS256", k: "c2VjcmV0" }] });
  t.equal(await refusal({}), "token_invalid", "a shared secret");
});

t.test("an issuer that is back is found so without a token", async (t) => {
  const { issuer, fresh, refusal } = await openSetting(t);
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
