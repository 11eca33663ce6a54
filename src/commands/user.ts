import { Command, Option } from "commander";
import { planPatchUser, planRemoveUser, planSetPassword } from "../access/administration.ts";
import { viewUser } from "../access/snapshot.ts";
import type { Configuration } from "../config/schema.ts";
import { configuredCosts } from "../identity/hash.ts";
import { hashPassword } from "../identity/password.ts";
import { revocationsIn } from "../identity/revocation-file.ts";
import { namingUser, refusalOf } from "./operator.ts";

import {
  type CommonOptions,
  changeAccess,
  loadFor,
  readAccess,
  withCommonOptions,
} from "./options.ts";
import { plainly, print, printJson, printTable } from "./output.ts";
import { readNewPassword } from "./password.ts";
import { withHouseStyle } from "./style.ts";
import { addUser } from "./user-add.ts";

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
  const options = { checkRead: auth.check_permissions };
  return revocationsIn(auth.revocations_file, options).revokeUser(username);
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
    configuration,
  );
  const passwordHash = await hashPassword(password, configuredCosts(configuration));
  await namingUser(username, () =>
    changeAccess(loaded, (current) => planSetPassword(current, username, passwordHash), {
      beforeWrite: () => endTokens(configuration, username),
    }),
  );
  print(`Set a new password for ${username}; every token of the old one has stopped working.`);
}

async function remove(username: string, options: CommonOptions & { force?: true }): Promise<void> {
  const loaded = loadFor(options);
  const { configuration } = loaded;
  await namingUser(username, () =>
    changeAccess(loaded, (current) => planRemoveUser(current, "operator", username), {
      force: options.force ?? false,
      beforeWrite: () => endTokens(configuration, username),
    }),
  );
  print(`Removed ${username} and all its grants.`);
}

async function setDisabled(
  username: string,
  disabled: boolean,
  options: CommonOptions & { force?: true },
): Promise<void> {
  const loaded = loadFor(options);
  await namingUser(username, () =>
    changeAccess(loaded, (current) => planPatchUser(current, "operator", username, { disabled }), {
      force: options.force ?? false,
    }),
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
    .action(addUser);
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
