import { mock } from "node:test";
import { UnsecuredJWT } from "jose";
import { pino } from "pino";
import t from "tap";
import { createExternalIssuers } from "../../src/oauth/external-issuers.ts";
import { refusedBy } from "../access/kit.ts";
import { encodePart } from "../identity/forge.ts";
import { makeKey, metadataPlaces, type TokenChanges } from "./issuer.ts";
import { openSetting, resource } from "./issuer-setting.ts";

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
  t.match(read, { username: "staff:alice", tokenId: "j", scopes: new Set(["mcp:tools", "other"]) });
  t.equal(read.expiresAt - read.issuedAt, 630);
  t.ok(fresh().knows(issuer.url));
  t.notOk(fresh().knows(`${issuer.url}/`));
  for (const alg of ["RS256", "PS384", "ES384", "EdDSA"]) {
    const key = await makeKey(alg, alg);
    issuer.keys.push(key);
    t.equal(
      (await fresh().verify(issuer.url, await issuer.sign(resource, { key }))).username,
      "staff:alice",
    );
  }
});

t.test("a token for somebody else, or of somebody else, opens nothing", async (t) => {
  const { issuer, fresh, verify, refusal } = await openSetting(t);
  const issuers = fresh();
  t.equal(await verify(await issuer.sign(resource), issuers), "staff:alice");
  const impostor = await makeKey("first");
  const wrong: Record<string, TokenChanges> = {
    "another issuer": { claims: { iss: issuer.origin } },
    "no issuer": { claims: { iss: undefined } },
    "another audience": { claims: { aud: "https://gate.example.com" } },
    "an audience with a slash": { claims: { aud: `${resource}/` } },
    "no audience": { claims: { aud: undefined } },
    "a key of the same name": { key: impostor },
    "an ID token's type": { header: { typ: "id+jwt" } },
    "no expiry": { claims: { exp: undefined } },
    "no time of issue": { claims: { iat: undefined } },
    "a time of issue that is to come": { claims: { iat: Date.now() / 1000 + 3600 } },
    "not valid yet": { claims: { nbf: Date.now() / 1000 + 3600 } },
    "no user": { claims: { sub: undefined } },
    "scopes that are neither text nor list": { claims: { scope: { "mcp:tools": true } } },
    "scopes that are nothing": { claims: { scope: null, scp: "mcp:tools" } },
    "a key that it is bound to, for DPoP": { claims: { cnf: { jkt: "x" } } },
    "a key that it is bound to, by a certificate": { claims: { cnf: { "x5t#S256": "x" } } },
    "a binding to nothing": { claims: { cnf: null } },
    "not valid for longer than clocks differ": { claims: { nbf: Date.now() / 1000 + 45 } },
    "more than anyone needs to say": { claims: { filler: "x".repeat(20_000) } },
  };
  for (const [name, changes] of Object.entries(wrong)) {
    t.equal(await refusal(changes, issuers), "token_invalid", name);
  }
  const past = Math.floor(Date.now() / 1000) - 45;
  t.equal(await refusal({ claims: { exp: past } }, issuers), "token_expired");
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
  t.match(await verify(audience), { username: "staff:alice" });
  t.match(await verify(["other", audience]), { username: "staff:alice" });
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

t.test(
  "a name is taken from the claim that is configured, an email only if verified",
  async (t) => {
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
  },
);
