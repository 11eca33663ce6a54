import type { KeyObject } from "node:crypto";
import type { JWK } from "jose";
import { epochSeconds } from "../../clock.ts";
import { openKeyRing } from "../../identity/key-ring.ts";
import { keyState } from "../../identity/key-rotation.ts";
import type { KeyStore } from "../../identity/key-store.ts";

/** The algorithm of access tokens (RFC 7518, section 3.4). */
export const SIGNING_ALGORITHM = "ES256";

/** The authorization server's own keys, which sign nothing but its access tokens. */
export interface SigningKeys {
  /** The name of the key that signs. */
  readonly signer: string;
  /** Private, newest first. */
  readonly privateKeys: readonly (JWK & { kty: string; kid: string })[];
  /** The key that verifies tokens of `kid`, or undefined if there is none. */
  verifier(kid: string): KeyObject | undefined;
}

/**
 * Loads the keys, and makes the first one.
 *
 * @throws KeyFileError or UnsafeFileError if a key cannot be used
 */
export async function openSigningKeys(store: KeyStore): Promise<SigningKeys> {
  const ring = await openKeyRing(store, SIGNING_ALGORITHM);
  const usable = (await store.read()).filter(
    (key) => key.alg === SIGNING_ALGORITHM && keyState(key, epochSeconds()) !== "expired",
  );
  return {
    signer: ring.signer.kid,
    privateKeys: usable.map(({ kid, alg, jwk }) => ({ ...jwk, kid, alg, use: "sig" })),
    verifier: (kid) => ring.verifier(kid),
  };
}
