import { mkdir } from "node:fs/promises";
import { epochSeconds } from "../clock.ts";
import { withLock } from "../files/lock.ts";
import { giveToDirectoryOwner } from "../files/ownership.ts";
import { Refusal } from "../refusal.ts";
import { createKeyFile, deleteKeyFile, readKeyFiles, writeKeyFile } from "./key-file.ts";
import type { SigningAlgorithm } from "./signature.ts";
import type { StoredKey } from "./stored-key.ts";

/** Seconds that a running gateway may still sign with a key after its retirement. */
const HANDOVER = 60;

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

/** Makes the directory, but not the one that it is in: that may have been moved away. */
async function makeDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, { mode: 0o700 });
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") return;
    throw error;
  }
  await giveToDirectoryOwner(directory);
}

/** Everything that changes keys holds this lock and sees keys that nobody else is changing. */
async function withKeys<T>(
  directory: string,
  work: (keys: readonly StoredKey[]) => Promise<T>,
): Promise<T> {
  await makeDirectory(directory);
  return withLock(directory, async () => work(await readKeyFiles(directory, { checkRead: false })));
}

/**
 * Makes a new key that signs from now on. The one that signed so far verifies until the last of
 * its tokens has expired; keys whose tokens have all expired are deleted.
 *
 * @param tokenLifetime seconds that a token from a login lives
 */
export async function rotateKey(
  directory: string,
  algorithm: SigningAlgorithm,
  tokenLifetime: number,
): Promise<StoredKey> {
  return withKeys(directory, async (keys) => {
    const made = await createKeyFile(directory, algorithm);
    const loginTokensUntil = epochSeconds() + tokenLifetime + HANDOVER;
    for (const key of keys) {
      const state = keyState(key, epochSeconds());
      if (state === "expired") await deleteKeyFile(directory, key.kid);
      if (state !== "signs" || key.alg !== algorithm) continue;
      const verifiesUntil = Math.max(loginTokensUntil, key.machine_tokens_until ?? 0);
      await writeKeyFile(directory, { ...key, verifies_until: verifiesUntil });
    }
    return made;
  });
}

/**
 * Deletes a key that may be known to others: no token of it is accepted any more. If it was the
 * one that signs, a new one is made.
 *
 * @throws Refusal `key_not_found`
 */
export async function revokeKey(
  directory: string,
  algorithm: SigningAlgorithm,
  kid: string,
): Promise<void> {
  await withKeys(directory, async (keys) => {
    if (!keys.some((key) => key.kid === kid)) throw new Refusal("key_not_found");
    const isSigner = signerOf(keys, algorithm)?.kid === kid;
    if (isSigner) await createKeyFile(directory, algorithm);
    await deleteKeyFile(directory, kid);
  });
}

/** The key that signs, made if there is none. */
export async function ensureSigner(
  directory: string,
  algorithm: SigningAlgorithm,
): Promise<StoredKey> {
  return withKeys(
    directory,
    async (keys) => signerOf(keys, algorithm) ?? (await createKeyFile(directory, algorithm)),
  );
}

/** Notes on the key that it has signed a token that lives until `expiresAt` (epoch seconds). */
export async function noteMachineToken(
  directory: string,
  kid: string,
  expiresAt: number,
): Promise<void> {
  await withKeys(directory, async (keys) => {
    const key = keys.find((candidate) => candidate.kid === kid);
    // Rotated or revoked in between: a token of it could die early, so it must not be handed out.
    if (key?.verifies_until !== undefined || key === undefined) throw new Refusal("key_not_found");
    const until = Math.max(expiresAt, key.machine_tokens_until ?? 0);
    await writeKeyFile(directory, { ...key, machine_tokens_until: until });
  });
}
