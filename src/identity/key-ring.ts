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

interface SigningKey {
  readonly kid: string;
  readonly key: CryptoKey | Uint8Array;
}

/** Public information about a key. Times are epoch seconds. */
interface KeyFacts {
  readonly kid: string;
  readonly state: KeyState;
  readonly created: number;
  /** Undefined for a key that signs. */
  readonly verifiesUntil: number | undefined;
}

/** The keys of one algorithm at one moment. The newest signs, and all verify until they expire. */
export interface KeyRing {
  readonly algorithm: SigningAlgorithm;
  readonly signer: SigningKey;
  verifier(kid: string): KeyObject | undefined;
  /** A JWK Set (RFC 7517), empty for a symmetric algorithm. */
  readonly jwks: { keys: JWK[] };
  readonly keys: readonly KeyFacts[];
}

export interface LiveKeyRing {
  readonly ring: KeyRing;
  /** Set while the store differs from the keys in force. */
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

/** @throws Error if no key signs, KeyFileError or UnsafeFileError if a key cannot be used */
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
 * Loads the keys. Creates the first one if none signs.
 *
 * @param onReplaced called if there had been keys before
 * @throws KeyFileError or UnsafeFileError if a key cannot be used
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

/** Rethrows an error of an unreachable store: an unknown change must not count as in force. */
function requireReached(error: unknown): void {
  if (error instanceof Refusal && error.code === "store_unreachable") throw error;
}

/** The ring without deleted keys. Unchanged if the signer is among the deleted ones. */
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
  /** True if a missing key may be created: at startup only. */
  readonly mayMake: boolean;
  readonly onReplaced: () => void;
  readonly onReload: () => void;
  readonly onFailure: (error: unknown) => void;
}

/**
 * Loads the keys and reloads them on changes. Within a second, a new key signs and a deleted one no
 * longer verifies. While no key signs, for example because the directory was moved away, the last
 * good keys stay in force. While a key is unusable, no new key is accepted, but deleted keys are
 * still dropped.
 *
 * @throws Error if no key signs, KeyFileError or UnsafeFileError if a key cannot be used at startup
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
  // Covers changes between the load and the start of the watch.
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
