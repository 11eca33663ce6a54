/** Approvals in words for people. */
import type { ApprovalRule } from "../access/decision.ts";
import type { Approval } from "./approval.ts";

/** What is asked for, as `Delete main.orders and 2 more`. */
export function summaryOf({
  operations,
  operationCount,
}: Pick<Approval, "operations" | "operationCount">): string {
  const [first] = operations;
  if (first === undefined) return "-";
  const { operation, database, tables } = first;
  const place = tables.length === 0 ? database : tables.map((one) => `${database}.${one}`).join();
  const others = operationCount - 1;
  return `${operation} ${place}${others === 0 ? "" : ` and ${others} more`}`;
}

/** Who decides by a rule. */
export function approversOf({ approvers, database }: ApprovalRule): string {
  return approvers === undefined ? `who may grant on ${database}` : approvers.join(", ");
}
