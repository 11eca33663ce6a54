import { existsSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import path from "node:path";
import { calculateJwkThumbprint, exportJWK, generateKeyPair, generateSecret, type JWK } from "jose";
import { epochSeconds } from "../clock.ts";
import { replaceFile, syncDirectory } from "../files/atomic.ts";
import { readGuarded } from "../files/guarded.ts";
import { giveToDirectoryOwner } from "../files/ownership.ts";
import type { SigningAlgorithm } from "./signature.ts";
import { canSign, type StoredKey, storedKeyShape } from "./stored-key.ts";

/** Where the signing keys lie. */
export function keysDirectoryOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "keys");
}

/** A file among the keys cannot be used. */
export class KeyFileError extends Error {
  constructor(file: string, reason: string) {
    super(`${file}: ${reason}`);
    this.name = "KeyFileError";
  }
}

function parseKeyFile(text: string, file: string): StoredKey {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    // The parser's own message would quote the file, which is a secret.
    throw new KeyFileError(file, "is not JSON");
  }
  const parsed = storedKeyShape.safeParse(content);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new KeyFileError(file, `is not a signing key: \`${issue?.path.join(".") ?? ""}\` is wrong`);
}

async function readKeyFile(file: string, options: { checkRead: boolean }): Promise<StoredKey> {
  const stored = parseKeyFile(await readGuarded(file, options), file);
  if (path.basename(file) !== `${stored.kid}.json`) {
    throw new KeyFileError(file, "is not named after its `kid`");
  }
  if (await canSign(stored)) return stored;
  throw new KeyFileError(file, `does not hold a private key for ${stored.alg}`);
}

function fileOf(directory: string, kid: string): string {
  return path.join(directory, `${kid}.json`);
}

/** The names of the keys that have a file; none where there is no directory yet. */
export async function listKeyNames(directory: string): Promise<string[]> {
  if (!existsSync(directory)) return [];
  const names = await readdir(directory);
  return names.flatMap((name) => /^([^.].*)\.json$/.exec(name)?.[1] ?? []);
}

/**
 * Reads every key in `directory`, newest first.
 *
 * @throws KeyFileError or UnsafeFileError if one of them cannot be used
 */
export async function readKeyFiles(
  directory: string,
  options: { checkRead: boolean },
): Promise<StoredKey[]> {
  const names = await listKeyNames(directory);
  const keys = await Promise.all(names.map((kid) => readKeyFile(fileOf(directory, kid), options)));
  return keys.sort((a, b) => b.created - a.created || a.kid.localeCompare(b.kid));
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

/** Puts a key into its file, new or in the place of the old one. The caller holds the lock. */
export async function writeKeyFile(directory: string, key: StoredKey): Promise<void> {
  const file = fileOf(directory, key.kid);
  await replaceFile(file, `${JSON.stringify(key, null, 2)}\n`);
  await giveToDirectoryOwner(file);
}

/** Takes a key's file away for good. The caller holds the lock. */
export async function deleteKeyFile(directory: string, kid: string): Promise<void> {
  await rm(fileOf(directory, kid));
  await syncDirectory(directory);
}

/** Makes a key and puts it into `directory` with mode 0600. The caller holds the lock. */
export async function createKeyFile(directory: string, alg: SigningAlgorithm): Promise<StoredKey> {
  let jwk = await generate(alg);
  let kid = await nameKey(jwk);
  // A command line would take such a name for an option, just when a leaked key must be revoked.
  while (kid.startsWith("-")) {
    jwk = await generate(alg);
    kid = await nameKey(jwk);
  }
  const stored = storedKeyShape.parse({ kid, alg, created: epochSeconds(), jwk });
  await writeKeyFile(directory, stored);
  return stored;
}
