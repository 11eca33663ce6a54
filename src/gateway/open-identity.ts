import { openAccessFile } from "../access/access-file.ts";
import type { AccessRules, Plan } from "../access/access-rules.ts";
import { type Change, usernameOf } from "../access/change.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { makeHandEditsLast } from "../identity/hand-edits.ts";
import { configuredCosts } from "../identity/hash.ts";
import { keyFilesIn, keysDirectoryOf } from "../identity/key-file.ts";
import { type LiveKeyRing, openLiveKeyRing } from "../identity/key-ring.ts";
import type { LoginContext } from "../identity/login.ts";
import { openRevocations } from "../identity/revocation-file.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import { type CountingTokenAuthority, createTokenAuthority } from "../identity/token.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import { type ChangeJournal, openChangeJournal } from "./change-journal.ts";
import { changeNotesOf } from "./change-notes.ts";
import { describeChanges } from "./change-records.ts";
import { knownDatabases } from "./own-engine.ts";
import { reportReload, warnOfOddities } from "./reload-report.ts";
import type { Membership, Shared } from "./shared.ts";

/** Opens the access file, whose reloads are told of, and puts its closing on the stack. */
export async function openAccess(
  loaded: LoadedConfiguration,
  observers: { log: Log; audit: Audit; metrics: Metrics },
  member: Membership | undefined,
  opened: AsyncDisposableStack,
): Promise<AccessRules> {
  const { auth } = loaded.configuration;
  const records = { ...observers, databases: () => knownDatabases(loaded) };
  const access = await openAccessFile(auth.access_control_file, {
    checkRead: auth.check_permissions,
    ...(member === undefined ? {} : { tellOthers: () => member.tellOthers("access") }),
  });
  access.subscribe((event) => reportReload(records, event));
  opened.defer(() => access.close());
  records.metrics.reloaded(access.snapshot.version);
  await warnOfOddities(records, access.snapshot);
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
  readonly tokens: CountingTokenAuthority;
  readonly login: LoginContext;
}

/** What an error may show in a log. */
function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "unknown";
}

/** What identity rests on. */
export interface IdentityBase {
  readonly access: AccessRules;
  readonly changes: ChangeJournal;
  readonly shared: Shared;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Set if other processes serve the same gateway. */
  readonly member: Membership | undefined;
}

/** Opens keys and revocations, and puts their closing on the stack. */
export async function openIdentity(
  { configuration, serviceDirectory }: LoadedConfiguration,
  { access, changes, shared, log, metrics, member }: IdentityBase,
  opened: AsyncDisposableStack,
): Promise<Identity> {
  const { auth } = configuration;
  const checkRead = { checkRead: auth.check_permissions };
  const directory = keysDirectoryOf(serviceDirectory);
  const keys = await openLiveKeyRing(keyFilesIn(directory, checkRead), {
    algorithm: auth.signing_algorithm,
    // A process that is started in the place of another must not sign by keys of its own.
    mayMake: member?.isFirst ?? true,
    onReplaced: () => log.warn({ directory }, "no signing keys: made anew, earlier tokens end"),
    onReload() {
      metrics.keysReloaded(true);
      log.info({ signer: keys.ring.signer.kid }, "signing keys reloaded");
    },
    onFailure(error) {
      metrics.keysReloaded(false);
      const reason = reasonOf(error);
      log.error({ reason }, "signing keys refused: the last good ones stay in force");
    },
  });
  metrics.keysReloaded(true);
  opened.defer(() => keys.close());
  const revocations = await openRevocations(auth.revocations_file, {
    ...checkRead,
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
  opened.defer(() => revocations.close());
  const stop = makeHandEditsLast(access, revocations, {
    turn: member?.number,
    onFailure: (user, error) =>
      log.error({ user, reason: reasonOf(error) }, "tokens could not be revoked for good"),
  });
  opened.defer(stop);
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
