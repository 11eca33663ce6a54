import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import type { GrantConflict } from "./database-grants.ts";
import type { Boundary } from "./grant.ts";
import { LayeredMap } from "./layered-map.ts";
import { type AccessRecord, isUser, type TableName, tableOf } from "./record-tables.ts";
import type { AccessRecords, ReadRecords, Report } from "./records.ts";
import { EVERY_DATABASE } from "./roles.ts";
import type { Grant, Snapshot, User } from "./snapshot.ts";
import { entriesIn, GrantCollection, type UserGrants } from "./user-grants.ts";

/** The records, indexed for the decisions. */
export interface AccessIndex {
  readonly snapshot: Snapshot;
  /** How many grants name a database. */
  readonly uses: ReadonlyMap<string, number>;
}

/** What makes the records of one state those of the next. */
export interface RecordChanges {
  readonly removed: readonly AccessRecord[];
  readonly added: readonly AccessRecord[];
}

/** Changed records of which each is looked at by itself; past it, all are indexed anew. */
const FEW_RECORDS = 4096;

function isGrant(record: AccessRecord): record is Grant {
  return tableOf(record) === "acl";
}

/** What names a database: an entry, or a boundary that is for one. */
type DatabaseNamer = (Grant | Boundary) & Pick<Grant, "database">;

function isNamer(record: AccessRecord): record is DatabaseNamer {
  return "database" in record && record.database !== undefined;
}

function* indexUsers(users: ReadRecords["users"], report: Report): Steps<Map<string, User>> {
  const byName = new Map<string, User>();
  yield* visitEach(users, (user, index) => {
    if (user === undefined) return;
    if (byName.has(user.username)) {
      const reason = "this user has a record already";
      report({ table: "users", index, key: "username", reason });
    }
    byName.set(user.username, user);
  });
  return byName;
}

function* indexDatabases(
  { grants, boundaries }: ReadRecords,
  report: Report,
): Steps<{ databases: Map<string, string>; uses: Map<string, number> }> {
  const databases = new Map<string, string>();
  const uses = new Map<string, number>();
  const note = (table: TableName) => (namer: Grant | Boundary | undefined, index: number) => {
    if (namer === undefined || !isNamer(namer)) return;
    const { database } = namer;
    const used = uses.get(database);
    uses.set(database, (used ?? 0) + 1);
    if (used !== undefined || database === EVERY_DATABASE) return;
    const folded = database.toLowerCase();
    if (databases.has(folded)) {
      const reason = "another entry names a database that differs from this one only by case";
      report({ table, index, key: "database", reason });
    } else databases.set(folded, database);
  };
  yield* visitEach(grants, note("acl"));
  yield* visitEach(boundaries, note("boundaries"));
  return { databases, uses };
}

type GrantsByUser = Map<string, GrantCollection>;

const conflicts: Record<GrantConflict, string> = {
  database_taken: "this user has an entry for this database already",
  table_taken: "this user has an entry for one of these tables already",
  patterns_overlap: "two patterns of this user fit the same tables of this database",
};

/** @throws Refusal `invalid_entry` if an entry in the place of those `held` contradicts one that stays */
export function requireNoConflict(grants: UserGrants, grant: Grant, held: readonly Grant[]): void {
  const changed = new GrantCollection();
  for (const own of entriesIn(grants)) {
    if (!held.includes(own)) changed.add(own);
  }
  const conflict = changed.add(grant);
  if (conflict === undefined) return;
  throw new Refusal("invalid_entry", { message: `Invalid entry: ${conflicts[conflict]}` });
}

/** Puts a grant to the others of its user; what is wrong with it, if anything is. */
function addGrant(byUser: GrantsByUser, grant: Grant): GrantConflict | undefined {
  const { username } = grant;
  let own = byUser.get(username);
  if (own === undefined) {
    own = new GrantCollection();
    byUser.set(username, own);
  }
  return own.add(grant);
}

function* indexGrants(grants: ReadRecords["grants"], report: Report): Steps<GrantsByUser> {
  const byUser: GrantsByUser = new Map();
  yield* visitEach(grants, (grant, index) => {
    const conflict = grant && addGrant(byUser, grant);
    if (conflict === undefined) return;
    report({ table: "acl", index, key: undefined, reason: conflicts[conflict] });
  });
  return byUser;
}

/** Indexes the records; those that contradict others are reported. */
export function* indexRecords(
  read: ReadRecords,
  version: string,
  report: Report,
): Steps<AccessIndex> {
  const byName = yield* indexUsers(read.users, report);
  const { databases, uses } = yield* indexDatabases(read, report);
  const byUser = yield* indexGrants(read.grants, report);
  const boundaries = read.boundaries.filter((boundary) => boundary !== undefined);
  const snapshot = { version, users: byName, databases, grants: byUser, boundaries };
  return { snapshot, uses };
}

function changeUsers(known: Snapshot["users"], { removed, added }: RecordChanges) {
  const changed = new Map<string, User | null>();
  for (const { username } of removed.filter(isUser)) changed.set(username, null);
  for (const user of added.filter(isUser)) {
    const { username } = user;
    const held = changed.has(username) ? changed.get(username) : known.get(username);
    if (held) return undefined;
    changed.set(username, user);
  }
  return LayeredMap.over(known, changed);
}

/** The grants of users whose grants have changed; undefined if two contradict each other. */
function* groupGrants(
  { grants }: AccessRecords,
  usernames: ReadonlySet<string>,
): Steps<GrantsByUser | undefined> {
  const byUser: GrantsByUser = new Map();
  let isGood = true;
  // In the order of the file, in which the interface lists them.
  yield* visitEach(usernames.size === 0 ? [] : grants, (grant) => {
    if (usernames.has(grant.username)) isGood = addGrant(byUser, grant) === undefined && isGood;
  });
  return isGood ? byUser : undefined;
}

/** Databases that are named by other grants than before, with how many do so now. */
function recountDatabases(
  uses: ReadonlyMap<string, number>,
  removed: readonly DatabaseNamer[],
  added: readonly DatabaseNamer[],
): Map<string, number> {
  const counts = new Map<string, number>();
  const count = ({ database }: DatabaseNamer, by: number) =>
    counts.set(database, (counts.get(database) ?? uses.get(database) ?? 0) + by);
  for (const grant of removed) count(grant, -1);
  for (const grant of added) count(grant, 1);
  return counts;
}

function changeDatabases(known: Snapshot["databases"], counts: ReadonlyMap<string, number>) {
  const changed = new Map<string, string | null>();
  for (const [name, count] of counts) if (count === 0) changed.set(name.toLowerCase(), null);
  for (const [name, count] of counts) {
    if (count === 0 || name === EVERY_DATABASE) continue;
    const folded = name.toLowerCase();
    const held = changed.has(folded) ? changed.get(folded) : known.get(folded);
    if (held && held !== name) return undefined;
    if (held !== name) changed.set(folded, name);
  }
  return LayeredMap.over(known, changed);
}

/**
 * The index of `records` made of that of an earlier state, with which it shares all that did not
 * change. Undefined if too much did, or if records contradict each other: then they are indexed
 * anew.
 */
export function* changeIndex(
  { snapshot, uses }: AccessIndex,
  changes: RecordChanges,
  records: AccessRecords,
  version: string,
): Steps<AccessIndex | undefined> {
  if (changes.removed.length + changes.added.length > FEW_RECORDS) return undefined;
  const users = changeUsers(snapshot.users, changes);
  if (users === undefined) return undefined;
  const { removed, added } = changes;
  const counts = recountDatabases(uses, removed.filter(isNamer), added.filter(isNamer));
  const databases = changeDatabases(snapshot.databases, counts);
  const counted = LayeredMap.over(uses, counts);
  const named = new Set([...removed, ...added].filter(isGrant).map(({ username }) => username));
  const own = yield* groupGrants(records, named);
  if (own === undefined) return undefined;
  const layer = new Map(Array.from(named, (name) => [name, own.get(name) ?? null]));
  const grants = LayeredMap.over(snapshot.grants, layer);
  if (databases === undefined || counted === undefined || grants === undefined) return undefined;
  const { boundaries } = records;
  return { snapshot: { version, users, databases, grants, boundaries }, uses: counted };
}
