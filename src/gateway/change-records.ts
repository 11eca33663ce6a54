/** Changes of users, grants and boundaries as the audit tells them. */

import type { AccessDiff } from "../access/diff.ts";
import type { Change } from "../access/record-change.ts";
import type { Grant } from "../access/snapshot.ts";
import type { AuditedChange } from "../observe/audit-line.ts";

/** The names of an entry, as decisions have them: `main`, or `main.tickets` for each of its tables. */
export function entryNames({ database, tables }: Grant): string[] {
  return tables?.map((table) => `${database}.${table}`) ?? [database];
}

function ofGrant(change: string, grant: Grant): AuditedChange {
  const { username: user, role } = grant;
  return { change, user, entry: entryNames(grant).join(","), role };
}

const fieldNames: Readonly<Record<string, string>> = {
  passwordHash: "password",
  tokensValidAfter: "tokens_valid_after",
};

function describe(change: Change): AuditedChange {
  switch (change.kind) {
    case "add-user":
      return { change: "user added", user: change.user.username };
    case "remove-user":
      return { change: "user removed", user: change.username };
    case "update-user": {
      const fields = Object.keys(change.update).map((key) => fieldNames[key] ?? key);
      return { change: "user changed", user: change.username, fields };
    }
    case "add-grant":
      return ofGrant("grant added", change.grant);
    case "set-grant":
      return ofGrant("grant changed", change.grant);
    case "remove-grant":
      return ofGrant("grant removed", change.grant);
  }
}

/** What a program was asked to change. */
export function describeChanges(changes: readonly Change[]): AuditedChange[] {
  return changes.map(describe);
}

/** A grant of a difference, which reads `user place role`. */
function ofWords(change: string, words: string): AuditedChange {
  const [user = "", ...rest] = words.split(" ");
  const role = rest.at(-1) ?? "";
  return { change, user, entry: rest.slice(0, -1).join(" "), role };
}

/** What differs after a file was edited. */
export function describeDiff(diff: AccessDiff): AuditedChange[] {
  const users = (change: string, names: readonly string[]) =>
    names.map((user) => ({ change, user }));
  const grants = (change: string, names: readonly string[]) =>
    names.map((words) => ofWords(change, words));
  const boundaries = (change: string, names: readonly string[]) =>
    names.map((boundary) => ({ change, boundary }));
  return [
    ...users("user added", diff.usersAdded),
    ...users("user removed", diff.usersRemoved),
    ...users("user changed", diff.usersChanged),
    ...grants("grant added", diff.grantsAdded),
    ...grants("grant removed", diff.grantsRemoved),
    ...grants("grant raised", diff.grantsRaised),
    ...grants("grant lowered", diff.grantsLowered),
    ...grants("grant changed", diff.grantsChanged),
    ...boundaries("boundary added", diff.boundariesAdded),
    ...boundaries("boundary removed", diff.boundariesRemoved),
  ];
}
