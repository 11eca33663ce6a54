import { randomBytes } from "node:crypto";
import { chmod, mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { administratorGrant, planAddUser } from "../core/access/administration.ts";
import { blankUser, emptySnapshot } from "../core/access/snapshot.ts";
import { createAccessFile } from "../core/access/write.ts";
import { isThere, replaceFile } from "../core/base/files/guarded.ts";
import { LockRefusedError, LockTimeoutError, takeLock } from "../core/base/files/lock.ts";
import { invocation } from "../core/base/product.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { configuredCosts } from "../core/identity/hash.ts";
import { hasKeyFiles, keyDirectoryPath } from "../core/identity/key-file.ts";
import { hashPassword, type PasswordRule } from "../core/identity/password.ts";
import { findDataDirectory } from "./own-engine.ts";

class StartError extends Error {}

export interface FirstStart {
  /** `$GATEHOUSE_ADMIN_PASSWORD`. */
  readonly chosenPassword: string | undefined;
  /** True if a generated password can be shown once on a terminal. */
  readonly hasTerminal: boolean;
}

export type FirstPassword =
  | { readonly kind: "chosen" }
  /** Shown on the terminal. Then the file that holds it until then is removed. */
  | { readonly kind: "shown"; readonly password: string; readonly file: string }
  | { readonly kind: "file"; readonly file: string; readonly isFirstStart: boolean };

export const ADMINISTRATOR = "admin";

export function randomPassword(): string {
  return randomBytes(15).toString("base64url");
}

/** The file that holds a generated password until it has been seen. */
export function passwordFilePath({ serviceDirectory }: { readonly serviceDirectory: string }) {
  return path.join(serviceDirectory, "initial_admin_password");
}

/** Creates the service directory if it is missing, for its owner only. */
export async function makeServiceDirectory(directory: string): Promise<void> {
  const isNew = (await mkdir(directory, { recursive: true })) !== undefined;
  if (isNew) await chmod(directory, 0o700);
}

/**
 * Prepares the service directory (0700). At the first start, also creates the access file with an
 * administrator.
 *
 * @returns where the first administrator's password can be found; undefined if it is no longer
 * stored
 * @throws StartError if the access file is missing but signing keys exist: this is an accident, and
 * silently creating a new administrator would be wrong
 */
export async function prepareServiceDirectory(
  loaded: LoadedConfiguration,
  { chosenPassword, hasTerminal }: FirstStart,
  passwordRule: PasswordRule,
): Promise<FirstPassword | undefined> {
  const { configuration, serviceDirectory } = loaded;
  const accessFile = configuration.auth.access_control_file;
  const file = passwordFilePath(loaded);
  await makeServiceDirectory(serviceDirectory);
  // The store holds keys and users, or the access file is read-only.
  if (configuration.store.url !== undefined) return undefined;
  // The password left by an earlier start that had no terminal or stopped before showing it.
  const left = (): FirstPassword | undefined =>
    isThere(file) ? { kind: "file", file, isFirstStart: false } : undefined;
  if (isThere(accessFile)) return left();
  if (hasKeyFiles(serviceDirectory)) {
    throw new StartError(
      `${accessFile} is missing, but there are signing keys in ${keyDirectoryPath(serviceDirectory)}: ` +
        `restore the file, or make a new one with \`${invocation} user add <name> --admin\``,
    );
  }
  const password = chosenPassword ?? randomPassword();
  try {
    passwordRule(password);
  } catch (error) {
    const reason = error instanceof Error ? error.message : "unusable";
    throw new StartError(`$GATEHOUSE_ADMIN_PASSWORD: ${reason}`);
  }
  const passwordHash = await hashPassword(password, configuredCosts(configuration));
  const user = { ...blankUser(ADMINISTRATOR), passwordHash };
  const changes = planAddUser(emptySnapshot, "operator", user, administratorGrant);
  let isKept = false;
  try {
    // The password is saved first. An access file without a known password would lock everyone out.
    const created = await createAccessFile(accessFile, changes, async () => {
      if (chosenPassword !== undefined) return;
      isKept = true;
      await replaceFile(file, `${password}\n`);
    });
    // Another start has created it in the meantime.
    if (created === undefined) return left();
  } catch (error) {
    if (isKept) await rm(file, { force: true });
    throw error;
  }
  if (chosenPassword !== undefined) return { kind: "chosen" };
  return hasTerminal
    ? { kind: "shown", password, file }
    : { kind: "file", file, isFirstStart: true };
}

/**
 * Claims the embedded databases, if any, for this gateway. Gateways with external databases may
 * share a service directory. Release them when the gateway stops taking requests. The next gateway
 * may start then, and its engine waits for this one's to exit.
 *
 * @returns a function that releases them; the end of the process releases them too, even after a
 * crash
 * @throws StartError if another gateway has claimed them
 */
export async function claimDatabases(loaded: LoadedConfiguration): Promise<() => void> {
  const { serviceDirectory } = loaded;
  const data = findDataDirectory(loaded);
  const unclaimed = () => {};
  await makeServiceDirectory(serviceDirectory);
  if (data === undefined || !isThere(path.dirname(data))) return unclaimed;
  try {
    return await takeLock(data, 0);
  } catch (error) {
    // The engine has its own lock and reports what it cannot write.
    if (error instanceof LockRefusedError) return unclaimed;
    if (!(error instanceof LockTimeoutError)) throw error;
    const isDefault = path.dirname(data) === serviceDirectory;
    const what = isDefault ? `service directory ${serviceDirectory}` : `databases in ${data}`;
    throw new StartError(
      `another gateway already uses the ${what}: stop it first, or give this one a service ` +
        "directory of its own with $GATEHOUSE_HOME, or another upstream.url with --config",
      { cause: error },
    );
  }
}
