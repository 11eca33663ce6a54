import { lazily } from "../../core/base/memoize.ts";
import type { LoadedConfiguration } from "../../core/config/load.ts";
import { allIssuers, hasAssertions, hasEmbeddedServer } from "../../core/config/schema.ts";
import type { Exchange } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import type { LoginOrigin } from "../../core/identity/throttle.ts";
import type { Log } from "../../core/observe/log.ts";
import type { SchemaSource } from "../../core/upstream/schema-source.ts";
import type { Issuers } from "../issuers/issuers.ts";
import type { SignIns } from "../oauth/client/sign-ins.ts";
import type { AuthorizationServerOptions } from "../oauth/server/options.ts";
import type { AuthorizationServer } from "../oauth/server/server.ts";
import { openState } from "../oauth/server/state-file.ts";
import type { AuthorizationState } from "../oauth/server/state-store.ts";
import { openSigningKeys } from "../oauth/server/tokens.ts";
import type { SessionRegister, StreamRegister } from "./proxy/sessions.ts";
import type { McpEndpoint } from "./routes.ts";

/** Parts of the gateway besides its core that the endpoint needs. */
interface McpParts {
  readonly schema: SchemaSource<Exchange>;
  readonly issuers: Issuers | undefined;
  readonly signIns: SignIns | undefined;
  /** State that replicas share. */
  readonly store: { readonly authorization: AuthorizationState } | undefined;
  /** Of an external MCP server. */
  readonly shared: { readonly sessions: SessionRegister; readonly streams: StreamRegister };
}

/** Opens the server of `/mcp`: an external one, or the embedded one for the database. */
async function openServer(
  gateway: Gateway,
  { schema, shared }: McpParts,
  opened: AsyncDisposableStack,
): Promise<McpEndpoint["handle"]> {
  const { upstream } = gateway.configuration.mcp;
  if (upstream === undefined) {
    const { createEmbeddedMcp } = await import("./embedded.ts");
    return createEmbeddedMcp(gateway, schema);
  }
  const { createMcpProxy } = await import("./proxy/proxy.ts");
  const proxy = createMcpProxy(gateway, upstream, shared);
  opened.defer(() => proxy.close());
  return proxy.handle;
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
  { store, issuers, signIns }: McpParts,
  serviceDirectory: string,
  originOf: (request: Exchange["request"]) => LoginOrigin,
  opened: AsyncDisposableStack,
): Promise<() => Promise<AuthorizationServer>> {
  const { access, activity, audit, configuration, log, login, revocations, publicUrl } = gateway;
  const state = await openState(store?.authorization, serviceDirectory, opened);
  // Missing signing keys must stop the start rather than fail a request.
  await openSigningKeys(state.keys);
  const options: AuthorizationServerOptions = {
    issuer: publicUrl,
    configuration,
    state,
    login,
    originOf,
    countRequests: gateway.shared.countRequests,
    access,
    revocations,
    signIns,
    assertions: hasAssertions(configuration) ? issuers : undefined,
    onEvent(name, fields) {
      const { user, outcome = "allowed" } = fields;
      if (name === "oauth_login" && outcome === "allowed")
        activity.note(String(user), undefined, { isLogin: true });
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
  if (store !== undefined || configuration.server.workers !== 1) await server();
  return server;
}

/** Opens everything for `/mcp`. The gateway's URL must be known. */
export async function openMcp(
  gateway: Gateway,
  parts: McpParts,
  { serviceDirectory }: LoadedConfiguration,
  originOf: (request: Exchange["request"]) => LoginOrigin,
  opened: AsyncDisposableStack,
): Promise<McpEndpoint> {
  const { configuration } = gateway;
  const servers = allIssuers(configuration).filter(({ opens }) => opens.includes("mcp"));
  const authorizationServer = hasEmbeddedServer(configuration)
    ? await openOwnAuthorizationServer(gateway, parts, serviceDirectory, originOf, opened)
    : undefined;
  const server = lazily(() => openServer(gateway, parts, opened));
  return {
    authorizationServer,
    signIns: parts.signIns,
    issuers: [
      ...(authorizationServer === undefined ? [] : [gateway.publicUrl]),
      ...servers.map(({ issuer }) => issuer),
    ],
    handle: async (exchange, body) => (await server())(exchange, body),
  };
}
