/** Reads and changes a gateway's state, whether it runs or not. Rarely used parts load on demand. */

import { statSync } from "node:fs";
import type { Plan, VersionStep } from "../core/access/access-rules.ts";
import {
  describePlace,
  displayName,
  type Grant,
  groupOf,
  type Holder,
  hasExpired,
  holderName,
  holderText,
  userHolder,
} from "../core/access/grant.ts";
import { allEntries, callerFor } from "../core/access/groups.ts";
import { AccessFileError, readAccessFile } from "../core/access/parse.ts";
import { type Change, latestIssue, userLosingTokens } from "../core/access/record-change.ts";
import { isKnownHolder, type Snapshot } from "../core/access/snapshot.ts";
import { changeAccessFile } from "../core/access/write.ts";
import { isThere, nameOfUser, permissionProblem } from "../core/base/files/guarded.ts";
import { memoizeByObject } from "../core/base/memoize.ts";
import { invocation } from "../core/base/product.ts";
import { Refusal, type RefusalCode, refusals } from "../core/base/refusal.ts";
import { didYouMean } from "../core/base/suggestion.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import {
  changeNotesPath,
  describeChanges,
  noteStep,
  noteUnlocked,
  recordCommand,
} from "../core/http/change-records.ts";
import type { KeyStore } from "../core/identity/key-store.ts";
import type { RevocationStore } from "../core/identity/revocations.ts";
import type { IssuedToken } from "../core/identity/token.ts";
import type { TokenInventoryStore } from "../core/identity/token-file.ts";
import type { KnownActivity } from "../core/observe/activity.ts";
import type { AuditedChange, Author } from "../core/observe/audit-line.ts";
import type { Store, StoreOperator } from "../features/store/open.ts";
import { atEnd } from "./options.ts";
import { explain, warn } from "./output.ts";

interface About {
  readonly holder: Holder;
  readonly database?: string;
  /** Used to suggest similar names and to list the user's grants. */
  snapshot?: Snapshot;
}

function userNotFound({ holder, snapshot }: About): string {
  const username = holderText(holder);
  if (snapshot?.groups.has(username)) {
    return `User not found: ${username} is a group; for its entries, use --group ${username}`;
  }
  const hint = didYouMean(username, snapshot?.users.keys() ?? []);
  return `User not found: ${username}${hint || ` (\`${invocation} user list\` lists all users)`}`;
}

/** For an empty list of this user: an unknown name may be a typo. */
export function warnIfUnknown(snapshot: Snapshot, username: string): void {
  const holder = userHolder(username);
  if (!isKnownHolder(snapshot, holder)) warn(userNotFound({ holder, snapshot }));
}

/** For example `ReadOnly (expired)`. */
export function roleInWords(grant: Grant): string {
  return hasExpired(grant) ? `${grant.role} (expired)` : grant.role;
}

/** The entries of a user and of the user's local groups, or those of a group, then `more`. */
export function entriesInWords(snapshot: Snapshot, holder: Holder, more = ""): string {
  const entries = allEntries(snapshot, callerFor(holder)).map((grant) => {
    const entry = `${describePlace(grant)}:${roleInWords(grant)}`;
    return grant.holder === holder ? entry : displayName(entry, grant);
  });
  return [...entries, more].filter(Boolean).join(" ") || "-";
}

function grantNotFound({ holder, database = "*", snapshot }: About): string {
  const grants = snapshot && entriesInWords(snapshot, holder);
  const name = holderName(holder);
  const known = grants === undefined ? "" : ` (${name} has ${grants === "-" ? "none" : grants})`;
  return `Grant not found: ${name} on ${database}${known}`;
}

const messages: Partial<Record<RefusalCode, (about: About) => string>> = {
  user_not_found: userNotFound,
  group_not_found: ({ holder }) =>
    `Group not found: ${groupOf(holder)} (\`${invocation} group list\` lists all groups)`,
  user_exists: ({ holder }) => `User already exists: ${holderText(holder)}`,
  entry_narrowed: () => `${refusals.entry_narrowed[1]} with \`${invocation} access revoke\``,
  grant_not_found: grantNotFound,
  no_grant: grantNotFound,
  database_case_mismatch: (about) =>
    `${grantNotFound(about)}; the access file spells this database in another case`,
};

export function namedRefusal(code: RefusalCode, about: About): Refusal {
  return new Refusal(code, { message: messages[code]?.(about) });
}

/** Adds the user and the grant to a refusal, since a script may run many commands. */
export async function naming<T>(about: About, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refusal) || messages[error.code] === undefined) throw error;
    // A message of its own is about another name.
    if (error.message !== refusals[error.code][1]) throw error;
    throw namedRefusal(error.code, about);
  }
}

/** The store, which a command opens once and closes at its end. */
export const storeOf: (loaded: LoadedConfiguration) => Promise<Store> = memoizeByObject(
  async ({ configuration }) => {
    const { openStore } = await import("../features/store/open.ts");
    const store = await openStore(configuration);
    atEnd(() => store.close());
    return store;
  },
);

export const operatorOf: (loaded: LoadedConfiguration) => Promise<StoreOperator> = memoizeByObject(
  async (loaded) => {
    const { operateStore } = await import("../features/store/open.ts");
    return operateStore(await storeOf(loaded), warn);
  },
);

/** Undefined if all state is in files. */
export function openOperator(loaded: LoadedConfiguration): Promise<StoreOperator> | undefined {
  return loaded.configuration.store.url === undefined ? undefined : operatorOf(loaded);
}

function openAccessOperator(loaded: LoadedConfiguration): Promise<StoreOperator> | undefined {
  return loaded.configuration.store.access === "store" ? openOperator(loaded) : undefined;
}

/**
 * Changes users and grants as the operator, and returns the state as written. Revokes tokens by the
 * same rule as the HTTP API, so that restoring an older access file does not revive them.
 */
export function changeAccess(
  loaded: LoadedConfiguration,
  about: About,
  plan: Plan,
  { force = false }: { readonly force?: boolean } = {},
): Promise<Snapshot> {
  const { auth, store: settings } = loaded.configuration;
  const { access_control_file: file } = auth;
  const named = { ...about };
  return naming(named, async () => {
    const noted: Plan = (current) => {
      named.snapshot = current;
      return plan(current);
    };
    const beforeWrite = async (changes: readonly Change[], step?: VersionStep) => {
      const user = userLosingTokens(changes);
      if (user !== undefined) {
        const latest = latestIssue(named.snapshot?.users.get(user));
        await (await revocationStore(loaded)).revokeUser(user, latest);
      }
      if (step === undefined) return;
      await noteStep(changeNotesPath(loaded.serviceDirectory), step).catch((error: unknown) => {
        const reason = explain(error);
        warn(`a gateway's audit will contain this change as an edit of the file, too: ${reason}`);
      });
    };
    const options = { force, beforeWrite };
    const store = await openAccessOperator(loaded);
    if (store !== undefined) return (await store.access.change(noted, options)).snapshot;
    if (settings.url !== undefined) {
      const detail = `store.access is "file": edit ${file} at its source`;
      throw new Refusal("access_file_read_only", { detail });
    }
    // Its error says what creates the file.
    if (!isThere(file)) await readAccess(loaded);
    const { snapshot, changes } = await changeAccessFile(file, noted, options);
    if (changes.length === 0) return snapshot;
    await noteChanges(loaded, describeChanges(changes), snapshot.version);
    // A change keeps the file's mode, and a gateway rejects a file that others may read.
    const problem = permissionProblem(file, statSync(file), auth.check_permissions);
    if (problem !== undefined) {
      const { reason, remedy } = problem;
      warn(
        `gateways reject this file until it is fixed: ${file}: ${reason}; fix it with: ${remedy}`,
      );
    }
    return snapshot;
  });
}

/** Clears the failed logins of a user, in a running gateway or in the store. */
export async function unlock(loaded: LoadedConfiguration, username: string): Promise<void> {
  if (loaded.configuration.store.url === undefined) {
    return noteUnlocked(changeNotesPath(loaded.serviceDirectory), username);
  }
  const { PAIRS, pairEnding } = await import("../core/identity/throttle.ts");
  const { forgetCounts } = await import("../features/store/shared-counts.ts");
  const { database } = await storeOf(loaded);
  await forgetCounts(database.query, PAIRS, pairEnding(username));
}

/**
 * Records a command's changes for the audit. If that fails, the changes stay in force.
 *
 * @param written the version of the access file that the command wrote, if it did
 */
export async function noteChanges(
  loaded: LoadedConfiguration,
  changes: readonly AuditedChange[],
  written?: string,
): Promise<void> {
  const { configuration, serviceDirectory } = loaded;
  const author: Author = { kind: "cli", name: nameOfUser(process.getuid?.() ?? -1) };
  try {
    const files = { audit: configuration.audit.file, notes: changeNotesPath(serviceDirectory) };
    const unread = () => undefined;
    const found = written === undefined ? await readAccess(loaded).catch(unread) : undefined;
    await recordCommand(files, author, changes, { written, inForce: found?.version });
  } catch (error) {
    warn(`the change was made, but could not be written to the audit: ${explain(error)}`);
  }
}

/** @param options.checkRead also refuse a file that others may read; by default as configured */
export async function readAccess(
  loaded: LoadedConfiguration,
  { checkRead = loaded.configuration.auth.check_permissions } = {},
): Promise<Snapshot> {
  const store = await openAccessOperator(loaded);
  if (store !== undefined) return store.access.snapshot;
  const { auth } = loaded.configuration;
  const file = auth.access_control_file;
  try {
    return (await readAccessFile(file, { checkRead })).snapshot;
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
    if (loaded.configuration.store.url !== undefined) {
      throw new AccessFileError(file, [{ reason: "is missing: copy it here from its source" }]);
    }
    const { hasKeyFiles } = await import("../core/identity/key-file.ts");
    const command = `\`${invocation} user add <name> --admin\``;
    // Once there are keys, `serve` does not create it.
    const reason = hasKeyFiles(loaded.serviceDirectory)
      ? `is missing: restore it, or make a new one with ${command}`
      : `does not exist; the first \`${invocation} serve\` or ${command} creates it`;
    throw new AccessFileError(file, [{ reason }]);
  }
}

export async function revocationStore(loaded: LoadedConfiguration): Promise<RevocationStore> {
  const { auth } = loaded.configuration;
  const store = await openOperator(loaded);
  if (store !== undefined) return store.revocations;
  const { revocationsIn } = await import("../core/identity/revocations.ts");
  return revocationsIn(auth.revocations_file, { checkRead: auth.check_permissions });
}

export async function tokenInventory(loaded: LoadedConfiguration): Promise<TokenInventoryStore> {
  const store = await openOperator(loaded);
  if (store !== undefined) return store.inventory;
  const { inventoryIn, tokenFilePath } = await import("../core/identity/token-file.ts");
  const { check_permissions: checkRead } = loaded.configuration.auth;
  return inventoryIn(tokenFilePath(loaded.serviceDirectory), { checkRead });
}

/** The issued tokens that are still accepted, the newest first. */
export async function issuedTokens(loaded: LoadedConfiguration): Promise<IssuedToken[]> {
  const { acceptedTokens } = await import("../core/identity/token-file.ts");
  const tokens = (await (await tokenInventory(loaded)).read()).all();
  const snapshot = await readAccess(loaded);
  const revocations = await (await revocationStore(loaded)).read();
  const keys = new Set(await (await keyStore(loaded)).names());
  return acceptedTokens(tokens, { snapshot, revocations, hasKey: (kid) => keys.has(kid) });
}

export async function keyStore(loaded: LoadedConfiguration): Promise<KeyStore> {
  const { configuration, serviceDirectory } = loaded;
  const { auth } = configuration;
  const store = await openOperator(loaded);
  if (store !== undefined) return store.keys;
  const { keyFilesIn, keyDirectoryPath } = await import("../core/identity/key-file.ts");
  return keyFilesIn(keyDirectoryPath(serviceDirectory), { checkRead: auth.check_permissions });
}

export async function knownActivity(loaded: LoadedConfiguration): Promise<KnownActivity> {
  const { configuration, serviceDirectory } = loaded;
  if (configuration.store.url === undefined) {
    const { activityIn } = await import("../core/observe/activity.ts");
    return activityIn(serviceDirectory);
  }
  const { readActivity } = await import("../features/store/activity-table.ts");
  return readActivity((await storeOf(loaded)).database);
}
