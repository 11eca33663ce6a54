import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { Refusal } from "../refusal.ts";
import {
  entriesIn,
  GrantCollection,
  type GrantConflict,
  lastingGrant,
  standingGrant,
  type UserGrants,
} from "./entries.ts";
import { type EntryView, viewEntry } from "./entry-view.ts";
import type { Boundary, Grant, User } from "./grant.ts";
import {
  type AccessRecord,
  type AccessRecords,
  isUser,
  type ReadRecords,
  type Report,
  type TableName,
  tableOf,
} from "./records.ts";
import { EVERY_DATABASE, isExternalUsername } from "./roles.ts";

export type { Grant, User } from "./grant.ts";

/**
 * The whole access file at one moment, immutable. A request takes one snapshot and uses only that,
 * so that it never sees half of a change.
 */
export interface Snapshot {
  /** A short hash of the file's content, for comparing replicas. */
  readonly version: string;
  readonly users: ReadonlyMap<string, User>;
  /** Entries by username, in the order of the file. */
  readonly grants: ReadonlyMap<string, UserGrants>;
  /** Databases named in entries and boundaries, by their lower-case form. */
  readonly databases: ReadonlyMap<string, string>;
  readonly boundaries: readonly Boundary[];
}

export const emptySnapshot: Snapshot = {
  version: "",
  users: new Map(),
  grants: new Map(),
  databases: new Map(),
  boundaries: [],
};

const none: UserGrants = new GrantCollection();

export function grantsOf(snapshot: Snapshot, username: string): UserGrants {
  return snapshot.grants.get(username) ?? none;
}

/** The user's permanent entry for a whole database (or `*`). */
export function grantOn(snapshot: Snapshot, username: string, database: string): Grant | undefined {
  return lastingGrant(grantsOf(snapshot, username), database);
}

/** True if the user is an administrator: a permanent Owner on `*`, without limits. */
export function isAdministrator(snapshot: Snapshot, username: string): boolean {
  return standingGrant(grantsOf(snapshot, username), EVERY_DATABASE)?.role === "Owner";
}

/** The user's grants as the API lists them, in the order of the file. */
export function accessList(snapshot: Snapshot, username: string): EntryView[] {
  return Array.from(entriesIn(grantsOf(snapshot, username)), viewEntry);
}

export function blankUser(username: string): User {
  return {
    username,
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
  };
}

/** External users with entries but no record. */
export function* unrecordedUsers({ users, grants }: Snapshot): Generator<string, void> {
  for (const name of grants.keys()) if (isExternalUsername(name) && !users.has(name)) yield name;
}

/** A user as the API shows it, never with the password hash. */
export interface UserView {
  username: string;
  email: string | null;
  disabled: boolean;
  external?: true;
  access: EntryView[];
}

export function viewUser(snapshot: Snapshot, user: User): UserView {
  return {
    username: user.username,
    email: user.email ?? null,
    disabled: user.disabled,
    ...(isExternalUsername(user.username) ? { external: true } : {}),
    access: accessList(snapshot, user.username),
  };
}

/** Minimum number of names collected between two sorts. */
const GATHERED = 1024;

/**
 * Finds in steps the first `count` users by name that `isMeant` accepts, without sorting all.
 *
 * @param after returns only names after this one
 */
export function* firstNames<T>(
  items: ReadonlyMap<string, T>,
  count: number,
  after: string | undefined,
  isMeant: (item: T) => boolean,
): Steps<string[]> {
  const most = Math.max(GATHERED, 4 * count);
  let gathered: string[] = [];
  let bound: string | undefined;
  yield* visitEach(items, ([name, item]) => {
    if (after !== undefined && name <= after) return;
    if ((bound !== undefined && name > bound) || !isMeant(item)) return;
    gathered.push(name);
    if (gathered.length < most) return;
    gathered = gathered.sort().slice(0, count);
    bound = gathered.at(-1);
  });
  return gathered.sort().slice(0, count);
}

/** Changes laid over a map. Null removes a key. */
type Layer<K, V> = ReadonlyMap<K, V | null>;

/**
 * Up to this many changes, plus a sixteenth of the base map, lookups stay as fast as in one map.
 */
const FEW = 1024;

/** A copy-on-write map: few changes over a large base map, which is never written to again. */
export class LayeredMap<K, V extends object | string | number> implements ReadonlyMap<K, V> {
  readonly #base: ReadonlyMap<K, V>;
  readonly #layer: Layer<K, V>;

  constructor(base: ReadonlyMap<K, V>, layer: Layer<K, V>) {
    this.#base = base;
    this.#layer = layer;
  }

  /** `map` with changes. Undefined if so many have accumulated that a new map is better. */
  static over<K, V extends object | string | number>(
    map: ReadonlyMap<K, V>,
    changes: Layer<K, V>,
  ): ReadonlyMap<K, V> | undefined {
    const isLayered = map instanceof LayeredMap;
    const base: ReadonlyMap<K, V> = isLayered ? map.#base : map;
    const earlier: Layer<K, V> = isLayered ? map.#layer : new Map();
    if (earlier.size + changes.size > FEW + base.size / 16) return undefined;
    return changes.size === 0 ? map : new LayeredMap(base, new Map([...earlier, ...changes]));
  }

  /** Keys under which two maps may differ. There are few if one was derived from the other. */
  static differing<K, V extends object | string | number>(
    one: ReadonlyMap<K, V>,
    other: ReadonlyMap<K, V>,
  ): Iterable<K> {
    if (one === other) return [];
    const [below, above] = [one, other].map((map) =>
      map instanceof LayeredMap ? { base: map.#base, layer: map.#layer } : { base: map },
    );
    if (below?.base !== above?.base) return union(one, other);
    return new Set<K>([...(below?.layer?.keys() ?? []), ...(above?.layer?.keys() ?? [])]);
  }

  get(key: K): V | undefined {
    const changed = this.#layer.get(key);
    return changed === undefined ? this.#base.get(key) : (changed ?? undefined);
  }

  has(key: K): boolean {
    return this.get(key) !== undefined;
  }

  get size(): number {
    let size = this.#base.size;
    for (const [key, value] of this.#layer) {
      size += (value === null ? 0 : 1) - (this.#base.has(key) ? 1 : 0);
    }
    return size;
  }

  *entries(): Generator<[K, V], undefined> {
    for (const entry of this.#base) {
      const changed = this.#layer.get(entry[0]);
      if (changed === undefined) yield entry;
      else if (changed !== null) yield [entry[0], changed];
    }
    for (const [key, value] of this.#layer) {
      if (value !== null && !this.#base.has(key)) yield [key, value];
    }
  }

  *keys(): Generator<K, undefined> {
    for (const [key] of this.entries()) yield key;
  }

  *values(): Generator<V, undefined> {
    for (const [, value] of this.entries()) yield value;
  }

  [Symbol.iterator](): Generator<[K, V], undefined> {
    return this.entries();
  }

  forEach(visit: (value: V, key: K, map: ReadonlyMap<K, V>) => void): void {
    for (const [key, value] of this.entries()) visit(value, key, this);
  }
}

function* union<K, V>(one: ReadonlyMap<K, V>, other: ReadonlyMap<K, V>): Generator<K> {
  yield* one.keys();
  for (const key of other.keys()) if (!one.has(key)) yield key;
}

export interface AccessIndex {
  readonly snapshot: Snapshot;
  readonly uses: ReadonlyMap<string, number>;
}

export interface RecordChanges {
  readonly removed: readonly AccessRecord[];
  readonly added: readonly AccessRecord[];
}

/** Up to this many changed records the index is updated. Beyond, it is rebuilt. */
const FEW_RECORDS = 4096;

function isGrant(record: AccessRecord): record is Grant {
  return tableOf(record) === "acl";
}

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

/**
 * @throws Refusal `invalid_entry` if the entry that replaces `held` conflicts with a remaining one
 */
export function requireNoConflict(grants: UserGrants, grant: Grant, held: readonly Grant[]): void {
  const changed = new GrantCollection();
  for (const own of entriesIn(grants)) {
    if (!held.includes(own)) changed.add(own);
  }
  const conflict = changed.add(grant);
  if (conflict === undefined) return;
  throw new Refusal("invalid_entry", { message: `Invalid entry: ${conflicts[conflict]}` });
}

/** Returns the conflict with the user's other grants, if there is one. */
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

/** Indexes the records and reports conflicts. */
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

/** The grants of changed users. Undefined if two conflict. */
function* groupGrants(
  { grants }: AccessRecords,
  usernames: ReadonlySet<string>,
): Steps<GrantsByUser | undefined> {
  const byUser: GrantsByUser = new Map();
  let isGood = true;
  // In the order of the file, in which the API lists them.
  yield* visitEach(usernames.size === 0 ? [] : grants, (grant) => {
    if (usernames.has(grant.username)) isGood = addGrant(byUser, grant) === undefined && isGood;
  });
  return isGood ? byUser : undefined;
}

/** The databases whose number of naming grants changed, with the new number. */
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
 * Derives the index of `records` from an earlier one and shares everything unchanged. Undefined if
 * too much changed or records conflict, in which case the index must be rebuilt.
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
