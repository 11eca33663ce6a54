import { decide } from "../access/policy.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import { grantsOf } from "../access/snapshot.ts";
import type { Principal } from "../mcp/principal.ts";
import type { WhoAmI } from "../mcp/tools/tool.ts";
import { permissionClasses } from "../query/permissions.ts";
import type { Gateway } from "./gateway.ts";

/** The rights that a query may need: users are managed elsewhere. */
const rights = permissionClasses.filter((permission) => permission !== "GRANT");

/** By database, what the caller may do now. */
function accessOf(gateway: Gateway, { subject }: Principal): WhoAmI["access"] {
  if (!gateway.configuration.auth.enabled) {
    return [{ database: EVERY_DATABASE, role: "Owner", rights }];
  }
  const { snapshot } = gateway.access;
  const { tokenDatabase, username } = subject;
  const named = [...grantsOf(snapshot, username).keys()];
  const databases = tokenDatabase === EVERY_DATABASE ? named : [tokenDatabase];
  return databases.flatMap((database) => {
    const decisions = rights.map((right) => ({
      right,
      ...decide(snapshot, subject, right, database),
    }));
    const given = decisions.filter(({ allowed }) => allowed);
    const role = given[0]?.role;
    if (role === undefined) return [];
    return [{ database, role, rights: given.map(({ right }) => right) }];
  });
}

/** Who calls `/mcp`, what that one may do by the live access file, and how much in one call. */
export function whoIs(gateway: Gateway, principal: Principal): WhoAmI {
  const { mcp, upstream } = gateway.configuration;
  const { subject, scopes, expiresAt } = principal;
  const isKnown = gateway.configuration.auth.enabled;
  return {
    ...(isKnown ? { user: subject.username } : {}),
    ...(isKnown ? { token_expires: new Date(expiresAt * 1000).toISOString() } : {}),
    scopes: [...scopes],
    access: accessOf(gateway, principal),
    limits: {
      rows: mcp.row_limit,
      result_bytes: mcp.result_bytes,
      message_bytes: mcp.max_body_bytes,
      seconds: upstream.response_timeout,
    },
  };
}
