import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import * as z from "zod";
import {
  type PinnedKeys,
  type SigningAlgorithm,
  signingAlgorithms,
  verifyPinned,
  verifySignature,
} from "../../src/identity/jwt-verification.ts";
import { KeyFileError, keyFilesIn } from "../../src/identity/key-file.ts";
import { openKeyRing } from "../../src/identity/key-store.ts";
import { refusalOf, temporaryDirectory } from "../access/kit.ts";

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

/** Keys that name no algorithm are taken for what their type is used for. */
function algorithmOf({ alg, kty }: Jwk): string {
  return alg ?? (kty === "RSA" ? "RS256" : "ES256");
}

/** A name that a key file may have. */
function safe(kid: string): string {
  return kid.replace(/[^A-Za-z0-9_-]/g, "_");
}

/** Opens the keys as a gateway does: from files, by one algorithm; undefined if it refuses them. */
async function open(t: Test, keys: readonly Jwk[]): Promise<PinnedKeys | undefined> {
  const directory = temporaryDirectory(t);
  for (const [index, jwk] of keys.entries()) {
    const [kid, alg] = [safe(jwk.kid), algorithmOf(jwk)];
    const isTaken = keys.slice(0, index).some((other) => other.kid === jwk.kid);
    const name = isTaken ? `${kid}-again` : kid;
    const content = JSON.stringify({ kid, alg, created: 1, jwk });
    writeFileSync(path.join(directory, `${name}.json`), content, { mode: 0o600 });
  }
  const [algorithm = ""] = keys.map(algorithmOf);
  if (!isOurs(algorithm)) return undefined;
  try {
    const ring = await openKeyRing(keyFilesIn(directory, { checkRead: true }), algorithm);
    return { algorithm, verifier: (kid) => ring.verifier(safe(kid)) };
  } catch (error) {
    if (error instanceof KeyFileError) return undefined;
    throw error;
  }
}

/**
 * Holds what the gateway makes of a file of vectors against their results: a good one verifies if
 * its algorithm is one of the gateway's, and every other one is refused.
 *
 * @param exceptions vectors whose result does not hold here, and why
 */
export async function checkVectors(
  t: Test,
  file: string,
  exceptions: ReadonlyMap<number, string>,
): Promise<void> {
  const { testGroups } = fileShape.parse(JSON.parse(readFileSync(file, "utf8")));
  let verified = 0;
  for (const { comment: of, private: keys, tests } of testGroups) {
    const ring = await open(t, keys);
    const isOurOwn = keys.map(algorithmOf).some(isOurs);
    for (const { tcId, comment, jws, result } of tests) {
      const refusal = ring === undefined ? "no key" : refusalOf(() => verifySignature(ring, jws));
      const isGood = isOurOwn && (result === "valid") !== exceptions.has(tcId);
      const name = `${tcId}: ${of}, ${comment} (${exceptions.get(tcId) ?? result})`;
      t.equal(refusal === undefined, isGood, name);
      if (isGood) verified++;
      if (ring === undefined) continue;
      const pin = { ...ring, type: "JWT", issuer: "i", audience: "a", longest: 8192 };
      t.equal(
        refusalOf(() => verifyPinned(pin, jws)),
        "token_invalid",
        "it is no token of ours",
      );
    }
  }
  t.ok(verified > 0, `${verified} of them are good`);
}
