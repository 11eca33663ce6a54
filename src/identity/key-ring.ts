import type { KeyObject } from "node:crypto";
import type { CryptoKey, JWK } from "jose";
import { importJWK } from "jose/key/import";
import { epochSeconds } from "../clock.ts";
import { Refusal } from "../refusal.ts";
import type { SigningAlgorithm } from "./jwt-verification.ts";
import {
  ensureSigner,
  type KeyState,
  type KeyStore,
  keyState,
  publicJwk,
  type StoredKey,
  signerOf,
  verifierOf,
} from "./key-store.ts";

/** A key that signs, with the name that its tokens carry. */
interface SigningKey {
  readonly kid: string;
  readonly key: CryptoKey | Uint8Array;
}

/** What may be told of a key, which is nothing of what it is. Times in epoch seconds. */
export interface KeyFacts {
  readonly kid: string;
  readonly state: KeyState;
  readonly created: number;
  /** Undefined for a key that signs. */
  readonly verifiesUntil: number | undefined;
}

/** The keys of one algorithm at one moment: the newest signs, all verify until they expire. */
export interface KeyRing {
  readonly algorithm: SigningAlgorithm;
  readonly signer: SigningKey;
  /** The key that verifies tokens of `kid`, or undefined if there is none. */
  verifier(kid: string): KeyObject | undefined;
  /** The public keys as a JWK Set (RFC 7517); empty for a symmetric algorithm. */
  readonly jwks: { keys: JWK[] };
  /** The keys that sign or verify, newest first. */
  readonly keys: readonly KeyFacts[];
}

/** The keys as they are in force, kept up to date with where they are held. */
export interface LiveKeyRing {
  readonly ring: KeyRing;
  /** Why what is held is not what is in force, if so. */
  readonly failure: string | undefined;
  close(): Promise<void>;
}

function factsOf(key: StoredKey): KeyFacts {
  const { kid, created, verifies_until: verifiesUntil } = key;
  return { kid, created, verifiesUntil, state: keyState(key, epochSeconds()) };
}

function isGood(key: StoredKey): boolean {
  return keyState(key, epochSeconds()) !== "expired";
}

/**
 * Loads the keys of the algorithm.
 *
 * @throws Error if none of them signs, KeyFileError or UnsafeFileError if one cannot be used
 */
export async function loadKeyRing(store: KeyStore, algorithm: SigningAlgorithm): Promise<KeyRing> {
  const usable = (await store.read()).filter((key) => key.alg === algorithm && isGood(key));
  const newest = signerOf(usable, algorithm);
  if (newest === undefined) {
    throw new Error(
      `${store.place} holds no key that signs: restore the keys, or, if they are lost, make new ` +
        "ones with `gatehouse key rotate`, which ends every token",
    );
  }
  const verifiers = new Map<string, { key: KeyObject; stored: StoredKey }>();
  for (const stored of usable) {
    verifiers.set(stored.kid, { key: await verifierOf(stored), stored });
  }
  return {
    algorithm,
    signer: { kid: newest.kid, key: await importJWK(newest.jwk, algorithm) },
    verifier(kid) {
      const found = verifiers.get(kid);
      return found !== undefined && isGood(found.stored) ? found.key : undefined;
    },
    get jwks() {
      return { keys: algorithm === "HS256" ? [] : usable.filter(isGood).map(publicJwk) };
    },
    get keys() {
      return usable.filter(isGood).map(factsOf);
    },
  };
}

/**
 * Loads the keys of the algorithm, and makes the first one if there is none that signs.
 *
 * @param onReplaced told that there was one before
 * @throws KeyFileError or UnsafeFileError if one cannot be used
 */
export async function openKeyRing(
  store: KeyStore,
  algorithm: SigningAlgorithm,
  onReplaced?: () => void,
): Promise<KeyRing> {
  if (signerOf(await store.read(), algorithm) === undefined) {
    const hadOthers = await store.hadKeys();
    await ensureSigner(store, algorithm);
    if (hadOthers) onReplaced?.();
  }
  return loadKeyRing(store, algorithm);
}

/** Throws it if it says that nobody knows what is held: a change must not count as in force then. */
function requireReached(error: unknown): void {
  if (error instanceof Refusal && error.code === "store_unreachable") throw error;
}

/** The ring without the keys that were deleted; all of it while the signer is among those. */
async function withoutDeleted(ring: KeyRing, store: KeyStore): Promise<KeyRing> {
  const names = store.names().catch((error) => {
    requireReached(error);
    return [];
  });
  const present = new Set(await names);
  if (!present.has(ring.signer.kid)) return ring;
  return {
    ...ring,
    verifier: (kid) => (present.has(kid) ? ring.verifier(kid) : undefined),
    get jwks() {
      return { keys: ring.jwks.keys.filter(({ kid = "" }) => present.has(kid)) };
    },
    get keys() {
      return ring.keys.filter(({ kid }) => present.has(kid));
    },
  };
}

interface LiveKeyRingOptions {
  readonly algorithm: SigningAlgorithm;
  /** True if a key is to be made where there is none: at a start, never later. */
  readonly mayMake: boolean;
  /** Told that a key is made in the place of one that there was before. */
  readonly onReplaced: () => void;
  readonly onReload: () => void;
  readonly onFailure: (error: unknown) => void;
}

/**
 * Loads the keys and reloads them when they change where they are held: a new key signs and a deleted
 * one verifies nothing within a second. While no key that signs is there, such as in a directory
 * that was moved away, the last good ones stay in force. While a key cannot be used, no new key is
 * taken, but a deleted one is dropped all the same.
 *
 * @throws Error if no key signs, KeyFileError or UnsafeFileError if one cannot be used at first
 */
export async function openLiveKeyRing(
  store: KeyStore,
  { algorithm, mayMake, onReplaced, onReload, onFailure }: LiveKeyRingOptions,
): Promise<LiveKeyRing> {
  let ring = await (mayMake
    ? openKeyRing(store, algorithm, onReplaced)
    : loadKeyRing(store, algorithm));
  let failure: string | undefined;
  let reloading: Promise<void> = Promise.resolve();

  async function reload(): Promise<void> {
    try {
      ring = await loadKeyRing(store, algorithm);
      failure = undefined;
      onReload();
    } catch (error) {
      failure = error instanceof Error ? error.message : "unknown";
      onFailure(error);
      requireReached(error);
      ring = await withoutDeleted(ring, store);
    }
  }

  const watch = store.watch(() => {
    reloading = reloading.catch(() => {}).then(reload);
    return reloading;
  });
  // What was changed between the load and the watch.
  await reloading;
  return {
    get ring() {
      return ring;
    },
    get failure() {
      return failure;
    },
    async close() {
      await watch.close();
      await reloading.catch(() => {});
    },
  };
}
