import type { KeyObject } from "node:crypto";
import type { JWK } from "jose";
import { CompactSign } from "jose/jws/compact/sign";
import { importJWK } from "jose/key/import";
import * as z from "zod";
import { importVerifier, signingAlgorithms, verifySignature } from "./jwt-verification.ts";

/** The content of a key's file. */
export const storedKeyShape = z.strictObject({
  kid: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
  alg: z.enum(signingAlgorithms),
  /** Epoch seconds. */
  created: z.int().nonnegative(),
  /** Epoch seconds until which a key that signs no more still verifies. */
  verifies_until: z.int().nonnegative().optional(),
  /** Epoch seconds at which the last token for a machine expires that this key has signed. */
  machine_tokens_until: z.int().nonnegative().optional(),
  jwk: z.looseObject({ kty: z.string() }),
});

/** A signing key as it lies in its file, `keys/<kid>.json`: private. */
export type StoredKey = z.infer<typeof storedKeyShape>;

/** An HMAC key is at least as long as the hash (RFC 7518, section 3.2). */
const LEAST_SECRET_BYTES = 32;
/** An exponent of 1 would make every text a signature of itself; keys made here have this one. */
const LEAST_EXPONENT = 65537n;
const testPayload = Buffer.from("a key is known by what it signs");

/** What is public of an EC, OKP or RSA key; everything else may be secret. */
const publicMembers = ["crv", "x", "y", "n", "e"];

/** The public half of a key, as it is published (RFC 7517). */
export function publicJwk({ kid, alg, jwk }: StoredKey): JWK {
  const members = Object.entries(jwk).filter(([name]) => publicMembers.includes(name));
  return { ...Object.fromEntries(members), kty: jwk.kty, kid, alg, use: "sig" };
}

/**
 * The key that verifies what a stored key has signed.
 *
 * @throws Error if it is no key for its algorithm
 */
export async function verifierOf(stored: StoredKey): Promise<KeyObject> {
  const { jwk, alg } = stored;
  return importVerifier(alg === "HS256" ? jwk : publicJwk(stored), alg);
}

/** True if the key signs by its algorithm, and what it signs is verified by its public half. */
export async function canSign(stored: StoredKey): Promise<boolean> {
  const { kid, alg, jwk } = stored;
  const { use = "sig", alg: meantFor = alg } = jwk;
  if (use !== "sig" || meantFor !== alg) return false;
  try {
    const key = await importJWK(jwk, alg);
    if (key instanceof Uint8Array && key.length < LEAST_SECRET_BYTES) return false;
    const signed = await new CompactSign(testPayload).setProtectedHeader({ alg, kid }).sign(key);
    const verifier = await verifierOf(stored);
    const { publicExponent = LEAST_EXPONENT } = verifier.asymmetricKeyDetails ?? {};
    if (publicExponent < LEAST_EXPONENT) return false;
    verifySignature({ algorithm: alg, verifier: () => verifier }, signed);
    return true;
  } catch {
    return false;
  }
}

/** A change to the keys that are held. */
export type KeyChange =
  | { readonly kind: "put"; readonly key: StoredKey }
  | { readonly kind: "delete"; readonly kid: string };

/**
 * Judges the keys, newest first, as they are when nobody else changes them, and says what to
 * change; throws a Refusal if the change may not be made.
 */
type KeyPlan = (keys: readonly StoredKey[]) => Promise<readonly KeyChange[]>;

/**
 * Signing keys, wherever they are held for good: a directory of files is one such place
 * (`key-file.ts`), and what it looks like concerns nobody else.
 */
export interface KeyStore {
  /** Where it is, for messages. */
  readonly place: string;
  /**
   * Every key, newest first.
   *
   * @throws KeyFileError or UnsafeFileError if one of them cannot be used
   */
  read(): Promise<readonly StoredKey[]>;
  /** The names of the keys that are held, also of those that cannot be used. */
  names(): Promise<readonly string[]>;
  /** True if there is a key, or was one before. */
  hadKeys(): Promise<boolean>;
  /** Makes the changes that `plan` says, in their order. @throws Refusal from `plan` */
  change(plan: KeyPlan): Promise<void>;
  /** Resolves once every gateway that reads them verifies by what has been changed so far. */
  settled(): Promise<void>;
  /** Calls `onChange` whenever the keys may have changed, until it is closed. */
  watch(onChange: () => Promise<void>): { close(): Promise<void> };
}
