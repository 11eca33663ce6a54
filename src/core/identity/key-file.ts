import { readdirSync } from "node:fs";
import { mkdir, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { systemCode } from "../base/client-error.ts";
import {
  fingerprint,
  giveToDirectoryOwner,
  isThere,
  readGuarded,
  replaceFile,
  syncDirectory,
  UnsafeFileError,
} from "../base/files/guarded.ts";
import { lockFilePath, withLock } from "../base/files/lock.ts";
import { followFiles } from "../base/files/watch.ts";
import { parseIfJson } from "../json/exact.ts";
import { canSign, type KeyStore, type StoredKey, storedKeyShape } from "./key-store.ts";

/** Every running gateway has read a change within this time. */
const PROPAGATION_MS = 1200;

export function keyDirectoryPath(serviceDirectory: string): string {
  return path.join(serviceDirectory, "keys");
}

/** False for an empty directory, such as a new volume or one that a killed start has left. */
export function hasKeyFiles(serviceDirectory: string): boolean {
  const directory = keyDirectoryPath(serviceDirectory);
  return isThere(directory) && readdirSync(directory).length > 0;
}

async function readKeyFile(file: string, options: { checkRead: boolean }): Promise<StoredKey> {
  const content = parseIfJson(await readGuarded(file, options));
  if (content === undefined) throw new UnsafeFileError(file, "is not JSON");
  const { data: stored, error } = storedKeyShape.safeParse(content);
  if (stored === undefined) {
    const name = error.issues[0]?.path.join(".") ?? "";
    throw new UnsafeFileError(file, `is not a signing key: \`${name}\` is invalid`);
  }
  if (path.basename(file) !== `${stored.kid}.json`) {
    throw new UnsafeFileError(file, "is not named after its `kid`");
  }
  if (await canSign(stored)) return stored;
  throw new UnsafeFileError(file, `does not contain a private key for ${stored.alg}`);
}

function keyFilePath(directory: string, kid: string): string {
  return path.join(directory, `${kid}.json`);
}

async function listNames(directory: string): Promise<string[]> {
  if (!isThere(directory)) return [];
  const names = await readdir(directory);
  return names.flatMap((name) => /^([^.].*)\.json$/.exec(name)?.[1] ?? []);
}

/** A directory does not change when a file in it is edited in place. */
function fingerprintOfAll(directory: string): string {
  let names: string[] = [];
  try {
    names = readdirSync(directory);
  } catch {
    // The fingerprint of the directory says that it is missing or unreadable.
  }
  const files = [directory, ...names.map((name) => path.join(directory, name))];
  return files.map(fingerprint).join(" ");
}

async function readAll(directory: string, options: { checkRead: boolean }): Promise<StoredKey[]> {
  const names = await listNames(directory);
  const keys = await Promise.all(
    names.map((kid) => readKeyFile(keyFilePath(directory, kid), options)),
  );
  return keys.sort((a, b) => b.created - a.created || a.kid.localeCompare(b.kid));
}

/** Not recursive, since a missing parent may have been moved away. */
async function makeDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, { mode: 0o700 });
  } catch (error) {
    if (systemCode(error) === "EEXIST") return;
    throw error;
  }
  giveToDirectoryOwner(directory);
}

/** Each key has its own file with mode 0600. The first change creates the directory. */
export function keyFilesIn(directory: string, options: { checkRead: boolean }): KeyStore {
  return {
    place: directory,
    read: () => readAll(directory, options),
    names: () => listNames(directory),
    // Creating a key locks the directory, and the lock file stays.
    hadKeys: async () =>
      isThere(lockFilePath(directory)) || (await listNames(directory)).length > 0,
    async change(plan) {
      await makeDirectory(directory);
      await withLock(directory, async () => {
        for (const change of await plan(await readAll(directory, { checkRead: false }))) {
          const file = keyFilePath(directory, change.kind === "put" ? change.key.kid : change.kid);
          if (change.kind === "put") {
            await replaceFile(file, `${JSON.stringify(change.key, null, 2)}\n`);
          } else {
            await rm(file);
            await syncDirectory(directory);
          }
        }
      });
    },
    propagated: () => delay(PROPAGATION_MS),
    watch: async (load, onFailure) => followFiles([directory], load, onFailure, fingerprintOfAll),
  };
}
