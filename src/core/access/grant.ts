import type { Writable } from "../base/toml.ts";
import type { RowCondition } from "../query/limits.ts";
import { placeName } from "../query/names.ts";
import type { PermissionClass } from "../query/permissions.ts";
import { type EntryRole, GROUP_PREFIX } from "./roles.ts";

declare const holderBrand: unique symbol;

/**
 * Who holds an entry: a user or a group. The compiler does not take one for a username. At run time
 * it is the user's name or `group:<name>`, as in approvers and stored records, so that equal holders
 * are equal keys.
 */
export interface Holder {
  readonly [holderBrand]: true;
}

/** Reads a username or `group:<name>`. */
export function readHolder(text: unknown): Holder {
  return text as Holder;
}

/** A username, or `group:<name>`. */
export function holderText(holder: Holder): string {
  return String(holder);
}

export function userHolder(username: string): Holder {
  return readHolder(username);
}

export function groupHolder(group: string): Holder {
  return readHolder(GROUP_PREFIX + group);
}

/** The group's name. Undefined for a user. */
export function groupOf(holder: Holder): string | undefined {
  const text = holderText(holder);
  return text.startsWith(GROUP_PREFIX) ? text.slice(GROUP_PREFIX.length) : undefined;
}

/** The username. Undefined for a group. */
export function userOf(holder: Holder): string | undefined {
  return groupOf(holder) === undefined ? holderText(holder) : undefined;
}

/** `rita`, or `group analysts`. */
export function holderName(holder: Holder): string {
  const group = groupOf(holder);
  return group === undefined ? holderText(holder) : `group ${group}`;
}

/** As the file and JSON write it: under `username`, or under `group`. */
export function writtenHolder(holder: Holder): { username: string } | { group: string } {
  const group = groupOf(holder);
  return group === undefined ? { username: holderText(holder) } : { group };
}

/** As messages name an entry: its place, and the group if it is a group's. */
export function displayName(place: string, { holder }: { readonly holder: Holder }): string {
  const group = groupOf(holder);
  return group === undefined ? place : `${place} (group ${group})`;
}

/** Numbers are whole, and bigint where a double would lose digits. */
export type Literal = string | number | bigint | boolean;

export type AttributeValue = Literal | readonly Literal[];
export type Attributes = ReadonlyMap<string, AttributeValue>;

export interface User {
  readonly username: string;
  readonly email: string | undefined;
  /** Argon2id in PHC form. Without a hash the user cannot log in. */
  readonly passwordHash: string | undefined;
  readonly disabled: boolean;
  /** Epoch seconds. A token whose `iat` is not later is refused. */
  readonly tokensValidAfter: number;
  readonly attributes?: Attributes;
  /** Another name of the same person. */
  readonly sameAs?: string;
}

/** A local group. */
export interface Group {
  readonly name: string;
  readonly members: readonly string[];
}

/** The members of a group whom its later state lacks. */
export function membersGone(earlier: Group, { members }: Pick<Group, "members">): string[] {
  return earlier.members.filter((member) => !members.includes(member));
}

export interface Limits {
  readonly maxRows?: number;
  /** Maximum rows that one query inserts, updates or deletes. */
  readonly maxChanges?: number;
  readonly requireApproval?: readonly PermissionClass[];
  /** By default, everyone who may grant there. */
  readonly approvers?: readonly Holder[];
}

/** An entry of the access file. Equal grants are equal in every field. */
export interface Grant extends Limits {
  readonly holder: Holder;
  readonly database: string;
  readonly role: EntryRole;
  /** Table names, and patterns that end in `*`. Absent for the whole database. */
  readonly tables?: readonly string[];
  /** The only columns that may be named. Absent for all. */
  readonly columns?: readonly string[];
  /** The only columns that may be written. Absent for all that may be named. */
  readonly writableColumns?: readonly string[];
  /**
   * Conditions that every row read, changed or added must meet, as written. Text that begins with
   * `@` refers to an attribute of the caller, and `@username` to the caller's name. `@@x` is the
   * literal text `@x`.
   */
  readonly rowFilter?: readonly RowCondition[];
  /** Columns that the `where` of an Update or Delete must pin. */
  readonly requireWhere?: readonly string[];
  /** Epoch milliseconds from which the entry is expired. */
  readonly expires?: number;
}

export type EntryPoint = "mcp" | "query";

export interface RateLimit {
  readonly count: number;
  readonly windowMs: number;
}

/** A permission boundary: an upper limit that applies regardless of the caller's entries. */
export interface Boundary extends Limits {
  readonly via: EntryPoint;
  /** An OAuth client. It applies to all if absent, as `holder` and `database` do. */
  readonly client?: string;
  readonly holder?: Holder;
  readonly database?: string;
  readonly role?: EntryRole;
  readonly rateLimit?: RateLimit;
}

export function hasExpired({ expires }: Grant, now: number = Date.now()): boolean {
  return expires !== undefined && expires <= now;
}

/** True for an entry that limits a query by more than a role on a whole database. */
export function isNarrowing(grant: Grant): boolean {
  return (
    grant.role === "None" ||
    (grant.tables ?? grant.columns ?? grant.writableColumns ?? grant.rowFilter) !== undefined ||
    (grant.requireWhere ?? grant.maxRows ?? grant.maxChanges) !== undefined ||
    grant.requireApproval !== undefined
  );
}

/** Such as `main`, `main.tickets` or `*.a,b_*`. */
export function describePlace({ database, tables }: Pick<Grant, "database" | "tables">): string {
  return placeName(database, tables?.join(","));
}

/** Changes to a user's record. `undefined` removes the key. */
export type UserUpdate = Partial<Omit<User, "username" | "attributes" | "sameAs">> & {
  readonly attributes?: User["attributes"] | undefined;
  readonly sameAs?: User["sameAs"] | undefined;
};

export function updatedUser(user: User, update: UserUpdate): User {
  const { attributes, sameAs, ...rest } = { ...user, ...update };
  return {
    ...rest,
    ...(attributes === undefined || attributes.size === 0 ? {} : { attributes }),
    ...(sameAs === undefined ? {} : { sameAs }),
  };
}

export function writtenGroup({ name, members }: Group): Record<string, Writable> {
  return { name, members };
}

/** A user's record under the keys of the file, without defaults. */
export function writtenUser(user: User): Record<string, Writable> {
  const { username, email, passwordHash, disabled, tokensValidAfter, attributes, sameAs } = user;
  return {
    username,
    ...(email === undefined ? {} : { email }),
    ...(passwordHash === undefined ? {} : { password_hash: passwordHash }),
    ...(disabled ? { disabled } : {}),
    ...(tokensValidAfter === 0 ? {} : { tokens_valid_after: tokensValidAfter }),
    ...(attributes === undefined ? {} : { attributes: Object.fromEntries(attributes) }),
    ...(sameAs === undefined ? {} : { same_as: sameAs }),
  };
}

/** A caller: the user, and the database that the token is limited to (`*` for no limit). */
export interface Subject {
  readonly username: string;
  readonly tokenDatabase: string;
  readonly tokenReadOnly?: boolean;
  /** The groups of the token, such as `staff:engineering`. */
  readonly groups?: readonly string[];
  /** From the token's claims. A record's attribute of the same name counts instead. */
  readonly attributes?: Attributes;
}

export const attributeName = "[A-Za-z_][A-Za-z0-9_-]{0,63}";
export const attributeReference = new RegExp(`^@${attributeName}$`);
const wholeName = new RegExp(`^(?!username$)${attributeName}$`);
/** In characters, for filters and attributes. */
const LONGEST_TEXT = 1024;

/** True for a whole number that lost no digits. */
export function isWhole(value: unknown): value is number | bigint {
  return typeof value === "bigint" || Number.isSafeInteger(value);
}

/** True for a value that filters compare with: text, a whole number, true or false. */
export function isLiteral(value: unknown): value is Literal {
  return (
    // A filter with -0 is written into a query as 0, and then not found in it.
    (isWhole(value) && !Object.is(value, -0)) ||
    typeof value === "boolean" ||
    (typeof value === "string" && value.length <= LONGEST_TEXT && value.isWellFormed())
  );
}

export function readAttributes(value: unknown): Map<string, AttributeValue> | undefined {
  if (typeof value !== "object" || value === null || value instanceof Date) return undefined;
  const isValue = (one: unknown): one is AttributeValue =>
    isLiteral(one) ||
    (Array.isArray(one) &&
      one.every(isLiteral) &&
      new Set(one.map((each) => (isWhole(each) ? "number" : typeof each))).size <= 1);
  const attributes = new Map<string, AttributeValue>();
  for (const [name, one] of Object.entries(value)) {
    if (!wholeName.test(name) || !isValue(one)) return undefined;
    attributes.set(name, one);
  }
  return attributes;
}

export const attributesForm =
  "names (letters, digits, _ and -; not username) with text, whole numbers, true, false, or lists of one of these";

/** The lowest of the numbers that are set, however many there are. */
export function lowest(numbers: readonly (number | undefined)[]): number | undefined {
  const set = numbers.filter((one) => one !== undefined);
  return set.length === 0 ? undefined : set.reduce((least, one) => Math.min(least, one));
}
