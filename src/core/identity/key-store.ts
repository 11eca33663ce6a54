import type { KeyObject } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { CryptoKey, JWK } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { CompactSign } from "jose/jws/compact/sign";
import { exportJWK } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";
import { generateSecret } from "jose/key/generate/secret";
import { importJWK } from "jose/key/import";
import * as z from "zod";
import { errorMessage } from "../base/client-error.ts";
import { epochSeconds } from "../base/clock.ts";
import { invocation } from "../base/product.ts";
import { Refusal } from "../base/refusal.ts";
import {
  importVerifier,
  type SigningAlgorithm,
  signingAlgorithms,
  verifySignature,
} from "./jwt-verification.ts";

export const storedKeyShape = z.strictObject({
  kid: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
  alg: z.enum(signingAlgorithms),
  created: z.int().nonnegative(),
  /** Set for a retired key. */
  verifies_until: z.int().nonnegative().optional(),
  /** Expiry of the last machine token signed by this key. */
  machine_tokens_until: z.int().nonnegative().optional(),
  jwk: z.looseObject({ kty: z.string() }),
});

/** A private signing key, as in `keys/<kid>.json`. Times are epoch seconds. */
export type StoredKey = z.infer<typeof storedKeyShape>;

/** An HMAC key is at least as long as the hash (RFC 7518, section 3.2). */
const MIN_SECRET_BYTES = 32;
/** The exponent of keys created here. With 1, every text would be its own signature. */
const MIN_EXPONENT = 65537n;
const testPayload = Buffer.from("test signature");

/** Public members of EC, OKP and RSA keys. All others may be secret. */
const publicMembers = ["crv", "x", "y", "n", "e"];

/** The published half of a key (RFC 7517). */
function publicJwk({ kid, alg, jwk }: StoredKey): JWK {
  const members = Object.entries(jwk).filter(([name]) => publicMembers.includes(name));
  return { ...Object.fromEntries(members), kty: jwk.kty, kid, alg, use: "sig" };
}

/** @throws Error if the key does not fit its algorithm */
export function importVerifyingKey(stored: StoredKey): Promise<KeyObject> {
  const { jwk, alg } = stored;
  return importVerifier(alg === "HS256" ? jwk : publicJwk(stored), alg);
}

/** Signs a text and verifies the signature with the public half. */
export async function canSign(stored: StoredKey): Promise<boolean> {
  const { kid, alg, jwk } = stored;
  const { use = "sig", alg: ownAlg = alg } = jwk;
  if (use !== "sig" || ownAlg !== alg) return false;
  try {
    const key = await importJWK(jwk, alg);
    if (key instanceof Uint8Array && key.length < MIN_SECRET_BYTES) return false;
    const signed = await new CompactSign(testPayload).setProtectedHeader({ alg, kid }).sign(key);
    const verifier = await importVerifyingKey(stored);
    const { publicExponent = MIN_EXPONENT } = verifier.asymmetricKeyDetails ?? {};
    if (publicExponent < MIN_EXPONENT) return false;
    verifySignature({ algorithm: alg, verifier: () => verifier }, signed);
    return true;
  } catch {
    return false;
  }
}

export type KeyChange =
  | { readonly kind: "put"; readonly key: StoredKey }
  | { readonly kind: "delete"; readonly kid: string };

/** Plans changes from the keys, newest first, under the store's lock. Throws a Refusal to abort. */
type KeyPlan = (keys: readonly StoredKey[]) => Promise<readonly KeyChange[]>;

/** Storage of signing keys, for example a directory of files (`key-file.ts`). */
export interface KeyStore {
  readonly place: string;
  /** Newest first. @throws UnsafeFileError if a key cannot be used */
  read(): Promise<readonly StoredKey[]>;
  /** Includes the names of unusable keys. */
  names(): Promise<readonly string[]>;
  hadKeys(): Promise<boolean>;
  /** Applies the changes of `plan` in order. @throws Refusal from `plan` */
  change(plan: KeyPlan): Promise<void>;
  /** Resolves once every gateway on this store verifies with the latest changes. */
  propagated(): Promise<void>;
  /** Calls `load` after each change, one call at a time. */
  watch(
    load: () => Promise<void>,
    onFailure: (error: unknown) => void,
  ): Promise<{ close(): Promise<void> }>;
}

/** A running gateway may still sign with a retired key for this time. */
const HANDOVER_SECONDS = 60;

type KeyState = "signs" | "verifies" | "expired";

/** @param at epoch seconds */
export function keyState({ verifies_until: until }: StoredKey, at = epochSeconds()): KeyState {
  if (until === undefined) return "signs";
  return at <= until ? "verifies" : "expired";
}

/** The newest key that is not retired. @param keys newest first */
export function findSigner(
  keys: readonly StoredKey[],
  algorithm: SigningAlgorithm,
): StoredKey | undefined {
  return keys.find((key) => key.alg === algorithm && key.verifies_until === undefined);
}

export async function makeKey(alg: SigningAlgorithm): Promise<StoredKey> {
  const options = { extractable: true };
  for (;;) {
    const key =
      alg === "HS256"
        ? await generateSecret(alg, options)
        : (await generateKeyPair(alg, options)).privateKey;
    const jwk = await exportJWK(key);
    // The thumbprint of a symmetric key would be a hash of the secret.
    const kid = alg === "HS256" ? crypto.randomUUID() : await calculateJwkThumbprint(jwk);
    // A command line would parse such a name as an option, just when a leaked key must be revoked.
    if (kid.startsWith("-")) continue;
    return storedKeyShape.parse({ kid, alg, created: epochSeconds(), jwk });
  }
}

function put(key: StoredKey): KeyChange {
  return { kind: "put", key };
}

/**
 * All gateways verify with the new key before it signs. The previous key verifies until its last
 * token has expired. Expired keys are deleted.
 *
 * @param tokenLifetime seconds that a login token lives
 * @throws Refusal `key_not_found` if the new key is revoked during the rotation
 */
export async function rotateKey(
  store: KeyStore,
  algorithm: SigningAlgorithm,
  tokenLifetime: number,
): Promise<StoredKey> {
  const made = await makeKey(algorithm);
  const loginTokensUntil = () => epochSeconds() + tokenLifetime + HANDOVER_SECONDS;
  const isFirst = findSigner(await store.read(), algorithm) === undefined;
  const staged = isFirst ? made : { ...made, verifies_until: loginTokensUntil() };
  await store.change(async () => [put(staged)]);
  if (!isFirst) await store.propagated();
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

/** Replaces a key that signs. @throws Refusal `key_not_found` */
export async function revokeKey(
  store: KeyStore,
  algorithm: SigningAlgorithm,
  kid: string,
): Promise<void> {
  await store.change(async (keys) => {
    if (!keys.some((key) => key.kid === kid)) {
      throw new Refusal("key_not_found", { detail: `\`${invocation} key list\` lists all` });
    }
    const isSigner = findSigner(keys, algorithm)?.kid === kid;
    const made = isSigner ? [put(await makeKey(algorithm))] : [];
    return [...made, { kind: "delete", kid }];
  });
}

export async function ensureSigner(store: KeyStore, algorithm: SigningAlgorithm): Promise<void> {
  await store.change(async (keys) =>
    findSigner(keys, algorithm) === undefined ? [put(await makeKey(algorithm))] : [],
  );
}

/** Records the end of a token on its key. @throws Refusal `key_not_found` if it no longer signs */
export async function noteMachineToken(
  store: KeyStore,
  kid: string,
  expiresAt: number,
): Promise<void> {
  await store.change(async (keys) => {
    const key = keys.find((candidate) => candidate.kid === kid);
    // A retired or revoked key may stop verifying before the token expires.
    if (key?.verifies_until !== undefined || key === undefined) throw new Refusal("key_not_found");
    const until = Math.max(expiresAt, key.machine_tokens_until ?? 0);
    return [put({ ...key, machine_tokens_until: until })];
  });
}

interface LoadedKey {
  readonly key: KeyObject;
  readonly stored: StoredKey;
}

/** The keys of one algorithm. The newest signs, and all verify until they expire. */
export class KeyRing {
  readonly algorithm: SigningAlgorithm;
  readonly signer: { readonly kid: string; readonly key: CryptoKey | Uint8Array };
  readonly #loaded: ReadonlyMap<string, LoadedKey>;

  constructor(
    algorithm: SigningAlgorithm,
    signer: KeyRing["signer"],
    loaded: ReadonlyMap<string, LoadedKey>,
  ) {
    this.algorithm = algorithm;
    this.signer = signer;
    this.#loaded = loaded;
  }

  verifier(kid: string): KeyObject | undefined {
    const found = this.#loaded.get(kid);
    return found !== undefined && keyState(found.stored) !== "expired" ? found.key : undefined;
  }

  #valid(): StoredKey[] {
    const all = Array.from(this.#loaded.values(), ({ stored }) => stored);
    return all.filter((key) => keyState(key) !== "expired");
  }

  /** A JWK Set (RFC 7517), empty for a symmetric algorithm. */
  get jwks(): { keys: JWK[] } {
    return { keys: this.algorithm === "HS256" ? [] : this.#valid().map(publicJwk) };
  }

  /** For people, without the keys themselves. Times are epoch seconds. */
  get keys() {
    return this.#valid().map((key) => {
      const { kid, created, verifies_until: verifiesUntil } = key;
      return { kid, created, verifiesUntil, state: keyState(key) };
    });
  }

  only(names: ReadonlySet<string>): KeyRing {
    const left = [...this.#loaded].filter(([kid]) => names.has(kid));
    return new KeyRing(this.algorithm, this.signer, new Map(left));
  }
}

/** @throws Error if no key signs, UnsafeFileError if a key cannot be used */
export async function loadKeyRing(store: KeyStore, algorithm: SigningAlgorithm): Promise<KeyRing> {
  const usable = (await store.read()).filter(
    (key) => key.alg === algorithm && keyState(key) !== "expired",
  );
  const newest = findSigner(usable, algorithm);
  if (newest === undefined) {
    throw new Error(
      `${store.place} contains no signing key for ${algorithm}: restore the keys, or create one with \`${invocation} key rotate\`, as the first start does; tokens of earlier keys end`,
    );
  }
  const loaded = new Map<string, LoadedKey>();
  for (const stored of usable)
    loaded.set(stored.kid, { stored, key: await importVerifyingKey(stored) });
  const signer = { kid: newest.kid, key: await importJWK(newest.jwk, algorithm) };
  return new KeyRing(algorithm, signer, loaded);
}

/**
 * Creates the first key if none signs.
 *
 * @param onReplaced called if there had been keys before
 * @throws UnsafeFileError if a key cannot be used
 */
export async function openKeyRing(
  store: KeyStore,
  algorithm: SigningAlgorithm,
  onReplaced?: () => void,
): Promise<KeyRing> {
  if (findSigner(await store.read(), algorithm) === undefined) {
    const hadOthers = await store.hadKeys();
    await ensureSigner(store, algorithm);
    if (hadOthers) onReplaced?.();
  }
  return loadKeyRing(store, algorithm);
}

export type LiveKeyRing = Awaited<ReturnType<typeof openLiveKeyRing>>;

/**
 * Reloads keys within a second of a change. While no key signs, for example because the directory
 * was moved away, the last good keys stay in force. While a key is unusable, no new key is
 * accepted, but deleted keys are still dropped.
 *
 * @param options.mayCreate true if a missing key may be created
 * @throws Error if no key signs, UnsafeFileError if a key cannot be used at startup
 */
export async function openLiveKeyRing(
  store: KeyStore,
  options: {
    readonly algorithm: SigningAlgorithm;
    readonly mayCreate: boolean;
    readonly onReplaced: () => void;
    /** Called with false if the keys are the same, such as after a token was issued. */
    readonly onReload: (isChanged: boolean) => void;
    readonly onFailure: (error: unknown) => void;
  },
) {
  const { algorithm, mayCreate, onReplaced, onReload, onFailure } = options;
  let ring = await (mayCreate
    ? openKeyRing(store, algorithm, onReplaced)
    : loadKeyRing(store, algorithm));
  let failure: string | undefined;

  async function load(): Promise<void> {
    try {
      const { keys } = ring;
      ring = await loadKeyRing(store, algorithm);
      const isChanged = failure !== undefined || !isDeepStrictEqual(keys, ring.keys);
      failure = undefined;
      onReload(isChanged);
    } catch (error) {
      failure = errorMessage(error);
      const names = await store.names();
      // If the signer is among the deleted keys, the last good ones stay.
      if (names.includes(ring.signer.kid)) ring = ring.only(new Set(names));
      throw error;
    }
  }

  const watch = await store.watch(load, onFailure);
  return {
    get ring() {
      return ring;
    },
    /** Set while the store differs from the keys in force. */
    get failure() {
      return failure;
    },
    close: watch.close,
  };
}
