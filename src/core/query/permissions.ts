/** The rights that roles give. GRANT covers the management of users and grants. */
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

export function isPermissionClass(text: string): text is PermissionClass {
  return permissionClasses.some((permission) => permission === text);
}
