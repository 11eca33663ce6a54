import type { KeyObject } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { type CryptoKey, importJWK, type JWK } from "jose";
import { epochSeconds } from "../clock.ts";
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
  close(): Promise<void>;
}

export interface KeyRingOptions {
  readonly directory: string;
  readonly algorithm: SigningAlgorithm;
  /** Also refuse a key file that others may read. */
  readonly checkRead: boolean;
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
 * Loads the keys of the algorithm, and makes the first one if there is none that signs.
 *
 * @throws KeyFileError or UnsafeFileError if a key file cannot be used
 */
export async function openKeyRing(options: KeyRingOptions): Promise<KeyRing> {
  const { directory, algorithm } = options;
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const found = await readKeyFiles(directory, options);
  const signer = signerOf(found, algorithm);
  if (signer !== undefined) return buildKeyRing(algorithm, found, signer);
  const made = await ensureSigner(directory, algorithm);
  return buildKeyRing(algorithm, [made, ...found], made);
}

/** The ring without the keys whose files are gone. */
async function withoutDeleted(ring: KeyRing, directory: string): Promise<KeyRing> {
  const present = new Set(await listKeyNames(directory).catch(() => []));
  return {
    ...ring,
    verifier: (kid) => (present.has(kid) ? ring.verifier(kid) : undefined),
    get jwks() {
      return { keys: ring.jwks.keys.filter(({ kid = "" }) => present.has(kid)) };
    },
  };
}

/**
 * Loads the keys and keeps them in step with the directory: a new key signs and a deleted one
 * verifies nothing within a second. While a key file cannot be used, no new key is taken, but a
 * deleted one is dropped all the same.
 *
 * @throws KeyFileError or UnsafeFileError if a key file cannot be used at first
 */
export async function openLiveKeyRing(
  options: KeyRingOptions & { onFailure: (error: unknown) => void; onReload: () => void },
): Promise<LiveKeyRing> {
  let ring = await openKeyRing(options);
  let reloading: Promise<void> = Promise.resolve();

  async function reload(): Promise<void> {
    try {
      ring = await openKeyRing(options);
      options.onReload();
    } catch (error) {
      ring = await withoutDeleted(ring, options.directory);
      options.onFailure(error);
    }
  }

  const watch = watchFile(options.directory, () => {
    reloading = reloading.then(reload);
  });
  return {
    get ring() {
      return ring;
    },
    async close() {
      await watch.close();
      await reloading;
    },
  };
}
