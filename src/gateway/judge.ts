import type { Decision } from "../access/decision.ts";
import { decideQuery } from "../access/policy.ts";
import type { Query } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import type { Identity } from "../upstream/headers.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** Operations of one query that the audit names; the rest are only counted. */
const AUDITED_OPERATIONS = 16;

function note(exchange: Exchange, { accesses }: Query, decisions: readonly Decision[]): void {
  const operations = accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables }, at) => {
      const { role, entry } = decisions[at] ?? { role: undefined, entry: undefined };
      return { operation, database, tables, role, entry };
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

/**
 * Compares what a query asks for with what its caller may do, and notes both for the audit. While
 * authentication is off, there is nobody to judge.
 *
 * @returns for whom and by which right the query goes up
 * @throws Refusal saying which rule denies it
 */
export function judge(gateway: Gateway, exchange: Exchange, query: Query): Identity | undefined {
  const { subject, principal } = exchange.authenticated;
  if (subject === undefined) {
    note(exchange, query, []);
    return undefined;
  }
  const via = principal === undefined ? "query" : "mcp";
  const context = { via, now: Date.now(), isEngine: false } as const;
  const decided = decideQuery(gateway.access.snapshot, subject, query, context);
  const { allowed, decisions, limits } = decided;
  note(exchange, query, decisions);
  const isKept = limits.length === 0 && !decisions.some(({ additions }) => additions?.length);
  if (allowed && isKept) return identityOf(subject.username, query, decisions);
  const { reason = "no_grant", message } = decisions.at(-1) ?? {};
  if (query.batch) {
    const detail = `Batch[${decisions.length - 1}]: ${reason}`;
    throw new Refusal("batch_member_denied", { detail });
  }
  const told = message === undefined ? {} : { message };
  throw new Refusal(reason === "allowed" ? "not_narrowable" : reason, told);
}
