/** What a query body asks for, as far as access control is concerned. */

import type { OperationDetail } from "./operation-detail.ts";
import type { PermissionClass } from "./permissions.ts";

/** One thing that a query does. */
export interface Access {
  /** The operation key as it stands in the body, such as `Select` or a configured one. */
  readonly operation: string;
  /** The rights that it needs, all of them. */
  readonly permissions: readonly PermissionClass[];
  /** True for an operation of the grammar that changes nothing. */
  readonly reads: boolean;
  readonly database: string;
  /** The tables touched: none for a database operation, two for a join. */
  readonly tables: readonly string[];
  /** Byte offset in the body at which the operation's inner object (`{...}` after its key) begins. */
  readonly start: number;
  /** Byte offset after the inner object. */
  readonly end: number;
  /** What it says in detail, if the scan was asked for it. */
  readonly detail?: OperationDetail;
}

/** What a query body asks for, in the order in which it asks. */
export interface Query {
  /** True if the body is a `Batch`; then `accesses` has one entry for each element. */
  readonly batch: boolean;
  readonly accesses: readonly Access[];
}

/** True for a query that changes nothing: it may be sent again. */
export function isReadOnly({ accesses }: Query): boolean {
  return accesses.every(({ reads }) => reads);
}
