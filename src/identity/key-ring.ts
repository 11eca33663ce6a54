import { mkdir } from "node:fs/promises";
import { type CryptoKey, importJWK, type JWK } from "jose";
import { withLock } from "../files/lock.ts";
import { createKeyFile, readKeyFiles, type SigningAlgorithm, type StoredKey } from "./key-file.ts";

/** A key that signs, with the name that its tokens carry. */
export interface SigningKey {
  readonly kid: string;
  readonly key: CryptoKey | Uint8Array;
}

/** The keys of one algorithm: the newest signs, all verify. */
export interface KeyRing {
  readonly algorithm: SigningAlgorithm;
  readonly signer: SigningKey;
  /** The key that verifies tokens of `kid`, or undefined if there is none. */
  verifier(kid: string): CryptoKey | Uint8Array | undefined;
  /** The public keys as a JWK Set (RFC 7517); empty for a symmetric algorithm. */
  readonly jwks: { keys: JWK[] };
}

const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

function publicJwk({ kid, alg, jwk }: StoredKey): JWK {
  const members = Object.entries(jwk).filter(([name]) => !privateMembers.includes(name));
  return { ...Object.fromEntries(members), kty: jwk.kty, kid, alg, use: "sig" };
}

async function load(jwk: JWK, alg: SigningAlgorithm): Promise<CryptoKey | Uint8Array> {
  return importJWK(jwk, alg);
}

async function storedKeys(
  directory: string,
  algorithm: SigningAlgorithm,
  options: { checkRead: boolean },
): Promise<StoredKey[]> {
  const all = await readKeyFiles(directory, options);
  return all.filter(({ alg }) => alg === algorithm);
}

/**
 * Loads the keys of `algorithm` from `directory`, and makes the first one if there is none.
 *
 * @throws KeyFileError or UnsafeFileError if a key file cannot be used
 */
export async function openKeyRing(
  directory: string,
  algorithm: SigningAlgorithm,
  options: { checkRead: boolean },
): Promise<KeyRing> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  let stored = await storedKeys(directory, algorithm, options);
  if (stored.length === 0) {
    stored = await withLock(directory, async () => {
      const now = await storedKeys(directory, algorithm, options);
      return now.length > 0 ? now : [await createKeyFile(directory, algorithm)];
    });
  }
  return buildKeyRing(algorithm, stored);
}

async function buildKeyRing(algorithm: SigningAlgorithm, stored: StoredKey[]): Promise<KeyRing> {
  const [newest] = stored;
  if (newest === undefined) throw new Error("a key ring needs at least one key");
  const isSymmetric = algorithm === "HS256";
  const verifiers = new Map<string, CryptoKey | Uint8Array>();
  for (const key of stored) {
    verifiers.set(key.kid, await load(isSymmetric ? key.jwk : publicJwk(key), algorithm));
  }
  return {
    algorithm,
    signer: { kid: newest.kid, key: await load(newest.jwk, algorithm) },
    verifier: (kid) => verifiers.get(kid),
    jwks: { keys: isSymmetric ? [] : stored.map(publicJwk) },
  };
}
