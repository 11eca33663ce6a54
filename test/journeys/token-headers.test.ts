import { createHmac, createPublicKey, type KeyObject } from "node:crypto";
import path from "node:path";
import { exportJWK, generateKeyPair } from "jose";
import t from "tap";
import { keyFilesIn } from "../../src/identity/key-file.ts";
import { makeKey } from "../../src/identity/key-store.ts";
import { encodePart, type KeyFile, sign } from "../identity/forge.ts";
import { checkRefused, checkTaken, type Forgery, forge, openForgery } from "./forgery.ts";

/** A token with the claims of the good one, signed by the right key under whatever header. */
async function under(forgery: Forgery, header: unknown): Promise<string> {
  return forge(forgery, header, JSON.stringify(forgery.claims));
}

/** Everything that somebody could take a public key for, if it were a secret. */
function spellingsOf(key: KeyObject, published: string): (string | Buffer)[] {
  const pem = key.export({ type: "spki", format: "pem" }).toString();
  const der = key.export({ type: "spki", format: "der" });
  const jwk = key.export({ format: "jwk" });
  const { kty, crv, x, y } = jwk;
  const point = der.subarray(-65);
  return [
    ...[pem, pem.trimEnd(), pem.replaceAll("\n", "\r\n"), pem.replaceAll("\n", "")],
    ...[der, der.toString("base64"), der.toString("base64url"), der.toString("hex")],
    ...[point, point.subarray(1), point.subarray(1, 33), point.toString("base64url")],
    ...[JSON.stringify(jwk), JSON.stringify({ crv, kty, x, y }), String(x), String(y)],
    ...[published, JSON.stringify(JSON.parse(published).keys[0])],
    ...["", "\0", "null", "undefined"],
  ];
}

t.test("a token is verified by the configured algorithm, whatever it says itself", async (t) => {
  const forgery = await openForgery(t);
  const { claims, header, good, key } = forgery;
  const [, payload = "", signature = ""] = good.split(".");
  await checkTaken(t, forgery, await under(forgery, header), "a faithful copy is good");

  for (const alg of ["none", "None", "NONE", "nOnE", "", " none", "none\0", "no\u017fe"]) {
    const unsigned = encodePart({ ...header, alg });
    await checkRefused(t, forgery, `${unsigned}.${payload}.`, `alg ${alg}, no signature`);
    await checkRefused(t, forgery, `${unsigned}.${payload}.${signature}`, `alg ${alg}`);
  }
  const others = ["ES384", "ES512", "ES256K", "RS256", "PS256", "EdDSA", "Ed25519", "HS256"];
  const spellings = ["es256", "Es256", "ES256 ", "ES-256", "SHA256withECDSA"];
  const noStrings = [null, true, 256, ["ES256"], { ES256: true }, ["ES256", "none"]];
  for (const alg of [...others, ...spellings, ...noStrings]) {
    const token = await under(forgery, { ...header, alg });
    await checkRefused(t, forgery, token, `signed with ES256, alg ${JSON.stringify(alg)}`);
  }
  const { alg: _, ...nameless } = header;
  await checkRefused(t, forgery, await under(forgery, nameless), "no alg");

  const response = await forgery.gateway.request("/.well-known/jwks.json");
  const publicKey = createPublicKey({ key: { ...key.jwk }, format: "jwk" });
  for (const [hash, alg] of Object.entries({ sha256: "HS256", sha512: "HS512" })) {
    for (const secret of spellingsOf(publicKey, response.text)) {
      const input = `${encodePart({ ...header, alg })}.${encodePart(claims)}`;
      const mac = createHmac(hash, secret).update(input).digest("base64url");
      const name = `${alg} under ${Buffer.from(secret).toString("hex").slice(0, 40)}`;
      await checkRefused(t, forgery, `${input}.${mac}`, name);
    }
  }
});

t.test("a key that the token brings along is not looked at", async (t) => {
  const forgery = await openForgery(t);
  const { claims, header, key, upstream } = forgery;
  const pair = await generateKeyPair("ES256", { extractable: true });
  const foreign: KeyFile = { ...key, jwk: await exportJWK(pair.privateKey) };
  const text = JSON.stringify(claims);
  const foreigner = { ...forgery, key: foreign };
  await checkRefused(t, forgery, await forge(foreigner, header, text), "another key");
  const jwk = { ...(await exportJWK(pair.publicKey)), kid: key.kid, alg: "ES256", use: "sig" };
  const { kid: _, ...unnamed } = header;
  const url = `${upstream.url}/keys`;
  const pointers = [
    ...[{ jwk }, { jwk: { keys: [jwk] } }, { jku: url }, { x5u: url }, { x5c: ["AAAA"] }],
    ...[{ "x5t#S256": "AAAA" }, { jku: `file:///dev/stdin` }, { jku: url, x5u: url, jwk }],
  ];
  for (const pointer of pointers) {
    for (const named of [header, unnamed, { ...header, kid: "attacker" }]) {
      const token = await forge(foreigner, { ...named, ...pointer }, text);
      const name = `a key by ${Object.keys(pointer)} for kid ${JSON.stringify(named)}`;
      await checkRefused(t, forgery, token, name);
    }
  }
});

t.test("a kid that is not exactly the name of a key names none", async (t) => {
  const forgery = await openForgery(t);
  const { header } = forgery;
  const { kid, ...unnamed } = header;
  const traps = ["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"];
  const paths = [`../keys/${kid}`, `./${kid}`, `/${kid}`, `${kid}.json`, "/dev/null", "../../etc"];
  const injections = ["' OR '1'='1", "1; --", `${kid}' --`, "$(id)", "*", "%00", `${kid}%00`];
  const near = [
    "",
    " ",
    ` ${kid}`,
    `${kid} `,
    `${kid}\0`,
    `${kid}\n`,
    kid.toUpperCase(),
    kid + kid,
  ];
  const noStrings: unknown[] = [null, true, false, 0, 1, [], {}, [kid], { kid }, { toString: kid }];
  for (const other of [...traps, ...paths, ...injections, ...near, ...noStrings]) {
    const token = await under(forgery, { ...unnamed, kid: other });
    await checkRefused(t, forgery, token, `kid ${JSON.stringify(other)}`);
  }
  await checkRefused(t, forgery, await under(forgery, unnamed), "no kid");
});

t.test("a key of another algorithm verifies nothing, and lends its name to none", async (t) => {
  const forgery = await openForgery(t);
  const { claims, gateway, header } = forgery;
  const keys = keyFilesIn(path.join(gateway.home, "keys"), { checkRead: true });
  const reloads = () => gateway.service.log.filter(({ msg }) => msg === "signing keys reloaded");
  for (const algorithm of ["EdDSA", "RS256", "HS256"] as const) {
    const before = reloads().length;
    const key = await makeKey(algorithm);
    await keys.change(async () => [{ kind: "put", key }]);
    const other: KeyFile = key;
    const { kid, alg } = other;
    await gateway.service.logged(() => reloads().length > before);
    const own = await sign(other, { alg, kid, typ: "JWT" }, claims);
    await checkRefused(t, forgery, own, `${alg} by its own key`);
    const borrowed = await sign(other, { alg, kid: header.kid, typ: "JWT" }, claims);
    await checkRefused(t, forgery, borrowed, `${alg} under the name of the signer`);
    await checkRefused(
      t,
      forgery,
      await under(forgery, { ...header, kid }),
      `ES256, kid of ${alg}`,
    );
  }
  await checkTaken(t, forgery, await under(forgery, header), "the good one is good still");
});

t.test("a header that means something else is refused, also under the right key", async (t) => {
  const forgery = await openForgery(t);
  const { header } = forgery;
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
    await checkRefused(t, forgery, await under(forgery, changed), name);
  }
  const described = await under(forgery, { ...header, cty: "JWT", strange: { jwk: 1 } });
  await checkTaken(t, forgery, described, "what means nothing is passed over");
});
