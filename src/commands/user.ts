import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { Command, Option } from "commander";
import {
  administratorGrant,
  planAddUser,
  planPatchUser,
  planRemoveUser,
  planSetPassword,
} from "../access/administration.ts";
import { createAccessFile } from "../access/create.ts";
import { isEmail, isExternalUsername, isUsername } from "../access/names.ts";
import { emptySnapshot, type User, viewUser } from "../access/snapshot.ts";
import { changeAccessFile } from "../access/write.ts";
import { epochSeconds } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Configuration } from "../config/schema.ts";
import { configuredCosts } from "../identity/costs.ts";
import { hashPassword } from "../identity/password.ts";
import { revokeTokensOf } from "../identity/revocations.ts";
import { Refusal } from "../refusal.ts";
import { type CommonOptions, loadFor, readAccess, withCommonOptions } from "./files.ts";
import { invocation } from "./invocation.ts";
import { namingUser, refusalOf } from "./naming.ts";
import { print, printJson, printTable } from "./outcome.ts";
import { readNewPassword } from "./password.ts";
import { withHouseStyle } from "./style.ts";

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
  await changeAccessFile(file, (current) => planAddUser(current, "operator", user, grant));
}

/**
 * Says before a password is asked for what would be said after it; the file itself is judged again
 * under its lock.
 *
 * @throws Refusal `user_exists`, or what makes the access file unusable
 */
async function requireFree(
  loaded: LoadedConfiguration,
  username: string,
  isAdmin: boolean,
): Promise<void> {
  if (isAdmin && !existsSync(loaded.configuration.auth.access_control_file)) return;
  // Who may read the file is judged where it is put in force.
  const { users } = await readAccess(loaded, { checkRead: false });
  if (users.has(username)) throw refusalOf("user_exists", username);
}

async function add(username: string, options: AddOptions): Promise<void> {
  const loaded = loadFor(options);
  const { configuration } = loaded;
  const isExternal = isExternalUsername(username) && !options.password;
  if (!isUsername(username) && !isExternal) throw new Refusal("invalid_username");
  if (options.email !== undefined && !isEmail(options.email)) throw new Refusal("invalid_email");
  await requireFree(loaded, username, options.admin ?? false);
  let passwordHash: string | undefined;
  if (options.password) {
    const password = await readNewPassword(
      `Password for ${username}:`,
      options.passwordStdin ?? false,
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
  const database = configuration.auth.default_database;
  print(`Next, give it a role:  ${invocation} access grant ${username} ${database} ReadOnly`);
}

/** Text from callers as one cell of a table: what could pass for other cells is quoted. */
function plainly(text: string): string {
  return /[\p{C}\p{Z}"]/u.test(text)
    ? JSON.stringify(text).replace(
        /\p{Cf}/gu,
        (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
      )
    : text;
}

async function list(options: CommonOptions & { json?: true }): Promise<void> {
  const snapshot = await readAccess(loadFor(options));
  const users = [...snapshot.users.values()].map((user) => viewUser(snapshot, user));
  if (options.json) {
    printJson(users);
    return;
  }
  printTable(
    ["USERNAME", "EMAIL", "STATE", "ACCESS"],
    users.map(({ username, email, disabled, access }) => [
      username,
      email === null ? "-" : plainly(email),
      disabled ? "disabled" : "active",
      access.map(({ database, role }) => `${database}:${role}`).join(" ") || "-",
    ]),
  );
}

/** Ends the tokens that a user has by now for good, also should an older access file come back. */
function endTokens({ auth }: Configuration, username: string): Promise<void> {
  return revokeTokensOf(auth.revocations_file, username);
}

async function setPassword(
  username: string,
  options: CommonOptions & { passwordStdin?: true },
): Promise<void> {
  const loaded = loadFor(options);
  const { configuration } = loaded;
  if (!(await readAccess(loaded)).users.has(username)) throw refusalOf("user_not_found", username);
  const password = await readNewPassword(
    `Password for ${username}:`,
    options.passwordStdin ?? false,
  );
  const passwordHash = await hashPassword(password, configuredCosts(configuration));
  await namingUser(username, () =>
    changeAccessFile(
      configuration.auth.access_control_file,
      (current) => planSetPassword(current, username, passwordHash),
      { beforeWrite: () => endTokens(configuration, username) },
    ),
  );
  print(`Set a new password for ${username}; every token of the old one has stopped working.`);
}

async function remove(username: string, options: CommonOptions & { force?: true }): Promise<void> {
  const { configuration } = loadFor(options);
  await namingUser(username, () =>
    changeAccessFile(
      configuration.auth.access_control_file,
      (current) => planRemoveUser(current, "operator", username),
      { force: options.force ?? false, beforeWrite: () => endTokens(configuration, username) },
    ),
  );
  print(`Removed ${username} and all its grants.`);
}

async function setDisabled(
  username: string,
  disabled: boolean,
  options: CommonOptions & { force?: true },
): Promise<void> {
  const { configuration } = loadFor(options);
  await namingUser(username, () =>
    changeAccessFile(
      configuration.auth.access_control_file,
      (current) => planPatchUser(current, "operator", username, { disabled }),
      { force: options.force ?? false },
    ),
  );
  print(
    disabled
      ? `Disabled ${username}: no login, and no token of it is accepted.`
      : `Enabled ${username}: its password and the tokens it still has work again.`,
  );
}

/** `gatehouse user`: the users in the access file. */
export function userCommand(): Command {
  const user = withHouseStyle(new Command("user")).description(
    "add, list and remove users, and set passwords",
  );
  withCommonOptions(user.command("add"))
    .description("add a user")
    .argument(
      "<username>",
      "1 to 64 of letters, digits, . _ - @; an external user is <prefix>:<username>",
    )
    .option("--email <email>", "its email address")
    .option("--admin", "make it an administrator: Owner of every database")
    .option("--password-stdin", "read the password from standard input")
    .addOption(
      new Option("--no-password", "without a password: for machines and external users").conflicts(
        "passwordStdin",
      ),
    )
    .action(add);
  withCommonOptions(user.command("list"))
    .description("list the users and what they may do")
    .option("--json", "as JSON")
    .action(list);
  withCommonOptions(user.command("password"))
    .description("set a user's password")
    .argument("<username>", "the user")
    .option("--password-stdin", "read the password from standard input")
    .action(setPassword);
  withCommonOptions(user.command("remove"))
    .description("remove a user with all its grants")
    .argument("<username>", "the user")
    .option("--force", "also the last administrator or the last Owner of a database")
    .action(remove);
  withCommonOptions(user.command("disable"))
    .description("let a user neither log in nor use its tokens")
    .argument("<username>", "the user")
    .option("--force", "also the last administrator or the last Owner of a database")
    .action((username, options) => setDisabled(username, true, options));
  withCommonOptions(user.command("enable"))
    .description("undo a disable")
    .argument("<username>", "the user")
    .action((username, options) => setDisabled(username, false, options));
  return user;
}
