import { createHmac, createPublicKey, type KeyObject } from "node:crypto";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { CompactEncrypt, exportJWK, generateKeyPair } from "jose";
import t, { type Test } from "tap";
import { keyFilesIn } from "../../src/core/identity/key-file.ts";
import { makeKey } from "../../src/core/identity/key-store.ts";
import { type GatewaySetup, openGatewaySetup, select, sendRaw } from "../gateway/kit.ts";
import {
  decodePart,
  encodePart,
  type KeyFile,
  readKey,
  sign,
  signText,
} from "../identity/forge.ts";
import { ADMIN_PASSWORD, type RunOptions } from "../kit/gateway.ts";
import { words } from "../kit/words.ts";
import { statelessCall } from "../mcp/messages.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { refusalOf, send } from "./mcp.ts";

/** A gateway that has verified a token, which it may cache, and the parts of that token. */
async function openForgery(options: RunOptions) {
  const setting = await openGatewaySetup(t, options);
  const good = await setting.gateway.login();
  await setting.gateway.query(select, good);
  setting.upstream.take();
  const key = readKey(setting.gateway.home);
  const header = { alg: key.alg, kid: key.kid, typ: "JWT" };
  return { ...setting, key, good, claims: decodePart(good, 1), header };
}

const config = '[[routes]]\npath = "/app"\nmethods = ["POST"]\naccess = "authenticated"\n';
const shared = await openForgery({ config });
const { claims, gateway, good, header, key, upstream } = shared;

async function checkRefused(
  t: Test,
  token: string,
  name: string,
  code = "token_invalid",
  { gateway, upstream }: GatewaySetup = shared,
): Promise<void> {
  upstream.take();
  const seen: unknown[] = [];
  for (let time = 0; time < 2; time++) {
    const { status, body, headers } = await gateway.query(select, token);
    const challenge = headers.get("www-authenticate")?.replace(/"invalid_token".*/, "");
    seen.push([status, body.code, challenge]);
  }
  const refused = [401, code, 'Bearer realm="gatehouse", error='];
  t.same([...seen, upstream.take()], [refused, refused, []], name);
}

async function checkTaken(t: Test, token: string, name: string): Promise<void> {
  t.equal((await gateway.query(select, token)).status, 200, name);
  t.equal(upstream.take().length, 1);
}

function forge(header: unknown, payload: string | Buffer, by = key): Promise<string> {
  const body = Buffer.from(payload).toString("base64url");
  return signText(by, `${encodePart(header)}.${body}`);
}

/** A token with valid claims and signature, and this header. */
const under = (header: unknown) => forge(header, JSON.stringify(claims));

t.test("a token has exactly the documented claims", async (t) => {
  t.strictSame(decodePart(good, 0), { alg: "ES256", kid: key.kid, typ: "JWT" });
  t.strictSame(Object.keys(claims).sort(), words("aud cred database exp iat iss jti role sub"));
  const named = { sub: "admin", role: "Owner", database: "*", iss: "gatehouse", aud: "gatehouse" };
  t.match(claims, named);
  t.equal(Number(claims.exp) - Number(claims.iat), 86_400);
  t.match(String(claims.cred), /^[\w-]{11}$/, "a few bytes, not the salt");
  const limited = decodePart(await gateway.login("admin", undefined, "main"), 1);
  t.match(limited, { database: "main", role: "Owner" });
  t.not(limited.jti, claims.jti);
});

t.test("a token with a missing, mistyped or foreign claim is refused", async (t) => {
  const refuse = async (changed: Record<string, unknown>, name: string) =>
    checkRefused(t, await sign(key, header, changed), name);

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
  const foreign = { iss: "Gatehouse", aud: "gatehouse/mcp", database: "a.b.c", sub: "a b" };
  for (const [name, value] of Object.entries(foreign)) {
    await refuse({ ...claims, [name]: value }, `${name} ${value}`);
  }
  const spelled = ["GATEHOUSE", "gatehouse ", "gatehouse\0", "g\u0430tehouse", "gatehouse,other"];
  const several = [["gatehouse", "other"], ["gatehouse", "gatehouse"], { 0: "gatehouse" }];
  for (const aud of [...spelled, ...several]) {
    await refuse({ ...claims, aud }, `aud ${JSON.stringify(aud)}`);
  }
  for (const exp of [Number(claims.exp) + 0.5, 1e300, 2 ** 53, -1]) {
    await refuse({ ...claims, exp }, `exp ${exp}`);
  }
  await refuse({ ...claims, iat: -1 }, "a negative time");
  await refuse({ ...claims, jti: "" }, "an empty name");

  const { role: _, ...roleless } = claims;
  const answer = await gateway.query(select, await sign(key, header, roleless));
  t.equal(answer.status, 200, "the role alone may be left out");
  const lowered = await sign(key, header, { ...claims, role: "ReadOnly" });
  const create = { CreateDatabase: { database: "new" } };
  t.equal((await gateway.query(create, lowered)).status, 200, "and decides nothing");
});

t.test("a token is valid from its nbf until its exp", async (t) => {
  const now = Math.floor(Date.now() / 1000);
  const past = await sign(key, header, { ...claims, iat: now - 100, exp: now - 1 });
  await checkRefused(t, past, "exp in the past", "token_expired");
  const answer = await gateway.query(select, past);
  t.equal(answer.body.message, "Token expired");
  const present = await sign(key, header, { ...claims, exp: now });
  await checkRefused(t, present, "exp now", "token_expired");
  const early = await sign(key, header, { ...claims, nbf: now + 60 });
  await checkRefused(t, early, "nbf in the future");
  for (const nbf of ["0", null, 0.5, [0], -1, true]) {
    const token = await sign(key, header, { ...claims, nbf });
    await checkRefused(t, token, `nbf ${JSON.stringify(nbf)}`);
  }
  const ripe = await sign(key, header, { ...claims, nbf: now });
  await checkTaken(t, ripe, "nbf now");
  const both = await sign(key, header, { ...claims, exp: now - 1, aud: "other" });
  await checkRefused(t, both, "a foreign token is invalid before it is expired");
  // The clock may have been set back.
  const ahead = await sign(key, header, { ...claims, iat: now + 60 });
  await checkTaken(t, ahead, "iat in the future");
});

t.test("a token has the configured issuer and lifetime", async (t) => {
  const auth = 'issuer = "https://gate.example"\ntoken_expiration = 60';
  const forgery = await openForgery({ auth });
  const { key, claims, header } = forgery;
  t.match(claims, { iss: "https://gate.example", aud: "gatehouse" });
  t.equal(Number(claims.exp) - Number(claims.iat), 60);
  const other = await sign(key, header, { ...claims, iss: "gatehouse" });
  await checkRefused(t, other, "the issuer of the default", undefined, forgery);
});
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

function lenientSpellings(part: string): string[] {
  const last = ALPHABET.indexOf(part.at(-1) ?? "");
  const free = { 2: 4, 3: 2 }[part.length % 4] ?? 0;
  const tails = Array.from({ length: 2 ** free }, (_, low) => ((last >> free) << free) | low);
  const others = tails.filter((tail) => tail !== last).map((tail) => ALPHABET.charAt(tail));
  return [
    ...others.map((tail) => part.slice(0, -1) + tail),
    ...["=", "==", "~", "+", "/"].map((more) => part + more),
    part.replaceAll("-", "+").replaceAll("_", "/"),
    `${part.slice(0, 4)}~${part.slice(4)}`,
  ].filter((spelling) => spelling !== part);
}

t.test("a token part that is not canonical base64url is refused", async (t) => {
  const [head = "", payload = "", signature = ""] = good.split(".");
  for (const spelling of lenientSpellings(signature)) {
    await checkRefused(t, `${head}.${payload}.${spelling}`, `signature ${spelling}`);
  }
  // Lengths that leave zero, two and four unused bits.
  for (const padding of ["", "x", "xx"]) {
    const body = encodePart({ ...claims, padding: `${padding}???>>>` });
    await checkTaken(t, await signText(key, `${head}.${body}`), "as it should be");
    for (const spelling of lenientSpellings(body)) {
      const token = await signText(key, `${head}.${spelling}`);
      await checkRefused(t, token, `payload ${spelling.slice(-8)}`);
    }
    const top = encodePart({ ...header, padding: `${padding}???>>>` });
    for (const spelling of lenientSpellings(top)) {
      const token = await signText(key, `${spelling}.${payload}`);
      await checkRefused(t, token, `header ${spelling.slice(-8)}`);
    }
  }
});

t.test("an ambiguous payload is refused even if the signature is valid", async (t) => {
  const text = JSON.stringify(claims);
  const open = text.slice(0, -1);
  const texts: [name: string, payload: string | Buffer][] = [
    ["sub twice", `${open},"sub":"other"}`],
    ["sub twice, the same", `${open},"sub":"admin"}`],
    ["sub twice, one escaped", `${open},"s\\u0075b":"admin"}`],
    ["exp twice", `{"exp":1,${text.slice(1)}`],
    ["role twice", `${open},"role":"Owner"}`],
    ["a member of __proto__ twice", `${open},"__proto__":{"sub":"x"},"__proto__":1}`],
    ["exp as a float of the same value", text.replace(/("exp":\d+)/, "$1.0")],
    ["exp with an exponent", text.replace(/"exp":\d+/, '"exp":9e9')],
    ["exp beyond all numbers", text.replace(/"exp":\d+/, '"exp":1e999')],
    ["a space", ` ${text}`],
    ["a line's end", `${text}\n`],
    ["a byte-order mark", `\ufeff${text}`],
    ["something after it", `${text}{}`],
    ["a NUL after it", `${text}\0`],
    ["a comment", `${open}/**/}`],
    ["a comma too many", `${open},}`],
    ["bytes that are no UTF-8", Buffer.from(`${open},"x":"\xff"}`, "latin1")],
    ["an overlong slash", Buffer.from(`${open},"x":"\xc0\xaf"}`, "latin1")],
    ["UTF-16", Buffer.from(text, "utf16le")],
    ["a list", `[${text}]`],
    ["a string", JSON.stringify(text)],
    ["null", "null"],
    ["nothing", ""],
    ["an empty object", "{}"],
  ];
  for (const [name, payload] of texts) {
    await checkRefused(t, await forge(header, payload), name);
  }
  const more = `${open},"x":{"sub":"somebody","exp":[1]},"__proto__":{"sub":"x"}}`;
  await checkTaken(t, await forge(header, more), "other claims are passed over");
});

t.test("a credential that is not a compact JWS of at most 4 KiB is refused", async (t) => {
  const [head = "", payload = "", signature = ""] = good.split(".");
  for (const length of [4096, 6000]) {
    const large = await sign(key, header, { ...claims, padding: "x".repeat(length) });
    await checkRefused(t, large, `${large.length} characters`);
  }
  const pieces = [
    ".",
    "..",
    "...",
    "a.b.c",
    head,
    `${head}.${payload}`,
    `${head}.${payload}.`,
    `.${payload}.${signature}`,
    `${head}..${signature}`,
    `${good}.`,
    `.${good}`,
    `${good}.x`,
    `${good}${good}`,
    `${good}.${good}`,
    good.replace(".", ".."),
    good.replaceAll(".", "~"),
    good.replaceAll(".", "/"),
    good.toLowerCase(),
    good.split(".").reverse().join("."),
  ];
  for (const text of pieces) await checkRefused(t, text, text.slice(0, 20));

  const { publicKey } = await generateKeyPair("ECDH-ES", { crv: "P-256" });
  const encrypted = await new CompactEncrypt(Buffer.from(good))
    .setProtectedHeader({ alg: "ECDH-ES", enc: "A256GCM", kid: key.kid })
    .encrypt(publicKey);
  await checkRefused(t, encrypted, "JWE");
  const direct = { alg: "dir", enc: "A256GCM", kid: key.kid, typ: "JWT" };
  await checkRefused(t, `${encodePart(direct)}..AAAA.AAAA.AAAA`, "JWE with no key");
  await checkRefused(t, await forge({ ...header, cty: "JWT" }, good), "nested");
  const changed = encodePart({ ...claims, sub: "somebody" });
  await checkRefused(t, `${head}.${changed}.${signature}`, "changed claims");
  await checkTaken(t, good, "and the good one is good still");
});

function spellingsOf(key: KeyObject, published: string): (string | Buffer)[] {
  const pem = key.export({ type: "spki", format: "pem" }).toString();
  const der = key.export({ type: "spki", format: "der" });
  const jwk = JSON.stringify(key.export({ format: "jwk" }));
  return [
    pem,
    pem.trimEnd(),
    der,
    der.toString("base64"),
    der.subarray(-65),
    jwk,
    published,
    "",
    "\0",
  ];
}

t.test("a token is verified by the configured algorithm, not by its own header", async (t) => {
  const [, payload = "", signature = ""] = good.split(".");
  await checkTaken(t, await under(header), "a faithful copy is good");

  for (const alg of ["none", "None", "NONE", "nOnE", "", " none", "none\0", "no\u017fe"]) {
    const unsigned = encodePart({ ...header, alg });
    await checkRefused(t, `${unsigned}.${payload}.`, `alg ${alg}, no signature`);
    await checkRefused(t, `${unsigned}.${payload}.${signature}`, `alg ${alg}`);
  }
  const others = ["ES384", "ES512", "ES256K", "RS256", "PS256", "EdDSA", "Ed25519", "HS256"];
  const spellings = ["es256", "Es256", "ES256 ", "ES-256", "SHA256withECDSA"];
  const noStrings = [null, true, 256, ["ES256"], { ES256: true }, ["ES256", "none"]];
  for (const alg of [...others, ...spellings, ...noStrings]) {
    const token = await under({ ...header, alg });
    await checkRefused(t, token, `signed with ES256, alg ${JSON.stringify(alg)}`);
  }
  const { alg: _, ...nameless } = header;
  await checkRefused(t, await under(nameless), "no alg");

  const response = await gateway.request("/.well-known/jwks.json");
  const publicKey = createPublicKey({ key: { ...key.jwk }, format: "jwk" });
  for (const [hash, alg] of Object.entries({ sha256: "HS256", sha512: "HS512" })) {
    for (const secret of spellingsOf(publicKey, response.text)) {
      const input = `${encodePart({ ...header, alg })}.${encodePart(claims)}`;
      const mac = createHmac(hash, secret).update(input).digest("base64url");
      const name = `${alg} under ${Buffer.from(secret).toString("hex").slice(0, 40)}`;
      await checkRefused(t, `${input}.${mac}`, name);
    }
  }
});

t.test("a key or URL in the token's header is ignored", async (t) => {
  const pair = await generateKeyPair("ES256", { extractable: true });
  const foreign: KeyFile = { ...key, jwk: await exportJWK(pair.privateKey) };
  const text = JSON.stringify(claims);
  await checkRefused(t, await forge(header, text, foreign), "another key");
  const jwk = { ...(await exportJWK(pair.publicKey)), kid: key.kid, alg: "ES256", use: "sig" };
  const { kid: _, ...unnamed } = header;
  const url = `${upstream.url}/keys`;
  const pointers = [
    { jwk },
    { jwk: { keys: [jwk] } },
    { jku: url },
    { x5u: url },
    { x5c: ["AAAA"] },
    { "x5t#S256": "AAAA" },
    { jku: `file:///dev/stdin` },
    { jku: url, x5u: url, jwk },
  ];
  for (const pointer of pointers) {
    for (const named of [header, unnamed, { ...header, kid: "attacker" }]) {
      const token = await forge({ ...named, ...pointer }, text, foreign);
      const name = `a key by ${Object.keys(pointer)} for kid ${JSON.stringify(named)}`;
      await checkRefused(t, token, name);
    }
  }
});

t.test("a kid must equal the name of a key", async (t) => {
  const { kid, ...unnamed } = header;
  const traps = ["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"];
  const paths = [`../keys/${kid}`, `./${kid}`, `/${kid}`, `${kid}.json`, "/dev/null", "../../etc"];
  const injections = ["' OR '1'='1", "1; --", `${kid}' --`, "$(id)", "*", "%00", `${kid}%00`];
  const padded = ["", " ", ` ${kid}`, `${kid} `, `${kid}\0`, `${kid}\n`];
  const near = [...padded, kid.toUpperCase(), kid + kid];
  const noStrings: unknown[] = [null, true, false, 0, 1, [], {}, [kid], { kid }, { toString: kid }];
  for (const other of [...traps, ...paths, ...injections, ...near, ...noStrings]) {
    const token = await under({ ...unnamed, kid: other });
    await checkRefused(t, token, `kid ${JSON.stringify(other)}`);
  }
  await checkRefused(t, await under(unnamed), "no kid");
});

t.test("a key of another algorithm verifies no token", async (t) => {
  const keys = keyFilesIn(path.join(gateway.home, "keys"), { checkRead: true });
  const made = await Promise.all((["EdDSA", "RS256", "HS256"] as const).map(makeKey));
  await keys.change(async () => made.map((key) => ({ kind: "put", key })));
  // Longer than the gateway takes to see them, which it does not log.
  await delay(1500);
  const others: readonly KeyFile[] = made;
  for (const other of others) {
    const { kid, alg } = other;
    const own = await sign(other, { alg, kid, typ: "JWT" }, claims);
    await checkRefused(t, own, `${alg} by its own key`);
    const borrowed = await sign(other, { alg, kid: header.kid, typ: "JWT" }, claims);
    await checkRefused(t, borrowed, `${alg} under the name of the signer`);
    await checkRefused(t, await under({ ...header, kid }), `ES256, kid of ${alg}`);
  }
  await checkTaken(t, await under(header), "the good one is good still");
});

t.test("a signed token with another typ, crit or b64 is refused", async (t) => {
  const { typ: _, ...untyped } = header;
  const refused: [name: string, header: unknown][] = [
    ["no typ", untyped],
    ...["at+jwt", "application/jwt", "jwt", "Jwt", "JWT ", "", "JOSE", "dpop+jwt"].map(
      (typ): [string, unknown] => [`typ ${typ}`, { ...header, typ }],
    ),
    ["typ as a list", { ...header, typ: ["JWT"] }],
    ["crit", { ...header, crit: ["strange"], strange: 1 }],
    ["crit of what is known", { ...header, crit: ["alg"] }],
    ["crit of nothing", { ...header, crit: [] }],
    ["crit as a word", { ...header, crit: "exp" }],
    ["crit null", { ...header, crit: null }],
    ["b64 false", { ...header, b64: false, crit: ["b64"] }],
    ["b64 false that is not critical", { ...header, b64: false }],
    ["b64 true", { ...header, b64: true, crit: ["b64"] }],
    ["a list", [header]],
    ["a word", "JWT"],
    ["null", null],
    ["a number", 1],
  ];
  for (const [name, changed] of refused) {
    await checkRefused(t, await under(changed), name);
  }
  const described = await under({ ...header, cty: "JWT", strange: { jwk: 1 } });
  await checkTaken(t, described, "what means nothing is passed over");
});

const confirmations = {
  DPoP: { jkt: "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" },
  mTLS: { "x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2" },
  nothing: {},
  null: null,
};

t.test("a key-bound token is refused as a bearer token on every route", async (t) => {
  const good = await gateway.login();
  const list = statelessCall("tools/list");
  const doors: Record<string, (token: string) => Promise<{ status: number; body: object }>> = {
    "/query": (token) => gateway.query(select, token),
    "/mcp": (token) => send(gateway, list, token),
    "/app": (token) => gateway.send("POST", "/app", {}, token),
    "/api/users": (token) => gateway.get("/api/users", token),
    "/logout": (token) => gateway.send("POST", "/logout", undefined, token),
  };
  for (const [door, show] of Object.entries(doors)) {
    for (const [kind, cnf] of Object.entries(confirmations)) {
      const bound = await sign(key, header, { ...decodePart(good, 1), cnf });
      t.match(await show(bound), { status: 401, body: { code: "token_invalid" } }, door + kind);
    }
  }
  t.equal(upstream.take().length, 0);
  for (const [door, show] of Object.entries(doors)) {
    t.equal((await show(good)).status, 200, `${door} without it`);
  }
});

t.test("a key-bound access token is refused at /mcp", async (t) => {
  const options = { username: "admin", password: ADMIN_PASSWORD };
  const { accessToken } = await obtainTokens(gateway, options);
  const key = readKey(path.join(gateway.home, "oauth"));
  const header = { alg: key.alg, kid: key.kid, typ: "at+jwt" };
  const list = statelessCall("tools/list");
  for (const [kind, cnf] of Object.entries(confirmations)) {
    const bound = await sign(key, header, { ...decodePart(accessToken, 1), cnf });
    t.equal(refusalOf(await send(gateway, list, bound)), "token_invalid", kind);
  }
  const same = await sign(key, header, decodePart(accessToken, 1));
  t.equal((await send(gateway, list, same)).status, 200, "without it, it is good");
});

const body = JSON.stringify(select);

async function knock(headers: string[], path = "/query") {
  upstream.take();
  const lines = [`POST ${path} HTTP/1.1`, "Content-Type: application/json", ...headers];
  const { status, head, text } = await sendRaw(gateway.url, lines, body);
  const code = /"code":"(\w+)"/.exec(text)?.[1];
  return { status, code, head, reached: upstream.take().length };
}

t.test("a malformed Authorization line is refused", async (t) => {
  const broken = [
    [`Authorization: Bearer ${good}\0`],
    [`Authorization: Bearer\r\n ${good}`],
    [`Authorization : Bearer ${good}`],
    [`Authorization: Bearer ${good}\rX: y`],
    [` Authorization: Bearer ${good}`],
  ];
  for (const headers of broken) {
    const { status, reached } = await knock(headers);
    t.ok(status === 400 || status === 401, JSON.stringify(headers[0]?.slice(0, 30)));
    t.equal(reached, 0);
  }
});

t.test("a request with two Authorization headers is refused", async (t) => {
  const right = `Authorization: Bearer ${good}`;
  const pairs = [
    [right, right],
    [right, "Authorization: Basic eDp5"],
    ["Authorization: Basic eDp5", right],
    [right, "authorization: Bearer x"],
    ["AUTHORIZATION: Bearer x", right],
    [right, "Authorization:"],
    ["Authorization:", right],
    [right, "X-Between: 1", right, right],
  ];
  for (const headers of pairs) {
    const expected = { status: 400, code: "several_authorization_headers", reached: 0 };
    const { status, code, reached } = await knock(headers);
    t.strictSame({ status, code, reached }, expected);
  }
  for (const route of ["GET /api/me", "GET /mcp", "GET /healthz"]) {
    const { status } = await sendRaw(gateway.url, [`${route} HTTP/1.1`, right, right]);
    t.equal(status, 400, route);
  }
});

t.test("a token is accepted only in the Authorization header", async (t) => {
  const places: [headers: string[], path?: string][] = [
    [[], `/query?access_token=${good}`],
    [[], `/query?token=${good}&authorization=Bearer%20${good}`],
    [[`Proxy-Authorization: Bearer ${good}`]],
    [[`X-Authorization: Bearer ${good}`]],
    [[`X-Forwarded-Authorization: Bearer ${good}`]],
    [[`X-Access-Token: ${good}`]],
    [[`Cookie: access_token=${good}; Authorization=Bearer ${good}`]],
    [[`Authentication: Bearer ${good}`]],
    [[`X-Gatehouse-User: admin`, "X-Gatehouse-Role: Owner"]],
  ];
  for (const [headers, path] of places) {
    const { status, code, reached } = await knock(headers, path);
    const name = `${headers} ${path ?? ""}`.replaceAll(good, "<token>");
    t.strictSame([status, code, reached], [401, "unauthenticated", 0], name);
    const atMcp = await knock(headers, path?.replace("/query", "/mcp") ?? "/mcp");
    t.equal(atMcp.status, 401, `${name} at /mcp`);
  }
});
