import { isDeepStrictEqual } from "node:util";
import type { Decision } from "../access/decision.ts";
import { decideAll, mayUseAnywhere, mayUseOn } from "../access/policy.ts";
import { decideWhole } from "../access/whole-access.ts";
import type { Principal } from "../mcp/principal.ts";
import type { Rights } from "../mcp/proxy/tool-policy.ts";
import type { AskedRight } from "../mcp/tools/tool.ts";
import type { PermissionClass } from "../query/permissions.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { isNarrowed, originOf } from "./judge.ts";
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
        const { reason } = judge();
        if (reason !== "allowed") throw new Refusal(reason);
      };
      return decision;
    },
    countCall: () => countCall(gateway, exchange),
    mayUse(permission, database) {
      if (!auth.enabled) return true;
      const { snapshot } = gateway.access;
      return database === undefined
        ? mayUseAnywhere(snapshot, subject, permission)
        : decideNow(permission, database).allowed;
    },
  };
}

/**
 * Judges the right that a call of the embedded server needs, by what its arguments name, before
 * they are looked at any further.
 *
 * @throws Refusal saying which rule denies it; that is noted
 */
export function requireRight(
  gateway: Gateway,
  exchange: Exchange,
  { operation, permissions, database, tables }: AskedRight,
): void {
  const { configuration, access } = gateway;
  const { subject } = exchange.authenticated;
  if (!configuration.auth.enabled || subject === undefined) return;
  // By what its query says in detail, a narrowed caller is judged later.
  const isOpen = database === undefined || isNarrowed(gateway, exchange);
  const decided = isOpen ? undefined : decideAll(access.snapshot, subject, permissions, database);
  const mayUse = (permission: PermissionClass) =>
    database === undefined
      ? mayUseAnywhere(access.snapshot, subject, permission)
      : mayUseOn(access.snapshot, subject, permission, database);
  const isAllowed = decided?.allowed ?? permissions.every(mayUse);
  if (isAllowed) return;
  const { reason = "no_grant", role, entry } = decided ?? {};
  exchange.verdict.ask([{ operation, database: database ?? "", tables, role, entry }]);
  const refusal = new Refusal(reason === "allowed" ? "no_grant" : reason);
  exchange.verdict.deny(refusal.code, refusal.status);
  throw refusal;
}
