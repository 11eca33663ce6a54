/** What becomes of a query, as the gateway would decide on it now. */

import type { EntryPoint } from "../access/grant.ts";
import { decideQuery } from "../access/policy.ts";
import type { QueryDecision } from "../access/rights.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { filterAdditions } from "../access/row-filter.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { obstacleOf } from "../access/subject.ts";
import type { Query } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { scan } from "../query/scan.ts";
import { splice } from "../query/splice.ts";
import { inForm } from "../upstream/query-form.ts";
import type { QueryInterface } from "./query-grammar.ts";

/** Who asks, and how. */
export interface Asker {
  readonly user: string;
  readonly via: EntryPoint;
  readonly client?: string | undefined;
}

/** What becomes of a query. */
export interface Outcome {
  readonly allowed: boolean;
  /** As the gateway answers it, `allowed` if it is. */
  readonly code: string;
  readonly message?: string | undefined;
  /** The element of a Batch that is denied, and why. */
  readonly element?: number;
  readonly reason?: string;
  readonly query?: Query;
  readonly decided?: QueryDecision;
  /** What goes up, if it does. */
  readonly body?: Buffer;
}

/** How queries are read, what is behind, and the form in which they go up. */
export interface Setting {
  readonly queries: Pick<QueryInterface, "grammar" | "isEngine">;
  readonly form: "keyed" | "op";
}

function deniedOutcome(query: Query, decided: QueryDecision): Outcome {
  const { decisions, reason } = decided;
  const denied = { allowed: false, message: decisions.at(-1)?.message, query, decided };
  if (!query.batch || reason === "approval_required") return { ...denied, code: reason };
  return { ...denied, code: "batch_member_denied", element: decisions.length - 1, reason };
}

/** Decides on a query as the gateway does. */
export function outcomeOf(
  snapshot: Snapshot,
  { user, via, client }: Asker,
  body: Buffer,
  { queries: { grammar, isEngine }, form }: Setting,
): Outcome {
  const obstacle = obstacleOf(snapshot, user);
  if (obstacle !== undefined) return { allowed: false, code: obstacle };
  try {
    const query = scan(body, grammar, true);
    const subject = { username: user, tokenDatabase: EVERY_DATABASE };
    const context = { via, client, now: Date.now(), isEngine };
    const decided = decideQuery(snapshot, subject, query, context);
    if (!decided.allowed) return deniedOutcome(query, decided);
    const filtered = splice(body, filterAdditions(query, decided.decisions));
    const sent = inForm(form, filtered, scan(filtered, grammar));
    return { allowed: true, code: "allowed", query, decided, body: sent };
  } catch (error) {
    if (!(error instanceof QueryRefused)) throw error;
    return { allowed: false, code: error.code, message: error.message };
  }
}
