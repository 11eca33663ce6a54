import type { AccessRules, ReloadEvent } from "../access/access-rules.ts";
import type { User } from "../access/snapshot.ts";
import { epochSeconds } from "../clock.ts";
import { credentialOf } from "./authenticate.ts";
import type { LiveRevocations } from "./revocations.ts";

/**
 * Milliseconds after which a hand edit counts as meant: a file that is written in pieces lacks its
 * end for a moment, and a token that is revoked stays revoked.
 */
const MEANT_AFTER_MS = 2000;
/** Milliseconds between the turns of processes that all see the same edit. */
const TURN_MS = 500;
/** Turns that there are; one process is enough, and the others stand in for it. */
const TURNS = 4;

interface HandEditOptions {
  /** When it is this process's turn, among those that see the same edit; from 1. */
  readonly turn?: number | undefined;
  /** Told when a revocation could not be written. */
  readonly onFailure: (username: string, error: unknown) => void;
}

type Loaded = Extract<ReloadEvent, { kind: "loaded" }>;

/** Users whose tokens a reload has ended: removed, or given another password. */
function endedBy({ previous, snapshot, diff }: Loaded): User[] {
  return [...diff.usersRemoved, ...diff.usersChanged].flatMap((name) => {
    const before = previous.users.get(name);
    const after = snapshot.users.get(name);
    if (before === undefined) return [];
    return after === undefined || credentialOf(after) !== credentialOf(before) ? [before] : [];
  });
}

/**
 * Keeps what hand edits of the access file end from coming back. The tokens of a user who is gone,
 * disabled or has another password are refused anyway; a revocation keeps them refused when the
 * edit is undone.
 *
 * @returns ends the watching
 */
export function makeHandEditsLast(
  access: AccessRules,
  revocations: LiveRevocations,
  { turn = 1, onFailure }: HandEditOptions,
): () => void {
  const meantAfter = MEANT_AFTER_MS + (Math.min(turn, TURNS) - 1) * TURN_MS;
  const timers = new Set<NodeJS.Timeout>();
  let known = revocations.users;
  /** Disabled before this process started, perhaps by an edit that no gateway has seen. */
  const disabledAtStart = new Set<string>();
  for (const { username, disabled } of access.snapshot.users.values()) {
    if (disabled) disabledAtStart.add(username);
  }

  function schedule(delayMs: number, work: () => void): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      work();
    }, delayMs);
    timers.add(timer);
  }

  function revoke(username: string, before: number): void {
    revocations.revokeUser(username, before).catch((error: unknown) => onFailure(username, error));
  }

  /** Unlike a missing record, `disabled` is never the look of a file that is written in pieces. */
  function revokeDisabled({ previous, snapshot, diff }: Loaded): void {
    for (const username of [...diff.usersAdded, ...diff.usersRemoved, ...diff.usersChanged]) {
      const was = previous.users.get(username)?.disabled === true;
      const is = snapshot.users.get(username)?.disabled === true;
      const isEnabled = was && !is && disabledAtStart.delete(username);
      if (!isEnabled && (was || !is)) continue;
      // A login of this very second may have come after the enabling, and none after a disabling.
      const before = epochSeconds() + (is ? 1 : 0);
      schedule((turn - 1) * TURN_MS, () => {
        if (revocations.earliestIssue(username) < before) revoke(username, before);
      });
    }
  }

  function revokeIfMeant(user: User, earliest: number, before: number): void {
    const { username } = user;
    const now = access.snapshot.users.get(username);
    const isUndone = now !== undefined && credentialOf(now) === credentialOf(user);
    // Whoever has revoked since then has ended the same tokens.
    if (isUndone || (revocations.users.get(username) ?? 0) > earliest) return;
    revoke(username, before);
  }

  access.subscribe((event) => {
    if (event.kind === "failed") return;
    revokeDisabled(event);
    const latest = revocations.users;
    for (const user of endedBy(event)) {
      const earliest = latest.get(user.username) ?? 0;
      // Machines revoke before they write the file: what they end has ended already.
      if (earliest > (known.get(user.username) ?? 0)) continue;
      // Tokens of this very second are among those that have ended.
      const before = Math.max(epochSeconds(), earliest) + 1;
      schedule(meantAfter, () => revokeIfMeant(user, earliest, before));
    }
    known = latest;
  });
  return () => {
    for (const timer of timers) clearTimeout(timer);
  };
}
