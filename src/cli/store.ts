import { existsSync, realpathSync } from "node:fs";
import { mkdir, readFile, rename, rm } from "node:fs/promises";
import path from "node:path";
import type { Command } from "commander";
import {
  ADMINISTRATOR,
  makeServiceDirectory,
  passwordFilePath,
  randomPassword,
} from "../app/service-directory.ts";
import { administratorGrant, planAddUser } from "../core/access/administration.ts";
import { unrestrictedGrant } from "../core/access/entries.ts";
import { type User, userHolder } from "../core/access/grant.ts";
import { readAccessFile } from "../core/access/parse.ts";
import { latestIssue } from "../core/access/record-change.ts";
import type { AccessRecords } from "../core/access/records.ts";
import { EVERY_DATABASE, isUsername } from "../core/access/roles.ts";
import { blankUser, ownGrants, type Snapshot } from "../core/access/snapshot.ts";
import { epochSeconds } from "../core/base/clock.ts";
import { isThere, replaceFile } from "../core/base/files/guarded.ts";
import { Refusal } from "../core/base/refusal.ts";
import { counted } from "../core/base/suggestion.ts";
import { storeName } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { passwordFingerprint } from "../core/identity/authenticate.ts";
import { configuredCosts, costsInUse } from "../core/identity/hash.ts";
import { keyDirectoryPath, keyFilesIn } from "../core/identity/key-file.ts";
import { ensureSigner } from "../core/identity/key-store.ts";
import { hashPassword, openPasswordRule, verifyPassword } from "../core/identity/password.ts";
import { readRevocations } from "../core/identity/revocations.ts";
import { inventoryIn, tokenFilePath } from "../core/identity/token-file.ts";
import { copyStateIn, stateDirectoryPath } from "../features/oauth/server/state-file.ts";
import { renderAccess, replaceAccess, replacementBy } from "../features/store/access-store.ts";
import { sealedQueries } from "../features/store/approval-database.ts";
import { importState, sealedRecords } from "../features/store/authorization-state.ts";
import type { Database } from "../features/store/database.ts";
import { addKeys, sealedKeys } from "../features/store/key-table.ts";
import { migrate } from "../features/store/migrations.ts";
import { connectStore, readStatus, type StoreOperator } from "../features/store/open.ts";
import { makeSecretLine, reencrypt, StoreKeyError } from "../features/store/secrets.ts";
import { loadWithStore } from "./access-versions.ts";
import { operatorOf, storeOf } from "./operator.ts";
import { type CommonOptions, commandGroup, defineCommands, loadFor } from "./options.ts";
import { explain, print, printJson, printList, warn } from "./output.ts";

async function addAdministrator(
  loaded: LoadedConfiguration,
  { access }: StoreOperator,
  username: string,
): Promise<void> {
  const { configuration } = loaded;
  const chosen = process.env.GATEHOUSE_ADMIN_PASSWORD || undefined;
  const password = chosen ?? randomPassword();
  (await openPasswordRule(configuration))(password);
  const file = passwordFilePath(loaded);
  const isKept = chosen === undefined && !process.stdout.isTTY;
  // Write the file first: an administrator with a lost password would lock everyone out.
  if (isKept) await replaceFile(file, `${password}\n`);
  const passwordHash = await hashPassword(password, configuredCosts(configuration));
  const user = { ...blankUser(username), passwordHash };
  const { changes } = await access.change((current) =>
    current.users.size > 0 ? [] : planAddUser(current, "operator", user, administratorGrant),
  );
  // Another replica has added it in the meantime, so the password opens nothing.
  if (changes.length === 0) return isKept ? rm(file, { force: true }) : undefined;
  print(`Added ${username}, an administrator.`);
  if (isKept) print(`The password is in ${file}. Log in, change it and delete the file.`);
  else if (chosen === undefined) print(`The password, shown only once, is ${password}`);
}

/** @returns true if the key file was missing */
async function createKeyFile(file: string, { query }: Database): Promise<boolean> {
  if (isThere(file)) return false;
  if ((await query("select 1 from gatehouse.keys limit 1")).length > 0) {
    throw new StoreKeyError(
      `${file} is missing, but the store contains keys encrypted with it; copy it from another replica`,
    );
  }
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  await replaceFile(file, `${makeSecretLine()}\n`);
  return true;
}

async function init(options: CommonOptions & { admin?: string }): Promise<void> {
  const loaded = loadFor(options);
  const { configuration } = loaded;
  const { admin = ADMINISTRATOR } = options;
  if (!isUsername(admin)) throw new Refusal("invalid_username");
  const { key_file: keyFile, access } = configuration.store;
  const database = connectStore(configuration);
  // The password of the administrator is written there at the end.
  await makeServiceDirectory(loaded.serviceDirectory);
  let migrations: number;
  let hasCreatedKeyFile: boolean;
  try {
    migrations = await migrate(database);
    hasCreatedKeyFile = await createKeyFile(keyFile, database);
  } finally {
    await database.close();
  }
  const operator = await operatorOf(loaded);
  await ensureSigner(operator.keys, configuration.auth.signing_algorithm);
  const name = storeName(configuration);
  print(
    migrations > 0 ? `Created the tables of ${name}.` : `The tables of ${name} are up to date.`,
  );
  if (hasCreatedKeyFile) print(`Created ${keyFile}. Copy it to every other replica, mode 0600.`);
  if (access === "file" || operator.access.snapshot.users.size > 0) return;
  await addAdministrator(loaded, operator, admin);
}

async function status(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const found = await readStatus((await storeOf(loaded)).database);
  if (options.json) return printJson(found);
  const { version, accessVersion, form, readableForm, migrations, knownMigrations } = found;
  print(`store       ${storeName(loaded.configuration)}`);
  print(`version     ${version}; users and grants as of ${accessVersion}`);
  print(`form        ${form}; this version reads up to ${readableForm}`);
  print(`migrations  ${migrations} of ${knownMigrations}`);
  const head = ["REPLICA", "SINCE", "FORM", "APPLIED", "LAG", "LEASE"];
  printList(found.replicas, {}, head, ({ name, since, form, applied, rest }) => [
    name,
    since.toISOString(),
    String(form),
    String(applied),
    String(version - applied),
    rest > 0 ? `${rest.toFixed(1)} s` : "expired",
  ]);
}

/** Imports everything from this host's service directory except users and grants. */
async function importOthers(loaded: LoadedConfiguration): Promise<void> {
  const { configuration, serviceDirectory } = loaded;
  const { auth } = configuration;
  const { database } = await storeOf(loaded);
  const { keys, revocations, inventory, authorization } = await operatorOf(loaded);
  const checkRead = { checkRead: auth.check_permissions };
  const revoked = await readRevocations(auth.revocations_file, checkRead);
  for (const revocation of revoked) await revocations.revoke(revocation);
  const issued = [...(await inventoryIn(tokenFilePath(serviceDirectory), checkRead).read()).all()];
  const lasting = issued.filter(({ expiresAt }) => expiresAt > epochSeconds());
  for (const token of lasting) await inventory.add(token);
  const directory = keyDirectoryPath(serviceDirectory);
  const imported = isThere(directory) ? await keyFilesIn(directory, checkRead).read() : [];
  await addKeys(keys, imported);
  const revocationCount = counted(revoked.length, "revocation");
  const tokenCount = counted(lasting.length, "issued token");
  print(
    `Imported ${revocationCount}, ${tokenCount} and ${counted(imported.length, "signing key")}.`,
  );
  const copy = await copyStateIn(stateDirectoryPath(serviceDirectory));
  if (copy === undefined) return;
  await importState(copy, authorization, database);
  const count = copy.records.filter(({ model }) => model === "Grant").length;
  print(
    `Imported the authorization server's state and keys, with ${counted(count, "connected app")}.`,
  );
}

/** Deletes the initial password file, unless an administrator still uses that password. */
async function removeInitialPassword(loaded: LoadedConfiguration, snapshot: Snapshot) {
  const file = passwordFilePath(loaded);
  if (!existsSync(file)) return;
  const password = (await readFile(file, "utf8")).trim();
  const costs = await costsInUse(snapshot, configuredCosts(loaded.configuration));
  for (const { username, passwordHash } of snapshot.users.values()) {
    const { role } =
      unrestrictedGrant(ownGrants(snapshot, userHolder(username)), EVERY_DATABASE) ?? {};
    if (role === "Owner" && (await verifyPassword(password, passwordHash, costs))) return;
  }
  await rm(file);
  print(`Removed ${file}, because no administrator uses its password any more.`);
}

/** Renames the imported access file, so that no one edits it by mistake. */
async function renameImported(file: string, { configuration }: LoadedConfiguration) {
  const { access_control_file: own } = configuration.auth;
  if (!existsSync(own) || realpathSync(own) !== realpathSync(file)) return;
  const renamed = `${own}.imported`;
  try {
    await rename(own, renamed);
    print(`Renamed ${own} to ${renamed}. Users and grants are now in the store.`);
  } catch (error) {
    warn(`cannot rename ${own}, which is ignored from now on: ${explain(error)}`);
  }
}

/**
 * Users who are gone, disabled or have another password in an import. Their tokens stay dead if
 * another one undoes it.
 */
function usersEnded({ users }: Snapshot, imported: AccessRecords): User[] {
  const left = new Map(imported.users.map((user) => [user.username, user]));
  // The administrator of `store init` may have the name of one whose tokens are imported.
  const isNew = users.size === 1;
  return [...users.values()].filter((user) => {
    const next = left.get(user.username);
    if (next === undefined || (next.disabled && !user.disabled)) return true;
    return !isNew && passwordFingerprint(next) !== passwordFingerprint(user);
  });
}

async function importFile(file: string, options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const { auth, store } = loaded.configuration;
  if (store.access === "file") {
    print(`Users and grants stay in ${auth.access_control_file}, since store.access is "file".`);
    return importOthers(loaded);
  }
  const { check_permissions: checkRead } = auth;
  const { records } = await readAccessFile(file, { checkRead, isImport: true });
  const operator = await operatorOf(loaded);
  let ended: readonly User[] = [];
  let known: Snapshot["users"] = new Map();
  const plan = (current: Snapshot) => {
    ended = usersEnded(current, records);
    known = current.users;
    return replacementBy(current, records);
  };
  const beforeWrite = async () => {
    const { revocations } = operator;
    for (const user of ended) await revocations.revokeUser(user.username, latestIssue(user));
    // What the earlier `tokens_valid_after` ended stays dead.
    for (const { username: user, tokensValidAfter } of records.users) {
      const { tokensValidAfter: earlier = 0 } = known.get(user) ?? {};
      if (earlier > tokensValidAfter) await revocations.revoke({ user, before: earlier + 1 });
    }
  };
  const force = options.force ?? false;
  const snapshot = await replaceAccess(operator, plan, { force, beforeWrite });
  const { users, grants } = snapshot;
  const imported = `${counted(users.size, "user")}, and entries of ${counted(grants.size, "name")}`;
  print(`The store now contains ${imported}, as ${file}.`);
  await importOthers(loaded);
  await removeInitialPassword(loaded, snapshot);
  await renameImported(file, loaded);
}

async function rekey(options: CommonOptions): Promise<void> {
  const { database, secrets } = await storeOf(loadFor(options));
  const keys = await reencrypt(database, secrets, sealedKeys);
  const records = await reencrypt(database, secrets, sealedRecords);
  const queries = await reencrypt(database, secrets, sealedQueries);
  const what = `${keys} signing keys, ${records} records of the authorization server and ${queries} queries of approvals`;
  print(`Encrypted ${what} with the first line of the key file.`);
}

async function exportAccess(options: CommonOptions): Promise<void> {
  process.stdout.write(renderAccess((await operatorOf(loadWithStore(options))).access.snapshot));
}

const help = `
init            create tables, key file, signing keys and the first administrator
  --admin <name>  the name of the first administrator (default: admin)
status --json   show the store's version and which replicas have applied it
import --force  replace the store's users, grants and boundaries with those of an access file, and add this host's revocations, issued tokens, signing keys and connected apps
  <file>        the access file
export          print users, grants and boundaries as an access file, including password hashes
rekey           encrypt the store's secrets again with the first line of store.key_file
`;

export function storeCommand(): Command {
  const runs = { init, status, import: importFile, export: exportAccess, rekey };
  const commands = defineCommands(help, runs);
  return commandGroup("store", "create, fill and inspect the store that replicas share", commands);
}
