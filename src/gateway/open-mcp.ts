import { isDeepStrictEqual } from "node:util";
import { entriesIn, reachingEntries } from "../access/entries.ts";
import type { Boundary, Grant } from "../access/grant.ts";
import { grantsFor } from "../access/groups.ts";
import { decideWholeDatabase, mayUseAnywhere } from "../access/policy.ts";
import { writtenBoundary, writtenEntry } from "../access/records.ts";
import {
  boundariesFor,
  boundaryName,
  type Decision,
  decidingEntry,
  mayBeNarrowed,
} from "../access/rights.ts";
import { EVERY_DATABASE, roleAllows } from "../access/roles.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { hasAssertions, hasEmbeddedServer, issuersOf } from "../config/schema.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import { type Principal, principalOf } from "../mcp/authenticate.ts";
import type { Rights } from "../mcp/proxy/proxy.ts";
import type { AuthorizationServerOptions } from "../oauth/server/options.ts";
import type { AuthorizationServer } from "../oauth/server/server.ts";
import { openSigningKeys } from "../oauth/server/tokens.ts";
import type { Log } from "../observe/log.ts";
import { version } from "../product.ts";
import { type PermissionClass, permissionClasses } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import { lowest } from "../sums.ts";
import { commonHeaders } from "./answer.ts";
import { type Exchange, originOf } from "./exchange.ts";
import type { Gateway, McpEndpoint } from "./gateway.ts";
import { openState } from "./open-state.ts";
import { ask, requireAllowed } from "./query.ts";
import { countCall } from "./rates.ts";

const allowed: Decision = { allowed: true, reason: "allowed", role: undefined, entry: undefined };

function rightsOf(gateway: Gateway, exchange: Exchange): Rights {
  const { subject } = principalOf(exchange);
  const { auth } = gateway.configuration;
  const { verdict } = exchange;
  const decideNow = (permission: PermissionClass, database: string) =>
    decideWholeDatabase(gateway.access.snapshot, subject, permission, database, originOf(exchange));
  return {
    decide(rule, database) {
      const { permission } = rule;
      const judge = () => (auth.enabled ? decideNow(permission, database) : allowed);
      const decision = judge();
      const { role, entry } = decision;
      verdict.record([{ operation: permission, database, tables: [], role, entry }]);
      if (decision.allowed) verdict.allow();
      else verdict.deny(decision.reason, 403);
      const { tools } = gateway.configuration.mcp;
      const requireStillAllowed = () => {
        const { tools: now } = gateway.configuration.mcp;
        const isRuled = now === tools || now.some((other) => isDeepStrictEqual(other, rule));
        if (!isRuled) throw new Refusal("no_grant");
        requireAllowed(judge());
      };
      verdict.requireStillAllowed = requireStillAllowed;
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

/** The rights that a query may need. Users are managed elsewhere. */
const rights = permissionClasses.filter((permission) => permission !== "GRANT");

function entriesOf(gateway: Gateway, { subject }: Principal): Grant[] {
  const grants = grantsFor(gateway.access.snapshot, subject);
  const { tokenDatabase } = subject;
  const isLimited = tokenDatabase !== EVERY_DATABASE;
  const entries = isLimited ? reachingEntries(grants, tokenDatabase) : [...entriesIn(grants)];
  const now = Date.now();
  return entries
    .filter(({ expires }) => expires === undefined || expires > now)
    .map((grant) => (isLimited ? { ...grant, database: tokenDatabase } : grant));
}

function limitsOf(boundary: Boundary): object {
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
function accessOf(gateway: Gateway, exchange: Exchange): object[] {
  if (!gateway.configuration.auth.enabled) {
    return [{ database: EVERY_DATABASE, role: "Owner", rights }];
  }
  const principal = principalOf(exchange);
  const { subject } = principal;
  const { snapshot } = gateway.access;
  const origin = originOf(exchange);
  const boundariesOn = (database: string) => boundariesFor(snapshot, subject, database, origin);
  return entriesOf(gateway, principal).map((grant) => {
    const { username: _, approvers: __, ...entry } = writtenEntry(grant);
    const { database, role } = grant;
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
      ...entry,
      ...{ database, role, rights: permitted },
      ...(applicable.size === 0 ? {} : { boundaries: Array.from(applicable, limitsOf) }),
    };
  });
}

/** The caller of `/mcp`, the caller's current rights, and the limits of one call. */
function whoIs(gateway: Gateway, exchange: Exchange): object {
  const { mcp, upstream } = gateway.configuration;
  const { subject, scopes, expiresAt } = principalOf(exchange);
  const token_expires = new Date(expiresAt * 1000).toISOString();
  return {
    ...(gateway.configuration.auth.enabled ? { user: subject.username, token_expires } : {}),
    scopes: [...scopes],
    access: accessOf(gateway, exchange),
    limits: {
      rows: mcp.row_limit,
      result_bytes: mcp.result_bytes,
      message_bytes: mcp.max_body_bytes,
      seconds: upstream.response_timeout,
    },
  };
}

/** The highest limit that the caller's grants allow a select. Undefined if unlimited. */
async function maxRows(
  gateway: Gateway,
  exchange: Exchange,
  database: string,
  tables: () => Promise<ReadonlyMap<string, number>>,
): Promise<number | undefined> {
  const { snapshot } = gateway.access;
  const { subject } = principalOf(exchange);
  const origin = originOf(exchange);
  const isKnown = gateway.configuration.auth.enabled;
  if (!isKnown || !mayBeNarrowed(snapshot, subject, origin)) return undefined;
  const now = Date.now();
  const included = await tables();
  const boundaries = boundariesFor(snapshot, subject, database, origin);
  // A grant counts the included rows of its own tables, and a boundary those of any table.
  const most = Array.from(included, ([table, rows]) => {
    const grant = decidingEntry(snapshot, subject, database, table, now)?.grant;
    return [grant, ...boundaries].flatMap((limits) => {
      if (limits?.maxRows === undefined) return [];
      // If one outer row already has too many, the denial says which limits to lower.
      const least = Math.min(1, limits.maxRows);
      return Math.max(least, Math.floor(limits.maxRows / Math.max(1, rows)));
    });
  }).flat();
  return lowest(most);
}

function lazily<T>(make: () => Promise<T>): () => Promise<T> {
  let value: Promise<T> | undefined;
  return () => {
    value ??= make().catch((error: unknown) => {
      value = undefined;
      throw error;
    });
    return value;
  };
}

/** Opens the server of `/mcp`: an external one, or the embedded one for the database. */
async function openServer(
  gateway: Gateway,
  opened: AsyncDisposableStack,
): Promise<McpEndpoint["handle"]> {
  const { mcp, upstream, auth } = gateway.configuration;
  if (mcp.upstream !== undefined) {
    const { createMcpProxy } = await import("../mcp/proxy/proxy.ts");
    const proxy = createMcpProxy({
      target: mcp.upstream,
      policy: () => gateway.configuration.mcp.tools,
      headers: gateway.headers,
      authorization: mcp.authorization,
      connectTimeoutMs: upstream.connect_timeout * 1000,
      responseTimeoutMs: upstream.response_timeout * 1000,
      sessions: gateway.shared.sessions,
      streams: gateway.shared.streams,
    });
    opened.defer(() => proxy.close());
    return async (exchange, body) => {
      const { request, response, requestId, peer } = exchange;
      await proxy.handle(request, response, body, principalOf(exchange), {
        ...peer,
        rights: rightsOf(gateway, exchange),
        requestId,
        isAuthenticated: auth.enabled,
        onForward: (request) => exchange.forwardUpstream(request),
        answerHeaders: () => commonHeaders(exchange),
        onRefused: (reason) => exchange.verdict.deny(reason, 400),
      });
    };
  }

  const { createEmbeddedMcp } = await import("../mcp/embedded.ts");
  const handle = createEmbeddedMcp<Exchange>({
    get grammar() {
      return gateway.queries.grammar;
    },
    ask: (exchange, body, options) => ask(gateway, exchange, body, options),
    schema: gateway.schema,
    get rowLimit() {
      return gateway.configuration.mcp.row_limit;
    },
    get resultBytes() {
      return gateway.configuration.mcp.result_bytes;
    },
    whoIs: (exchange) => whoIs(gateway, exchange),
    maxRows: (exchange, ...of) => maxRows(gateway, exchange, ...of),
    mayNeedApproval: (exchange) => gateway.admission.mayWait(gateway, exchange),
    mayUse: (exchange, permission) => rightsOf(gateway, exchange).mayUse(permission),
    countCall: (exchange) => countCall(gateway, exchange),
    serverVersion: version,
  });
  return async (exchange, body) => {
    const { request, response } = exchange;
    await handle(request, response, body ?? Buffer.alloc(0), {
      caller: exchange,
      principal: principalOf(exchange),
      answerHeaders: () => commonHeaders(exchange),
      onRefused: (reason) => {
        // Queries to the database have already been decided and recorded.
        const isNoted = exchange.verdict.count > 0 || exchange.verdict.reason !== undefined;
        if (!isNoted) exchange.verdict.deny(reason, 400);
      },
    });
  };
}

/**
 * Loads and opens the authorization server on first use. Its library prints a warning to the
 * console on Node releases that it does not know. The warning goes to the log instead.
 */
async function loadAuthorizationServer(
  options: AuthorizationServerOptions,
  log: Log,
): Promise<AuthorizationServer> {
  const out = console;
  const { warn } = out;
  out.warn = (text: unknown) => log.debug({ text: String(text) }, "authorization server library");
  try {
    const { openAuthorizationServer } = await import("../oauth/server/server.ts");
    return await openAuthorizationServer(options);
  } finally {
    out.warn = warn;
  }
}

async function openOwnAuthorizationServer(
  gateway: Gateway,
  serviceDirectory: string,
  originOf: (request: Exchange["request"]) => LoginOrigin,
  opened: AsyncDisposableStack,
): Promise<() => Promise<AuthorizationServer>> {
  const { access, activity, audit, configuration, log, login, revocations, publicUrl } = gateway;
  const state = await openState(gateway, serviceDirectory, opened);
  // Missing signing keys must stop the start rather than fail a request.
  await openSigningKeys(state.keys);
  const options: AuthorizationServerOptions = {
    issuer: publicUrl,
    configuration,
    state,
    login,
    originOf,
    countRequests: gateway.shared.countRequests,
    snapshot: () => access.snapshot,
    revocations,
    signIns: gateway.signIns,
    assertions: hasAssertions(configuration) ? gateway.issuers : undefined,
    onEvent(name, fields) {
      const { user, outcome = "allowed" } = fields;
      if (name === "oauth_login" && outcome === "allowed")
        activity.note(String(user), undefined, true);
      // Changes of revocations are attributed to the user.
      const author = name === "oauth_revocation" ? { author: { kind: "api", name: user } } : {};
      audit.event(name, { ...fields, ...author }, outcome === "allowed" ? "info" : "warn");
    },
    log,
  };
  const server = lazily(() => loadAuthorizationServer(options, log));
  // A replica might get its first request while its store is unreachable. Each of several processes
  // would delay its first caller, and clients that call in parallel treat such a response as a
  // refusal.
  if (gateway.authorization !== undefined || configuration.server.workers !== 1) await server();
  return server;
}

/** Opens everything for `/mcp`. The gateway's URL must be known. */
export async function openMcp(
  gateway: Gateway,
  { serviceDirectory }: LoadedConfiguration,
  originOf: (request: Exchange["request"]) => LoginOrigin,
  opened: AsyncDisposableStack,
): Promise<McpEndpoint> {
  const { configuration } = gateway;
  const servers = issuersOf(configuration).filter(({ opens }) => opens.includes("mcp"));
  const authorizationServer = hasEmbeddedServer(configuration)
    ? await openOwnAuthorizationServer(gateway, serviceDirectory, originOf, opened)
    : undefined;
  const server = lazily(() => openServer(gateway, opened));
  return {
    sources: {
      tokens: gateway.tokens,
      loginIssuer: configuration.auth.issuer,
      authorizationServer:
        authorizationServer === undefined
          ? undefined
          : {
              issuer: gateway.publicUrl,
              verify: async (token) => (await authorizationServer()).verify(token),
            },
      issuers: gateway.issuers,
      signIns: gateway.signIns,
      snapshot: () => gateway.access.snapshot,
      revocations: gateway.revocations,
    },
    authorizationServer,
    issuers: [
      ...(authorizationServer === undefined ? [] : [gateway.publicUrl]),
      ...servers.map(({ issuer }) => issuer),
    ],
    handle: async (exchange, body) => (await server())(exchange, body),
  };
}
