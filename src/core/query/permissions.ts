const ofTables = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"] as const;

/** The rights that roles give. GRANT covers the management of users and grants. */
export const permissionClasses = [
  ...ofTables,
  "CREATE DATABASE",
  "DROP DATABASE",
  "GRANT",
] as const;
export type PermissionClass = (typeof permissionClasses)[number];

/** The rights that an entry for a table can give. */
export const tableRights: readonly PermissionClass[] = ofTables;

export function isPermissionClass(text: string): text is PermissionClass {
  return permissionClasses.some((permission) => permission === text);
}
