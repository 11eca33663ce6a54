import path from "node:path";
import type { EntryPoint } from "../access/grant.ts";
import { decide } from "../access/policy.ts";
import type { ApprovalRule } from "../access/rights.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { operationsInWords } from "../observe/audit-filter.ts";

/** `void`: a right that the approval depends on was lost. */
export const approvalStates = ["pending", "approved", "denied", "expired", "used", "void"] as const;
export type ApprovalState = (typeof approvalStates)[number];

/** Who decides: the operator at the command line, or a user of the console. */
export interface Author {
  readonly kind: "cli" | "console";
  readonly name: string;
}

/** What an approval is bound to. It does not apply to a query that differs in any of these. */
export interface ApprovalBinding {
  readonly username: string;
  readonly via: EntryPoint;
  /** The OAuth client that sent the query. */
  readonly client: string | undefined;
  /** SHA-256 of the query's bytes, in hexadecimal. */
  readonly bodyHash: string;
  /** SHA-256 of the deciding entries and boundaries with filters and attributes, in hexadecimal. */
  readonly basisHash: string;
}

interface AskedOperation {
  readonly operation: string;
  readonly database: string;
  readonly tables: readonly string[];
}

export interface ApprovalRequest extends ApprovalBinding {
  readonly body: Buffer;
  /** The first few operations and the total count. */
  readonly operations: readonly AskedOperation[];
  readonly operationCount: number;
  readonly rules: readonly ApprovalRule[];
  /** The id of the request that asked, for the audit. */
  readonly requestId: string;
}

export interface Approval extends Omit<ApprovalRequest, "body" | "requestId"> {
  readonly id: string;
  readonly state: ApprovalState;
  /** Epoch milliseconds. */
  readonly asked: number;
  /** Epoch milliseconds until which it can be decided and, if approved, used. */
  readonly expires: number;
  readonly author: Author | undefined;
  readonly decided: number | undefined;
  /** Why it was denied or is void. */
  readonly reason: string | undefined;
  /** The digest of the rows that its author was shown. */
  readonly touched: string | undefined;
}

/** A step in the life of an approval, for the audit. */
export interface ApprovalStep {
  /** Such as `approval_asked`. */
  readonly name: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/**
 * Approvals by state. Counts include all past approvals, except that `pending` counts the current
 * ones.
 */
export type ApprovalCounts = Readonly<Record<ApprovalState, number>>;

export interface ApprovalDecision {
  readonly state: "approved" | "denied";
  readonly author: Author;
  readonly reason?: string | undefined;
  /** Milliseconds for which the approval is valid from now on. */
  readonly wait: number;
}

/** Maximum pending approvals per user. */
export const MOST_PENDING = 20;

/** The approvals file of a gateway that stores its state in files. */
export function approvalFileOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "approvals.sqlite");
}

/**
 * Stores approvals for all processes of a gateway and for commands. Every operation first expires
 * what is due. Each step is kept until it is written to the audit.
 */
export interface ApprovalStore {
  /**
   * Requests an approval, or returns the pending one for the same binding.
   *
   * @param wait milliseconds until it expires
   * @returns undefined if the user has too many pending
   */
  ask(request: ApprovalRequest, wait: number): Promise<Approval | undefined>;
  find(id: string): Promise<Approval | undefined>;
  /** Newest first. Closed approvals are listed for a day, or while their query is kept. */
  list(): Promise<readonly Approval[]>;
  /**
   * The bytes of the query, while it is pending or kept for review. @throws Error if they cannot be
   * decrypted
   */
  readBody(id: string): Promise<Buffer | undefined>;
  noteShown(id: string, author: Author, touched: string): Promise<void>;
  /** False if the approval is no longer pending. */
  decide(id: string, decision: ApprovalDecision): Promise<boolean>;
  /** Uses up an approval. False if it was used already or is no longer valid. */
  consume(id: string, requestId: string): Promise<boolean>;
  /** Voids an approval whose basis is gone. */
  makeVoid(id: string, reason: string): Promise<void>;
  /**
   * Passes each step to `write` exactly once, even if several processes call this at the same time.
   */
  takeSteps(write: (step: ApprovalStep) => void): Promise<void>;
  counts(): Promise<ApprovalCounts>;
  close(): Promise<void>;
}

export function summaryOf({
  operations,
  operationCount,
}: Pick<Approval, "operations" | "operationCount">): string {
  return operationsInWords(operations, operationCount) ?? "-";
}

export function approversOf({ approvers, database }: ApprovalRule): string {
  return approvers === undefined ? `who may grant on ${database}` : approvers.join(", ");
}

function mayApproveBy(
  snapshot: Snapshot,
  username: string,
  { approvers, database }: ApprovalRule,
): boolean {
  if (approvers !== undefined) return approvers.includes(username);
  const subject = { username, tokenDatabase: EVERY_DATABASE };
  return decide(snapshot, subject, "GRANT", database).allowed;
}

/**
 * True if the author may decide on an approval now. Each rule allows the approvers it names, or
 * else those who may grant there, but never the requester. The operator at the command line is
 * always allowed, since they could edit the access file.
 */
export function mayApprove(
  snapshot: Snapshot,
  { kind, name }: Author,
  { username, rules }: Pick<Approval, "username" | "rules">,
): boolean {
  if (kind === "cli") return true;
  const isInForce = snapshot.users.get(name)?.disabled === false;
  return (
    isInForce && name !== username && rules.every((rule) => mayApproveBy(snapshot, name, rule))
  );
}
