import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { administratorGrant, planAddUser } from "../access/administration.ts";
import type { HashCosts } from "../access/password-hash.ts";
import { emptySnapshot, type User } from "../access/snapshot.ts";
import { createAccessFile } from "../access/write.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { replaceFile } from "../files/atomic.ts";
import { LockRefusedError, LockTimeoutError, withLock } from "../files/lock.ts";
import { hashPassword, type PasswordRule } from "../identity/password.ts";
import { invocation } from "../product.ts";
import { dataDirectoryOf } from "./own-engine.ts";

/** The start cannot go on; the message says what to do. */
class StartError extends Error {}

/** Where a first start finds and leaves things. */
export interface FirstStart {
  readonly serviceDirectory: string;
  readonly accessFile: string;
  readonly keysDirectory: string;
  readonly costs: HashCosts;
  readonly passwordRule: PasswordRule;
  /** The password that the operator chose for the administrator. */
  readonly chosenPassword: string | undefined;
  /** True if there is a terminal on which a made-up password can be shown once. */
  readonly hasTerminal: boolean;
  /** True if a store holds keys and users, or the access file is a source that is never written. */
  readonly isShared: boolean;
}

/** How the first administrator's password can be learnt. */
export type FirstPassword =
  | { readonly kind: "chosen" }
  /** To be shown on the terminal, after which the file that keeps it until then is removed. */
  | { readonly kind: "shown"; readonly password: string; readonly file: string }
  | { readonly kind: "file"; readonly file: string; readonly isFirstStart: boolean };

const ADMINISTRATOR = "admin";
const PASSWORD_BYTES = 15;

/** Where a password that was made up stands until somebody has seen it. */
function passwordFileOf({ serviceDirectory }: FirstStart): string {
  return path.join(serviceDirectory, "initial_admin_password");
}

/** What an earlier start has left, because it had no terminal or did not get as far as showing it. */
function leftPassword(start: FirstStart): FirstPassword | undefined {
  const file = passwordFileOf(start);
  return existsSync(file) ? { kind: "file", file, isFirstStart: false } : undefined;
}

/**
 * Makes the access file with its administrator.
 *
 * @returns false if another start has made it meanwhile
 */
async function createWith(start: FirstStart, password: string, user: User): Promise<boolean> {
  const file = start.chosenPassword === undefined ? passwordFileOf(start) : undefined;
  const changes = planAddUser(emptySnapshot, "operator", user, administratorGrant);
  let isKept = false;
  try {
    // The password is kept first: a file without a known password would lock everybody out.
    const made = await createAccessFile(start.accessFile, changes, async () => {
      if (file === undefined) return;
      isKept = true;
      await replaceFile(file, `${password}\n`);
    });
    return made !== undefined;
  } catch (error) {
    if (isKept && file !== undefined) await rm(file, { force: true });
    throw error;
  }
}

function requireUsableFirst({ passwordRule }: FirstStart, password: string): void {
  try {
    passwordRule(password);
  } catch (error) {
    const reason = error instanceof Error ? error.message : "unusable";
    throw new StartError(`$GATEHOUSE_ADMIN_PASSWORD: ${reason}`);
  }
}

/** Makes the service directory, for nobody else to look into, if it is not there. */
async function makeServiceDirectory(directory: string): Promise<void> {
  const isNew = (await mkdir(directory, { recursive: true })) !== undefined;
  if (isNew) await chmod(directory, 0o700);
}

/**
 * Prepares the service directory (0700) and, if there has never been a start, the access file with
 * an administrator.
 *
 * @returns how the first administrator's password can be learnt; undefined if it is nowhere any more
 * @throws StartError if the access file is gone but signing keys are there: an accident, in which
 *   a new administrator must not be made in silence
 */
export async function prepareServiceDirectory(
  start: FirstStart,
): Promise<FirstPassword | undefined> {
  await makeServiceDirectory(start.serviceDirectory);
  if (start.isShared) return undefined;
  if (existsSync(start.accessFile)) return leftPassword(start);
  if (existsSync(start.keysDirectory)) {
    throw new StartError(
      `${start.accessFile} is missing, but there are signing keys in ${start.keysDirectory}: ` +
        `restore the file, or make a new one with \`${invocation} user add <name> --admin\``,
    );
  }
  const password = start.chosenPassword ?? randomBytes(PASSWORD_BYTES).toString("base64url");
  requireUsableFirst(start, password);
  const user = {
    username: ADMINISTRATOR,
    email: undefined,
    passwordHash: await hashPassword(password, start.costs),
    disabled: false,
    tokensValidAfter: 0,
  };
  if (!(await createWith(start, password, user))) return leftPassword(start);
  if (start.chosenPassword !== undefined) return { kind: "chosen" };
  const file = passwordFileOf(start);
  return start.hasTerminal
    ? { kind: "shown", password, file }
    : { kind: "file", file, isFirstStart: true };
}

function inUse(serviceDirectory: string, data: string, cause: unknown): StartError {
  const isDefault = path.dirname(data) === serviceDirectory;
  const what = isDefault ? `service directory ${serviceDirectory}` : `databases in ${data}`;
  return new StartError(
    `another gateway already uses the ${what}: stop it first, or give this one a service directory ` +
      "of its own with $GATEHOUSE_HOME, or another upstream.url with --config",
    { cause },
  );
}

/**
 * Takes the embedded databases, if there are any, for this gateway alone: gateways before another
 * database may share a service directory. To be given back when the gateway stops taking requests:
 * the next one may start then, and its engine waits for this one's to end.
 *
 * @returns what gives them back; so does the end of the process, however it comes
 * @throws StartError if another gateway has them
 */
export async function claimDatabases(loaded: LoadedConfiguration): Promise<() => Promise<void>> {
  const { serviceDirectory } = loaded;
  const data = dataDirectoryOf(loaded);
  const unclaimed = async () => {};
  await makeServiceDirectory(serviceDirectory);
  if (data === undefined) return unclaimed;
  if (!existsSync(path.dirname(data))) return unclaimed;
  const taken = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const hold = (): Promise<void> => {
    taken.resolve();
    return released.promise;
  };
  const holding = withLock(data, hold, { mayBeFull: true, wait: 0 });
  try {
    await Promise.race([taken.promise, holding]);
  } catch (error) {
    // The engine has a lock of its own, and says what it may not write.
    if (error instanceof LockRefusedError) return unclaimed;
    throw error instanceof LockTimeoutError ? inUse(serviceDirectory, data, error) : error;
  }
  return () => {
    released.resolve();
    return holding;
  };
}
