/** Lint of valid access files: entries that may not mean what was intended. */

import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { entriesAt, entriesIn, type UserGrants } from "./entries.ts";
import { type Boundary, type Grant, type Limits, placeOf, type RowCondition } from "./grant.ts";
import { boundaryName, otherSpellingOf } from "./rights.ts";
import { isExternalUsername, roleAllows } from "./roles.ts";
import { attributeReference } from "./row-filter.ts";
import { grantsOf, type Snapshot, type User } from "./snapshot.ts";

function beyond(names: readonly string[] = [], allowed: readonly string[] | undefined): string {
  const outside = allowed === undefined ? [] : names.filter((name) => !allowed.includes(name));
  return outside.map((name) => JSON.stringify(name)).join(", ");
}

/** Explains why a condition denies everything: the user's record lacks a matching attribute. */
function missingAttribute({ cmp, value }: RowCondition, user: User | undefined) {
  if (typeof value !== "string" || !attributeReference.test(value)) return undefined;
  const attribute = value === "@username" ? "" : user?.attributes?.get(value.slice(1));
  if (attribute === undefined) {
    return `\`row_filter\` refers to ${value}, which the record has not: every query is denied`;
  }
  if ((typeof attribute === "object") === (cmp === "IN")) return undefined;
  const kind = cmp === "IN" ? "a list" : "a single value";
  return `\`row_filter\` refers to ${value}, which ${cmp} takes as ${kind}: every query is denied`;
}

function* lintApproval({ users }: Snapshot, limits: Limits, asker: string | undefined) {
  const { requireApproval, approvers } = limits;
  if (approvers === undefined) return;
  if (requireApproval === undefined) yield "`approvers` says nothing without `require_approval`";
  const unknown = approvers.filter((name) => !users.has(name) && !isExternalUsername(name));
  if (unknown.length > 0) yield `\`approvers\` names ${unknown.join(", ")}, without a record`;
  if (approvers.every((name) => name === asker)) {
    yield "`approvers` names the user alone, and nobody approves for itself";
  }
}

function* lintKeys(grant: Grant): Generator<string, undefined> {
  const { role, requireApproval } = grant;
  const idle = [
    grant.writableColumns && "writable_columns",
    grant.requireWhere && "require_where",
    grant.maxChanges && "max_changes",
  ].filter((key) => typeof key === "string");
  if (role === "ReadOnly" && idle.length > 0) {
    yield `\`${idle.join("`, `")}\` says nothing with ReadOnly, which changes nothing`;
  }
  const lacking = requireApproval?.filter((right) => !roleAllows(role, right)) ?? [];
  if (lacking.length > 0) {
    yield `\`require_approval\` names ${lacking.join(", ")}, which ${role} does not give`;
  }
}

function* lintExpiry(grants: UserGrants, grant: Grant, now: number) {
  const { database, tables, expires } = grant;
  if (expires === undefined || expires > now) return;
  const places = tables ?? [undefined];
  const isHeld = places.every((table) =>
    entriesAt(grants, database, table).some((other) => other.expires === undefined),
  );
  yield isHeld
    ? "has expired and never decides again, since another entry holds its place"
    : "has expired, and denies what it gave until it is removed";
}

function* lintGrant(snapshot: Snapshot, grant: Grant, now: number) {
  const grants = grantsOf(snapshot, grant.username);
  const { username, database, tables = [], columns, rowFilter = [] } = grant;
  yield* lintExpiry(grants, grant, now);
  yield* lintKeys(grant);
  yield* lintApproval(snapshot, grant, username);
  const unwritable = beyond(grant.writableColumns, columns);
  if (unwritable !== "") yield `${unwritable} can never be written: not among \`columns\``;
  const unpinned = beyond(grant.requireWhere, columns);
  if (unpinned !== "") {
    yield `\`require_where\` demands ${unpinned}, which is not among \`columns\`: no Update or Delete passes`;
  }
  const user = snapshot.users.get(username);
  for (const condition of rowFilter) {
    const missing = missingAttribute(condition, user);
    if (missing !== undefined) yield missing;
  }
  for (const table of tables) {
    const other = otherSpellingOf(grants, database, table, now);
    if (other !== undefined) yield `${table} and ${other.spelling} differ by case alone: denied`;
  }
}

function* lintBoundary(snapshot: Snapshot, boundary: Boundary) {
  const { via, client, username } = boundary;
  if (username !== undefined && !snapshot.users.has(username) && !isExternalUsername(username)) {
    yield `is for ${username}, who has no record`;
  }
  if (via === "query" && client !== undefined) {
    yield "never binds: OAuth clients come by mcp alone";
  }
  yield* lintApproval(snapshot, boundary, username);
}

/** Lint of one entry, in sentences that name it. */
export function* lintEntry(snapshot: Snapshot, grant: Grant, now: number): Generator<string> {
  for (const what of lintGrant(snapshot, grant, now)) {
    yield `the entry of ${grant.username} for ${placeOf(grant)}: ${what}`;
  }
}

/** Lint of the whole file. Each sentence names its entry or boundary. */
export function* lintAccess(snapshot: Snapshot, now: number): Steps<string[]> {
  const odd: string[] = [];
  yield* visitEach(snapshot.grants, ([, grants]) => {
    for (const grant of entriesIn(grants)) odd.push(...lintEntry(snapshot, grant, now));
  });
  for (const boundary of snapshot.boundaries) {
    for (const what of lintBoundary(snapshot, boundary)) {
      odd.push(`the boundary ${boundaryName(boundary)}: ${what}`);
    }
  }
  return odd;
}
