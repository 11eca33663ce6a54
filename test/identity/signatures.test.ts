import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { CompactSign, importJWK } from "jose";
import type { Test } from "tap";
import t from "tap";
import * as z from "zod";
import { UnsafeFileError } from "../../src/core/base/files/guarded.ts";
import {
  type PinnedKeys,
  type SigningAlgorithm,
  signingAlgorithms,
  verifyPinned,
  verifySignature,
} from "../../src/core/identity/jwt-verification.ts";
import { keyFilesIn } from "../../src/core/identity/key-file.ts";
import { importVerifyingKey, makeKey, openKeyRing } from "../../src/core/identity/key-store.ts";
import { refusalOf } from "../access/kit.ts";
import { corpus } from "../kit/corpora.ts";
import { temporaryHome } from "../kit/gateway.ts";

const jwkShape = z.looseObject({ kty: z.string(), kid: z.string(), alg: z.string().optional() });
const groupShape = z.object({
  comment: z.string(),
  private: z.union([
    z.object({ keys: z.array(jwkShape) }).transform(({ keys }) => keys),
    jwkShape.transform((key) => [key]),
  ]),
  tests: z.array(
    z.object({
      tcId: z.number(),
      comment: z.string(),
      jws: z.string(),
      result: z.enum(["valid", "invalid"]),
    }),
  ),
});
const fileShape = z.object({ testGroups: z.array(groupShape) });
type Jwk = z.infer<typeof jwkShape>;

function isOurs(algorithm: string): algorithm is SigningAlgorithm {
  return signingAlgorithms.some((ours) => ours === algorithm);
}

/** Keys without an algorithm get the usual one of their type. */
function algorithmOf({ alg, kty }: Jwk): string {
  return alg ?? (kty === "RSA" ? "RS256" : "ES256");
}

function safe(kid: string): string {
  return kid.replace(/[^A-Za-z0-9_-]/g, "_");
}

/** Opens the keys from files, as a gateway does; undefined if it refuses them. */
async function open(t: Test, keys: readonly Jwk[]): Promise<PinnedKeys | undefined> {
  const directory = temporaryHome(t);
  for (const [index, jwk] of keys.entries()) {
    const [kid, alg] = [safe(jwk.kid), algorithmOf(jwk)];
    const isDuplicate = keys.slice(0, index).some((other) => other.kid === jwk.kid);
    const name = isDuplicate ? `${kid}-again` : kid;
    const content = JSON.stringify({ kid, alg, created: 1, jwk });
    writeFileSync(path.join(directory, `${name}.json`), content, { mode: 0o600 });
  }
  const [algorithm = ""] = keys.map(algorithmOf);
  if (!isOurs(algorithm)) return undefined;
  try {
    const ring = await openKeyRing(keyFilesIn(directory, { checkRead: true }), algorithm);
    return { algorithm, verifier: (kid) => ring.verifier(safe(kid)) };
  } catch (error) {
    if (error instanceof UnsafeFileError) return undefined;
    throw error;
  }
}

/**
 * Valid vectors verify if the gateway supports their algorithm. All others are refused.
 *
 * @param exceptions vectors with another result here, and why
 */
async function checkVectors(
  t: Test,
  file: string,
  exceptions: ReadonlyMap<number, string>,
): Promise<void> {
  const { testGroups } = fileShape.parse(JSON.parse(readFileSync(file, "utf8")));
  const wrong: string[] = [];
  let verified = 0;
  for (const { comment: of, private: keys, tests } of testGroups) {
    const ring = await open(t, keys);
    const isOurOwn = keys.map(algorithmOf).some(isOurs);
    for (const { tcId, comment, jws, result } of tests) {
      const refusal = ring === undefined ? "no key" : refusalOf(() => verifySignature(ring, jws));
      const isGood = isOurOwn && (result === "valid") !== exceptions.has(tcId);
      const name = `${tcId}: ${of}, ${comment} (${exceptions.get(tcId) ?? result})`;
      if ((refusal === undefined) !== isGood) wrong.push(name);
      if (isGood) verified++;
      if (ring === undefined) continue;
      const pin = { ...ring, type: "JWT", issuer: "i", audience: "a", longest: 8192 };
      const asToken = refusalOf(() => verifyPinned(pin, jws));
      if (asToken !== "token_invalid") wrong.push(`${name} as a token of the gateway`);
    }
  }
  t.same(wrong, []);
  t.ok(verified > 0, `${verified} of them are good`);
}

const directory = corpus("wycheproof");
if (directory !== undefined) {
  t.test("the signature vectors of Wycheproof have the expected results", (t) =>
    checkVectors(
      t,
      path.join(directory, "json_web_signature_test.json"),
      new Map([
        [349, "`sign, verify` is no operation of a key"],
        [367, "the same text as the valid vector 357, whose padding was lost"],
        [370, "the same text as the valid vector 357, whose padding was lost"],
        [372, "a question mark is no base64url"],
        [373, "a question mark is no base64url"],
      ]),
    ),
  );

  t.test("the key vectors of Wycheproof have the expected results", (t) =>
    checkVectors(
      t,
      path.join(directory, "json_web_key_test.json"),
      new Map([[7, "what betrays the prime is its generator, and keys are made here"]]),
    ),
  );
}

async function openSigner(algorithm: SigningAlgorithm) {
  const stored = await makeKey(algorithm);
  const [key, verifier] = [
    await importJWK(stored.jwk, algorithm),
    await importVerifyingKey(stored),
  ];
  const keys: PinnedKeys = { algorithm, verifier: (kid) => (kid === "k" ? verifier : undefined) };
  return {
    async sign(payload: string) {
      const signer = new CompactSign(Buffer.from(payload));
      const jws = await signer.setProtectedHeader({ alg: algorithm, kid: "k" }).sign(key);
      const [head = "", body = "", signature = ""] = jws.split(".");
      return { input: `${head}.${body}`, signature: Buffer.from(signature, "base64url") };
    },
    refusal(input: string, signature: Buffer, pinned = algorithm) {
      const jws = `${input}.${signature.toString("base64url")}`;
      return refusalOf(() => verifySignature({ ...keys, algorithm: pinned }, jws));
    },
  };
}

for (const algorithm of signingAlgorithms) {
  t.test(`an ${algorithm} signature with any changed bit is refused`, async (t) => {
    const { sign, refusal } = await openSigner(algorithm);
    const { input, signature } = await sign("payload");
    t.equal(refusal(input, signature), undefined, "the unchanged signature is valid");
    const accepted: string[] = [];
    for (let bit = 0; bit < signature.length * 8; bit++) {
      const changed = Buffer.from(signature);
      changed.writeUInt8(changed.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      if (refusal(input, changed) !== "token_invalid") accepted.push(`bit ${bit}`);
    }
    for (let length = 0; length < signature.length; length++) {
      const cut = signature.subarray(0, length);
      if (refusal(input, cut) !== "token_invalid") accepted.push(`${length} bytes`);
    }
    t.same(accepted, []);
    const longer = Buffer.concat([signature, Buffer.of(0)]);
    t.equal(refusal(input, longer), "token_invalid", "a byte more");
    const other = await sign("another");
    t.equal(refusal(input, other.signature), "token_invalid", "that of another payload");
    for (const pinned of signingAlgorithms.filter((name) => name !== algorithm)) {
      t.equal(refusal(input, signature, pinned), "token_invalid", `where ${pinned} is pinned`);
    }
  });
}

/** The order of the group of P-256 (FIPS 186-4, appendix D.1.2.3). */
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

t.test("an ES256 signature with a special number in it is refused", async (t) => {
  const { sign, refusal } = await openSigner("ES256");
  const { input, signature } = await sign("payload");
  const bytes = (value: bigint) => Buffer.from(value.toString(16).padStart(64, "0"), "hex");
  const special = [0n, 1n, ORDER - 1n, ORDER, ORDER + 1n, 2n ** 256n - 1n].map(bytes);
  const [r, s] = [signature.subarray(0, 32), signature.subarray(32)];
  const pairs = [r, ...special].flatMap((first) =>
    [s, ...special].map((second) => [first, second]),
  );
  for (const pair of [...pairs.slice(1), [s, r]]) {
    t.equal(refusal(input, Buffer.concat(pair)), "token_invalid");
  }
});
