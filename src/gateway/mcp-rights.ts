import { isDeepStrictEqual } from "node:util";
import type { Decision } from "../access/decision.ts";
import { decide, decideAll, mayUseAnywhere } from "../access/policy.ts";
import type { Principal } from "../mcp/principal.ts";
import type { Rights } from "../mcp/proxy/tool-policy.ts";
import type { AskedRight } from "../mcp/tools/tool.ts";
import type { PermissionClass } from "../query/permissions.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

const allowed: Decision = { allowed: true, reason: "allowed", role: undefined, entry: undefined };

/**
 * What a principal may do behind `/mcp`, by the live access file. What is decided is noted with its
 * request.
 */
export function rightsOf(gateway: Gateway, { verdict }: Exchange, { subject }: Principal): Rights {
  const { auth } = gateway.configuration;
  return {
    decide(rule, database) {
      const { permission } = rule;
      const judge = () =>
        auth.enabled ? decide(gateway.access.snapshot, subject, permission, database) : allowed;
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
    mayUse(permission, database) {
      if (!auth.enabled) return true;
      const { snapshot } = gateway.access;
      return database === undefined
        ? mayUseAnywhere(snapshot, subject, permission)
        : decide(snapshot, subject, permission, database).allowed;
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
  const decided =
    database === undefined ? undefined : decideAll(access.snapshot, subject, permissions, database);
  const mayUse = (permission: PermissionClass) =>
    mayUseAnywhere(access.snapshot, subject, permission);
  const isAllowed = decided?.allowed ?? permissions.every(mayUse);
  if (isAllowed) return;
  const { reason = "no_grant", role, entry } = decided ?? {};
  exchange.verdict.ask([{ operation, database: database ?? "", tables, role, entry }]);
  const refusal = new Refusal(reason === "allowed" ? "no_grant" : reason);
  exchange.verdict.deny(refusal.code, refusal.status);
  throw refusal;
}
