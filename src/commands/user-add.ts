import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import type { Plan } from "../access/access-rules.ts";
import { administratorGrant, planAddUser } from "../access/administration.ts";
import type { Attributes } from "../access/grant.ts";
import { isEmail, isExternalUsername, isUsername } from "../access/identifiers.ts";
import { emptySnapshot, type Snapshot, type User } from "../access/snapshot.ts";
import { updatedUser } from "../access/user-record.ts";
import { createAccessFile } from "../access/write.ts";
import { epochSeconds } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import { describeChanges } from "../gateway/change-records.ts";
import { dataDirectoryOf } from "../gateway/own-engine.ts";
import { invocation } from "../product.ts";
import { Refusal } from "../refusal.ts";
import { listDatabases } from "./database-schema.ts";
import { loadFor } from "./load.ts";
import { changeAccess, noteChanges, readAccess, refusalOf } from "./operator.ts";
import type { CommonOptions } from "./options.ts";
import { print } from "./output.ts";
import { readNewHash } from "./password.ts";

/** What an engine of the gateway's own keeps; undefined before its first start. */
function ownDatabases(directory: string): string[] | undefined {
  try {
    return new DatabaseFiles(directory).names();
  } catch {
    return undefined;
  }
}

async function existing(loaded: LoadedConfiguration): Promise<readonly string[] | undefined> {
  const directory = dataDirectoryOf(loaded);
  return directory === undefined ? listDatabases(loaded) : ownDatabases(directory);
}

/**
 * A database to be named in a hint: the default one where it is there, else one that is there, as
 * far as the database or the access file tells; else `<database>`.
 */
async function hintDatabase(loaded: LoadedConfiguration, { grants }: Snapshot): Promise<string> {
  const preferred = loaded.configuration.auth.default_database;
  const found = await existing(loaded);
  const isOwn = dataDirectoryOf(loaded) !== undefined;
  // Before the first start there is none, and that will make `main`.
  if (found === undefined && isOwn) return preferred;
  const named = grants.values().flatMap((own) => own.keys().filter((name) => name !== "*"));
  const names = found ?? [...named];
  return names.includes(preferred) ? preferred : (names[0] ?? "<database>");
}

interface AddOptions extends CommonOptions {
  readonly email?: string;
  readonly attribute?: Attributes;
  readonly admin?: true;
  readonly passwordStdin?: true;
  /** False for `--no-password`. */
  readonly password: boolean;
}

/** True if there are no users yet, since there is no file of them. */
function mayMakeFile({ configuration: { auth, store } }: LoadedConfiguration): boolean {
  return store.url === undefined && !existsSync(auth.access_control_file);
}

/** Adds the user to the file, or makes the file if this is the first administrator. */
async function addToFile(loaded: LoadedConfiguration, user: User, isAdmin: boolean): Promise<void> {
  const file = loaded.configuration.auth.access_control_file;
  const grant = isAdmin ? administratorGrant : undefined;
  if (isAdmin && mayMakeFile(loaded)) {
    await mkdir(loaded.serviceDirectory, { recursive: true, mode: 0o700 });
    const changes = planAddUser(emptySnapshot, "operator", user, grant);
    const made = await createAccessFile(file, changes);
    if (made !== undefined) return noteChanges(loaded, describeChanges(changes), made.version);
  }
  const { username } = user;
  const plan: Plan = (current) => planAddUser(current, "operator", user, grant);
  await changeAccess(loaded, { username }, plan);
}

/**
 * Says before a password is asked for what would be said after it; the file itself is judged again
 * under its lock.
 *
 * @returns what the file says now
 * @throws Refusal `user_exists`, or what makes the access file unusable
 */
async function requireFree(
  loaded: LoadedConfiguration,
  username: string,
  isAdmin: boolean,
): Promise<Snapshot> {
  if (isAdmin && mayMakeFile(loaded)) return emptySnapshot;
  // Who may read the file is judged where it is put in force.
  const snapshot = await readAccess(loaded, { checkRead: false });
  if (snapshot.users.has(username)) throw refusalOf("user_exists", { username });
  return snapshot;
}

/**
 * `gatehouse user add`.
 *
 * @throws Refusal `user_exists`, `invalid_username`, `invalid_email`, or what forbids the password
 */
export async function addUser(username: string, options: AddOptions): Promise<void> {
  const loaded = loadFor(options);
  const isExternal = isExternalUsername(username) && !options.password;
  if (isExternalUsername(username) && options.password) {
    const message = `${username} signs in at its identity provider: add it with --no-password`;
    throw new Refusal("external_user", { message });
  }
  if (!isUsername(username) && !isExternal) throw new Refusal("invalid_username");
  if (options.email !== undefined && !isEmail(options.email)) throw new Refusal("invalid_email");
  const before = await requireFree(loaded, username, options.admin ?? false);
  const passwordHash = options.password
    ? await readNewHash(`Password for ${username}:`, options, loaded.configuration)
    : undefined;
  // Tokens without a password behind them are told from those of an earlier user by their time.
  const tokensValidAfter = options.password ? 0 : epochSeconds();
  const { email, attribute: attributes = new Map() } = options;
  const plain = { username, email, passwordHash, disabled: false, tokensValidAfter };
  const user = updatedUser(plain, { attributes });
  await addToFile(loaded, user, options.admin ?? false);
  print(`Added ${username}${options.admin ? ", an administrator" : ""}.`);
  if (options.admin) return;
  const database = await hintDatabase(loaded, before);
  print(`Next, give it a role:  ${invocation} access grant ${username} ${database} ReadOnly`);
}
