import type { OperationNode } from "./node.ts";
import type { ParsedOperations } from "./parsed-operations.ts";
import type { PermissionClass } from "./permissions.ts";

export interface Access {
  /** The operation key in the body, such as `Select` or a configured one. */
  readonly operation: string;
  readonly permissions: readonly PermissionClass[];
  readonly reads: boolean;
  readonly database: string;
  /** None for a database operation, two for a join; then those within its conditions. */
  readonly tables: readonly string[];
  /** Byte offsets of the object after the operation's key. `end` is exclusive. */
  readonly start: number;
  readonly end: number;
  /** For a Preview, the change that it contains. */
  readonly node: OperationNode;
}

export interface Query {
  /** True for a `Batch`, also under a Preview. Then `accesses` has one entry per element. */
  readonly batch: boolean;
  readonly accesses: readonly Access[];
  readonly operations: ParsedOperations;
}

/** A query with its bytes, and with the conditions that were added to it, if any. */
export interface ParsedQuery {
  readonly body: Buffer;
  readonly query: Query;
}

/** True for a query that may be sent again. */
export function isReadOnly({ accesses }: Query): boolean {
  return accesses.every(({ reads }) => reads);
}
