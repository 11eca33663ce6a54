import { createHmac, createSecretKey, KeyObject, timingSafeEqual, verify } from "node:crypto";
import { importJWK, type JWK } from "jose";

/** The signing algorithms that may be configured (RFC 7518, RFC 8037). */
export const signingAlgorithms = ["ES256", "EdDSA", "RS256", "HS256"] as const;
export type SigningAlgorithm = (typeof signingAlgorithms)[number];

type Check = (key: KeyObject, signed: Buffer, signature: Buffer) => boolean;

/**
 * Done by `node:crypto` in place, since WebCrypto hands each signature to another thread: that
 * takes more of both processors than the signature does.
 */
const checks: Readonly<Record<SigningAlgorithm, Check>> = {
  // A signature of ES256 is r and s, 32 bytes each, and never DER (RFC 7518, section 3.4).
  ES256: (key, signed, signature) =>
    verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature),
  EdDSA: (key, signed, signature) => verify(null, signed, key, signature),
  RS256: (key, signed, signature) => verify("sha256", signed, key, signature),
  HS256: (key, signed, signature) => {
    const mac = createHmac("sha256", key).update(signed).digest();
    return mac.length === signature.length && timingSafeEqual(mac, signature);
  },
};

/** True if `signature` was made over `signed` with the key, by this very algorithm. */
export function isSignature(
  algorithm: SigningAlgorithm,
  key: KeyObject,
  signed: Buffer,
  signature: Buffer,
): boolean {
  try {
    return checks[algorithm](key, signed, signature);
  } catch {
    // Whatever else crafted bytes make the library throw, they are no signature.
    return false;
  }
}

/**
 * The key that verifies what the holder of this JWK signs (RFC 7517).
 *
 * @param jwk public, or symmetric
 * @throws Error if it is no key for the algorithm
 */
export async function importVerifier(jwk: JWK, algorithm: SigningAlgorithm): Promise<KeyObject> {
  const key = await importJWK(jwk, algorithm);
  return key instanceof Uint8Array ? createSecretKey(key) : KeyObject.from(key);
}
