import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { type Command, InvalidArgumentError, Option } from "commander";
import type { Plan } from "../access/access-rules.ts";
import { administratorGrant, planAddUser } from "../access/administration.ts";
import { readAttribute, viewAttributes } from "../access/entry-view.ts";
import { type Attributes, type User, updatedUser } from "../access/grant.ts";
import { isEmail, isExternalUsername, isUsername } from "../access/roles.ts";
import {
  blankUser,
  emptySnapshot,
  type Snapshot,
  unrecordedUsers,
  viewUser,
} from "../access/snapshot.ts";
import { createAccessFile } from "../access/write.ts";
import { type AccountAction, accountActions, actions } from "../administration/actions.ts";
import { epochSeconds } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import { describeChanges } from "../gateway/change-records.ts";
import { dataDirectoryOf } from "../gateway/own-engine.ts";
import { invocation } from "../product.ts";
import { Refusal } from "../refusal.ts";
import { renderValue } from "../toml/toml.ts";
import { listDatabases } from "./database-schema.ts";
import { loadFor } from "./load.ts";
import {
  activityOf,
  changeAccess,
  entriesInWords,
  naming,
  noteChanges,
  readAccess,
  refusalOf,
  revocationsOf,
} from "./operator.ts";
import { type CommonOptions, commandGroup, readNames, subcommand } from "./options.ts";
import { momentOrNull, plainly, print, printList, UsageError } from "./output.ts";
import { readNewHash } from "./password.ts";

/** Databases of the gateway's own engine; undefined before its first start. */
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
 * A database for a hint: the default one if it exists, else another known from the database or the
 * access file, else `<database>`.
 */
async function hintDatabase(loaded: LoadedConfiguration, { grants }: Snapshot): Promise<string> {
  const preferred = loaded.configuration.auth.default_database;
  const found = await existing(loaded);
  const isOwn = dataDirectoryOf(loaded) !== undefined;
  // Nothing exists before the first start, which creates `main`.
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

/** True if there are no users yet because the file does not exist. */
function mayMakeFile({ configuration: { auth, store } }: LoadedConfiguration): boolean {
  return store.url === undefined && !existsSync(auth.access_control_file);
}

/** Adds the user to the file, or creates the file with the first administrator. */
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
 * Reports problems before the password prompt instead of after it. The file is judged again under
 * its lock.
 *
 * @returns the current state of the file
 * @throws Refusal `user_exists`, or what makes the access file unusable
 */
async function requireFree(
  loaded: LoadedConfiguration,
  username: string,
  isAdmin: boolean,
): Promise<Snapshot> {
  if (isAdmin && mayMakeFile(loaded)) return emptySnapshot;
  // The file's permissions are checked when it is put in force.
  const snapshot = await readAccess(loaded, { checkRead: false });
  if (snapshot.users.has(username)) throw refusalOf("user_exists", { username });
  return snapshot;
}

/**
 * `gatehouse user add`.
 *
 * @throws Refusal `user_exists`, `invalid_username`, `invalid_email`, or what forbids the password
 */
async function addUser(username: string, options: AddOptions): Promise<void> {
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
  // Without a password, only the time distinguishes tokens from those of an earlier user with this
  // name.
  const tokensValidAfter = options.password ? 0 : epochSeconds();
  const { email, attribute: attributes = new Map() } = options;
  const plain = { ...blankUser(username), email, passwordHash, tokensValidAfter };
  const user = updatedUser(plain, { attributes });
  await addToFile(loaded, user, options.admin ?? false);
  print(`Added ${username}${options.admin ? ", an administrator" : ""}.`);
  if (options.admin) return;
  const database = await hintDatabase(loaded, before);
  print(`Next, give it a role:  ${invocation} access grant ${username} ${database} ReadOnly`);
}

function attributesInWords({ attributes }: { readonly attributes?: Attributes | undefined } = {}) {
  return attributes && renderValue(Object.fromEntries(attributes));
}

async function list(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const snapshot = await readAccess(loaded);
  const activity = await activityOf(loaded);
  const unrecorded = unrecordedUsers(snapshot).map(blankUser);
  const users = [...snapshot.users.values(), ...unrecorded].map((user) => {
    const { login, use } = activity.of(user.username);
    const last = { last_login: momentOrNull(login), last_use: momentOrNull(use) };
    const attributes = viewAttributes(user.attributes);
    return { ...viewUser(snapshot, user), attributes, ...last };
  });
  const head = ["USERNAME", "EMAIL", "STATE", "LAST LOGIN", "LAST USE", "ATTRIBUTES", "ACCESS"];
  printList(users, options, head, ({ username, email, disabled, ...last }) => [
    username,
    email === null ? "-" : plainly(email),
    disabled ? "disabled" : "active",
    last.last_login ?? "-",
    last.last_use ?? "-",
    attributesInWords(snapshot.users.get(username)) ?? "-",
    entriesInWords(snapshot, username),
  ]);
}

interface AccountOptions extends CommonOptions {
  readonly force?: true;
  readonly passwordStdin?: true;
}

/** Carries out an action of the table. */
async function act(
  { plan, needsPassword, command }: AccountAction,
  username: string,
  options: AccountOptions,
): Promise<void> {
  const loaded = loadFor(options);
  const { configuration } = loaded;
  const planWith = (input: { passwordHash?: string }) => (current: Snapshot) =>
    plan(current, "operator", { username, ...input }, configuration);
  let input = {};
  if (needsPassword) {
    const snapshot = await readAccess(loaded);
    await naming({ username, snapshot }, () => planWith(input)(snapshot));
    const question = `Password for ${username}:`;
    input = { passwordHash: await readNewHash(question, options, configuration) };
  }
  const { force } = options;
  await changeAccess(loaded, { username }, planWith(input), {
    ...(force === undefined ? {} : { force }),
    // Ends the tokens that there are, even if an older access file is restored.
    beforeWrite: async () => (await revocationsOf(loaded)).revokeUser(username),
  });
  print(command.done(username));
}

function addAction(user: Command, name: string, action: AccountAction): void {
  const { description, force } = action.command;
  const command = subcommand(user, name, description).argument("<username>", "the user");
  if (action.needsPassword)
    command.option("--password-stdin", "read the password from standard input");
  if (force !== undefined) command.option("--force", force);
  command.action((username: string, options: AccountOptions) => act(action, username, options));
}

function readAttributeOption(text: string, earlier: Attributes = new Map()): Attributes {
  const attribute = readAttribute(text);
  if (attribute === undefined) {
    throw new InvalidArgumentError(
      "allowed: <name>=<value>, such as tenant=acme, level=3 or 'regions=(eu, us)'; a name has letters, digits, _ and -, and is not username; text that is not one word stands in quotes",
    );
  }
  if (earlier.has(attribute[0])) throw new InvalidArgumentError("this attribute is given twice");
  return new Map([...earlier, attribute]);
}

const attributeOption = [
  "--attribute <name=value>",
  "what row filters refer to, such as tenant=acme or 'regions=(eu, us)'; may be repeated",
  readAttributeOption,
] as const;

interface SetOptions extends CommonOptions {
  /** False for `--no-email`. */
  readonly email?: string | boolean;
  readonly attribute?: Attributes;
  readonly removeAttribute?: readonly string[];
}

/** @throws UsageError if there is nothing to change */
function readPatch({ email, attribute, removeAttribute = [] }: SetOptions) {
  const changed = typeof email === "string" ? email : email === false ? null : undefined;
  if (typeof changed === "string" && !isEmail(changed)) throw new Refusal("invalid_email");
  const areChanged = attribute !== undefined || removeAttribute.length > 0;
  if (changed === undefined && !areChanged) {
    throw new UsageError(
      "nothing to set: give --email, --no-email, --attribute or --remove-attribute",
    );
  }
  const both = removeAttribute.find((name) => attribute?.has(name));
  if (both !== undefined) throw new UsageError(`the attribute ${both} is both set and removed`);
  const attributesOf = (user: User | undefined) => {
    const attributes = new Map(user?.attributes);
    for (const name of removeAttribute) {
      if (attributes.delete(name) || user === undefined) continue;
      const known = [...attributes.keys()].join(", ") || "none";
      throw new Error(`${user.username} has no attribute ${name}; it has: ${known}`);
    }
    for (const [name, value] of attribute ?? []) attributes.set(name, value);
    return areChanged ? attributes : undefined;
  };
  return (user: User | undefined) => ({ email: changed, attributes: attributesOf(user) });
}

async function set(username: string, options: SetOptions): Promise<void> {
  const patchOf = readPatch(options);
  const loaded = loadFor(options);
  let isChanged = false;
  const plan: Plan = (current) => {
    const patch = patchOf(current.users.get(username));
    const { configuration } = loaded;
    const changes = actions.patchUser.plan(
      current,
      "operator",
      { username, ...patch },
      configuration,
    );
    isChanged = changes.length > 0;
    return changes;
  };
  const { users } = await changeAccess(loaded, { username }, plan);
  const user = users.get(username);
  const known = attributesInWords(user);
  const attributes = known === undefined ? "no attributes" : `attributes ${known}`;
  const has = `${username} has ${user?.email ?? "no email"} and ${attributes}`;
  print(isChanged ? `${has}.` : `${has} already: nothing was changed.`);
}

export function userCommand(): Command {
  const user = commandGroup("user", "add, list and remove users, and set passwords");
  subcommand(user, "add", "add a user")
    .argument(
      "<username>",
      "1 to 64 of letters, digits, . _ - @; an external user is <prefix>:<username>",
    )
    .option("--email <email>", "its email address")
    .option(...attributeOption)
    .option("--admin", "make it an administrator: Owner of every database")
    .option("--password-stdin", "read the password from standard input")
    .addOption(
      new Option("--no-password", "without a password: for machines and external users").conflicts(
        "passwordStdin",
      ),
    )
    .action(addUser);
  subcommand(user, "list", "list the users and what they may do")
    .option("--json", "as JSON")
    .action(list);
  const { password, ...others } = accountActions;
  addAction(user, "password", password);
  subcommand(user, "set", "set a user's email, and the attributes that row filters refer to")
    .argument("<username>", "the user")
    .option("--email <email>", "its email address")
    .option("--no-email", "take the email address out")
    .option(...attributeOption)
    .option("--remove-attribute <names>", "take attributes out, such as tenant,level", readNames)
    .action(set);
  for (const [name, action] of Object.entries(others)) addAction(user, name, action);
  return user;
}
