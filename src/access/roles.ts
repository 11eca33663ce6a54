import type { PermissionClass } from "../query/permissions.ts";

/** The roles of role-based access control (RBAC), widest first. */
export const roles = ["Owner", "DbAdmin", "ReadWrite", "ReadOnly"] as const;
export type Role = (typeof roles)[number];

/** Stands for every database in a grant and in a token's `database` claim. */
export const EVERY_DATABASE = "*";

const readOnly: PermissionClass[] = ["SELECT"];
const readWrite: PermissionClass[] = [...readOnly, "INSERT", "UPDATE", "DELETE"];
const dbAdmin: PermissionClass[] = [...readWrite, "CREATE", "DROP", "GRANT"];
const owner: PermissionClass[] = [...dbAdmin, "CREATE DATABASE", "DROP DATABASE"];

const rights: Record<Role, ReadonlySet<PermissionClass>> = {
  Owner: new Set(owner),
  DbAdmin: new Set(dbAdmin),
  ReadWrite: new Set(readWrite),
  ReadOnly: new Set(readOnly),
};

/** True if `text` names a role, in the exact spelling. */
export function isRole(text: unknown): text is Role {
  return roles.some((role) => role === text);
}

/** True if `role` holds the right `permission`. */
export function roleAllows(role: Role, permission: PermissionClass): boolean {
  return rights[role].has(permission);
}

/** True if `role` is wider than `other`. */
export function outranks(role: Role, other: Role): boolean {
  return roles.indexOf(role) < roles.indexOf(other);
}

/** The widest role of `some`, or undefined if there is none. */
export function widestRole(some: Iterable<{ readonly role: Role }>): Role | undefined {
  let widest: Role | undefined;
  for (const { role } of some) if (widest === undefined || outranks(role, widest)) widest = role;
  return widest;
}

/**
 * True if a holder of `role` on a database may grant or revoke `target` there: an Owner any role,
 * a DbAdmin the two below its own.
 */
export function mayGrant(role: Role, target: Role): boolean {
  return role === "Owner" || (role === "DbAdmin" && outranks(role, target));
}
