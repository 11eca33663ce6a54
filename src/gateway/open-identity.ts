import { existsSync } from "node:fs";
import { openAccessFile } from "../access/access-file.ts";
import type { AccessRules, Plan } from "../access/access-rules.ts";
import { type Change, usernameOf } from "../access/record-change.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { storesAccess } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { watchFile } from "../files/watch.ts";
import { makeHandEditsLast } from "../identity/hand-edits.ts";
import { configuredCosts } from "../identity/hash.ts";
import { keyFilesIn, keysDirectoryOf } from "../identity/key-file.ts";
import { type LiveKeyRing, openLiveKeyRing } from "../identity/key-ring.ts";
import type { LoginContext } from "../identity/login.ts";
import { openRevocations } from "../identity/revocation-file.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import { createTokenAuthority, type TokenAuthority } from "../identity/token.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { StoreReplica } from "../store/open.ts";
import { type ChangeJournal, openChangeJournal } from "./change-journal.ts";
import { changeNotesOf } from "./change-notes.ts";
import { describeChanges } from "./change-records.ts";
import { knownDatabases } from "./own-engine.ts";
import { reportReload, warnOfOddities } from "./reload-report.ts";
import type { Membership, Shared } from "./shared.ts";

/** With whom this process serves the gateway. */
interface Fellows {
  /** Set if other processes of this machine serve the same gateway. */
  readonly member: Membership | undefined;
  /** Set if replicas share what is decided by. */
  readonly store: StoreReplica | undefined;
}

/** Opens the rules where they are held. */
async function openRules(
  { configuration: { auth, store: settings } }: LoadedConfiguration,
  { member, store }: Fellows,
): Promise<AccessRules> {
  if (store !== undefined && settings.access === "store") return store.access;
  return openAccessFile(auth.access_control_file, {
    checkRead: auth.check_permissions,
    // Of several replicas each would change its own: the file is changed where it comes from.
    isReadOnly: store !== undefined,
    ...(member === undefined ? {} : { tellOthers: () => member.tellOthers("access") }),
  });
}

/** Opens the access rules, whose reloads are told of, and puts their closing on the stack. */
export async function openAccess(
  loaded: LoadedConfiguration,
  observers: { log: Log; audit: Audit; metrics: Metrics | undefined },
  fellows: Fellows,
  opened: AsyncDisposableStack,
): Promise<AccessRules> {
  const records = { ...observers, databases: () => knownDatabases(loaded) };
  const access = await openRules(loaded, fellows);
  access.subscribe((event) => reportReload(records, event));
  opened.defer(() => access.close());
  records.metrics?.reloaded(access.version);
  await warnOfOddities(records, access.snapshot);
  const { configuration } = loaded;
  if (storesAccess(configuration) && (fellows.member?.isFirst ?? true)) {
    const file = configuration.auth.access_control_file;
    const watch = watchFile(file, () => {
      if (existsSync(file)) {
        observers.log.warn(
          { file },
          "edits of this file are ignored: users and grants are in the store",
        );
      }
    });
    opened.defer(() => watch.close());
  }
  return access;
}

/** Opens the journal of changes, which follows the access file, and puts its closing on the stack. */
export function openChanges(
  { configuration, serviceDirectory }: LoadedConfiguration,
  {
    access,
    audit,
    log,
    member,
  }: Pick<IdentityBase, "access" | "log" | "member"> & { audit: Audit },
  opened: AsyncDisposableStack,
): ChangeJournal {
  const journal = openChangeJournal({
    audit,
    log,
    accessFile: configuration.auth.access_control_file,
    notes: changeNotesOf(serviceDirectory),
    isFirst: member?.isFirst ?? true,
  });
  access.subscribe((event) => journal.onReload(event));
  opened.defer(() => journal.close());
  return journal;
}

/** Changes that a login makes are the user's: a hash of higher costs. */
async function changeAsUser(
  { access, changes }: Pick<IdentityBase, "access" | "changes">,
  plan: Plan,
): Promise<Snapshot> {
  let planned: readonly Change[] = [];
  const written = await access.change((current) => {
    planned = plan(current);
    return planned;
  });
  changes.noteVersion(written.version);
  const [first] = planned;
  if (first !== undefined) {
    const author = { kind: "api", name: usernameOf(first) } as const;
    changes.write(author, describeChanges(planned), written.version);
  }
  return written;
}

/** All that tells who is calling. */
export interface Identity {
  readonly keys: LiveKeyRing;
  readonly revocations: LiveRevocations;
  readonly tokens: TokenAuthority;
  readonly login: LoginContext;
}

/** What an error may show in a log. */
function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}

/** What identity rests on. */
export interface IdentityBase extends Fellows {
  readonly access: AccessRules;
  readonly changes: ChangeJournal;
  readonly shared: Shared;
  readonly log: Log;
  readonly metrics: Metrics | undefined;
}

/** Opens the keys of login tokens. */
async function openKeys(
  { configuration: { auth }, serviceDirectory }: LoadedConfiguration,
  { store, member, log, metrics }: IdentityBase,
): Promise<LiveKeyRing> {
  const files = () =>
    keyFilesIn(keysDirectoryOf(serviceDirectory), { checkRead: auth.check_permissions });
  const held = store?.keys ?? files();
  const keys = await openLiveKeyRing(held, {
    algorithm: auth.signing_algorithm,
    // A process that is started in the place of another must not sign by keys of its own.
    mayMake: member?.isFirst ?? true,
    onReplaced: () =>
      log.warn({ place: held.place }, "no signing keys: made anew, earlier tokens end"),
    onReload() {
      metrics?.keysReloaded(true);
      log.info({ signer: keys.ring.signer.kid }, "signing keys reloaded");
    },
    onFailure(error) {
      metrics?.keysReloaded(false);
      const reason = reasonOf(error);
      log.error({ reason }, "signing keys refused: the last good ones stay in force");
    },
  });
  metrics?.keysReloaded(true);
  return keys;
}

/** Opens the file of revocations. */
function openRevokedTokens(
  { configuration: { auth } }: LoadedConfiguration,
  { member, log }: IdentityBase,
): Promise<LiveRevocations> {
  return openRevocations(auth.revocations_file, {
    checkRead: auth.check_permissions,
    ...(member === undefined ? {} : { tellOthers: () => member.tellOthers("revocations") }),
    onFailure: (error) =>
      log.error(
        { reason: reasonOf(error) },
        "revocations refused: the last good state stays in force",
      ),
    onLost: (count) =>
      log.warn(
        { file: auth.revocations_file, count },
        "the revocations file lacks what is in force: it stays so and is written back",
      ),
  });
}

/** Opens keys and revocations, and puts their closing on the stack. */
export async function openIdentity(
  loaded: LoadedConfiguration,
  base: IdentityBase,
  opened: AsyncDisposableStack,
): Promise<Identity> {
  const { configuration } = loaded;
  const { auth } = configuration;
  const { access, changes, shared, store, log, member } = base;
  const keys = await openKeys(loaded, base);
  opened.defer(() => keys.close());
  const revocations = store?.revocations ?? (await openRevokedTokens(loaded, base));
  opened.defer(() => revocations.close());
  if (store === undefined || configuration.store.access === "file") {
    const stop = makeHandEditsLast(access, revocations, {
      turn: member?.number,
      onFailure: (user, error) =>
        log.error({ user, reason: reasonOf(error) }, "tokens could not be revoked for good"),
    });
    opened.defer(stop);
  }
  const tokens = createTokenAuthority(() => keys.ring, auth.issuer);
  const costs = configuredCosts(configuration);
  const login: LoginContext = {
    snapshot: () => access.snapshot,
    revocations,
    change: (plan) => changeAsUser({ access, changes }, plan),
    tokens,
    throttle: shared.throttle,
    hashing: shared.hashing,
    costs,
    tokenLifetime: auth.token_expiration,
    onUpgradeFailed: (error) =>
      log.warn(
        { reason: reasonOf(error) },
        "a password hash could not be upgraded to the configured costs",
      ),
  };
  return { keys, revocations, tokens, login };
}
