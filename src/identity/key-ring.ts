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
  readonly signer: { readonly kid: string; readonly key: CryptoKey | Uint8Array };
  verifier(kid: string): KeyObject | undefined;
  /** A JWK Set (RFC 7517), empty for a symmetric algorithm. */
  readonly jwks: { keys: JWK[] };
  readonly keys: readonly KeyFacts[];
  /** The ring without the keys that are not named. */
  only(names: ReadonlySet<string>): KeyRing;
}

export interface LiveKeyRing {
  readonly ring: KeyRing;
  /** Set while the store differs from the keys in force. */
  readonly failure: string | undefined;
  close(): Promise<void>;
}

interface HeldKey {
  readonly key: KeyObject;
  readonly stored: StoredKey;
}

function stateOf(stored: StoredKey): KeyState {
  return keyState(stored, epochSeconds());
}

function ringOf(
  algorithm: SigningAlgorithm,
  signer: KeyRing["signer"],
  held: ReadonlyMap<string, HeldKey>,
): KeyRing {
  const good = () =>
    Array.from(held.values(), ({ stored }) => stored).filter((key) => stateOf(key) !== "expired");
  return {
    algorithm,
    signer,
    verifier(kid) {
      const found = held.get(kid);
      return found !== undefined && stateOf(found.stored) !== "expired" ? found.key : undefined;
    },
    get jwks() {
      return { keys: algorithm === "HS256" ? [] : good().map(publicJwk) };
    },
    get keys() {
      return good().map((key) => {
        const { kid, created, verifies_until: verifiesUntil } = key;
        return { kid, created, verifiesUntil, state: stateOf(key) };
      });
    },
    only: (names) =>
      ringOf(algorithm, signer, new Map([...held].filter(([kid]) => names.has(kid)))),
  };
}

/** @throws Error if no key signs, KeyFileError or UnsafeFileError if a key cannot be used */
export async function loadKeyRing(store: KeyStore, algorithm: SigningAlgorithm): Promise<KeyRing> {
  const usable = (await store.read()).filter(
    (key) => key.alg === algorithm && stateOf(key) !== "expired",
  );
  const newest = signerOf(usable, algorithm);
  if (newest === undefined) {
    throw new Error(
      `${store.place} holds no key that signs: restore the keys, or, if they are lost, make new ` +
        "ones with `gatehouse key rotate`, which ends every token",
    );
  }
  const held = new Map<string, HeldKey>();
  for (const stored of usable) held.set(stored.kid, { stored, key: await verifierOf(stored) });
  return ringOf(algorithm, { kid: newest.kid, key: await importJWK(newest.jwk, algorithm) }, held);
}

/**
 * Creates the first key if none signs.
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

interface LiveKeyRingOptions {
  readonly algorithm: SigningAlgorithm;
  /** True if a missing key may be created: at startup only. */
  readonly mayMake: boolean;
  readonly onReplaced: () => void;
  readonly onReload: () => void;
  readonly onFailure: (error: unknown) => void;
}

/**
 * Reloads keys within a second of a change. While no key signs, for example because the directory
 * was moved away, the last good keys stay in force. While a key is unusable, no new key is
 * accepted, but deleted keys are still dropped.
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
      const names = await store.names().catch((error: unknown): string[] => {
        requireReached(error);
        return [];
      });
      // If the signer is among the deleted keys, the last good ones stay.
      if (names.includes(ring.signer.kid)) ring = ring.only(new Set(names));
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
