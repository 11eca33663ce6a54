import type { LoadedConfiguration } from "../config/load.ts";
import { checkPassword } from "../identity/login.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import type { Principal } from "../mcp/authenticate.ts";
import type { ExternalIssuers } from "../oauth/external-issuers.ts";
import type { AuthorizationServer, AuthorizationServerOptions } from "../oauth/server/options.ts";
import { lifetimes, type McpScope, mcpScopes } from "../oauth/server/protocol.ts";
import { openSigningKeys } from "../oauth/server/tokens.ts";
import type { AuditLevel } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import { version } from "../product.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";
import { commonHeaders } from "./answer.ts";
import { resourceOf } from "./authentication.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway, McpEndpoint } from "./gateway.ts";
import { mayNeedApproval } from "./judge.ts";
import { requireRight, rightsOf } from "./mcp-rights.ts";
import { openState } from "./open-state.ts";
import { ask } from "./query-flow.ts";
import { countCall } from "./request-limits.ts";
import { mostRows, whoIs } from "./who-am-i.ts";

const everyScope: ReadonlySet<McpScope> = new Set(mcpScopes);

/** Who calls while authentication is off. */
function everybody(): Principal {
  return {
    subject: { username: "", tokenDatabase: "*" },
    scopes: everyScope,
    tokenId: "",
    expiresAt: Number.POSITIVE_INFINITY,
    requireStillGood() {},
  };
}

/** A principal with its request. */
interface Caller extends Principal {
  readonly exchange: Exchange;
}

/** What there is, asked for by callers. */
function askedBy(schema: SchemaSource<Exchange>): SchemaSource<Caller> {
  return {
    isOffered: ({ exchange }, signal) => schema.isOffered(exchange, signal),
    listDatabases: ({ exchange }, signal) => schema.listDatabases(exchange, signal),
    listTables: ({ exchange }, ...names) => schema.listTables(exchange, ...names),
    describeTable: ({ exchange }, ...names) => schema.describeTable(exchange, ...names),
    isUniqueOrder: ({ exchange }, ...names) => schema.isUniqueOrder(exchange, ...names),
  };
}

type Handle = (exchange: Exchange, body: Buffer | undefined, principal: Principal) => Promise<void>;

/** What is made when it is first asked for: much of the code of a gateway is loaded for it. */
function whenAsked<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

/** The server behind `/mcp`: a foreign one, or the embedded one over the database. */
async function openServer(gateway: Gateway, opened: AsyncDisposableStack): Promise<Handle> {
  const { mcp, upstream, auth } = gateway.configuration;
  const connectTimeout = upstream.connect_timeout * 1000;
  const responseTimeout = upstream.response_timeout * 1000;

  if (mcp.upstream !== undefined) {
    const { createMcpProxy } = await import("../mcp/proxy/proxy.ts");
    const proxy = createMcpProxy({
      target: mcp.upstream,
      policy: () => gateway.configuration.mcp.tools,
      headers: gateway.headers,
      authorization: mcp.authorization,
      connectTimeout,
      responseTimeout,
      sessions: gateway.shared.sessions,
      streams: gateway.shared.streams,
    });
    opened.defer(() => proxy.close());
    return async (exchange, body, principal) => {
      const { request, response, requestId, peer } = exchange;
      await proxy.handle(request, response, body, principal, {
        ...peer,
        rights: rightsOf(gateway, exchange, principal),
        requestId,
        isAuthenticated: auth.enabled,
        goUp: (upward) => exchange.goUp(upward),
        answerHeaders: () => commonHeaders(exchange),
        onRefused: (reason) => exchange.verdict.deny(reason, 400),
      });
    };
  }

  const { createEmbeddedMcp } = await import("../mcp/embedded.ts");
  const embedded = createEmbeddedMcp<Caller>({
    get grammar() {
      return gateway.queries.grammar;
    },
    requireRight: ({ exchange }, asked) => requireRight(gateway, exchange, asked),
    ask: ({ exchange }, body, options) => ask(gateway, exchange, body, options),
    schema: askedBy(gateway.schema),
    get rowLimit() {
      return gateway.configuration.mcp.row_limit;
    },
    get resultBytes() {
      return gateway.configuration.mcp.result_bytes;
    },
    whoIs: (caller) => whoIs(gateway, caller),
    mostRows: (caller, ...of) => mostRows(gateway, caller, ...of),
    mayNeedApproval: ({ exchange }) => mayNeedApproval(gateway, exchange),
    mayUse: (caller, permission) => rightsOf(gateway, caller.exchange, caller).mayUse(permission),
    countCall: ({ exchange }) => countCall(gateway, exchange),
    serverVersion: version,
  });
  opened.defer(() => embedded.close());
  return async (exchange, body, principal) => {
    const { request, response } = exchange;
    const caller = { ...principal, exchange };
    await embedded.handle(request, response, body ?? Buffer.alloc(0), caller, {
      answerHeaders: () => commonHeaders(exchange),
      onRefused: (reason) => {
        // What was asked of the database is decided on, and noted, already.
        const isNoted = exchange.verdict.count > 0 || exchange.verdict.reason !== undefined;
        if (!isNoted) exchange.verdict.deny(reason, 400);
      },
    });
  };
}

/**
 * Loads and opens the authorization server. Its library is loaded only where it is used, and tells
 * the console of a Node that it does not know by the name of its release: that goes to the log.
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

/** Opens what the authorization server keeps; the server itself is made when it is asked for. */
async function openOwnAuthorizationServer(
  gateway: Gateway,
  serviceDirectory: string,
  originOf: (request: Exchange["request"]) => LoginOrigin,
  opened: AsyncDisposableStack,
): Promise<() => Promise<AuthorizationServer>> {
  const { access, activity, audit, configuration, log, login, revocations, publicUrl } = gateway;
  const state = await openState(gateway, serviceDirectory, opened);
  // What it cannot do without ends the start, and no request.
  await openSigningKeys(state.keys);
  const options: AuthorizationServerOptions = {
    issuer: publicUrl,
    resource: resourceOf(gateway),
    state,
    clients: configuration.mcp.clients,
    appSchemes: configuration.mcp.app_schemes,
    privateClientHosts: configuration.mcp.private_client_hosts,
    registrationsPerHour: configuration.mcp.registrations_per_hour,
    tokenLifetime: Math.min(configuration.auth.token_expiration, lifetimes.accessToken),
    checkPassword: (username, password, origin) => checkPassword(login, username, password, origin),
    originOf,
    countRequests: gateway.shared.countRequests,
    snapshot: () => access.snapshot,
    revocations,
    onEvent(name, fields) {
      const { user, outcome } = fields;
      if (name === "oauth_login" && outcome === "allowed")
        activity.note(String(user), undefined, true);
      audit.event(name, withAuthor(name, fields), levelOf(fields));
    },
    log,
  };
  const server = whenAsked(() => loadAuthorizationServer(options, log));
  // A replica might be asked first while its store is away. Of several processes each would keep its first
  // caller waiting, and clients that call in parallel take one such answer for a refusal.
  if (gateway.authorization !== undefined || configuration.server.workers !== 1) await server();
  return server;
}

type EventFields = Readonly<Record<string, unknown>>;

/** What of the authorization server changes revocations is its user's doing. */
function withAuthor(name: string, fields: EventFields): EventFields {
  if (name !== "oauth_revocation") return fields;
  return { ...fields, author: { kind: "api", name: fields.user } };
}

function levelOf({ outcome = "allowed" }: EventFields): AuditLevel {
  return outcome === "allowed" ? "info" : "warn";
}

async function openExternalIssuers(
  gateway: Gateway,
  opened: AsyncDisposableStack,
): Promise<ExternalIssuers> {
  const { authorization_servers: servers } = gateway.configuration.mcp;
  const { createExternalIssuers } = await import("../oauth/external-issuers.ts");
  const issuers = createExternalIssuers(servers, () => resourceOf(gateway), gateway.log);
  opened.defer(() => issuers.close());
  gateway.metrics?.showIssuers(() => issuers.states);
  return issuers;
}

/** Opens all that stands behind `/mcp`; the gateway's URL must be known. */
export async function openMcp(
  gateway: Gateway,
  { serviceDirectory }: LoadedConfiguration,
  originOf: (request: Exchange["request"]) => LoginOrigin,
  opened: AsyncDisposableStack,
): Promise<McpEndpoint> {
  const { auth, mcp } = gateway.configuration;
  const isOwn = mcp.authorization_servers.length === 0;
  const authorizationServer = isOwn
    ? await openOwnAuthorizationServer(gateway, serviceDirectory, originOf, opened)
    : undefined;
  const server = whenAsked(() => openServer(gateway, opened));
  return {
    sources: {
      tokens: gateway.tokens,
      loginIssuer: auth.issuer,
      authorizationServer:
        authorizationServer === undefined
          ? undefined
          : {
              issuer: gateway.publicUrl,
              verify: async (token) => (await authorizationServer()).verify(token),
            },
      externalIssuers: isOwn ? undefined : await openExternalIssuers(gateway, opened),
      snapshot: () => gateway.access.snapshot,
      revocations: gateway.revocations,
    },
    authorizationServer,
    issuers: isOwn ? [gateway.publicUrl] : mcp.authorization_servers.map(({ issuer }) => issuer),
    async handle(exchange, body) {
      const serve = await server();
      await serve(exchange, body, exchange.authenticated.principal ?? everybody());
    },
  };
}
