import { decidingEntry } from "../access/deciding-entry.ts";
import type { QueryOrigin } from "../access/decision.ts";
import type { Boundary, Grant } from "../access/grant.ts";
import { writtenBoundary, writtenEntry } from "../access/limit-fields.ts";
import { boundariesFor, boundaryName, mayBeNarrowed } from "../access/rights.ts";
import { EVERY_DATABASE, roleAllows } from "../access/roles.ts";
import { grantsOf } from "../access/snapshot.ts";
import { entriesIn, reachingEntries } from "../access/user-grants.ts";
import type { Principal } from "../mcp/authenticate.ts";
import type { WhoAmI } from "../mcp/tools/tool.ts";
import { permissionClasses } from "../query/permissions.ts";
import type { Gateway } from "./gateway.ts";

/** The rights that a query may need: users are managed elsewhere. */
const rights = permissionClasses.filter((permission) => permission !== "GRANT");

function originOf({ clientId }: Principal): QueryOrigin {
  return { via: "mcp", client: clientId };
}

/** The caller's entries that are in force, as far as its token opens their databases. */
function entriesOf(gateway: Gateway, { subject }: Principal): Grant[] {
  const grants = grantsOf(gateway.access.snapshot, subject.username);
  const { tokenDatabase } = subject;
  const isLimited = tokenDatabase !== EVERY_DATABASE;
  const entries = isLimited ? reachingEntries(grants, tokenDatabase) : [...entriesIn(grants)];
  const now = Date.now();
  return entries
    .filter(({ expires }) => expires === undefined || expires > now)
    .map((grant) => (isLimited ? { ...grant, database: tokenDatabase } : grant));
}

/** A boundary by its name, with what it limits. */
function limitsOf(boundary: Boundary): object {
  const { via: _, client, username, database, approvers, ...limits } = writtenBoundary(boundary);
  return { boundary: boundaryName(boundary), ...limits };
}

/** By entry, what the caller may do now. */
function accessOf(gateway: Gateway, principal: Principal): WhoAmI["access"] {
  if (!gateway.configuration.auth.enabled) {
    return [{ database: EVERY_DATABASE, role: "Owner", rights }];
  }
  const { subject } = principal;
  const { snapshot } = gateway.access;
  const origin = originOf(principal);
  const boundariesOn = (database: string) =>
    boundariesFor(snapshot, subject.username, database, origin);
  return entriesOf(gateway, principal).map((grant) => {
    const { username: _, approvers: __, ...entry } = writtenEntry(grant);
    const { database, role } = grant;
    const boundaries = boundariesOn(database);
    const further = database === EVERY_DATABASE ? snapshot.boundaries : [];
    const told = new Set([
      ...boundaries,
      ...further.flatMap((one) => boundariesOn(one.database ?? database)),
    ]);
    const roles = [role, ...boundaries.flatMap((boundary) => boundary.role ?? [])];
    const given = rights.filter(
      (right) =>
        roles.every((each) => roleAllows(each, right)) &&
        (subject.tokenReadOnly !== true || right === "SELECT"),
    );
    return {
      ...entry,
      ...{ database, role, rights: given },
      ...(told.size === 0 ? {} : { boundaries: Array.from(told, limitsOf) }),
    };
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

/** Rows that an answer about tables may have at most by the caller's entries; undefined for any number. */
export function mostRows(
  gateway: Gateway,
  principal: Principal,
  database: string,
  tables: readonly string[],
): number | undefined {
  const { snapshot } = gateway.access;
  const { username } = principal.subject;
  const origin = originOf(principal);
  const isKnown = gateway.configuration.auth.enabled;
  if (!isKnown || !mayBeNarrowed(snapshot, username, origin)) return undefined;
  const now = Date.now();
  const limits = [
    ...tables.map((table) => decidingEntry(snapshot, username, database, table, now)?.grant),
    ...boundariesFor(snapshot, username, database, origin),
  ];
  const most = limits.flatMap((limit) => limit?.maxRows ?? []);
  return most.length === 0 ? undefined : Math.min(...most);
}
