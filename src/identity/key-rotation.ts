import type { JWK } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { exportJWK } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";
import { generateSecret } from "jose/key/generate/secret";
import { epochSeconds } from "../clock.ts";
import { Refusal } from "../refusal.ts";
import type { SigningAlgorithm } from "./jwt-verification.ts";
import { type KeyChange, type KeyStore, type StoredKey, storedKeyShape } from "./key-store.ts";

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
