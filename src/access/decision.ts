/** The answers to questions of access, as data: audit, command line and HTTP show the same. */

import type { PermissionClass } from "../query/permissions.ts";
import type { DecidingEntry } from "./deciding-entry.ts";
import type { EntryPoint, Literal, RowComparison } from "./grant.ts";
import type { EntryRole } from "./roles.ts";

/** Why a decision came out as it did; the codes are stable. */
export type Reason =
  | "allowed"
  | "no_grant"
  | "role_insufficient"
  | "grant_expired"
  | "database_case_mismatch"
  | "token_database"
  | "token_read_only"
  | "name_case_mismatch"
  | "columns_required"
  | "column_denied"
  | "column_unqualified"
  | "limit_required"
  | "limit_too_high"
  | "where_required"
  | "too_many_changes"
  | "row_denied"
  | "attribute_missing"
  | "join_denied"
  | "not_narrowable";

/** Why something is denied. */
export type Denial = Exclude<Reason, "allowed">;

/** The answer to one question of access. */
export interface Decision {
  readonly allowed: boolean;
  readonly reason: Reason;
  /** The role that counts there, if the user has one; of several tables and boundaries the narrowest. */
  readonly role: EntryRole | undefined;
  /** Which entry decided, such as `main`, `*`, `main.tickets`, `*.customer_*`; several with commas. */
  readonly entry: string | undefined;
  /** The permission boundary that denies it, if one does. */
  readonly boundary?: string;
  /** A sentence that says what is wrong and what is allowed, for the caller. */
  readonly message?: string;
  /** The conditions, as JSON, that all rows fulfil which it reads or changes. */
  readonly filters?: readonly string[];
  /** Those of them that its own `where` does not demand already. */
  readonly additions?: readonly string[];
}

/** What some elements of a query may do together, as `gatehouse engine` is told it. */
export interface QueryLimit {
  /** The places in a Batch; 0 for a query that is none. */
  readonly elements: readonly number[];
  /** Rows inserted, updated or deleted at most. */
  readonly changes?: number;
  /** Rows of `returning` and Preview answered at most. */
  readonly rows?: number;
  /** The columns of a row that a Preview shows. */
  readonly columns?: readonly string[];
}

/** What `gatehouse engine` compares by bytes for a caller, beside the column's own comparison. */
export interface BytewiseColumns {
  readonly database: string;
  readonly table: string;
  /** The columns of row filters and of `require_where`. */
  readonly bytewise: readonly string[];
  /** The row filter that inserted and updated rows must satisfy. */
  readonly written?: readonly {
    readonly column: string;
    readonly cmp: RowComparison;
    readonly value: Literal | readonly Literal[];
  }[];
}

/** A rule that asks for somebody's approval. */
export interface ApprovalRule {
  /** The entry or the boundary that asks. */
  readonly entry?: string;
  readonly boundary?: string;
  readonly database: string;
  /** The rights that are used and need it. */
  readonly permissions: readonly PermissionClass[];
  /** Who approves; if it is left out, who may grant on the database. */
  readonly approvers?: readonly string[];
}

/** The decision on a whole query: allowed only if every access in it is. */
export interface QueryDecision {
  readonly allowed: boolean;
  /** That of the access that is denied; `approval_required` if all pass but for an approval. */
  readonly reason: Reason | "approval_required";
  /** One decision an access, up to and including the first that is denied. */
  readonly decisions: readonly Decision[];
  /** What the database must keep, since it cannot be known before. */
  readonly limits: readonly QueryLimit[];
  /** What the database must compare by bytes. */
  readonly bytewise?: readonly BytewiseColumns[];
  /** The rules that ask for approval, whether or not it was given. */
  readonly approvals: readonly ApprovalRule[];
  /** Where one is asked for: the entries, row filters and boundaries that decide, as text. */
  readonly basis?: string;
}

/** How a query came. */
export interface QueryOrigin {
  readonly via: EntryPoint;
  /** The OAuth client by which it came. */
  readonly client?: string | undefined;
}

/** How a query came, and what is behind. */
export interface DecisionContext extends QueryOrigin {
  /** Epoch milliseconds. */
  readonly now: number;
  /** True if `gatehouse engine` is behind, which keeps limits and compiles aliases. */
  readonly isEngine: boolean;
  /** True if what asks for approval was approved. */
  readonly isApproved?: boolean;
}

/** Why an access is denied, and by which entry or boundary. */
export interface Objection {
  readonly reason: Denial;
  readonly message: string;
  /** Undefined if there is none, or if no single one does. */
  readonly entry?: DecidingEntry | undefined;
  readonly boundary?: string;
}
