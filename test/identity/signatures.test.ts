import path from "node:path";
import { CompactSign, importJWK } from "jose";
import t from "tap";
import {
  type PinnedKeys,
  type SigningAlgorithm,
  signingAlgorithms,
  verifySignature,
} from "../../src/identity/jwt-verification.ts";
import { makeKey, verifierOf } from "../../src/identity/key-store.ts";
import { refusalOf } from "../access/kit.ts";
import { corpus } from "../kit/corpora.ts";
import { checkVectors } from "./wycheproof.ts";

const directory = corpus("wycheproof");
if (directory !== undefined) {
  t.test("the signature vectors of Wycheproof come out as they must", (t) =>
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

  t.test("the key vectors of Wycheproof come out as they must", (t) =>
    checkVectors(
      t,
      path.join(directory, "json_web_key_test.json"),
      new Map([[7, "what betrays the prime is its generator, and keys are made here"]]),
    ),
  );
}

/** A key of its own, what it signs, and a look at whether that is taken. */
async function openSigner(algorithm: SigningAlgorithm) {
  const stored = await makeKey(algorithm);
  const [key, verifier] = [await importJWK(stored.jwk, algorithm), await verifierOf(stored)];
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
  t.test(`a signature of ${algorithm} that is bent in any bit is refused`, async (t) => {
    const { sign, refusal } = await openSigner(algorithm);
    const { input, signature } = await sign("payload");
    t.equal(refusal(input, signature), undefined, "as it was made it is good");
    for (let bit = 0; bit < signature.length * 8; bit++) {
      const bent = Buffer.from(signature);
      bent.writeUInt8(bent.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      t.equal(refusal(input, bent), "token_invalid", `bit ${bit}`);
    }
    for (let length = 0; length < signature.length; length++) {
      t.equal(refusal(input, signature.subarray(0, length)), "token_invalid", `${length} bytes`);
    }
    const longer = Buffer.concat([signature, Buffer.of(0)]);
    t.equal(refusal(input, longer), "token_invalid", "a byte more");
    const other = await sign("another");
    t.equal(refusal(input, other.signature), "token_invalid", "that of another payload");
    for (const pinned of signingAlgorithms.filter((name) => name !== algorithm)) {
      t.equal(refusal(input, signature, pinned), "token_invalid", `where ${pinned} is pinned`);
    }
  });
}
