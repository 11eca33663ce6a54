import type { Boundary, Grant } from "../../core/access/grant.ts";
import { effectiveGrants } from "../../core/access/groups.ts";
import { decideWholeDatabase, mayUseAnywhere } from "../../core/access/policy.ts";
import { writtenBoundary, writtenLimits } from "../../core/access/records.ts";
import { boundariesFor, boundaryName, entriesInForce } from "../../core/access/rights.ts";
import { EVERY_DATABASE, roleAllows } from "../../core/access/roles.ts";
import { type Exchange, queryOrigin } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { splitPlace } from "../../core/query/names.ts";
import { type PermissionClass, permissionClasses } from "../../core/query/permissions.ts";
import { type Principal, principalOf } from "./authenticate.ts";

/** True if the caller has the right on `database`, or on any database if it is undefined. */
export function mayUse(
  { access, configuration }: Gateway,
  exchange: Exchange,
  permission: PermissionClass,
  database?: string,
): boolean {
  if (!configuration.auth.enabled) return true;
  const { subject } = principalOf(exchange);
  const { snapshot } = access;
  const origin = queryOrigin(exchange);
  return database === undefined
    ? mayUseAnywhere(snapshot, subject, permission, origin)
    : decideWholeDatabase(snapshot, subject, permission, database, origin).allowed;
}

/** The rights that a query may need. Users are managed elsewhere. */
const rights = permissionClasses.filter((permission) => permission !== "GRANT");

/** The entries that decide now, each with the tables on which it does. */
function callerEntries({ access }: Gateway, { subject }: Principal): Grant[] {
  const now = Date.now();
  const grants = effectiveGrants(access.snapshot, subject, now);
  const { tokenDatabase } = subject;
  const isLimited = tokenDatabase !== EVERY_DATABASE;
  return (isLimited ? [tokenDatabase] : [...grants.keys()]).flatMap((database) => {
    const inForce = [...entriesInForce(grants, database, now)]
      .map(({ entry, place }) => ({ entry, table: splitPlace(place).table }))
      .filter(({ entry }) => isLimited || entry.grant.database === database);
    // For the same table, an entry of the database comes before one of `*`.
    const byTable = Map.groupBy(inForce, ({ table }) => table).values();
    const deciding = [...byTable].flatMap(([first]) => first ?? []);
    const byGrant = Map.groupBy(deciding, ({ entry }) => entry.grant);
    return Array.from(byGrant, ([{ tables: _, role, ...grant }, some]): Grant => {
      const tables = some.flatMap(({ table }) => table ?? []);
      const isExpired = some.some(({ entry }) => entry.isExpired);
      const limits = { ...grant, database, ...(tables.length > 0 && { tables }) };
      return { ...limits, role: isExpired ? "None" : role };
    });
  });
}

function boundaryLimits(boundary: Boundary): object {
  const {
    via: _,
    client,
    username,
    group,
    database,
    approvers,
    ...limits
  } = writtenBoundary(boundary);
  return { boundary: boundaryName(boundary), ...limits };
}

/** The caller's current access, by grant. */
function callerAccess(gateway: Gateway, exchange: Exchange): object[] {
  if (!gateway.configuration.auth.enabled) {
    return [{ database: EVERY_DATABASE, role: "Owner", rights }];
  }
  const principal = principalOf(exchange);
  const { subject } = principal;
  const { snapshot } = gateway.access;
  const origin = queryOrigin(exchange);
  const boundariesOn = (database: string) => boundariesFor(snapshot, subject, database, origin);
  return callerEntries(gateway, principal).map((grant) => {
    const { database, role } = grant;
    const { approvers: _, ...limits } = writtenLimits(grant);
    const boundaries = boundariesOn(database);
    const further = database === EVERY_DATABASE ? snapshot.boundaries : [];
    const applicable = new Set([
      ...boundaries,
      ...further.flatMap((one) => boundariesOn(one.database ?? database)),
    ]);
    const roles = [role, ...boundaries.flatMap((boundary) => boundary.role ?? [])];
    const permitted = rights.filter(
      (right) =>
        roles.every((each) => roleAllows(each, right)) &&
        (subject.tokenReadOnly !== true || right === "SELECT"),
    );
    return {
      database,
      role,
      ...limits,
      rights: permitted,
      ...(applicable.size === 0 ? {} : { boundaries: Array.from(applicable, boundaryLimits) }),
    };
  });
}

/** The caller of `/mcp`, the caller's current rights, and the limits of one call. */
export function whoIs(gateway: Gateway, exchange: Exchange): object {
  const { auth, mcp, upstream } = gateway.configuration;
  const { subject, scopes, expiresAt } = principalOf(exchange);
  const caller = () => ({
    user: subject.username,
    token_expires: new Date(expiresAt * 1000).toISOString(),
  });
  return {
    ...(auth.enabled ? caller() : {}),
    scopes: [...scopes],
    access: callerAccess(gateway, exchange),
    limits: {
      rows: mcp.row_limit,
      result_bytes: mcp.result_bytes,
      message_bytes: mcp.max_body_bytes,
      seconds: upstream.response_timeout,
    },
  };
}
