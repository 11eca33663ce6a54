/** What follows a reload: reports, and the end of tokens after edits by hand. */

import { setTimeout as delay } from "node:timers/promises";
import type { AccessRules, ReloadEvent } from "../access/access-rules.ts";
import { greatestStandings, standing } from "../access/administration.ts";
import { type DiffItem, describeItem } from "../access/diff.ts";
import { groupOf, holderText } from "../access/grant.ts";
import { callerFor } from "../access/groups.ts";
import { holdersWithoutRecord } from "../access/parse.ts";
import { findCaseConflicts, isAdministrator } from "../access/policy.ts";
import { latestIssue } from "../access/record-change.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { accountObstacle, type Snapshot, type User } from "../access/snapshot.ts";
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

type Loaded = Extract<ReloadEvent, { kind: "loaded" }>;

/** Users whose tokens the reload invalidated: they were removed or got another password. */
function endedBy({ previous, snapshot, diff }: Loaded): User[] {
  return [...diff.usersRemoved, ...diff.usersChanged].flatMap((name) => {
    const before = previous.users.get(name);
    const after = snapshot.users.get(name);
    if (before === undefined) return [];
    return after === undefined || passwordFingerprint(after) !== passwordFingerprint(before)
      ? [before]
      : [];
  });
}

/** Users who were added, enabled or got another password, so that earlier failed logins do not count. */
export function usersUnlockedBy({ previous, snapshot, diff }: Loaded): string[] {
  return [...diff.usersAdded, ...diff.usersChanged].filter((name) => {
    const [before, after] = [previous, snapshot].map(({ users }) => users.get(name));
    if (before === undefined || after === undefined) return true;
    return (
      passwordFingerprint(before) !== passwordFingerprint(after) ||
      (before.disabled && !after.disabled)
    );
  });
}

/**
 * Revokes the tokens of users whom an edit of the access file removes, disables or gives another
 * password. The tokens then stay refused after the edit is undone.
 *
 * @param turn number of this worker, from 1
 * @returns a function that stops pending revocations
 */
export function revokeOnHandEdits(
  access: AccessRules,
  revocations: LiveRevocations,
  turn: number,
  onFailure: (username: string, error: unknown) => void,
): () => void {
  const confirmAfterMs = CONFIRM_AFTER_MS + (Math.min(turn, MAX_TURNS) - 1) * TURN_MS;
  const stopped = new AbortController();
  let known = revocations.users;
  /** Users disabled before this process started, perhaps by an edit that no gateway has seen. */
  const disabledAtStart = new Set<string>();
  for (const { username, disabled } of access.snapshot.users.values()) {
    if (disabled) disabledAtStart.add(username);
  }

  function schedule(delayMs: number, work: () => void): void {
    delay(delayMs, undefined, { signal: stopped.signal }).then(work, () => {});
  }

  function revoke(username: string, before: number): void {
    revocations
      .revokeUserBefore(username, before)
      .catch((error: unknown) => onFailure(username, error));
  }

  /** Needs no confirmation, since no partially written file disables a user. */
  function revokeDisabled({ previous, snapshot, diff }: Loaded): void {
    for (const username of [...diff.usersAdded, ...diff.usersRemoved, ...diff.usersChanged]) {
      const was = previous.users.get(username)?.disabled === true;
      const is = snapshot.users.get(username)?.disabled === true;
      const isEnabled = was && !is && disabledAtStart.delete(username);
      if (!isEnabled && (was || !is)) continue;
      // A login in this second may follow the enabling, so it stays valid. No login can follow the
      // disabling.
      const latest = is ? latestIssue(previous.users.get(username)) + 1 : 0;
      const before = Math.max(epochSeconds() + (is ? 1 : 0), latest);
      schedule((turn - 1) * TURN_MS, () => {
        if (revocations.earliestIssue(username) < before) revoke(username, before);
      });
    }
  }

  function revokeIfConfirmed(user: User, earliest: number, before: number): void {
    const { username } = user;
    const now = access.snapshot.users.get(username);
    const isUndone = now !== undefined && passwordFingerprint(now) === passwordFingerprint(user);
    if (isUndone || (revocations.users.get(username) ?? 0) > earliest) return;
    revoke(username, before);
  }

  access.subscribe((event) => {
    if (event.kind === "failed") return;
    revokeDisabled(event);
    const latest = revocations.users;
    for (const user of endedBy(event)) {
      const earliest = latest.get(user.username) ?? 0;
      // Programs revoke before they write the file, so these tokens are already revoked.
      if (earliest > (known.get(user.username) ?? 0)) continue;
      // Includes tokens issued in this second.
      const before = Math.max(epochSeconds(), earliest, latestIssue(user)) + 1;
      schedule(confirmAfterMs, () => revokeIfConfirmed(user, earliest, before));
    }
    known = latest;
  });
  return () => stopped.abort();
}
