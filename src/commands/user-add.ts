import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { administratorGrant, planAddUser } from "../access/administration.ts";
import { isEmail, isExternalUsername, isUsername } from "../access/records.ts";
import { emptySnapshot, type Snapshot, type User } from "../access/snapshot.ts";
import { createAccessFile } from "../access/write.ts";
import { epochSeconds } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { configuredCosts } from "../identity/hash.ts";
import { hashPassword } from "../identity/password.ts";
import { invocation } from "../product.ts";
import { Refusal } from "../refusal.ts";
import { hintDatabase } from "./hint-database.ts";
import { namingUser, refusalOf } from "./operator.ts";
import { type CommonOptions, changeAccess, loadFor, readAccess } from "./options.ts";
import { print } from "./output.ts";
import { readNewPassword } from "./password.ts";

/** What `user add` is given. */
interface AddOptions extends CommonOptions {
  readonly email?: string;
  readonly admin?: true;
  readonly passwordStdin?: true;
  /** False for `--no-password`. */
  readonly password: boolean;
}

/** Adds the user to the file, or makes the file if this is the first administrator. */
async function addToFile(loaded: LoadedConfiguration, user: User, isAdmin: boolean): Promise<void> {
  const file = loaded.configuration.auth.access_control_file;
  const grant = isAdmin ? administratorGrant : undefined;
  if (isAdmin && !existsSync(file)) {
    await mkdir(loaded.serviceDirectory, { recursive: true, mode: 0o700 });
    const changes = planAddUser(emptySnapshot, "operator", user, grant);
    if ((await createAccessFile(file, changes)) !== undefined) return;
  }
  await changeAccess(loaded, (current) => planAddUser(current, "operator", user, grant));
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
  if (isAdmin && !existsSync(loaded.configuration.auth.access_control_file)) return emptySnapshot;
  // Who may read the file is judged where it is put in force.
  const snapshot = await readAccess(loaded, { checkRead: false });
  if (snapshot.users.has(username)) throw refusalOf("user_exists", username);
  return snapshot;
}

/**
 * `gatehouse user add`.
 *
 * @throws Refusal `user_exists`, `invalid_username`, `invalid_email`, or what forbids the password
 */
export async function addUser(username: string, options: AddOptions): Promise<void> {
  const loaded = loadFor(options);
  const { configuration } = loaded;
  const isExternal = isExternalUsername(username) && !options.password;
  if (!isUsername(username) && !isExternal) throw new Refusal("invalid_username");
  if (options.email !== undefined && !isEmail(options.email)) throw new Refusal("invalid_email");
  const before = await requireFree(loaded, username, options.admin ?? false);
  let passwordHash: string | undefined;
  if (options.password) {
    const password = await readNewPassword(
      `Password for ${username}:`,
      options.passwordStdin ?? false,
      configuration,
    );
    passwordHash = await hashPassword(password, configuredCosts(configuration));
  }
  // Tokens without a password behind them are told from those of an earlier user by their time.
  const tokensValidAfter = options.password ? 0 : epochSeconds();
  const { email } = options;
  const user = { username, email, passwordHash, disabled: false, tokensValidAfter };
  await namingUser(username, () => addToFile(loaded, user, options.admin ?? false));
  print(`Added ${username}${options.admin ? ", an administrator" : ""}.`);
  if (options.admin) return;
  const database = await hintDatabase(loaded, before);
  print(`Next, give it a role:  ${invocation} access grant ${username} ${database} ReadOnly`);
}
