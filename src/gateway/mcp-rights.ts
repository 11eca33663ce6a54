import { isDeepStrictEqual } from "node:util";
import type { Decision } from "../access/decision.ts";
import { decideAll, mayUseAnywhere, mayUseOn } from "../access/policy.ts";
import type { Subject } from "../access/subject.ts";
import { decideOnTables, decideWhole } from "../access/whole-access.ts";
import type { Principal } from "../mcp/authenticate.ts";
import type { Rights } from "../mcp/proxy/tool-policy.ts";
import type { AskedRight } from "../mcp/tools/tool.ts";
import type { PermissionClass } from "../query/permissions.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { isNarrowed, originOf, requireAllowed } from "./judge.ts";
import { countCall } from "./request-limits.ts";

const allowed: Decision = { allowed: true, reason: "allowed", role: undefined, entry: undefined };

/**
 * What a principal may do behind `/mcp`, by the live access file. What is decided is noted with its
 * request.
 */
export function rightsOf(gateway: Gateway, exchange: Exchange, { subject }: Principal): Rights {
  const { auth } = gateway.configuration;
  const { verdict } = exchange;
  const decideNow = (permission: PermissionClass, database: string) =>
    decideWhole(gateway.access.snapshot, subject, permission, database, originOf(exchange));
  return {
    decide(rule, database) {
      const { permission } = rule;
      const judge = () => (auth.enabled ? decideNow(permission, database) : allowed);
      const decision = judge();
      const { role, entry } = decision;
      verdict.ask([{ operation: permission, database, tables: [], role, entry }]);
      if (decision.allowed) verdict.allow();
      else verdict.deny(decision.reason, 403);
      const { tools } = gateway.configuration.mcp;
      verdict.requireStillAllowed = () => {
        const { tools: now } = gateway.configuration.mcp;
        const isRuled = now === tools || now.some((other) => isDeepStrictEqual(other, rule));
        if (!isRuled) throw new Refusal("no_grant");
        requireAllowed(judge());
      };
      return decision;
    },
    countCall: () => countCall(gateway, exchange),
    mayUse(permission, database) {
      if (!auth.enabled) return true;
      const { snapshot } = gateway.access;
      return database === undefined
        ? mayUseAnywhere(snapshot, subject, permission, originOf(exchange))
        : decideNow(permission, database).allowed;
    },
  };
}

/** What can be decided ahead of a query; undefined if its arguments do not name enough for that. */
function decideAhead(
  gateway: Gateway,
  exchange: Exchange,
  subject: Subject,
  { permissions, database, tables }: AskedRight,
): Decision | undefined {
  if (database === undefined) return undefined;
  const { snapshot } = gateway.access;
  if (!isNarrowed(gateway, exchange)) return decideAll(snapshot, subject, permissions, database);
  if (tables.length === 0) return undefined;
  return decideOnTables(snapshot, subject, permissions, database, tables, originOf(exchange));
}

/**
 * Judges the right that a call of the embedded server needs, by what its arguments name, before
 * they are looked at any further.
 *
 * @throws Refusal saying which rule denies it; that is noted
 */
export function requireRight(gateway: Gateway, exchange: Exchange, asked: AskedRight): void {
  const { operation, permissions, database, tables } = asked;
  const { configuration, access } = gateway;
  const { subject } = exchange.authenticated;
  if (!configuration.auth.enabled || subject === undefined) return;
  // By what its query says in detail, a narrowed caller is judged later.
  const decided = decideAhead(gateway, exchange, subject, asked);
  const mayUse = (permission: PermissionClass) =>
    database === undefined
      ? mayUseAnywhere(access.snapshot, subject, permission)
      : mayUseOn(access.snapshot, subject, permission, database);
  const isAllowed = decided?.allowed ?? permissions.every(mayUse);
  if (isAllowed) return;
  const { reason = "no_grant", role, entry, message } = decided ?? {};
  exchange.verdict.ask([{ operation, database: database ?? "", tables, role, entry }]);
  const told = message === undefined ? {} : { message };
  const refusal = new Refusal(reason === "allowed" ? "no_grant" : reason, told);
  exchange.verdict.deny(refusal.code, refusal.status);
  throw refusal;
}
