import { setTimeout as delay } from "node:timers/promises";
import type { AccessRules, ReloadEvent } from "../access/access-rules.ts";
import type { User } from "../access/snapshot.ts";
import { epochSeconds } from "../base/clock.ts";
import { credentialOf } from "./authenticate.ts";
import type { LiveRevocations } from "./revocations.ts";

/** A file that is written in pieces briefly lacks its end, and a revocation cannot be undone. */
const CONFIRM_AFTER_MS = 2000;
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
    return after === undefined || credentialOf(after) !== credentialOf(before) ? [before] : [];
  });
}

/** Users who were enabled or got another password, so that earlier failed logins do not count. */
export function usersUnlockedBy({ previous, snapshot, diff }: Loaded): string[] {
  return diff.usersChanged.filter((name) => {
    const [before, after] = [previous, snapshot].map(({ users }) => users.get(name));
    if (before === undefined || after === undefined) return false;
    return credentialOf(before) !== credentialOf(after) || (before.disabled && !after.disabled);
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
    revocations.revokeUser(username, before).catch((error: unknown) => onFailure(username, error));
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
      const before = epochSeconds() + (is ? 1 : 0);
      schedule((turn - 1) * TURN_MS, () => {
        if (revocations.earliestIssue(username) < before) revoke(username, before);
      });
    }
  }

  function revokeIfConfirmed(user: User, earliest: number, before: number): void {
    const { username } = user;
    const now = access.snapshot.users.get(username);
    const isUndone = now !== undefined && credentialOf(now) === credentialOf(user);
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
      const before = Math.max(epochSeconds(), earliest) + 1;
      schedule(confirmAfterMs, () => revokeIfConfirmed(user, earliest, before));
    }
    known = latest;
  });
  return () => stopped.abort();
}
