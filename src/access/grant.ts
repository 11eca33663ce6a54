import type { PermissionClass } from "../query/permissions.ts";
import type { Writable } from "../toml/values.ts";
import type { EntryRole } from "./roles.ts";

/** What the access file can give and take away, as types. */

/** A value of a row filter or of an attribute. Whole numbers alone; bigint past a double's reach. */
export type Literal = string | number | bigint | boolean;

/** What is known of a user beyond its name, for the row filters that refer to it. */
export type AttributeValue = Literal | readonly Literal[];
export type Attributes = ReadonlyMap<string, AttributeValue>;

/** A user's record in the access file. */
export interface User {
  readonly username: string;
  readonly email: string | undefined;
  /** Argon2id in PHC form; without one there is no login. */
  readonly passwordHash: string | undefined;
  readonly disabled: boolean;
  /** Epoch seconds: a token whose `iat` is not later is refused. */
  readonly tokensValidAfter: number;
  /** What row filters may refer to; absent for nothing. */
  readonly attributes?: Attributes;
}

/** The operators of a row filter. */
export const rowComparisons = ["=", "!=", ">", ">=", "<", "<=", "IN"] as const;
export type RowComparison = (typeof rowComparisons)[number];

/**
 * One condition of a row filter, as it is written: text that begins with `@` stands for an
 * attribute of the caller, `@username` for its name, and `@@x` for the text `@x`.
 */
export interface RowCondition {
  readonly column: string;
  readonly cmp: RowComparison;
  readonly value: Literal | readonly Literal[];
}

/** Limits that an entry or a boundary may set. */
export interface Limits {
  /** Rows that an answer has at most. */
  readonly maxRows?: number;
  /** Rows that one query inserts, updates or deletes at most. */
  readonly maxChanges?: number;
  /** Rights whose use somebody has to approve. */
  readonly requireApproval?: readonly PermissionClass[];
  /** Who approves; if it is left out, who may grant there. */
  readonly approvers?: readonly string[];
}

/** An entry of the access file: what a user is given. Equal grants are equal in every field. */
export interface Grant extends Limits {
  readonly username: string;
  /** A database, or `*` for every one. */
  readonly database: string;
  readonly role: EntryRole;
  /** Names of tables, and patterns with `*` at their end; absent for the whole database. */
  readonly tables?: readonly string[];
  /** The only columns that may be named; absent for all. */
  readonly columns?: readonly string[];
  /** The only columns that may be written; absent for those that may be named. */
  readonly writableColumns?: readonly string[];
  /** What all rows fulfil that are read, changed or added. */
  readonly rowFilter?: readonly RowCondition[];
  /** Columns that the `where` of an Update or Delete pins. */
  readonly requireWhere?: readonly string[];
  /** Epoch milliseconds from which on the entry is over. */
  readonly expires?: number;
}

/** The doors through which a query can come. */
export type EntryPoint = "mcp" | "query";

/** How many requests pass in a window of time. */
export interface RateLimit {
  readonly count: number;
  readonly windowMs: number;
}

/** A permission boundary: what passes at most, whatever the caller's own entries say. */
export interface Boundary extends Limits {
  readonly via: EntryPoint;
  /** The OAuth client that it is for; absent for every one. */
  readonly client?: string;
  /** The user that it is for; absent for every one. */
  readonly username?: string;
  /** The database that it is for; absent for every one. */
  readonly database?: string;
  readonly role?: EntryRole;
  readonly rateLimit?: RateLimit;
}

/** True for an entry by which a query is judged beyond its role on a whole database. */
export function isNarrowing(grant: Grant): boolean {
  return (
    grant.role === "None" ||
    grant.tables !== undefined ||
    grant.columns !== undefined ||
    grant.writableColumns !== undefined ||
    grant.rowFilter !== undefined ||
    grant.requireWhere !== undefined ||
    grant.maxRows !== undefined ||
    grant.maxChanges !== undefined ||
    grant.requireApproval !== undefined
  );
}

/** Where an entry is: `main`, `main.tickets`, `*.a,b_*`. */
export function placeOf({ database, tables }: Pick<Grant, "database" | "tables">): string {
  return tables === undefined ? database : `${database}.${tables.join(",")}`;
}

/** What a machine may change in a user's record; `undefined` takes the key out. */
export type UserUpdate = Partial<Omit<User, "username" | "attributes">> & {
  readonly attributes?: User["attributes"] | undefined;
};

/** A user's record with changes made. */
export function updatedUser(user: User, update: UserUpdate): User {
  const { attributes, ...rest } = { ...user, ...update };
  return attributes === undefined || attributes.size === 0 ? rest : { ...rest, attributes };
}

/** A user's attributes by the keys of the file; nothing where there are none. */
export function writtenAttributes({ attributes }: User): Record<string, Writable> {
  return attributes === undefined ? {} : { attributes: Object.fromEntries(attributes) };
}

/** A user's record by the keys of the file; what is as by default is left out. */
export function writtenUser(user: User): Record<string, Writable> {
  const { username, email, passwordHash, disabled, tokensValidAfter } = user;
  return {
    username,
    ...(email === undefined ? {} : { email }),
    ...(passwordHash === undefined ? {} : { password_hash: passwordHash }),
    ...(disabled ? { disabled } : {}),
    ...(tokensValidAfter === 0 ? {} : { tokens_valid_after: tokensValidAfter }),
    ...writtenAttributes(user),
  };
}
