import { generateKeyPairSync, randomBytes } from "node:crypto";
import { exportJWK, generateKeyPair, type JWK } from "jose";
import t from "tap";
import type { SigningAlgorithm } from "../../src/identity/jwt-verification.ts";
import { canSign } from "../../src/identity/key-store.ts";

async function generate(algorithm: string): Promise<JWK> {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
  return exportJWK(privateKey);
}

function isTaken(alg: SigningAlgorithm, jwk: JWK): Promise<boolean> {
  return canSign({ kid: "k", alg, created: 1, jwk: { ...jwk, kty: jwk.kty ?? "" } });
}

function secret(bytes: number): JWK {
  return { kty: "oct", k: randomBytes(bytes).toString("base64url") };
}

t.test("a stored key must do by itself what its file says of it", async (t) => {
  const [ec, other, ed] = [
    await generate("ES256"),
    await generate("ES256"),
    await generate("EdDSA"),
  ];
  const rsa = await generate("RS256");
  const good: [SigningAlgorithm, JWK][] = [
    ["ES256", ec],
    ["ES256", { ...ec, use: "sig", alg: "ES256", key_ops: ["sign"] }],
    ["EdDSA", ed],
    ["RS256", rsa],
    ["HS256", secret(32)],
  ];
  for (const [alg, jwk] of good) t.ok(await isTaken(alg, jwk), `${alg} ${Object.keys(jwk)}`);

  const { privateKey: short } = generateKeyPairSync("rsa", { modulusLength: 1024 });
  const { privateKey: low } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicExponent: 3,
  });
  const { d: _, ...publicOnly } = ec;
  const bad: [what: string, SigningAlgorithm, JWK][] = [
    ["the public half of another key", "ES256", { ...ec, x: other.x ?? "", y: other.y ?? "" }],
    ["a private number of another key", "ES256", { ...ec, d: other.d ?? "" }],
    ["no private half", "ES256", publicOnly],
    ["a key of another curve", "ES256", await generate("ES384")],
    ["a key of another type", "ES256", ed],
    ["a key for encryption", "ES256", { ...ec, use: "enc" }],
    ["a key that may not sign", "ES256", { ...ec, key_ops: ["verify"] }],
    ["a key for another algorithm", "RS256", { ...rsa, alg: "PS256" }],
    ["a modulus of 1024 bits", "RS256", short.export({ format: "jwk" })],
    ["a low exponent", "RS256", low.export({ format: "jwk" })],
    ["an exponent of one", "RS256", { ...rsa, e: "AQ" }],
    ["a secret of 31 bytes", "HS256", secret(31)],
    ["an empty secret", "HS256", secret(0)],
    ["a public key as a secret", "HS256", publicOnly],
    ["a secret for signatures", "ES256", secret(32)],
  ];
  for (const [what, alg, jwk] of bad) t.notOk(await isTaken(alg, jwk), what);
});
