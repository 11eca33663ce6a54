import { seesSchema } from "../access/deciding-entry.ts";
import type {
  ApprovalRule,
  BytewiseColumns,
  Decision,
  QueryDecision,
  QueryLimit,
  QueryOrigin,
} from "../access/decision.ts";
import { decideQuery } from "../access/policy.ts";
import { mayBeNarrowed, rulesFor } from "../access/rights.ts";
import type { Query } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import type { Identity } from "../upstream/headers.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** Operations of one query that the audit names; the rest are only counted. */
export const AUDITED_OPERATIONS = 16;

/** Bytes of the shapes of one query. */
const LONGEST_SHAPES = 2048;
/** Bytes below which a shape says too little to be noted. */
const SHORTEST_SHAPE = 32;

function note(exchange: Exchange, { accesses }: Query, decisions: readonly Decision[]): void {
  let left = LONGEST_SHAPES;
  const operations = accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables, detail }, at) => {
      const { role, entry, boundary } = decisions[at] ?? { role: undefined, entry: undefined };
      const shape = left < SHORTEST_SHAPE ? "" : (detail?.shape(left) ?? "");
      left -= Buffer.byteLength(shape);
      return { operation, database, tables, role, entry, boundary, shape: shape || undefined };
    });
  exchange.verdict.ask(operations, accesses.length);
}

/** What the upstream is told: each database once, in the query's order, with the role there. */
function identityOf(username: string, query: Query, decisions: readonly Decision[]): Identity {
  const [access, ...others] = query.accesses;
  if (access !== undefined && others.length === 0) {
    return { username, roles: [decisions[0]?.role ?? ""], databases: [access.database] };
  }
  const roles = new Map<string, string>();
  for (const [at, { database }] of query.accesses.entries()) {
    roles.set(database, decisions[at]?.role ?? "");
  }
  return { username, roles: [...roles.values()], databases: [...roles.keys()] };
}

/** Where a request came in, and by which OAuth client, as permission boundaries tell callers apart. */
export function originOf({ authenticated: { principal } }: Exchange): QueryOrigin {
  return principal === undefined ? direct : { via: "mcp", client: principal.clientId };
}

const direct: QueryOrigin = { via: "query" };

/** True if more than its role judges what the caller asks. */
export function isNarrowed({ access }: Gateway, exchange: Exchange): boolean {
  const { subject } = exchange.authenticated;
  return (
    subject !== undefined && mayBeNarrowed(access.snapshot, subject.username, originOf(exchange))
  );
}

/** What the engine is told to keep; `touched` is the digest of the rows that an approval is for. */
export type EngineLimit = QueryLimit | BytewiseColumns | { readonly touched: string };

/** Why somebody has to approve a query. */
export interface NeededApproval {
  readonly rules: readonly ApprovalRule[];
  /** What decides, as text. */
  readonly basis: string;
}

/** True if something that the caller may do has to be approved. */
export function mayNeedApproval({ access }: Gateway, exchange: Exchange): boolean {
  const { subject } = exchange.authenticated;
  if (subject === undefined) return false;
  return rulesFor(access.snapshot, subject.username, originOf(exchange)).some(
    ({ requireApproval }) => requireApproval !== undefined,
  );
}

/** A query that may go up, once it is approved where that is needed. */
export interface Judged {
  readonly decisions: readonly Decision[];
  /** For whom and by which right it goes up; undefined while authentication is off. */
  readonly identity: Identity | undefined;
  /** What the database must keep. */
  readonly limits: readonly EngineLimit[];
  /** Set if somebody has to approve it. */
  readonly approval: NeededApproval | undefined;
  /** False if something of the schema is hidden from the caller, also in errors. */
  readonly seesSchema: boolean;
}

/** @throws Refusal that tells the caller by which rule, and what else to do */
export function requireAllowed({ reason, message }: Decision): void {
  if (reason !== "allowed") throw new Refusal(reason, message === undefined ? {} : { message });
}

/** The refusal that tells the caller by which rule, and in which element of a Batch. */
function refusalOf({ batch }: Query, { decisions, reason }: QueryDecision): Refusal {
  const { message } = decisions.at(-1) ?? {};
  const code = reason === "allowed" ? "no_grant" : reason;
  const told = message === undefined ? {} : { message };
  if (!batch) return new Refusal(code, told);
  const element = decisions.length - 1;
  const detail = `Batch[${element}]: ${code}`;
  return new Refusal("batch_member_denied", {
    ...told,
    detail,
    members: { element, reason: code },
  });
}

/**
 * Compares what a query asks for with what its caller may do, and notes both for the audit. While
 * authentication is off, there is nobody to judge.
 *
 * @throws Refusal saying which rule denies it
 */
export function judge({ access, queries }: Gateway, exchange: Exchange, query: Query): Judged {
  const { subject } = exchange.authenticated;
  if (subject === undefined) {
    note(exchange, query, []);
    return {
      decisions: [],
      identity: undefined,
      limits: [],
      approval: undefined,
      seesSchema: true,
    };
  }
  const context = { ...originOf(exchange), now: Date.now(), isEngine: queries.isEngine };
  const decided = decideQuery(access.snapshot, subject, query, context);
  const { allowed, decisions, limits, bytewise, reason } = decided;
  const { approvals: rules, basis = "" } = decided;
  const isAsked = reason === "approval_required";
  note(exchange, query, decisions);
  if (!allowed && !isAsked) throw refusalOf(query, decided);
  const { username } = subject;
  return {
    decisions,
    identity: identityOf(username, query, decisions),
    limits: bytewise === undefined ? limits : [...limits, ...bytewise],
    approval: isAsked ? { rules, basis } : undefined,
    seesSchema: query.accesses.every(({ database }) =>
      seesSchema(access.snapshot, username, database),
    ),
  };
}
