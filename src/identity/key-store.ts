import type { KeyObject } from "node:crypto";
import type { JWK } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { CompactSign } from "jose/jws/compact/sign";
import { exportJWK } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";
import { generateSecret } from "jose/key/generate/secret";
import { importJWK } from "jose/key/import";
import * as z from "zod";
import { epochSeconds } from "../clock.ts";
import { Refusal } from "../refusal.ts";
import {
  importVerifier,
  type SigningAlgorithm,
  signingAlgorithms,
  verifySignature,
} from "./jwt-verification.ts";

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

/** Seconds that a running gateway may still sign with a key after its retirement. */
const HANDOVER_SECONDS = 60;

/** What a key is good for at a moment. */
export type KeyState = "signs" | "verifies" | "expired";

/** @param at epoch seconds */
export function keyState({ verifies_until: until }: StoredKey, at: number): KeyState {
  if (until === undefined) return "signs";
  return at <= until ? "verifies" : "expired";
}

/** The key that signs: the newest that has not been retired. Keys come newest first. */
export function signerOf(
  keys: readonly StoredKey[],
  algorithm: SigningAlgorithm,
): StoredKey | undefined {
  return keys.find((key) => key.alg === algorithm && key.verifies_until === undefined);
}

async function generate(alg: SigningAlgorithm): Promise<JWK> {
  const options = { extractable: true };
  if (alg === "HS256") return exportJWK(await generateSecret(alg, options));
  const { privateKey } = await generateKeyPair(alg, options);
  return exportJWK(privateKey);
}

/** A symmetric key's thumbprint would be a hash of the secret, so such a key gets a random name. */
async function nameKey(jwk: JWK): Promise<string> {
  return jwk.kty === "oct" ? crypto.randomUUID() : calculateJwkThumbprint(jwk);
}

/** Makes a key, which is held nowhere yet. */
export async function makeKey(alg: SigningAlgorithm): Promise<StoredKey> {
  let jwk = await generate(alg);
  let kid = await nameKey(jwk);
  // A command line would take such a name for an option, just when a leaked key must be revoked.
  while (kid.startsWith("-")) {
    jwk = await generate(alg);
    kid = await nameKey(jwk);
  }
  return storedKeyShape.parse({ kid, alg, created: epochSeconds(), jwk });
}

function put(key: StoredKey): KeyChange {
  return { kind: "put", key };
}

/**
 * Makes a new key that signs from now on. Before it signs it verifies wherever tokens are verified, so
 * that no gateway refuses what another has signed. The one that signed so far verifies until the last
 * of its tokens has expired; keys whose tokens have all expired are deleted.
 *
 * @param tokenLifetime seconds that a token from a login lives
 * @throws Refusal `key_not_found` if the new key is revoked meanwhile
 */
export async function rotateKey(
  store: KeyStore,
  algorithm: SigningAlgorithm,
  tokenLifetime: number,
): Promise<StoredKey> {
  const made = await makeKey(algorithm);
  const loginTokensUntil = () => epochSeconds() + tokenLifetime + HANDOVER_SECONDS;
  const isFirst = signerOf(await store.read(), algorithm) === undefined;
  const staged = isFirst ? made : { ...made, verifies_until: loginTokensUntil() };
  await store.change(async () => [put(staged)]);
  if (!isFirst) await store.settled();
  await store.change(async (keys) => {
    const now = epochSeconds();
    if (!keys.some(({ kid }) => kid === made.kid)) throw new Refusal("key_not_found");
    const changes = keys.flatMap((key): KeyChange[] => {
      const state = keyState(key, now);
      if (key.kid === made.kid) return [];
      if (state === "expired") return [{ kind: "delete", kid: key.kid }];
      if (state !== "signs" || key.alg !== algorithm) return [];
      const until = Math.max(loginTokensUntil(), key.machine_tokens_until ?? 0);
      return [put({ ...key, verifies_until: until })];
    });
    return [put(made), ...changes];
  });
  return made;
}

/**
 * Deletes a key that may be known to others: no token of it is accepted any more. If it was the
 * one that signs, a new one is made.
 *
 * @throws Refusal `key_not_found`
 */
export async function revokeKey(
  store: KeyStore,
  algorithm: SigningAlgorithm,
  kid: string,
): Promise<void> {
  await store.change(async (keys) => {
    if (!keys.some((key) => key.kid === kid)) throw new Refusal("key_not_found");
    const isSigner = signerOf(keys, algorithm)?.kid === kid;
    const made = isSigner ? [put(await makeKey(algorithm))] : [];
    return [...made, { kind: "delete", kid }];
  });
}

/** Makes a key that signs, if there is none. */
export async function ensureSigner(store: KeyStore, algorithm: SigningAlgorithm): Promise<void> {
  await store.change(async (keys) =>
    signerOf(keys, algorithm) === undefined ? [put(await makeKey(algorithm))] : [],
  );
}

/** Notes on the key that it has signed a token that lives until `expiresAt` (epoch seconds). */
export async function noteMachineToken(
  store: KeyStore,
  kid: string,
  expiresAt: number,
): Promise<void> {
  await store.change(async (keys) => {
    const key = keys.find((candidate) => candidate.kid === kid);
    // Rotated or revoked in between: a token of it could die early, so it must not be handed out.
    if (key?.verifies_until !== undefined || key === undefined) throw new Refusal("key_not_found");
    const until = Math.max(expiresAt, key.machine_tokens_until ?? 0);
    return [put({ ...key, machine_tokens_until: until })];
  });
}
