import { type Decision, decideQuery } from "../access/policy.ts";
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
  const { subject } = exchange.authenticated;
  if (subject === undefined) {
    note(exchange, query, []);
    return undefined;
  }
  const { allowed, decisions } = decideQuery(gateway.access.snapshot, subject, query);
  note(exchange, query, decisions);
  if (allowed) return identityOf(subject.username, query, decisions);
  const reason = decisions.at(-1)?.reason ?? "no_grant";
  if (query.batch) {
    const detail = `Batch[${decisions.length - 1}]: ${reason}`;
    throw new Refusal("batch_member_denied", { detail });
  }
  throw new Refusal(reason === "allowed" ? "no_grant" : reason);
}
