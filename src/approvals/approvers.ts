/** Who may approve what another one asks for. */
import type { ApprovalRule } from "../access/decision.ts";
import { decide } from "../access/policy.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Approval, Author } from "./approval.ts";

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
