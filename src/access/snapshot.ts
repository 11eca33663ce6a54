import { type Steps, visitEach } from "../cooperative-scheduling.ts";
import { EVERY_DATABASE, type Role } from "./roles.ts";

/** A user's record in the access file. */
export interface User {
  readonly username: string;
  readonly email: string | undefined;
  /** Argon2id in PHC form; without one there is no login. */
  readonly passwordHash: string | undefined;
  readonly disabled: boolean;
  /** Epoch seconds: a token whose `iat` is not later is refused. */
  readonly tokensValidAfter: number;
}

/** What a user is given on a database. Equal grants are equal in every field. */
export interface Grant {
  readonly username: string;
  readonly database: string;
  readonly role: Role;
}

/**
 * The whole access file at one moment, immutable. A request takes the current snapshot once and
 * decides by it alone, so that it never sees half of a change.
 */
export interface Snapshot {
  /** A short hash of the file's content, by which replicas can be compared. */
  readonly version: string;
  readonly users: ReadonlyMap<string, User>;
  /** Username to database (or `*`) to grant, in the order of the file. */
  readonly grants: ReadonlyMap<string, ReadonlyMap<string, Grant>>;
  /** Databases that the file names, by their lower-case form. */
  readonly databases: ReadonlyMap<string, string>;
}

/** The state before there is a file. */
export const emptySnapshot: Snapshot = {
  version: "",
  users: new Map(),
  grants: new Map(),
  databases: new Map(),
};

const none: ReadonlyMap<string, Grant> = new Map();

/** The user's grants, by database (or `*`). */
export function grantsOf(snapshot: Snapshot, username: string): ReadonlyMap<string, Grant> {
  return snapshot.grants.get(username) ?? none;
}

/** True if the user is an administrator: Owner on `*`. */
export function isAdministrator(snapshot: Snapshot, username: string): boolean {
  return grantsOf(snapshot, username).get(EVERY_DATABASE)?.role === "Owner";
}

/** The user's grants as the interface lists them, in the file's order. */
export function accessList(
  snapshot: Snapshot,
  username: string,
): { database: string; role: Role }[] {
  return Array.from(grantsOf(snapshot, username).values(), ({ database, role }) => ({
    database,
    role,
  }));
}

/** A user as the interface shows it: never with the hash. */
export interface UserView {
  username: string;
  email: string | null;
  disabled: boolean;
  access: { database: string; role: Role }[];
}

/** The public view of `user`. */
export function viewUser(snapshot: Snapshot, user: User): UserView {
  return {
    username: user.username,
    email: user.email ?? null,
    disabled: user.disabled,
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
