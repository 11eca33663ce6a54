import { outranks } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";

/** What differs between two states of the access file, as names that a log may show. */
export interface AccessDiff {
  usersAdded: string[];
  usersRemoved: string[];
  /** Records whose password, email, state or token limit changed. */
  usersChanged: string[];
  grantsAdded: string[];
  grantsRemoved: string[];
  grantsRaised: string[];
  grantsLowered: string[];
}

function compareUsers(before: Snapshot, after: Snapshot, diff: AccessDiff): void {
  for (const [name, user] of after.users) {
    const old = before.users.get(name);
    if (old === undefined) diff.usersAdded.push(name);
    else if (
      old.passwordHash !== user.passwordHash ||
      old.email !== user.email ||
      old.disabled !== user.disabled ||
      old.tokensValidAfter !== user.tokensValidAfter
    ) {
      diff.usersChanged.push(name);
    }
  }
  for (const name of before.users.keys()) if (!after.users.has(name)) diff.usersRemoved.push(name);
}

function compareGrants(before: Snapshot, after: Snapshot, diff: AccessDiff): void {
  for (const [name, grants] of after.grants) {
    const old = grantsOf(before, name);
    for (const [database, role] of grants) {
      const was = old.get(database);
      const entry = `${name} ${database} ${role}`;
      if (was === undefined) diff.grantsAdded.push(entry);
      else if (outranks(role, was)) diff.grantsRaised.push(entry);
      else if (outranks(was, role)) diff.grantsLowered.push(entry);
    }
  }
  for (const [name, grants] of before.grants) {
    const current = grantsOf(after, name);
    for (const [database, role] of grants) {
      if (!current.has(database)) diff.grantsRemoved.push(`${name} ${database} ${role}`);
    }
  }
}

/** What changed from `before` to `after`; a grant reads `user database role`. */
export function diffSnapshots(before: Snapshot, after: Snapshot): AccessDiff {
  const diff: AccessDiff = {
    usersAdded: [],
    usersRemoved: [],
    usersChanged: [],
    grantsAdded: [],
    grantsRemoved: [],
    grantsRaised: [],
    grantsLowered: [],
  };
  compareUsers(before, after, diff);
  compareGrants(before, after, diff);
  return diff;
}
