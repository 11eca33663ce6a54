import { type Command, InvalidArgumentError } from "commander";
import { findDataDirectory } from "../app/own-engine.ts";
import { makeServiceDirectory } from "../app/service-directory.ts";
import type { Plan } from "../core/access/access-rules.ts";
import { administratorGrant, planAddUser } from "../core/access/administration.ts";
import { readAttribute, viewAttributes, viewUser } from "../core/access/entry-view.ts";
import { type Attributes, updatedUser, userHolder } from "../core/access/grant.ts";
import { latestIssue } from "../core/access/record-change.ts";
import { isAnyUsername, isEmail, isExternalUsername, isUsername } from "../core/access/roles.ts";
import {
  blankUser,
  emptySnapshot,
  endOfEarlierTokens,
  type Snapshot,
  usersWithoutRecord,
} from "../core/access/snapshot.ts";
import { createAccessFile } from "../core/access/write.ts";
import {
  type AccountAction,
  accountActions,
  actions,
  unlockedUser,
} from "../core/administration/actions.ts";
import { isThere } from "../core/base/files/guarded.ts";
import { invocation } from "../core/base/product.ts";
import { Refusal } from "../core/base/refusal.ts";
import { renderValue } from "../core/base/toml.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { describeChanges } from "../core/http/change-records.ts";
import { listDatabases } from "./database-schema.ts";
import {
  changeAccess,
  entriesInWords,
  knownActivity,
  namedRefusal,
  naming,
  noteChanges,
  readAccess,
  revocationStore,
  unlock,
} from "./operator.ts";
import {
  type CommonOptions,
  commandGroup,
  defineCommand,
  defineCommands,
  loadFor,
  readNames,
} from "./options.ts";
import { explain, momentOrNull, plainly, print, printList, UsageError, warn } from "./output.ts";
import { readNewHash } from "./password.ts";

/** Returns the default database if it exists, else another known one, else `<database>`. */
async function hintDatabase(loaded: LoadedConfiguration, { grants }: Snapshot): Promise<string> {
  const { auth, upstream } = loaded.configuration;
  const preferred = auth.default_database;
  const named = [...grants.values()].flatMap((own) => [...own.keys()]);
  // The first start creates the default database, and OpenSearch has no other.
  const isThere = upstream.preset === "opensearch" || findDataDirectory(loaded) !== undefined;
  const expected = isThere ? [preferred] : named;
  const names = ((await listDatabases(loaded)) ?? expected).filter((name) => name !== "*");
  return names.includes(preferred) ? preferred : (names[0] ?? "<database>");
}

interface UserOptions extends CommonOptions {
  /** False for `--no-email`. */
  readonly email?: string | false;
  readonly attribute?: Attributes;
  readonly removeAttribute?: readonly string[];
  /** False for `--no-same-as`. */
  readonly sameAs?: string | false;
  readonly admin?: true;
  /** False for `--no-password`. */
  readonly password?: boolean;
}

async function addUser(username: string, options: UserOptions): Promise<void> {
  const loaded = loadFor(options);
  const isExternal = isExternalUsername(username);
  const { password, admin: isAdmin = false, attribute: attributes = new Map() } = options;
  const email = options.email === false ? undefined : options.email;
  if (isExternal && password) {
    const message = `${username} signs in at an identity provider; add this user with --no-password`;
    throw new Refusal("external_user", { message });
  }
  if (!isUsername(username) && !isExternal) throw new Refusal("invalid_username");
  if (email !== undefined && !isEmail(email)) throw new Refusal("invalid_email");
  // Report problems before the password prompt. The change itself is judged again under the lock.
  const { auth, store } = loaded.configuration;
  const file = auth.access_control_file;
  const isFirst = isAdmin && store.url === undefined && !isThere(file);
  const before = isFirst ? emptySnapshot : await readAccess(loaded, { checkRead: false });
  if (before.users.has(username))
    throw namedRefusal("user_exists", { holder: userHolder(username) });
  const passwordHash = password
    ? await readNewHash(`Password for ${username}:`, options, loaded.configuration)
    : undefined;
  const tokensValidAfter = password ? 0 : endOfEarlierTokens();
  const plain = { ...blankUser(username), email, passwordHash, tokensValidAfter };
  const user = updatedUser(plain, { attributes });
  const grant = isAdmin ? administratorGrant : undefined;
  const plan: Plan = (current) => planAddUser(current, "operator", user, grant);
  const changes = isFirst ? plan(emptySnapshot) : [];
  if (isFirst) await makeServiceDirectory(loaded.serviceDirectory);
  const made = isFirst ? await createAccessFile(file, changes) : undefined;
  if (made === undefined) await changeAccess(loaded, { holder: userHolder(username) }, plan);
  else await noteChanges(loaded, describeChanges(changes), made.version);
  print(`Added ${username}${isAdmin ? ", an administrator" : ""}.`);
  if (isAdmin) return;
  const database = await hintDatabase(loaded, before);
  print(`Next, grant a role:  ${invocation} access grant ${username} ${database} ReadOnly`);
}

function attributesInWords({ attributes }: { readonly attributes?: Attributes | undefined } = {}) {
  return attributes && renderValue(Object.fromEntries(attributes));
}

async function list(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const snapshot = await readAccess(loaded);
  const activity = await knownActivity(loaded);
  const unrecorded = usersWithoutRecord(snapshot).map(blankUser);
  const users = [...snapshot.users.values(), ...unrecorded].map((user) => {
    const { login, use } = activity.of(user.username);
    const last = { last_login: momentOrNull(login), last_use: momentOrNull(use) };
    return { ...viewUser(snapshot, user), attributes: viewAttributes(user.attributes), ...last };
  });
  const head = ["USERNAME", "EMAIL", "STATE", "LAST LOGIN", "LAST USE", "ATTRIBUTES", "ACCESS"];
  printList(users, options, head, ({ username, email, disabled, ...last }) => [
    last.same_as === undefined ? username : `${username} (same person as ${last.same_as})`,
    email === null ? "-" : plainly(email),
    disabled ? "disabled" : "active",
    last.last_login ?? "-",
    last.last_use ?? "-",
    attributesInWords(snapshot.users.get(username)) ?? "-",
    entriesInWords(
      snapshot,
      userHolder(username),
      last.token_groups && "(and by groups of the token)",
    ),
  ]);
}

async function act(
  { plan, needsPassword, unlocks, command }: AccountAction,
  username: string,
  options: CommonOptions,
): Promise<void> {
  const loaded = loadFor(options);
  const { configuration } = loaded;
  if (unlocks === "only") {
    const snapshot = await readAccess(loaded);
    const about = { holder: userHolder(username), snapshot };
    await naming(about, async () => plan(snapshot, "operator", { username }, configuration));
    await unlock(loaded, username);
    await noteChanges(loaded, [unlockedUser(username)]);
    return print(command.done(username, undefined));
  }
  let wasDisabled = false;
  const planWith = (input: { passwordHash?: string }) => (current: Snapshot) => {
    wasDisabled = current.users.get(username)?.disabled === true;
    return plan(current, "operator", { username, ...input }, configuration);
  };
  let input = {};
  if (needsPassword) {
    const snapshot = await readAccess(loaded);
    await naming({ holder: userHolder(username), snapshot }, async () => planWith(input)(snapshot));
    const question = `Password for ${username}:`;
    input = { passwordHash: await readNewHash(question, options, configuration) };
  }
  const { users } = await changeAccess(
    loaded,
    { holder: userHolder(username) },
    planWith(input),
    options,
  );
  // A user disabled by a manual edit may still have tokens, which would work again after another.
  const user = users.get(username);
  if (wasDisabled && user?.disabled)
    await (await revocationStore(loaded)).revokeUser(username, latestIssue(user));
  if (unlocks && user?.passwordHash !== undefined) {
    await unlock(loaded, username).catch((error: unknown) =>
      warn(`failed logins of ${username} could not be cleared: ${explain(error)}`),
    );
  }
  print(command.done(username, user));
}

function readAttributeOption(text: string, earlier: Attributes = new Map()): Attributes {
  const attribute = readAttribute(text);
  if (attribute === undefined) {
    throw new InvalidArgumentError(
      "Allowed: <name>=<value>, such as tenant=acme, level=3 or 'regions=(eu, us)'. A name has letters, digits, _ and -, and is not username. Quote text of more than one word.",
    );
  }
  if (earlier.has(attribute[0])) throw new InvalidArgumentError("This attribute is given twice.");
  return new Map([...earlier, attribute]);
}

async function set(username: string, options: UserOptions): Promise<void> {
  const { attribute, removeAttribute = [] } = options;
  const email = options.email === false ? null : options.email;
  const sameAs = options.sameAs === false ? null : options.sameAs;
  if (typeof email === "string" && !isEmail(email)) throw new Refusal("invalid_email");
  if (typeof sameAs === "string" && !isAnyUsername(sameAs)) throw new Refusal("invalid_username");
  const areChanged = attribute !== undefined || removeAttribute.length > 0;
  if (email === undefined && sameAs === undefined && !areChanged) {
    throw new UsageError(
      "nothing to set; use --email, --no-email, --attribute, --remove-attribute, --same-as or --no-same-as",
    );
  }
  const both = removeAttribute.find((name) => attribute?.has(name));
  if (both !== undefined)
    throw new UsageError(`the attribute ${both} cannot be both set and removed`);
  const loaded = loadFor(options);
  let isChanged = false;
  const plan: Plan = (current) => {
    const user = current.users.get(username);
    const attributes = new Map(user?.attributes);
    for (const name of removeAttribute) {
      if (attributes.delete(name) || user === undefined) continue;
      const known = [...attributes.keys()].join(", ") || "none";
      throw new Error(`${username} has no attribute ${name}; it has: ${known}`);
    }
    for (const [name, value] of attribute ?? []) attributes.set(name, value);
    const patch = { username, email, sameAs, attributes: areChanged ? attributes : undefined };
    const changes = actions.patchUser.plan(current, "operator", patch, loaded.configuration);
    isChanged = changes.length > 0;
    return changes;
  };
  const { users } = await changeAccess(loaded, { holder: userHolder(username) }, plan);
  const user = users.get(username);
  const known = attributesInWords(user);
  const attributes = known === undefined ? "no attributes" : `attributes ${known}`;
  const same = user?.sameAs === undefined ? "" : ` It is the same person as ${user.sameAs}.`;
  const state = `${username} has ${user?.email ?? "no email"} and ${attributes}.${same}`;
  print(isChanged ? state : `${state} Nothing was changed.`);
}

const help = `
add             add a user
  <username>    1 to 64 of letters, digits, . _ - @; for an external user <prefix>:<username>
  --email <email>  the user's email address
  --attribute <name=value>  an attribute for row filters, such as tenant=acme or 'regions=(eu, us)'; may be repeated
  --admin       make the user an administrator, which is Owner of every database
  --password-stdin  read the password from standard input
  --no-password  add the user without a password, for machines and external users
list --json     list users with their state, their entries and those of their local groups
set <username>  set a user's email, the attributes for row filters, and another name of the same person
  --email <email>  the new email address
  --no-email    remove the email address
  --attribute <name=value>  an attribute for row filters, such as tenant=acme or 'regions=(eu, us)'; may be repeated
  --remove-attribute <names>  remove these attributes, such as tenant,level
  --same-as <username>  another name of the same person, such as staff:ann: one cannot approve queries of the other
  --no-same-as  remove the other name
`;

function actionCommand([name, action]: readonly [string, AccountAction]): Command {
  const { needsPassword, command } = action;
  const options = `${needsPassword ? " --password-stdin" : ""}${command.hasForce ? " --force" : ""}`;
  const run = (username: string, options: CommonOptions) => act(action, username, options);
  return defineCommand(`${name} <username>${options}  ${command.description}`, { [name]: run });
}

export function userCommand(): Command {
  const refinements = {
    attribute: { add: readAttributeOption },
    removeAttribute: { add: readNames },
    password: { conflicts: "passwordStdin" },
  };
  const commands = defineCommands(help, { add: addUser, list, set }, refinements);
  const actions = Object.entries(accountActions).map(actionCommand);
  return commandGroup("user", "add, list, change and remove users", [...commands, ...actions]);
}
