/** What a query can ask for, and the right that each operation needs. */

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

/** The operation keys of the query grammar, each with the right it needs. */
export const operationClasses = {
  Select: "SELECT",
  Insert: "INSERT",
  Update: "UPDATE",
  Delete: "DELETE",
  CreateTable: "CREATE",
  DropTable: "DROP",
  CreateDatabase: "CREATE DATABASE",
  DropDatabase: "DROP DATABASE",
} as const satisfies Record<string, PermissionClass>;
export type OperationName = keyof typeof operationClasses;

/** One thing that a query does, as far as access control is concerned. */
export interface Access {
  /** The operation key as it stands in the body, such as `Select` or a configured one. */
  readonly operation: string;
  readonly permission: PermissionClass;
  readonly database: string;
  /** The tables touched: none for a database operation, two for a join. */
  readonly tables: readonly string[];
  /** Byte offset in the body at which the operation's inner object (`{...}` after its key) begins. */
  readonly start: number;
  /** Byte offset after the inner object. */
  readonly end: number;
}

/** What a query body asks for, in the order in which it asks. */
export interface Query {
  /** True if the body is a `Batch`; then `accesses` has one entry for each element. */
  readonly batch: boolean;
  readonly accesses: readonly Access[];
}
