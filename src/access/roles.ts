import type { PermissionClass } from "../query/permissions.ts";

/** The roles of role-based access control (RBAC), widest first. */
export const roles = ["Owner", "DbAdmin", "ReadWrite", "ReadOnly"] as const;
export type Role = (typeof roles)[number];

/** What an entry gives: a role, or nothing at all where a wider entry would give one. */
export type EntryRole = Role | "None";

/** Stands for every database in a grant and in a token's `database` claim. */
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

/** True if `text` names a role, in the exact spelling. */
export function isRole(text: unknown): text is Role {
  return roles.some((role) => role === text);
}

/** True if `role` holds the right `permission`. */
export function roleAllows(role: EntryRole, permission: PermissionClass): boolean {
  return rights[role].has(permission);
}

/** How wide a role is: the less, the wider. */
function rankOf(role: EntryRole): number {
  return role === "None" ? roles.length : roles.indexOf(role);
}

/** True if `role` is wider than `other`. */
export function outranks(role: EntryRole, other: EntryRole): boolean {
  return rankOf(role) < rankOf(other);
}

/** The widest role of `some`, or undefined if there is none. */
export function widestRole(some: Iterable<{ readonly role: EntryRole }>): Role | undefined {
  let widest: Role | undefined;
  for (const { role } of some) {
    if (role !== "None" && (widest === undefined || outranks(role, widest))) widest = role;
  }
  return widest;
}

/**
 * True if a holder of `role` on a database may grant or revoke `target` there: an Owner any role,
 * a DbAdmin the two below its own.
 */
export function mayGrant(role: EntryRole, target: EntryRole): boolean {
  return role === "Owner" || (role === "DbAdmin" && outranks(role, target));
}
