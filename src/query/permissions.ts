/** The rights that roles give; GRANT covers managing users and grants. */
export const permissionClasses = [
  "SELECT",
  "INSERT",
  "UPDATE",
  "DELETE",
  "CREATE",
  "DROP",
  "CREATE DATABASE",
  "DROP DATABASE",
  "GRANT",
] as const;
export type PermissionClass = (typeof permissionClasses)[number];

/** True if `text` names a right. */
export function isPermissionClass(text: string): text is PermissionClass {
  return permissionClasses.some((permission) => permission === text);
}
