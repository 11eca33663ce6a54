import type { KeyObject } from "node:crypto";
import { existsSync } from "node:fs";
import { type CryptoKey, importJWK, type JWK } from "jose";
import { epochSeconds } from "../clock.ts";
import { lockFileOf } from "../files/lock.ts";
import { watchFile } from "../files/watch.ts";
import { listKeyNames, readKeyFiles } from "./key-file.ts";
import { ensureSigner, keyState, signerOf } from "./key-rotation.ts";
import type { SigningAlgorithm } from "./signature.ts";
import { publicJwk, type StoredKey, verifierOf } from "./stored-key.ts";

/** A key that signs, with the name that its tokens carry. */
export interface SigningKey {
  readonly kid: string;
  readonly key: CryptoKey | Uint8Array;
}

/** The keys of one algorithm at one moment: the newest signs, all verify until they expire. */
export interface KeyRing {
  readonly algorithm: SigningAlgorithm;
  readonly signer: SigningKey;
  /** The key that verifies tokens of `kid`, or undefined if there is none. */
  verifier(kid: string): KeyObject | undefined;
  /** The public keys as a JWK Set (RFC 7517); empty for a symmetric algorithm. */
  readonly jwks: { keys: JWK[] };
}

/** The keys as they are in force, kept up to date with the directory. */
export interface LiveKeyRing {
  readonly ring: KeyRing;
  /** True while the directory is not what is in force. */
  readonly stale: boolean;
  close(): Promise<void>;
}

export interface KeyRingOptions {
  readonly directory: string;
  readonly algorithm: SigningAlgorithm;
  /** Also refuse a key file that others may read. */
  readonly checkRead: boolean;
}

/** There is no key that signs. */
export class KeysMissingError extends Error {
  constructor(directory: string) {
    super(
      `${directory} holds no key that signs: restore the keys, or, if they are lost, make new ones ` +
        "with `gatehouse key rotate`, which ends every token",
    );
    this.name = "KeysMissingError";
  }
}

async function buildKeyRing(
  algorithm: SigningAlgorithm,
  keys: readonly StoredKey[],
  newest: StoredKey,
): Promise<KeyRing> {
  const usable = keys.filter(
    (key) => key.alg === algorithm && keyState(key, epochSeconds()) !== "expired",
  );
  const verifiers = new Map<string, { key: KeyObject; stored: StoredKey }>();
  for (const stored of usable) {
    verifiers.set(stored.kid, { key: await verifierOf(stored), stored });
  }
  return {
    algorithm,
    signer: { kid: newest.kid, key: await importJWK(newest.jwk, algorithm) },
    verifier(kid) {
      const found = verifiers.get(kid);
      const isGood = found !== undefined && keyState(found.stored, epochSeconds()) !== "expired";
      return isGood ? found.key : undefined;
    },
    get jwks() {
      const isGood = (key: StoredKey) => keyState(key, epochSeconds()) !== "expired";
      return { keys: algorithm === "HS256" ? [] : usable.filter(isGood).map(publicJwk) };
    },
  };
}

/**
 * Loads the keys of the algorithm.
 *
 * @throws KeysMissingError if none of them signs, KeyFileError or UnsafeFileError if a key file
 *   cannot be used
 */
export async function loadKeyRing(options: KeyRingOptions): Promise<KeyRing> {
  const { directory, algorithm } = options;
  const found = await readKeyFiles(directory, options);
  const signer = signerOf(found, algorithm);
  if (signer === undefined) throw new KeysMissingError(directory);
  return buildKeyRing(algorithm, found, signer);
}

/** True if there was a key before: who made it has locked the directory, and the lock is still there. */
async function hadKeys(directory: string): Promise<boolean> {
  return existsSync(lockFileOf(directory)) || (await listKeyNames(directory)).length > 0;
}

/**
 * Loads the keys of the algorithm, and makes the first one if there is none that signs.
 *
 * @param onReplaced told that there was one before
 * @throws KeyFileError or UnsafeFileError if a key file cannot be used
 */
export async function openKeyRing(
  options: KeyRingOptions,
  onReplaced?: () => void,
): Promise<KeyRing> {
  const { directory, algorithm } = options;
  try {
    return await loadKeyRing(options);
  } catch (error) {
    if (!(error instanceof KeysMissingError)) throw error;
    const hadOthers = await hadKeys(directory);
    await ensureSigner(directory, algorithm);
    if (hadOthers) onReplaced?.();
    return loadKeyRing(options);
  }
}

/** The ring without the keys whose files are gone; all of it while that is so of the signer's. */
async function withoutDeleted(ring: KeyRing, directory: string): Promise<KeyRing> {
  const present = new Set(await listKeyNames(directory).catch(() => []));
  if (!present.has(ring.signer.kid)) return ring;
  return {
    ...ring,
    verifier: (kid) => (present.has(kid) ? ring.verifier(kid) : undefined),
    get jwks() {
      return { keys: ring.jwks.keys.filter(({ kid = "" }) => present.has(kid)) };
    },
  };
}

export interface LiveKeyRingOptions extends KeyRingOptions {
  /** True if a key is to be made where there is none: at a start, never later. */
  readonly mayMake: boolean;
  /** Told that a key is made in the place of one that there was before. */
  readonly onReplaced: () => void;
  readonly onReload: () => void;
  readonly onFailure: (error: unknown) => void;
}

/**
 * Loads the keys and keeps them in step with the directory: a new key signs and a deleted one
 * verifies nothing within a second. While no key that signs is there, such as in a directory that
 * was moved away, the last good ones stay in force. While a key file cannot be used, no new key is
 * taken, but a deleted one is dropped all the same.
 *
 * @throws KeysMissingError, KeyFileError or UnsafeFileError if the keys cannot be used at first
 */
export async function openLiveKeyRing(options: LiveKeyRingOptions): Promise<LiveKeyRing> {
  const { directory, mayMake, onReplaced } = options;
  let ring = await (mayMake ? openKeyRing(options, onReplaced) : loadKeyRing(options));
  let stale = false;
  let reloading: Promise<void> = Promise.resolve();

  async function reload(): Promise<void> {
    try {
      ring = await loadKeyRing(options);
      stale = false;
      options.onReload();
    } catch (error) {
      stale = true;
      ring = await withoutDeleted(ring, directory);
      options.onFailure(error);
    }
  }

  const watch = watchFile(directory, () => {
    reloading = reloading.then(reload);
  });
  return {
    get ring() {
      return ring;
    },
    get stale() {
      return stale;
    },
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
