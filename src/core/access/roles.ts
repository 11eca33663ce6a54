import { isDatabaseName, isPlainName } from "../query/names.ts";
import type { PermissionClass } from "../query/permissions.ts";

/** Widest first. */
export const roles = ["Owner", "DbAdmin", "ReadWrite", "ReadOnly"] as const;
export type Role = (typeof roles)[number];

/** A role, or None, which withholds what a wider entry would give. */
export type EntryRole = Role | "None";

/** Every database, in a grant and in a token's `database` claim. */
export const EVERY_DATABASE = "*";

const readOnly: PermissionClass[] = ["SELECT"];
const readWrite: PermissionClass[] = [...readOnly, "INSERT", "UPDATE", "DELETE"];
const dbAdmin: PermissionClass[] = [...readWrite, "CREATE", "DROP", "GRANT"];
const owner: PermissionClass[] = [...dbAdmin, "CREATE DATABASE", "DROP DATABASE"];

const rights: Record<EntryRole, ReadonlySet<PermissionClass>> = {
  Owner: new Set(owner),
  DbAdmin: new Set(dbAdmin),
  ReadWrite: new Set(readWrite),
  ReadOnly: new Set(readOnly),
  None: new Set(),
};

export function isRole(text: unknown): text is Role {
  return roles.some((role) => role === text);
}

export function roleAllows(role: EntryRole, permission: PermissionClass): boolean {
  return rights[role].has(permission);
}

/** Smaller is wider. */
function roleRank(role: EntryRole): number {
  return role === "None" ? roles.length : roles.indexOf(role);
}

export function outranks(role: EntryRole, other: EntryRole): boolean {
  return roleRank(role) < roleRank(other);
}

export function widestRole(some: Iterable<{ readonly role: EntryRole }>): Role | undefined {
  let widest: Role | undefined;
  for (const { role } of some) {
    if (role !== "None" && (widest === undefined || outranks(role, widest))) widest = role;
  }
  return widest;
}

/**
 * True if a holder of `role` on a database may grant or revoke `target` there. An Owner may grant
 * any role, a DbAdmin the two below its own.
 */
export function mayGrant(role: EntryRole, target: EntryRole): boolean {
  return role === "Owner" || (role === "DbAdmin" && outranks(role, target));
}

/** No username has this prefix, and no issuer. */
export const GROUP_PREFIX = "group:";

export const username = /^(?!\.{1,2}$)[A-Za-z0-9._@-]{1,64}$/;
const externalCharacters = "[\\p{L}\\p{M}\\p{Nd}._@+:/#'=|\\-]+";
export const externalName: RegExp = new RegExp(
  `^(?!${GROUP_PREFIX})[A-Za-z0-9_-]{1,63}:(?=.{1,200}$)${externalCharacters}(?: ${externalCharacters})*$`,
  "u",
);
/** Any text that a provider may call a group. */
export const externalGroup: RegExp = new RegExp(
  `^(?!${GROUP_PREFIX})[A-Za-z0-9_-]{1,63}:[^\\p{Cc}\\p{Cs}]{1,200}$`,
  "u",
);
export const externalGroupRule = "1 to 200 characters in NFC without control characters";
export const externalNameRule =
  "1 to 200 letters, marks and digits of any script and . _ - @ + : / # ' = | with single spaces between, in NFC";

export function isUsername(text: unknown): text is string {
  return typeof text === "string" && username.test(text);
}

/** True for a user of an issuer, written `<prefix>:<username>`. */
export function isExternalUsername(text: unknown): text is string {
  return typeof text === "string" && externalName.test(text) && text === text.normalize("NFC");
}

/** True for a user of the gateway or of an issuer. */
export function isAnyUsername(text: unknown): text is string {
  return isUsername(text) || isExternalUsername(text);
}

/** True for a local group's name, or a group of an issuer, written `<prefix>:<group>`. */
export function isGroupName(text: unknown): text is string {
  return isLocalGroupName(text) || isExternalGroup(text);
}

/** True for a group of an issuer, written `<prefix>:<group>`. */
export function isExternalGroup(text: unknown): text is string {
  return typeof text === "string" && externalGroup.test(text) && text === text.normalize("NFC");
}

/** `<prefix>:` of a user or group of an issuer, and empty for another name. */
export function prefixWithColon(name: string): string {
  return name.slice(0, name.indexOf(":") + 1);
}

export function isLocalGroupName(text: unknown): text is string {
  return typeof text === "string" && isPlainName(text);
}

const listItem = /(?:\s*"((?:[^"]|"")*)"\s*|([^,]*))(?:,|$)/y;

/** Splits a list at its commas. A name in double quotes may have commas, as in CSV. */
export function splitNames(text: string): string[] {
  const names: string[] = [];
  let item = ",";
  listItem.lastIndex = 0;
  while (item.endsWith(",")) {
    const [whole = "", quoted, plain = ""] = listItem.exec(text) ?? [];
    item = whole;
    names.push(quoted?.replaceAll('""', '"') ?? plain.trim());
  }
  return names;
}

/** Writes a list for `splitNames`. */
export function joinNames(names: readonly string[]): string {
  return names
    .map((name) => (/^\s|[",]|\s$/.test(name) ? `"${name.replaceAll('"', '""')}"` : name))
    .join(", ");
}

export function isDatabaseOrEvery(text: unknown): text is string {
  return text === EVERY_DATABASE || (typeof text === "string" && isDatabaseName(text));
}

export function isEmail(text: unknown): text is string {
  return (
    typeof text === "string" &&
    text.length > 0 &&
    text.length <= 254 &&
    text.isWellFormed() &&
    !/\p{Cc}/u.test(text)
  );
}
