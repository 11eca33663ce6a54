import { createHmac } from "node:crypto";
import { CompactEncrypt, exportJWK, generateKeyPair } from "jose";
import t, { type Test } from "tap";
import { openSetting, type Setting, select } from "../gateway/kit.ts";
import {
  decodePart,
  encodePart,
  type KeyFile,
  readKey,
  sign,
  signText,
} from "../identity/forge.ts";

/** A gateway with its key, and a good token of its own to be bent. */
interface Forgery extends Setting {
  key: KeyFile;
  good: string;
  claims: Record<string, unknown>;
  header: { alg: string; kid: string; typ: string };
}

async function openForgery(t: Test, auth?: string): Promise<Forgery> {
  const setting = await openSetting(t, auth === undefined ? {} : { auth });
  const good = await setting.gateway.login();
  const key = readKey(setting.gateway.home);
  const header = { alg: key.alg, kid: key.kid, typ: "JWT" };
  return { ...setting, key, good, claims: decodePart(good, 1), header };
}

/** Shows a token and holds the answer against what it must be. */
async function checkRefused(
  t: Test,
  { gateway, upstream }: Setting,
  token: string,
  name: string,
  code = "token_invalid",
): Promise<void> {
  const answer = await gateway.query(select, token);
  t.equal(answer.status, 401, name);
  t.equal(answer.body.code, code, name);
  t.match(
    answer.headers.get("www-authenticate"),
    /^Bearer realm="gatehouse", error="invalid_token"/,
  );
  t.equal(upstream.take().length, 0);
}

t.test("a token says what it is documented to say", async (t) => {
  const { good, key, claims, gateway } = await openForgery(t);
  t.strictSame(decodePart(good, 0), { alg: "ES256", kid: key.kid, typ: "JWT" });
  t.strictSame(Object.keys(claims).sort(), [
    ...["aud", "cred", "database", "exp", "iat", "iss", "jti", "role", "sub"],
  ]);
  const named = { sub: "admin", role: "Owner", database: "*", iss: "gatehouse", aud: "gatehouse" };
  t.match(claims, named);
  t.equal(Number(claims.exp) - Number(claims.iat), 86_400);
  t.match(String(claims.cred), /^[\w-]{11}$/, "a few bytes, not the salt");
  const limited = decodePart(await gateway.login("admin", undefined, "main"), 1);
  t.match(limited, { database: "main", role: "Owner" });
  t.not(limited.jti, claims.jti);
});

t.test("a forged signature or algorithm is refused", async (t) => {
  const forgery = await openForgery(t);
  const { key, good, claims, header } = forgery;
  const faithful = await sign(key, header, claims);
  t.equal((await forgery.gateway.query(select, faithful)).status, 200, "a faithful copy is good");
  forgery.upstream.take();
  const [head = "", payload = "", signature = ""] = good.split(".");

  for (const alg of ["none", "None", "NONE", ""]) {
    const unsigned = encodePart({ ...header, alg });
    await checkRefused(t, forgery, `${unsigned}.${payload}.`, `alg ${alg}, no signature`);
    await checkRefused(t, forgery, `${unsigned}.${payload}.${signature}`, `alg ${alg}`);
  }
  const response = await forgery.gateway.request("/.well-known/jwks.json");
  const secrets = [response.text, JSON.stringify(JSON.parse(response.text).keys[0])];
  for (const secret of secrets) {
    const input = `${encodePart({ ...header, alg: "HS256" })}.${payload}`;
    const mac = createHmac("sha256", secret).update(input).digest("base64url");
    await checkRefused(t, forgery, `${input}.${mac}`, "HS256 under the public key");
  }
  const other = await generateKeyPair("ES256", { extractable: true });
  const foreign = { ...key, jwk: await exportJWK(other.privateKey) };
  await checkRefused(t, forgery, await sign(foreign, header, claims), "another key");
  const jwk = await exportJWK(other.publicKey);
  const url = `${forgery.upstream.url}/keys`;
  for (const pointer of [{ jwk }, { jku: url }, { x5u: url }, { x5c: ["AAAA"] }]) {
    const pointed = await sign(foreign, { ...header, ...pointer }, claims);
    await checkRefused(t, forgery, pointed, `a key by ${Object.keys(pointer)}`);
  }
  const changed = encodePart({ ...claims, sub: "somebody" });
  await checkRefused(t, forgery, `${head}.${changed}.${signature}`, "changed claims");
  await checkRefused(t, forgery, `${head}.${payload}.`, "no signature");
  await checkRefused(t, forgery, `${head}.${payload}`, "two parts");
  await checkRefused(t, forgery, `${good}.x`, "four parts");
});

t.test("a header that means something else is refused, also under the right key", async (t) => {
  const forgery = await openForgery(t);
  const { key, claims, header } = forgery;
  const { alg, typ } = header;
  const headers: [name: string, header: Parameters<typeof sign>[1]][] = [
    ["no kid", { alg, typ }],
    ["unknown kid", { ...header, kid: "unknown" }],
    ["empty kid", { ...header, kid: "" }],
    ["kid of an object's own", { ...header, kid: "__proto__" }],
    ["kid as a path", { ...header, kid: `../keys/${key.kid}` }],
    ["no typ", { alg, kid: key.kid }],
    ["typ at+jwt", { ...header, typ: "at+jwt" }],
    ["typ application/jwt", { ...header, typ: "application/jwt" }],
    ["typ jwt", { ...header, typ: "jwt" }],
    ["crit", { ...header, crit: ["strange"], strange: 1 }],
  ];
  for (const [name, changed] of headers) {
    await checkRefused(t, forgery, await sign(key, changed, claims), name);
  }
  const input = `${encodePart({ ...header, b64: false, crit: ["b64"] })}.${encodePart(claims)}`;
  await checkRefused(t, forgery, await signText(key, input), "b64 false");
  const typed = await sign(key, { ...header, kid: key.kid, cty: "JWT" }, claims);
  t.equal(
    (await forgery.gateway.query(select, typed)).status,
    200,
    "what means nothing is ignored",
  );
});

t.test("a claim that is missing, of another type or another's is refused", async (t) => {
  const forgery = await openForgery(t);
  const { key, claims, header } = forgery;
  const refuse = async (changed: Record<string, unknown>, name: string) =>
    checkRefused(t, forgery, await sign(key, header, changed), name);

  for (const name of ["sub", "exp", "iat", "database", "iss", "aud", "jti", "cred"]) {
    const { [name]: _, ...rest } = claims;
    await refuse(rest, `no ${name}`);
    for (const value of [null, true, [], {}, [claims[name]], { a: 1 }]) {
      await refuse({ ...claims, [name]: value }, `${name} as ${JSON.stringify(value)}`);
    }
    const other = typeof claims[name] === "number" ? String(claims[name]) : 1;
    await refuse({ ...claims, [name]: other }, `${name} as a ${typeof other}`);
  }
  for (const value of [null, 1, "owner", "", ["Owner"], "Root"]) {
    await refuse({ ...claims, role: value }, `role as ${JSON.stringify(value)}`);
  }
  const foreign = { iss: "Gatehouse", aud: "gatehouse/mcp", database: "a.b", sub: "a b" };
  for (const [name, value] of Object.entries(foreign)) {
    await refuse({ ...claims, [name]: value }, `${name} ${value}`);
  }
  await refuse({ ...claims, aud: ["gatehouse", "other"] }, "two audiences");
  await refuse({ ...claims, exp: Number(claims.exp) + 0.5 }, "a fraction of a second");
  await refuse({ ...claims, exp: 1e300 }, "no time at all");
  await refuse({ ...claims, iat: -1 }, "a negative time");
  await refuse({ ...claims, jti: "" }, "an empty name");

  const { role: _, ...roleless } = claims;
  const answer = await forgery.gateway.query(select, await sign(key, header, roleless));
  t.equal(answer.status, 200, "the role alone may be left out");
  const lowered = await sign(key, header, { ...claims, role: "ReadOnly" });
  const create = { CreateDatabase: { database: "new" } };
  t.equal((await forgery.gateway.query(create, lowered)).status, 200, "and decides nothing");
});

t.test("a token is good from its nbf to its exp", async (t) => {
  const forgery = await openForgery(t);
  const { key, claims, header } = forgery;
  const now = Math.floor(Date.now() / 1000);
  const past = await sign(key, header, { ...claims, iat: now - 100, exp: now - 1 });
  await checkRefused(t, forgery, past, "exp in the past", "token_expired");
  const answer = await forgery.gateway.query(select, past);
  t.equal(answer.body.message, "Token expired");
  const present = await sign(key, header, { ...claims, exp: now });
  await checkRefused(t, forgery, present, "exp now", "token_expired");
  const early = await sign(key, header, { ...claims, nbf: now + 60 });
  await checkRefused(t, forgery, early, "nbf in the future");
  const both = await sign(key, header, { ...claims, exp: now - 1, aud: "other" });
  await checkRefused(t, forgery, both, "a foreign token is invalid before it is expired");
  // A clock set back, or a limit on old tokens in the same second: the token itself is good.
  const ahead = await sign(key, header, { ...claims, iat: now + 60 });
  t.equal((await forgery.gateway.query(select, ahead)).status, 200);
});

t.test("a token that is no compact JWS of sensible size is refused", async (t) => {
  const forgery = await openForgery(t);
  const { key, claims, header, good } = forgery;
  const large = await sign(key, header, { ...claims, padding: "x".repeat(4096) });
  await checkRefused(t, forgery, large, "oversize");
  const spoilt = [`${good} `.repeat(2), `${good},${good}`, good.replace(".", "..")];
  const pieces = [".", "..", "a.b.c", `${good}=`, good.replaceAll(".", "%2e"), `{"a":"${good}"}`];
  for (const text of [...spoilt, ...pieces])
    await checkRefused(t, forgery, text, text.slice(0, 20));
  const { publicKey } = await generateKeyPair("ECDH-ES", { crv: "P-256" });
  const encrypted = await new CompactEncrypt(Buffer.from(good))
    .setProtectedHeader({ alg: "ECDH-ES", enc: "A256GCM", kid: key.kid })
    .encrypt(publicKey);
  await checkRefused(t, forgery, encrypted, "JWE");
  t.equal((await forgery.gateway.query(select, good)).status, 200);
});

t.test("a token of a configured issuer and lifetime is pinned to them", async (t) => {
  const forgery = await openForgery(t, 'issuer = "https://gate.example"\ntoken_expiration = 60');
  const { key, claims, header } = forgery;
  t.match(claims, { iss: "https://gate.example", aud: "gatehouse" });
  t.equal(Number(claims.exp) - Number(claims.iat), 60);
  const other = await sign(key, header, { ...claims, iss: "gatehouse" });
  await checkRefused(t, forgery, other, "the issuer of the default");
});
