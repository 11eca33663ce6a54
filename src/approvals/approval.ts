import path from "node:path";
import type { EntryPoint } from "../access/grant.ts";
import { decide } from "../access/policy.ts";
import type { ApprovalRule } from "../access/rights.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { operationsInWords } from "../observe/audit-filter.ts";

/** Approvals as data, and what is asked of whatever holds them. */

/** What can become of an approval. `void`: a right that it rests on was lost. */
export const approvalStates = ["pending", "approved", "denied", "expired", "used", "void"] as const;
export type ApprovalState = (typeof approvalStates)[number];

/** Who decides: the operator at the command line, or a user of the console. */
export interface Author {
  readonly kind: "cli" | "console";
  readonly name: string;
}

/** What an approval is for. It lifts nothing for anything that differs in any of it. */
export interface ApprovalBinding {
  readonly username: string;
  readonly via: EntryPoint;
  /** The OAuth client by which the query came. */
  readonly client: string | undefined;
  /** SHA-256 of the query's bytes, in hexadecimal digits. */
  readonly bodyHash: string;
  /** SHA-256 of the entries and boundaries that decide, with filters and attributes. */
  readonly basisHash: string;
}

/** An operation of a query, as it is listed. */
interface AskedOperation {
  readonly operation: string;
  readonly database: string;
  readonly tables: readonly string[];
}

/** What is asked for. */
export interface ApprovalRequest extends ApprovalBinding {
  /** The query's bytes. */
  readonly body: Buffer;
  /** The first few of its operations, and how many there are. */
  readonly operations: readonly AskedOperation[];
  readonly operationCount: number;
  /** The rules that ask for approval. */
  readonly rules: readonly ApprovalRule[];
  /** The request that asks, for the audit. */
  readonly requestId: string;
}

/** An approval that was asked for. */
export interface Approval extends Omit<ApprovalRequest, "body" | "requestId"> {
  readonly id: string;
  readonly state: ApprovalState;
  /** Epoch milliseconds. */
  readonly asked: number;
  /** Epoch milliseconds until which it can be decided, and then used. */
  readonly expires: number;
  /** Who approved or denied it, and when. */
  readonly author: Author | undefined;
  readonly decided: number | undefined;
  /** Why it was denied, or is void. */
  readonly reason: string | undefined;
  /** The digest of the rows that its author was shown. */
  readonly touched: string | undefined;
}

/** A step on an approval's way, for the audit. */
export interface ApprovalStep {
  /** Such as `approval_asked`. */
  readonly name: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** How many approvals there are, by state; all that there ever were, but for those that wait. */
export type ApprovalCounts = Readonly<Record<ApprovalState, number>>;

/** What was decided, by whom. */
export interface ApprovalDecision {
  readonly state: "approved" | "denied";
  readonly author: Author;
  readonly reason?: string | undefined;
  /** Milliseconds for which an approval is good from now on. */
  readonly wait: number;
}

/** Approvals that one user may have pending. */
export const MOST_PENDING = 20;

/** The file in which a gateway of files keeps its approvals. */
export function approvalFileOf(serviceDirectory: string): string {
  return path.join(serviceDirectory, "approvals.sqlite");
}

/**
 * Holds approvals, for all processes that serve a gateway and for commands. What is due expires
 * before anything else is done. Each step is kept until somebody has written it into the audit.
 */
export interface ApprovalStore {
  /**
   * Asks for an approval, or finds the one that is pending for the same.
   *
   * @param wait milliseconds until it expires
   * @returns undefined if the user has too many pending
   */
  ask(request: ApprovalRequest, wait: number): Promise<Approval | undefined>;
  find(id: string): Promise<Approval | undefined>;
  /** All that are known, the newest first; those that are over for a day, or while their query is kept. */
  list(): Promise<readonly Approval[]>;
  /** The bytes of the query, while it is pending or kept for review. @throws Error if they cannot be decrypted */
  readBody(id: string): Promise<Buffer | undefined>;
  /** Notes which rows somebody was shown. */
  noteShown(id: string, author: Author, touched: string): Promise<void>;
  /** Decides; false if it is not pending any more. */
  decide(id: string, decision: ApprovalDecision): Promise<boolean>;
  /** Uses an approval up; false if somebody else has, or it is not good any more. */
  consume(id: string, requestId: string): Promise<boolean>;
  /** Ends an approval whose ground is gone. */
  makeVoid(id: string, reason: string): Promise<void>;
  /** Hands each step to `write`, once; several processes may do so at a time. */
  takeSteps(write: (step: ApprovalStep) => void): Promise<void>;
  counts(): Promise<ApprovalCounts>;
  close(): Promise<void>;
}

/** What is asked for, as `Delete main.orders and 2 more`. */
export function summaryOf({
  operations,
  operationCount,
}: Pick<Approval, "operations" | "operationCount">): string {
  return operationsInWords(operations, operationCount) ?? "-";
}

/** Who decides by a rule. */
export function approversOf({ approvers, database }: ApprovalRule): string {
  return approvers === undefined ? `who may grant on ${database}` : approvers.join(", ");
}

/** Who may approve what another one asks for. */

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
 * True if the author may decide on an approval now: for each of its rules those whom it names, else
 * who may grant there, never who asks. The command line is the operator's, who could as well edit
 * the access file.
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
