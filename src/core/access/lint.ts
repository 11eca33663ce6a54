/** Lint of valid access files: entries that may not mean what was intended. */

import { type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import type { RowCondition } from "../query/limits.ts";
import { entriesIn } from "./entries.ts";
import { limitsInWords } from "./entry-view.ts";
import {
  attributeReference,
  type Boundary,
  describePlace,
  type Grant,
  type Group,
  groupHolder,
  groupOf,
  type Holder,
  holderName,
  holderText,
  type Limits,
  type User,
  userOf,
} from "./grant.ts";
import { callerFor } from "./groups.ts";
import type { QuestionSetting } from "./policy.ts";
import { boundaryName, decidingEntry, findOtherSpelling } from "./rights.ts";
import { isExternalUsername, isLocalGroupName, roleAllows } from "./roles.ts";
import { namesOfPerson, ownGrants, type Snapshot } from "./snapshot.ts";

function beyond(names: readonly string[] = [], allowed: readonly string[] | undefined): string {
  const outside = allowed === undefined ? [] : names.filter((name) => !allowed.includes(name));
  return outside.map((name) => JSON.stringify(name)).join(", ");
}

/** Explains why a condition denies everything: the user's record lacks a matching attribute. */
function attributeProblem({ cmp, value }: RowCondition, user: User | undefined) {
  if (typeof value !== "string" || !attributeReference.test(value)) return undefined;
  const attribute = value === "@username" ? "" : user?.attributes?.get(value.slice(1));
  if (attribute === undefined) {
    return `\`row_filter\` refers to ${value}, which the user's record lacks: every query is denied`;
  }
  if ((typeof attribute === "object") === (cmp === "IN")) return undefined;
  const kind = cmp === "IN" ? "a list" : "a single value";
  return `\`row_filter\` refers to ${value}, but ${cmp} needs ${kind}: every query is denied`;
}

function isUnknownGroup({ groups }: Snapshot, holder: Holder): boolean {
  const group = groupOf(holder);
  return group !== undefined && isLocalGroupName(group) && !groups.has(group);
}

function isWithoutRecord({ users }: Snapshot, name: string | undefined): boolean {
  return name !== undefined && !users.has(name) && !isExternalUsername(name);
}

/** The user, or the members of a local group. Undefined for a group of an issuer. */
function usersBehind({ groups }: Snapshot, holder: Holder): readonly string[] | undefined {
  const group = groupOf(holder);
  if (group === undefined) return [holderText(holder)];
  return isLocalGroupName(group) ? (groups.get(group)?.members ?? []) : undefined;
}

/** True if an approval can be asked for only by the one person who could give it. */
function isOwnApproval(snapshot: Snapshot, requester: Holder, approvers: readonly Holder[]) {
  const [first] = usersBehind(snapshot, requester) ?? [];
  if (first === undefined) return false;
  const person = namesOfPerson(snapshot, first);
  return [requester, ...approvers].every((holder) => {
    const users = usersBehind(snapshot, holder) ?? [];
    return users.length > 0 && users.every((user) => person.has(user));
  });
}

function* lintApproval(snapshot: Snapshot, limits: Limits, requester: Holder | undefined) {
  const { requireApproval, approvers } = limits;
  if (approvers === undefined) return;
  if (requireApproval === undefined) yield "`approvers` has no effect without `require_approval`";
  const unknown = approvers.filter((one) => isWithoutRecord(snapshot, userOf(one)));
  if (unknown.length > 0) yield `\`approvers\` names users without a record: ${unknown.join(", ")}`;
  const missing = approvers.filter((one) => isUnknownGroup(snapshot, one));
  if (missing.length > 0) yield `\`approvers\` names unknown groups: ${missing.join(", ")}`;
  if (requester !== undefined && isOwnApproval(snapshot, requester, approvers)) {
    yield "`approvers` names only the user, also by other names (`same_as`), and users cannot approve their own queries";
  }
}

function* lintKeys(grant: Grant): Generator<string, undefined> {
  const { role, requireApproval } = grant;
  const unused = [
    grant.writableColumns && "writable_columns",
    grant.requireWhere && "require_where",
    grant.maxChanges && "max_changes",
  ].filter((key) => typeof key === "string");
  if (role === "ReadOnly" && unused.length > 0) {
    yield `\`${unused.join("`, `")}\` has no effect with ReadOnly, which changes nothing`;
  }
  const lacking = requireApproval?.filter((right) => !roleAllows(role, right)) ?? [];
  if (lacking.length > 0) {
    yield `\`require_approval\` names ${lacking.join(", ")}, which ${role} does not give`;
  }
}

/** Requests that a preset forwards are passed whole or refused. */
function* lintUnderPreset({ requireApproval, expires: _, ...limits }: Partial<Grant>) {
  const unkept = limitsInWords(limits);
  if (unkept !== "")
    yield `upstream.preset cannot keep its limits, so it allows nothing: ${unkept}`;
  if (requireApproval !== undefined) {
    yield `upstream.preset asks for no approvals, so it denies ${requireApproval.join(", ")}`;
  }
}

function* lintExpiry(snapshot: Snapshot, grant: Grant, now: number) {
  const { holder, database, tables, expires } = grant;
  if (expires === undefined || expires > now) return;
  const places = tables ?? [undefined];
  const isHeld = places.every(
    (table) =>
      decidingEntry(snapshot, callerFor(holder), database, table, now)?.isExpired === false,
  );
  yield isHeld
    ? "has expired and has no effect, since another entry is in force in its place"
    : "has expired, and denies access until it is removed";
}

function* lintGrant(snapshot: Snapshot, grant: Grant, { now, hasPreset }: QuestionSetting) {
  const grants = ownGrants(snapshot, grant.holder);
  const { holder, database, tables = [], columns, rowFilter = [] } = grant;
  if (isUnknownGroup(snapshot, holder)) yield "there is no such group, so it never applies";
  yield* lintExpiry(snapshot, grant, now);
  yield* lintKeys(grant);
  if (hasPreset) yield* lintUnderPreset(grant);
  yield* lintApproval(snapshot, grant, holder);
  const unwritable = beyond(grant.writableColumns, columns);
  if (unwritable !== "")
    yield `${unwritable} can never be written, since it is not among \`columns\``;
  const unpinned = beyond(grant.requireWhere, columns);
  if (unpinned !== "") {
    yield `\`require_where\` requires ${unpinned}, which is not among \`columns\`: every Update and Delete is denied`;
  }
  const username = userOf(holder);
  // Attributes of external users may come from the token, and those of members differ.
  const hasRecord = username !== undefined && !isExternalUsername(username);
  const user = hasRecord ? snapshot.users.get(username) : undefined;
  for (const condition of hasRecord ? rowFilter : []) {
    const problem = attributeProblem(condition, user);
    if (problem !== undefined) yield problem;
  }
  for (const table of tables) {
    const other = findOtherSpelling(grants, database, table, now);
    if (other !== undefined) yield `${table} and ${other.spelling} differ only by case: denied`;
  }
}

function* lintBoundary(snapshot: Snapshot, boundary: Boundary, { hasPreset }: QuestionSetting) {
  const { holder } = boundary;
  if (holder !== undefined && isWithoutRecord(snapshot, userOf(holder))) {
    yield `is for ${holderText(holder)}, who has no record`;
  }
  if (holder !== undefined && isUnknownGroup(snapshot, holder)) {
    yield "there is no such group, so it never applies";
  }
  yield* lintApproval(snapshot, boundary, holder);
  if (hasPreset && boundary.via === "query") yield* lintUnderPreset(boundary);
}

function* lintGroup(snapshot: Snapshot, { name, members }: Group) {
  const group = groupHolder(name);
  if (members.length === 0) yield "has no members";
  const unknown = members.filter((member) => isWithoutRecord(snapshot, member));
  if (unknown.length > 0) yield `\`members\` names users without a record: ${unknown.join(", ")}`;
  const isNamed = ({ holder, approvers = [] }: Pick<Boundary, "holder" | "approvers">) =>
    holder === group || approvers.includes(group);
  const isUsed =
    snapshot.grants.has(group) ||
    snapshot.boundaries.some(isNamed) ||
    snapshot.grants.values().some((grants) => entriesIn(grants).some(isNamed));
  if (!isUsed) yield "has no entries";
}

export function* lintEntry(
  snapshot: Snapshot,
  grant: Grant,
  setting: QuestionSetting,
): Generator<string> {
  for (const finding of lintGrant(snapshot, grant, setting)) {
    yield `the entry of ${holderName(grant.holder)} for ${describePlace(grant)}: ${finding}`;
  }
}

/** Lint of the whole file. Each sentence names its entry or boundary. */
export function* lintAccess(snapshot: Snapshot, setting: QuestionSetting): Steps<string[]> {
  const findings: string[] = [];
  yield* visitEach(snapshot.users.values(), ({ username, passwordHash, sameAs }) => {
    if (passwordHash !== undefined && isExternalUsername(username)) {
      findings.push(`the user ${username}: \`password_hash\` has no effect with a provider's user`);
    }
    if (!isWithoutRecord(snapshot, sameAs)) return;
    findings.push(`the user ${username}: \`same_as\` names a user without a record: ${sameAs}`);
  });
  yield* visitEach(snapshot.grants, ([, grants]) => {
    for (const grant of entriesIn(grants)) {
      for (const finding of lintEntry(snapshot, grant, setting)) findings.push(finding);
    }
  });
  yield* visitEach(snapshot.groups.values(), (group) => {
    for (const finding of lintGroup(snapshot, group)) {
      findings.push(`the group ${group.name}: ${finding}`);
    }
  });
  for (const boundary of snapshot.boundaries) {
    for (const finding of lintBoundary(snapshot, boundary, setting)) {
      findings.push(`the boundary ${boundaryName(boundary)}: ${finding}`);
    }
  }
  return findings;
}
