import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { type EntryView, viewEntry } from "./entry-view.ts";
import type { Boundary, Grant, User } from "./grant.ts";
import { isExternalUsername } from "./identifiers.ts";
import { EVERY_DATABASE } from "./roles.ts";
import {
  entriesIn,
  GrantCollection,
  lastingGrant,
  standingGrant,
  type UserGrants,
} from "./user-grants.ts";

export type { Grant, User } from "./grant.ts";

/**
 * The whole access file at one moment, immutable. A request takes the current snapshot once and
 * decides by it alone, so that it never sees half of a change.
 */
export interface Snapshot {
  /** A short hash of the file's content, by which replicas can be compared. */
  readonly version: string;
  readonly users: ReadonlyMap<string, User>;
  /** Username to entries, in the order of the file. */
  readonly grants: ReadonlyMap<string, UserGrants>;
  /** Databases that the file names, in entries and boundaries, by their lower-case form. */
  readonly databases: ReadonlyMap<string, string>;
  readonly boundaries: readonly Boundary[];
}

/** The state before there is a file. */
export const emptySnapshot: Snapshot = {
  version: "",
  users: new Map(),
  grants: new Map(),
  databases: new Map(),
  boundaries: [],
};

const none: UserGrants = new GrantCollection();

/** The user's entries, by database (or `*`). */
export function grantsOf(snapshot: Snapshot, username: string): UserGrants {
  return snapshot.grants.get(username) ?? none;
}

/** The user's entry for the whole of a database (or `*`) that is for good. */
export function grantOn(snapshot: Snapshot, username: string, database: string): Grant | undefined {
  return lastingGrant(grantsOf(snapshot, username), database);
}

/** True if the user is an administrator: Owner on `*`, for good and with nothing that narrows it. */
export function isAdministrator(snapshot: Snapshot, username: string): boolean {
  return standingGrant(grantsOf(snapshot, username), EVERY_DATABASE)?.role === "Owner";
}

/** The user's grants as the interface lists them, in the file's order. */
export function accessList(snapshot: Snapshot, username: string): EntryView[] {
  return Array.from(entriesIn(grantsOf(snapshot, username)), viewEntry);
}

/** The record of a user of whom nothing but the name is known. */
export function blankUser(username: string): User {
  return {
    username,
    email: undefined,
    passwordHash: undefined,
    disabled: false,
    tokensValidAfter: 0,
  };
}

/** External users who have an entry and no record. */
export function* unrecordedUsers({ users, grants }: Snapshot): Generator<string, void> {
  for (const name of grants.keys()) if (isExternalUsername(name) && !users.has(name)) yield name;
}

/** A user as the interface shows it: never with the hash. */
export interface UserView {
  username: string;
  email: string | null;
  disabled: boolean;
  external?: true;
  access: EntryView[];
}

/** The public view of `user`. */
export function viewUser(snapshot: Snapshot, user: User): UserView {
  return {
    username: user.username,
    email: user.email ?? null,
    disabled: user.disabled,
    ...(isExternalUsername(user.username) ? { external: true } : {}),
    access: accessList(snapshot, user.username),
  };
}

/** Names that are gathered between two sortings, at least. */
const GATHERED = 1024;

/**
 * Finds in steps the first `count` by name of those that `isMeant` takes, without sorting all.
 *
 * @param after only names behind this one; all if it is undefined
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
