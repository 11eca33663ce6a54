/** What follows a reload: reports, and the end of tokens after edits by hand. */

import { setTimeout as delay } from "node:timers/promises";
import type { AccessRules, ReloadEvent } from "../access/access-rules.ts";
import { greatestStandings, standing } from "../access/administration.ts";
import { type DiffItem, describeItem } from "../access/diff.ts";
import { groupOf, holderText, type User } from "../access/grant.ts";
import { callerFor } from "../access/groups.ts";
import { holdersWithoutRecord } from "../access/parse.ts";
import { findCaseConflicts, isAdministrator } from "../access/policy.ts";
import { latestIssue } from "../access/record-change.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { accountObstacle, type Snapshot } from "../access/snapshot.ts";
import { epochSeconds } from "../base/clock.ts";
import { runCooperatively, type Steps } from "../base/cooperative-scheduling.ts";
import type { ConfigurationReload } from "../config/reload.ts";
import type { Configuration } from "../config/schema.ts";
import { passwordFingerprint } from "../identity/authenticate.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";

interface ReloadRecords {
  readonly log: Log;
  readonly audit: Audit;
  readonly metrics: Metrics | undefined;
  readonly databases: () => readonly string[];
  readonly configuration: Pick<Configuration, "auth" | "issuers">;
}

const MAX_LISTED = 100;

function firstItems(lists: Record<string, readonly DiffItem[]>): Record<string, unknown> {
  const more: Record<string, number> = {};
  const listed = Object.entries(lists).flatMap(([kind, items]) => {
    if (items.length > MAX_LISTED) more[kind] = items.length - MAX_LISTED;
    return items.length === 0 ? [] : [[kind, items.slice(0, MAX_LISTED).map(describeItem)]];
  });
  return { ...Object.fromEntries(listed), ...(Object.keys(more).length === 0 ? {} : { more }) };
}

/** Warns unless a user with an own entry can administer, and says which groups do. */
export function* administratorWarning(
  snapshot: Snapshot,
  { auth, issuers }: ReloadRecords["configuration"],
): Steps<string | undefined> {
  if (!auth.enabled) return undefined;
  const findIssuer = (name: string) => issuers.find(({ prefix }) => name.startsWith(`${prefix}:`));
  const signsIn = (username: string) => findIssuer(username)?.login !== undefined;
  const standings = yield* greatestStandings(snapshot, auth.passwords ? undefined : signsIn);
  if (standings.get(EVERY_DATABASE) === standing.byOwnEntry) return undefined;
  const administers = (username: string) =>
    accountObstacle(snapshot, username) === undefined &&
    isAdministrator(snapshot, { username }) &&
    (auth.passwords || signsIn(username));
  const groups = snapshot.grants.keys().flatMap((holder) => {
    const group = groupOf(holder);
    if (group === undefined || !isAdministrator(snapshot, callerFor(holder))) return [];
    const members = snapshot.groups.get(group)?.members;
    const isOfTokens = findIssuer(group)?.groups_claim !== undefined;
    const isEntered = auth.passwords || findIssuer(group)?.login !== undefined;
    return (members?.some(administers) ?? (isOfTokens && isEntered)) ? [group] : [];
  });
  const names = [...groups].join(", ");
  if (names !== "") {
    return `no user who can log in is permanently Owner of * by an entry of their own; administrators are only members of groups: ${names}`;
  }
  return auth.passwords
    ? "no administrator can log in: no user with a password is permanently Owner of *"
    : "no administrator can sign in: auth.passwords is false, and no user or group of an issuer with login is Owner of *";
}

/** Warns about valid rules that may not mean what was intended. */
export async function warnOfSuspiciousRules(
  { log, databases, configuration }: Pick<ReloadRecords, "log" | "databases" | "configuration">,
  snapshot: Snapshot,
): Promise<void> {
  const warning = await runCooperatively(administratorWarning(snapshot, configuration));
  if (warning !== undefined) log.warn(warning);
  const holders = await runCooperatively(holdersWithoutRecord(snapshot));
  const names = holders.map(holderText);
  if (names.length > 0)
    log.warn(firstItems({ names }), "the access file has grants for names without a record");
  for (const conflict of findCaseConflicts(snapshot, databases())) {
    log.warn(
      conflict,
      "the access file spells a database in a different case: everyone is denied access to it",
    );
  }
}

export function reportReload(records: ReloadRecords, event: ReloadEvent): void {
  const { log, audit, metrics } = records;
  if (event.kind === "failed") {
    const { file, problems } = event;
    for (const { line, reason } of problems) {
      log.error({ file, line, reason }, "access file refused: the last good state stays in force");
      audit.event("access file refused", { file, line, reason }, "error");
    }
    metrics?.reloadFailed();
    return;
  }
  const { snapshot, diff } = event;
  const changes = firstItems({ ...diff });
  log.info({ version: snapshot.version, ...changes }, "access file reloaded");
  metrics?.reloaded(snapshot.version);
  void warnOfSuspiciousRules(records, snapshot);
}

export function reloadFailure(reload: ConfigurationReload): string | undefined {
  if (reload.kind !== "refused") return undefined;
  return reload.problems
    .map(({ line, reason }) => (line === undefined ? reason : `line ${line}: ${reason}`))
    .join("; ");
}

export function reportConfiguration(log: Log, reload: ConfigurationReload): void {
  if (reload.kind === "refused") {
    for (const { source: file, line, key, reason } of reload.problems) {
      const what = { file, line, key, reason };
      log.error(what, "configuration refused: the last good state stays in force");
    }
    return;
  }
  if (reload.kind === "found") {
    const { file } = reload;
    log.warn({ file }, "a configuration file was created: restart to apply it");
    return;
  }
  const { changes } = reload;
  const changed = changes.filter(({ isLive }) => isLive).map(({ text }) => text);
  if (changed.length > 0) log.info({ changed }, "configuration reloaded");
  else if (changes.length === 0) log.info("the configuration is valid again; nothing has changed");
  const keys = changes.filter(({ isLive }) => !isLive).map(({ text }) => text);
  if (keys.length > 0) log.warn({ keys }, "these configuration keys take effect after a restart");
}

/** A file that is written in pieces briefly lacks its end, and what ends then cannot be undone. */
export const CONFIRM_AFTER_MS = 2000;
/** Workers act one after the other. One suffices, and the others are its backup. */
const TURN_MS = 500;
const MAX_TURNS = 4;
const RETRY_MS = 2000;

type Loaded = Extract<ReloadEvent, { kind: "loaded" }>;

function hasSamePassword(one: User | undefined, other: User | undefined): boolean {
  if (one === undefined || other === undefined) return false;
  return passwordFingerprint(one) === passwordFingerprint(other);
}

/** Users who were added, enabled or got another password, so that earlier failed logins do not count. */
export function usersUnlockedBy({ previous, snapshot, diff }: Loaded): string[] {
  return [...diff.usersAdded, ...diff.usersChanged].filter((name) => {
    const [before, after] = [previous, snapshot].map(({ users }) => users.get(name));
    return !hasSamePassword(before, after) || (before?.disabled && !after?.disabled);
  });
}

/**
 * Revokes the tokens of users whom an edit of the access file removes, disables or gives another
 * password or `tokens_valid_after`. The tokens then stay refused after the edit is undone.
 *
 * @param turn number of this worker, from 1
 * @returns a function that makes pending revocations, for the stop of the gateway
 */
export function revokeOnHandEdits(
  access: AccessRules,
  revocations: LiveRevocations,
  turn: number,
  onFailure: (username: string, error: unknown) => void,
): () => Promise<void> {
  const confirmAfterMs = CONFIRM_AFTER_MS + (Math.min(turn, MAX_TURNS) - 1) * TURN_MS;
  const stopped = new AbortController();
  const pending = new Set<Promise<void>>();
  /** Revocations as they were one to two intervals ago, or at the last reload, and later ones. */
  let known = revocations.users;
  let recent = known;
  /** Users disabled before this process started, perhaps by an edit that no gateway has seen. */
  const disabledAtStart = new Set(
    [...access.snapshot.users.values()].flatMap((user) => (user.disabled ? user.username : [])),
  );

  /**
   * Revokes once, whichever worker comes first, and at once when the gateway stops. Tries again while
   * the revocation cannot be written.
   */
  function revoke(username: string, before: number, delayMs: number, isUndone = () => false): void {
    const earliest = revocations.earliestIssue(username);
    if (before <= earliest) return;
    const pause = (ms: number) => delay(ms, undefined, { signal: stopped.signal }).catch(() => {});
    const work = async () => {
      await pause(delayMs);
      if (isUndone()) return;
      for (let attempt = 1; revocations.earliestIssue(username) <= earliest; attempt++) {
        try {
          return await revocations.revoke({ user: username, before });
        } catch (error) {
          if (attempt === 1) onFailure(username, error);
        }
        if (stopped.signal.aborted) return;
        await pause(RETRY_MS);
      }
    };
    const done = work().finally(() => pending.delete(done));
    pending.add(done);
  }

  const sampling = setInterval(() => {
    known = recent;
    recent = revocations.users;
  }, CONFIRM_AFTER_MS);

  /**
   * The moment before which all tokens of a user were issued, those of this second included.
   * 0 if they have just been revoked, as programs do before they write the file.
   */
  function endOfTokens(username: string, user: User | undefined): number {
    const earliest = revocations.earliestIssue(username);
    if (earliest > (known.get(username) ?? 0)) return 0;
    return Math.max(epochSeconds(), earliest, latestIssue(user)) + 1;
  }

  /** Needs no confirmation, since no partially written file disables a user or raises a number. */
  function revokeAtOnce({ previous, snapshot, diff }: Loaded): void {
    for (const username of [...diff.usersAdded, ...diff.usersRemoved, ...diff.usersChanged]) {
      const user = previous.users.get(username);
      const { disabled: is = false, tokensValidAfter = 0 } = snapshot.users.get(username) ?? {};
      if (user !== undefined && tokensValidAfter > user.tokensValidAfter) {
        const before = Math.min(tokensValidAfter + 1, endOfTokens(username, user));
        revoke(username, before, (turn - 1) * TURN_MS);
      }
      const was = user?.disabled === true;
      const isEnabled = was && !is && disabledAtStart.delete(username);
      if (!isEnabled && (was || !is)) continue;
      // A login in this second may follow the enabling, so it stays valid. No login can follow the
      // disabling.
      const before = is ? endOfTokens(username, user) : epochSeconds();
      revoke(username, before, (turn - 1) * TURN_MS);
    }
  }

  access.subscribe((event) => {
    if (event.kind === "failed") return;
    revokeAtOnce(event);
    for (const username of [...event.diff.usersRemoved, ...event.diff.usersChanged]) {
      const user = event.previous.users.get(username);
      const isUndone = () => hasSamePassword(access.snapshot.users.get(username), user);
      if (!isUndone()) revoke(username, endOfTokens(username, user), confirmAfterMs, isUndone);
    }
    recent = revocations.users;
    known = recent;
  });
  return async () => {
    clearInterval(sampling);
    stopped.abort();
    await Promise.all(pending);
  };
}
