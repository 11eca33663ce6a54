/** Predicts the gateway's current decision on a query. */

import { answersInWords } from "../access/effective.ts";
import type { Attributes, EntryPoint } from "../access/grant.ts";
import { decideQuery } from "../access/policy.ts";
import { filterAdditions, type QueryDecision } from "../access/rights.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { accountObstacle, type Snapshot } from "../access/snapshot.ts";
import { runAtOnce, type Steps } from "../base/cooperative-scheduling.ts";
import type { Configuration } from "../config/schema.ts";
import { addToBytes } from "../query/additions.ts";
import { parseQueryInSteps } from "../query/parse.ts";
import type { Query } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { toOpForm } from "../upstream/query-form.ts";
import type { QueryInterface } from "./gateway.ts";

/** Says that a gateway with a preset runs no queries. */
export function predictionWarnings({ upstream: { preset } }: Configuration): string[] {
  const found = `With preset ${preset}, the gateway has no /query and runs no such query.`;
  return preset === undefined ? [] : [found];
}

export interface QueryCaller {
  readonly user: string;
  readonly via: EntryPoint;
  readonly client?: string | undefined;
  /** Groups of the token; the local ones are known. */
  readonly groups?: readonly string[] | undefined;
  /** Of the token; those of the user's record are known. */
  readonly attributes?: Attributes | undefined;
  readonly isApproved?: boolean;
}

export interface PredictedOutcome {
  readonly allowed: boolean;
  /** The gateway's error code, or `allowed`. */
  readonly code: string;
  readonly message?: string | undefined;
  /** The index of the Batch element that is denied. */
  readonly element?: number;
  readonly reason?: string;
  readonly query?: Query;
  readonly decided?: QueryDecision;
  /** The body that would be sent upstream, if the query is allowed. */
  readonly body?: Buffer;
}

interface PredictionOptions {
  readonly queries: QueryInterface;
  readonly form: "keyed" | "op";
}

function deniedOutcome(query: Query, decided: QueryDecision): PredictedOutcome {
  const { decisions, reason } = decided;
  const denied = { allowed: false, message: decisions.at(-1)?.message, query, decided };
  if (!query.batch || reason === "approval_required") return { ...denied, code: reason };
  return { ...denied, code: "batch_member_denied", element: decisions.length - 1, reason };
}

export function predictOutcome(
  snapshot: Snapshot,
  caller: QueryCaller,
  body: Buffer,
  options: PredictionOptions,
): PredictedOutcome {
  return runAtOnce(predictInSteps(snapshot, caller, body, options, Infinity));
}

export function* predictInSteps(
  snapshot: Snapshot,
  { user, via, client, groups = [], attributes, isApproved = false }: QueryCaller,
  body: Buffer,
  { queries: { grammar, isEngine }, form }: PredictionOptions,
  bytesPerStep: number,
): Steps<PredictedOutcome> {
  const code = accountObstacle(snapshot, user);
  if (code !== undefined) return { allowed: false, code, message: answersInWords[code] };
  try {
    const query = yield* parseQueryInSteps(body, grammar, bytesPerStep);
    yield* query.operations.parse();
    const ofToken = attributes === undefined ? {} : { attributes };
    const subject = { username: user, groups, tokenDatabase: EVERY_DATABASE, ...ofToken };
    const context = { via, client, now: Date.now(), isEngine, isApproved };
    const decided = decideQuery(snapshot, subject, query, context);
    if (!decided.allowed) return deniedOutcome(query, decided);
    const additions = filterAdditions(decided.decisions);
    const sent = yield* addToBytes({ body, query }, additions, grammar, bytesPerStep);
    const forwarded = form === "op" ? toOpForm(sent.body, sent.query) : sent.body;
    return { allowed: true, code: "allowed", query, decided, body: forwarded };
  } catch (error) {
    if (!(error instanceof QueryRefused)) throw error;
    return { allowed: false, code: error.code, message: error.message };
  }
}
