import { isDeepStrictEqual } from "node:util";
import { type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import { Refusal } from "../base/refusal.ts";
import type { Place } from "../query/names.ts";
import {
  collectGrants,
  entriesAt,
  entriesIn,
  hasLimits,
  isSamePlace,
  reachingEntries,
  unrestrictedGrant,
} from "./entries.ts";
import {
  accessList,
  type EntryPlace,
  type EntryView,
  type UserView,
  viewUser,
} from "./entry-view.ts";
import {
  type Grant,
  type Group,
  groupHolder,
  groupOf,
  type Holder,
  holderText,
  membersGone,
  type Subject,
  type User,
  updatedUser,
  userHolder,
  userOf,
} from "./grant.ts";
import { type Caller, callerFor, effectiveGrants, grantsWith, listLocalGroups } from "./groups.ts";
import { decide, isAdministrator, mayUseAnywhere } from "./policy.ts";
import type { Change } from "./record-change.ts";
import { boundaryName, decidingEntry, findOtherSpelling } from "./rights.ts";
import {
  type EntryRole,
  EVERY_DATABASE,
  isExternalGroup,
  isExternalUsername,
  mayGrant,
  outranks,
  prefixWithColon,
  type Role,
  widestRole,
} from "./roles.ts";
import {
  accountObstacle,
  blankUser,
  differingHolders,
  namesOfPerson,
  ownGrants,
  requireNoConflict,
  type Snapshot,
} from "./snapshot.ts";

/** The operator at the command line could edit the access file by hand anyway. */
export type Actor = Subject | "operator";

/** Names, and `<prefix>:` for all users of an issuer, whose groups only their tokens know. */
function possibleMembers({ groups }: Snapshot, group: string): readonly string[] {
  const prefix = prefixWithColon(group);
  return groups.get(group)?.members ?? (prefix === "" ? [] : [prefix]);
}

/** True for a member of a local group, and for every user of the issuer of another group. */
export function mayBeMember(snapshot: Snapshot, group: string, username: string): boolean {
  const members = possibleMembers(snapshot, group);
  return members.includes(username) || members.includes(prefixWithColon(username));
}

/** The other users and groups whose entries may also apply to members of the group. */
function* sharingMembers(snapshot: Snapshot, group: string): Generator<Holder, undefined> {
  const members = new Set(possibleMembers(snapshot, group));
  const prefixes = new Set(Array.from(members, prefixWithColon));
  for (const holder of snapshot.grants.keys()) {
    const other = groupOf(holder);
    if (other === group) continue;
    const others = other === undefined ? [holderText(holder)] : possibleMembers(snapshot, other);
    const isShared = others.some(
      (one) => members.has(one) || members.has(prefixWithColon(one)) || prefixes.has(one),
    );
    if (isShared) yield holder;
  }
}

/** The groups of an issuer, with entries, that a token of this user may name. */
function possibleGroups(snapshot: Snapshot, username: string): string[] {
  const groups = [...snapshot.grants.keys()].flatMap((holder) => groupOf(holder) ?? []);
  return groups.filter((one) => isExternalGroup(one) && mayBeMember(snapshot, one, username));
}

/** What hides an entry now may expire. */
const nowAndLater = () => [Date.now(), Number.POSITIVE_INFINITY];

function effectiveRole(snapshot: Snapshot, caller: Caller, database: string): Role | undefined {
  const grants = nowAndLater().map((at) => effectiveGrants(snapshot, caller, at));
  return widestRole(grants.flatMap((one) => reachingEntries(one, database)));
}

/** Only the caller's own token tells its groups. Others may have each group of their issuer. */
function possibleCallers(snapshot: Snapshot, holder: Holder, actor: Subject): Caller[] {
  if (isActor(holder, actor)) return [actor];
  const groups = possibleGroups(snapshot, holderText(holder));
  const caller = callerFor(holder);
  return [caller, ...groups.map((group) => ({ ...caller, groups: [group] }))];
}

function isActor(holder: Holder, { username }: Subject): boolean {
  return holder === userHolder(username);
}

export function requireUnlimitedToken(actor: Actor): void {
  if (actor !== "operator" && actor.tokenDatabase !== EVERY_DATABASE) {
    throw new Refusal("token_database");
  }
}

function requireTokenFor(actor: Subject, database: string): void {
  if (actor.tokenDatabase !== database) requireUnlimitedToken(actor);
}

export function requireAdministrator(snapshot: Snapshot, actor: Actor): void {
  if (actor === "operator") return;
  requireUnlimitedToken(actor);
  if (!isAdministrator(snapshot, actor)) throw new Refusal("role_insufficient");
}

function grantingRole(snapshot: Snapshot, actor: Subject, database: string): EntryRole {
  const known = snapshot.databases.get(database.toLowerCase()) ?? database;
  const { reason, role } = decide(snapshot, actor, "GRANT", known);
  if (reason !== "allowed") throw new Refusal(reason);
  if (role === undefined) throw new Refusal("no_grant");
  return role;
}

/** A grant on `*` reaches every database, also those on which the actor may not give it. */
function reachesBeyond(snapshot: Snapshot, actor: Subject, role: EntryRole): boolean {
  if (isAdministrator(snapshot, actor)) return false;
  return effectiveGrants(snapshot, actor)
    .keys()
    .some((name) => {
      const { allowed, role: own = "None" } = decide(snapshot, actor, "GRANT", name);
      return !allowed || !mayGrant(own, role);
    });
}

/**
 * Checks that the actor may give this role. A database name that is new to the file denies every
 * other spelling of it to everyone, so only administrators may introduce one.
 */
function requireGrantable(
  snapshot: Snapshot,
  actor: Actor,
  { database, role }: Omit<Grant, "holder">,
): void {
  if (actor === "operator") return;
  requireTokenFor(actor, database);
  const own = grantingRole(snapshot, actor, database);
  const isBeyond =
    database === EVERY_DATABASE
      ? reachesBeyond(snapshot, actor, role)
      : !snapshot.databases.has(database.toLowerCase()) && !isAdministrator(snapshot, actor);
  if (!mayGrant(own, role) || isBeyond) throw new Refusal("role_insufficient");
}

/** The actor must outrank the holder's current role on `database`, or on all databases for `*`. */
function requireOutranked(
  snapshot: Snapshot,
  actor: Subject,
  holder: Holder,
  database: string,
): void {
  const members = localMembers(snapshot, holder).map(userHolder);
  const held = widestRole(
    [holder, ...members].flatMap((one) => {
      const role = effectiveRole(snapshot, callerFor(one), database);
      return role === undefined ? [] : { role };
    }),
  );
  if (held === undefined || isActor(holder, actor)) return;
  if (isAdministrator(snapshot, actor)) return;
  const reaches = database === EVERY_DATABASE && reachesBeyond(snapshot, actor, held);
  if (!outranks(grantingRole(snapshot, actor, database), held) || reaches) {
    throw new Refusal("role_insufficient");
  }
}

/** Users with such an entry on a database may not grant, change or revoke anything there. */
function isRestricting({ role, tables, requireApproval, expires }: Grant): boolean {
  // An expired one decides nothing in the place of another, and otherwise denies GRANT.
  if (tables === undefined && expires !== undefined) return expires > Date.now();
  return role === "None" || (tables ?? requireApproval) !== undefined;
}

function requireUnrestricted(snapshot: Snapshot, actor: Subject, database: string): void {
  const entries = reachingEntries(effectiveGrants(snapshot, actor), database);
  if (entries.some(isRestricting)) throw new Refusal("role_insufficient");
}

/** The widest role on the database, of a user or of a group's members, without these entries. */
function remainingRole(
  snapshot: Snapshot,
  { holder, database }: Pick<Grant, "holder" | "database">,
  actor: Subject,
  replaced: readonly Grant[],
): Role | undefined {
  const others = entriesIn(ownGrants(snapshot, holder)).filter((one) => !replaced.includes(one));
  const own = collectGrants(others);
  const left = possibleCallers(snapshot, holder, actor).flatMap((one) =>
    nowAndLater().map((at) => grantsWith(snapshot, one, own, at)),
  );
  const group = groupOf(holder);
  const sharing = group === undefined ? [] : [...sharingMembers(snapshot, group)];
  const all = [...left, ...sharing.map((other) => ownGrants(snapshot, other))];
  return widestRole(all.flatMap((grants) => reachingEntries(grants, database)));
}

/** The widest role that a plain entry hides from users whose tokens name other groups. */
function hiddenRole(
  snapshot: Snapshot,
  { holder, database }: Pick<Grant, "holder" | "database">,
): Role | undefined {
  const isHiding = unrestrictedGrant(ownGrants(snapshot, holder), database) !== undefined;
  if (isHiding) return undefined;
  const group = groupOf(holder);
  const others =
    group === undefined
      ? possibleGroups(snapshot, holderText(holder)).map(groupHolder)
      : [...sharingMembers(snapshot, group)];
  const entries = others.flatMap((other) => {
    const grants = ownGrants(snapshot, other);
    const isByToken = [group, groupOf(other)].some(isExternalGroup);
    // Of plain entries of groups for one place, the widest counts.
    const isShown = group !== undefined && unrestrictedGrant(grants, database) !== undefined;
    return isShown || !isByToken ? [] : reachingEntries(grants, database);
  });
  return widestRole(entries);
}

function requireGrantableRoles(
  snapshot: Snapshot,
  actor: Subject,
  database: string,
  roles: readonly (EntryRole | undefined)[],
): void {
  if (isAdministrator(snapshot, actor)) return;
  const own = grantingRole(snapshot, actor, database);
  const isBeyond = (role: EntryRole) =>
    !mayGrant(own, role) || (database === EVERY_DATABASE && reachesBeyond(snapshot, actor, role));
  if (roles.some((role) => role !== undefined && isBeyond(role))) {
    throw new Refusal("role_insufficient");
  }
}

/**
 * Checks that the actor may give this grant, which may replace others. If one of them has limits,
 * the actor also needs the right to give the old roles and the role that applies without them.
 */
export function requireMayGrant(
  snapshot: Snapshot,
  actor: Actor,
  grant: Grant,
  replaced: readonly Grant[],
): void {
  if (actor === "operator") return;
  const { holder, database, role } = grant;
  requireTokenFor(actor, database);
  requireUnrestricted(snapshot, actor, database);
  // `None` of a group hides the entries of other groups.
  const hidesOthers = (one: Grant) => one.role === "None" && groupOf(holder) !== undefined;
  const isLimited = [grant, ...replaced].some(
    (one) => one.tables !== undefined || hasLimits(one) || hidesOthers(one),
  );
  // Users may lower only an entry of their own. Lowering one inherited from `*` would add a new
  // database name to the file.
  const [own] = replaced;
  const isLowering =
    !isLimited && isActor(holder, actor) && own !== undefined && outranks(own.role, role);
  if (!isLowering) requireGrantable(snapshot, actor, grant);
  requireOutranked(snapshot, actor, holder, database);
  if (isLimited) {
    const roles = replaced.map((one) => one.role);
    const remaining = remainingRole(snapshot, grant, actor, replaced);
    requireGrantableRoles(snapshot, actor, database, [...roles, remaining]);
  } else if (!isActor(holder, actor)) {
    requireGrantableRoles(snapshot, actor, database, [hiddenRole(snapshot, grant)]);
  }
}

/**
 * Checks that the actor may revoke these grants. Users may revoke their own. Removing a narrowing
 * entry counts as giving the wider role that then applies.
 */
export function requireMayRevoke(
  snapshot: Snapshot,
  actor: Actor,
  place: Pick<Grant, "holder" | "database">,
  replaced: readonly Grant[],
): void {
  if (actor === "operator") return;
  const { holder, database } = place;
  requireTokenFor(actor, database);
  requireUnrestricted(snapshot, actor, database);
  const remaining = remainingRole(snapshot, place, actor, replaced);
  if (isActor(holder, actor)) {
    const before = replaced.some(hasLimits) ? undefined : effectiveRole(snapshot, actor, database);
    const raises = remaining !== undefined && (before === undefined || outranks(remaining, before));
    if (raises) throw new Refusal("role_insufficient");
    return;
  }
  requireGrantableRoles(snapshot, actor, database, [remaining]);
  requireOutranked(snapshot, actor, holder, database);
}

export function requireSelfOrAdministrator(
  snapshot: Snapshot,
  actor: Actor,
  username: string,
): void {
  requireUnlimitedToken(actor);
  if (actor === "operator" || actor.username === username) return;
  requireAdministrator(snapshot, actor);
}

export function maySeeGrants(snapshot: Snapshot, actor: Subject, database: string): boolean {
  return decide(snapshot, actor, "GRANT", database).allowed;
}

export function requireManager(snapshot: Snapshot, actor: Subject): void {
  if (!mayUseAnywhere(snapshot, actor, "GRANT")) throw new Refusal("role_insufficient");
}

interface GroupView {
  readonly name: string;
  /** Absent for a group of an issuer. */
  readonly members?: readonly string[];
  readonly access: readonly EntryView[];
}

export function viewGroup(snapshot: Snapshot, name: string): GroupView {
  const members = snapshot.groups.get(name)?.members;
  const access = accessList(snapshot, groupHolder(name));
  return { name, ...(members === undefined ? {} : { members }), access };
}

/** The groups that a manager sees, with their visible entries, sorted by name. */
export function visibleGroups(snapshot: Snapshot, actor: Actor): GroupView[] {
  const named = [...snapshot.grants.keys()].flatMap((holder) => groupOf(holder) ?? []);
  const names = new Set([...snapshot.groups.keys(), ...named]);
  const views = [...names].sort().map((name) => viewGroup(snapshot, name));
  if (actor === "operator") return views;
  const { isVisible, isManageable } = manageableBy(snapshot, actor);
  return views
    .filter(({ name }) => isManageable(groupHolder(name)))
    .map((view) => ({
      ...view,
      access: view.access.filter(({ database }) => isVisible(database)),
    }));
}

/** Visibility and management rights of an actor who may grant on some database. */
export function manageableBy(snapshot: Snapshot, actor: Subject) {
  requireManager(snapshot, actor);
  const isOverAll = isAdministrator(snapshot, actor) && actor.tokenDatabase === EVERY_DATABASE;
  const isVisible = (database: string) => maySeeGrants(snapshot, actor, database);
  return {
    isVisible,
    /** Also by an entry of a local group. */
    isManageable: (holder: Holder) =>
      isOverAll ||
      [holder, ...listLocalGroups(snapshot, holderText(holder)).map(groupHolder)].some((one) =>
        ownGrants(snapshot, one).keys().some(isVisible),
      ),
    view(user: User): UserView {
      const { access, ...rest } = viewUser(snapshot, user);
      return { ...rest, access: access.filter(({ database }) => isVisible(database)) };
    },
  };
}

/** Who looks at which state. */
export interface View {
  readonly snapshot: Snapshot;
  readonly actor: Subject;
}

/** True for a user, also an external one who is only in local groups, or a group. */
export function mayManage({ snapshot, actor }: View, holder: Holder): boolean {
  const { isManageable } = manageableBy(snapshot, actor);
  const { users, groups, grants } = snapshot;
  const username = userOf(holder) ?? "";
  const isRecorded = users.has(username) || groups.has(groupOf(holder) ?? "");
  const isNamed =
    isRecorded || grants.has(holder) || listLocalGroups(snapshot, username).length > 0;
  return isNamed && isManageable(holder);
}

/** False if the decision on a place would reveal an entry that the actor may not see. */
export function maySeeDecision(
  { snapshot, actor }: View,
  caller: Caller,
  { database, table }: Place,
): boolean {
  const { isVisible } = manageableBy(snapshot, actor);
  const now = Date.now();
  const grants = effectiveGrants(snapshot, caller, now);
  const told = [
    decidingEntry(snapshot, caller, database, table, now),
    table === undefined ? undefined : findOtherSpelling(grants, database, table, now)?.entry,
  ];
  return told.every((entry) => entry === undefined || isVisible(entry.grant.database));
}

/** The name of a boundary, without a user or group that the actor may not manage. */
export function visibleBoundary(view: View, name: string): string {
  const found = view.snapshot.boundaries.find((one) => boundaryName(one) === name);
  if (found?.holder === undefined || mayManage(view, found.holder)) return name;
  const { holder: _, ...others } = found;
  return boundaryName(others);
}

function entriesToReplace(
  snapshot: Snapshot,
  { holder, database }: Pick<Grant, "holder" | "database">,
  table: string | undefined,
): readonly Grant[] {
  const replaced = entriesAt(ownGrants(snapshot, holder), database, table);
  if (replaced.some(({ tables = [] }) => tables.length > 1))
    throw new Refusal("entry_lists_tables");
  return replaced;
}

function grantChanges(
  snapshot: Snapshot,
  grant: Grant,
  replaced: readonly Grant[],
  replacesLimits: boolean,
): Change[] {
  const known = snapshot.databases.get(grant.database.toLowerCase());
  if (known !== undefined && known !== grant.database) throw new Refusal("database_case_conflict");
  const isRoleAlone = !replacesLimits && !hasLimits(grant);
  if (isRoleAlone && replaced.some(hasLimits)) throw new Refusal("entry_narrowed");
  requireNoConflict(ownGrants(snapshot, grant.holder), grant, replaced);
  const updated = replaced.find((known) => isSamePlace(known, grant));
  const others = replaced.filter((known) => known !== updated);
  const removals = others.map((known): Change => ({ kind: "remove-grant", grant: known }));
  if (updated === undefined) return [...removals, { kind: "add-grant", grant }];
  if (isDeepStrictEqual(updated, grant)) return removals;
  return [...removals, { kind: "set-grant", grant }];
}

/** Where queries wait for one of these users and groups to approve them. */
function placesToApprove({ grants, boundaries }: Snapshot, holders: readonly Holder[]): string[] {
  const entries = [...grants.values()].flatMap((held) => [...entriesIn(held)]);
  return [...entries, ...boundaries].flatMap(({ approvers, database = EVERY_DATABASE }) =>
    approvers?.some((one) => holders.includes(one)) ? database : [],
  );
}

/**
 * A name may have grants, be in a group, or be an approver, before it has a record. The actor needs
 * the right to give the grants, and to grant where the name approves. Another name of a person may
 * see what that person requested.
 */
export function planAddUser(
  snapshot: Snapshot,
  actor: Actor,
  user: User,
  grant: Omit<Grant, "holder"> | undefined,
): Change[] {
  const { username } = user;
  requireUnlimitedToken(actor);
  const holder = userHolder(username);
  const given = grant && { holder, ...grant };
  if (given !== undefined) requireMayGrant(snapshot, actor, given, []);
  else requireAdministrator(snapshot, actor);
  if (snapshot.users.has(username)) throw new Refusal("user_exists");
  if (namesOfPerson(snapshot, username).size > 1) requireAdministrator(snapshot, actor);
  const holders = [holder, ...listLocalGroups(snapshot, username).map(groupHolder)];
  for (const one of holders) {
    for (const known of entriesIn(ownGrants(snapshot, one))) {
      requireGrantable(snapshot, actor, known);
    }
  }
  for (const database of placesToApprove(snapshot, holders)) {
    requireGrantable(snapshot, actor, { database, role: "None" });
  }
  const add: Change = { kind: "add-user", user };
  if (given === undefined) return [add];
  return [
    add,
    ...grantChanges(snapshot, given, entriesToReplace(snapshot, given, undefined), false),
  ];
}

export function requireUser(snapshot: Snapshot, username: string): User {
  const user = snapshot.users.get(username);
  if (user === undefined) throw new Refusal("user_not_found");
  return user;
}

export function planSetPassword(snapshot: Snapshot, username: string, passwordHash: string) {
  if (isExternalUsername(username)) throw new Refusal("external_user");
  requireUser(snapshot, username);
  return [{ kind: "update-user", username, update: { passwordHash } }] satisfies Change[];
}

/** @throws Refusal `invalid_username`, or `user_not_found` for a local user without a record */
function requireOtherName(snapshot: Snapshot, username: string, sameAs: string): void {
  if (sameAs === username) {
    const message = "Invalid username: same_as must be another name of the person";
    throw new Refusal("invalid_username", { message });
  }
  if (isExternalUsername(sameAs) || snapshot.users.has(sameAs)) return;
  throw new Refusal("user_not_found", { message: `User not found: ${sameAs}` });
}

export interface UserPatch {
  /** Null removes it. */
  readonly email?: string | null | undefined;
  readonly disabled?: boolean | undefined;
  /** Replaces all attributes. An empty map removes them. */
  readonly attributes?: User["attributes"] | undefined;
  /** Null removes it. */
  readonly sameAs?: string | null | undefined;
}

/**
 * Users change their own email, and administrators anything. An external user needs no record.
 *
 * @param prefixes of the configured issuers
 */
export function planPatchUser(
  snapshot: Snapshot,
  actor: Actor,
  username: string,
  { email, disabled, attributes, sameAs }: UserPatch,
  prefixes: readonly string[] = [],
): Change[] {
  requireSelfOrAdministrator(snapshot, actor, username);
  const isEmailAlone = [disabled, attributes, sameAs].every((one) => one === undefined);
  if (!isEmailAlone) requireAdministrator(snapshot, actor);
  const isExternal = prefixes.some((prefix) => username.startsWith(`${prefix}:`));
  const isNew = isExternal && isExternalUsername(username) && !snapshot.users.has(username);
  const user = isNew ? blankUser(username) : requireUser(snapshot, username);
  if (typeof sameAs === "string") requireOtherName(snapshot, username, sameAs);
  const areSame = isDeepStrictEqual(attributes ?? new Map(), user.attributes ?? new Map());
  const update = {
    ...(email === undefined || email === (user.email ?? null) ? {} : { email: email ?? undefined }),
    ...(disabled === undefined || disabled === user.disabled ? {} : { disabled }),
    ...(attributes === undefined || areSame ? {} : { attributes }),
    ...(sameAs === undefined || sameAs === (user.sameAs ?? null)
      ? {}
      : { sameAs: sameAs ?? undefined }),
  };
  if (Object.keys(update).length === 0) return [];
  if (isNew) return [{ kind: "add-user", user: updatedUser(user, update) }];
  return [{ kind: "update-user", username, update }];
}

/** For administrators only: others could recreate the record with their own password. */
export function planRemoveUser(snapshot: Snapshot, actor: Actor, username: string): Change[] {
  requireAdministrator(snapshot, actor);
  requireUser(snapshot, username);
  const left = listLocalGroups(snapshot, username).map((name): Change => {
    const members = snapshot.groups.get(name)?.members ?? [];
    const group = { name, members: members.filter((member) => member !== username) };
    return { kind: "update-group", group, left: [username] };
  });
  // Another person may get the name later.
  const isLinked = ({ sameAs }: User) => sameAs === username && !isExternalUsername(username);
  const unlinked = Array.from(
    snapshot.users.values().filter(isLinked),
    (other): Change => ({
      kind: "update-user",
      username: other.username,
      update: { sameAs: undefined },
    }),
  );
  return [{ kind: "remove-user", username }, ...left, ...unlinked];
}

/** A member may lack a record if the file already names it, or an issuer knows it. */
export function planSetGroup(snapshot: Snapshot, actor: Actor, group: Group): Change[] {
  requireAdministrator(snapshot, actor);
  const known = snapshot.groups.get(group.name);
  for (const member of group.members) {
    if (known?.members.includes(member) || isExternalUsername(member)) continue;
    if (!snapshot.users.has(member)) {
      throw new Refusal("user_not_found", { message: `User not found: ${member}` });
    }
  }
  if (isDeepStrictEqual(known, group)) return [];
  if (known === undefined) return [{ kind: "add-group", group }];
  return [{ kind: "update-group", group, left: membersGone(known, group) }];
}

export function planRemoveGroup(snapshot: Snapshot, actor: Actor, name: string): Change[] {
  requireAdministrator(snapshot, actor);
  const hasEntries = ownGrants(snapshot, groupHolder(name)).size > 0;
  const group = snapshot.groups.get(name) ?? (hasEntries ? { name, members: [] } : undefined);
  if (group === undefined) throw new Refusal("group_not_found");
  return [{ kind: "remove-group", group }];
}

/** Groups, and users of an issuer, need no record for a grant. @throws Refusal `user_not_found` */
function requireKnown(snapshot: Snapshot, holder: Holder): void {
  const username = userOf(holder);
  if (username !== undefined && !isExternalUsername(username)) requireUser(snapshot, username);
}

export interface GrantOptions {
  /** Keeps a temporary entry when a permanent one is given, and the other way round. */
  readonly keepsOther?: boolean;
  /** A bare role may replace entries with limits, since the caller has seen them. */
  readonly replacesLimits?: boolean;
}

/**
 * Gives an entry and replaces what the user holds there: on the database, or on the one table or
 * pattern that it names.
 */
export function planGrant(
  snapshot: Snapshot,
  actor: Actor,
  grant: Grant,
  { keepsOther = false, replacesLimits = false }: GrantOptions = {},
): Change[] {
  const replaced = entriesToReplace(snapshot, grant, grant.tables?.[0]).filter(
    (known) => !keepsOther || isSamePlace(known, grant),
  );
  requireMayGrant(snapshot, actor, grant, replaced);
  requireKnown(snapshot, grant.holder);
  return grantChanges(snapshot, grant, replaced, replacesLimits);
}

export function planRevoke(
  snapshot: Snapshot,
  actor: Actor,
  { holder, database, table }: EntryPlace,
): Change[] {
  const replaced = entriesToReplace(snapshot, { holder, database }, table);
  requireMayRevoke(snapshot, actor, { holder, database }, replaced);
  if (ownGrants(snapshot, holder).size === 0) requireKnown(snapshot, holder);
  if (replaced.length === 0) throw new Refusal("grant_not_found");
  return replaced.map((grant) => ({ kind: "remove-grant", grant }));
}

export const administratorGrant = { database: "*", role: "Owner" } as const;

/** How a user owns a database or, on `*`, administers. A greater one counts before a smaller one. */
export const standing = { withoutPassword: 1, byGroup: 2, byOwnEntry: 3 } as const;

/** The record of an external user may contain a hash, which no login accepts. */
function hasPassword({ users }: Snapshot, username: string): boolean {
  return users.get(username)?.passwordHash !== undefined && !isExternalUsername(username);
}

/**
 * The greatest standing that any of these users has on each database, and on `*`.
 *
 * @param mayLogIn by default, a user with a password
 */
export function* greatestStandings(
  snapshot: Snapshot,
  mayLogIn = (username: string) => hasPassword(snapshot, username),
  usernames: Iterable<string> = everyone(snapshot),
): Steps<Map<string, number>> {
  const greatest = new Map<string, number>();
  yield* visitEach(usernames, (username) => {
    if (accountObstacle(snapshot, username) !== undefined) return;
    const grants = effectiveGrants(snapshot, { username });
    for (const database of grants.keys()) {
      const grant = unrestrictedGrant(grants, database);
      if (grant?.role !== "Owner") continue;
      const { withoutPassword, byGroup, byOwnEntry } = standing;
      const through = groupOf(grant.holder) === undefined ? byOwnEntry : byGroup;
      const held = database === EVERY_DATABASE && !mayLogIn(username) ? withoutPassword : through;
      greatest.set(database, Math.max(held, greatest.get(database) ?? 0));
    }
  });
  return greatest;
}

function localMembers({ groups }: Snapshot, holder: Holder): readonly string[] {
  return groups.get(groupOf(holder) ?? "")?.members ?? [];
}

function everyone({ grants, groups }: Snapshot): Set<string> {
  const users = [...grants.keys()].flatMap((holder) => userOf(holder) ?? []);
  return new Set([...users, ...groups.values().flatMap(({ members }) => members)]);
}

/** The refusal code if the greatest standing of the users in `among` falls on some database. */
function* lossAmong(before: Snapshot, after: Snapshot, among?: Iterable<string>) {
  const past = yield* greatestStandings(before, undefined, among);
  const left = yield* greatestStandings(after, undefined, among);
  const lost = past.entries().filter(([name, held]) => held > (left.get(name) ?? 0));
  const databases = [...lost.map(([name]) => name)];
  if (databases.includes(EVERY_DATABASE)) return "last_administrator";
  return databases.length === 0 ? undefined : "last_owner";
}

/**
 * Protects the last administrator, and the last Owner of each database: by entries of users while
 * there are any, otherwise by local groups.
 *
 * @throws Refusal `last_administrator` or `last_owner`
 */
export function* requireRemainingOwners(before: Snapshot, after: Snapshot): Steps<void> {
  const changed = new Set<string>();
  for (const holder of yield* differingHolders(before, after)) {
    const own = userOf(holder) ?? [];
    const members = [...localMembers(before, holder), ...localMembers(after, holder)];
    for (const username of members.concat(own)) changed.add(username);
  }
  // All other users need to be searched only if the changed users lost something.
  if ((yield* lossAmong(before, after, changed)) === undefined) return;
  const lost = yield* lossAmong(before, after);
  if (lost !== undefined) throw new Refusal(lost);
}
