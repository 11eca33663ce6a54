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
function rankOf(role: EntryRole): number {
  return role === "None" ? roles.length : roles.indexOf(role);
}

export function outranks(role: EntryRole, other: EntryRole): boolean {
  return rankOf(role) < rankOf(other);
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
