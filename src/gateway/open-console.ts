import type { IncomingMessage } from "node:http";
import { parseListenAddress } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { openConsole } from "../console/open.ts";
import type { GatewayState } from "../console/options.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import { openStateIn, stateDirectoryOf } from "../oauth/server/state-file.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import { version } from "../product.ts";
import type { Gateway } from "./gateway.ts";

async function stateOf({ routing, keys }: Gateway): Promise<GatewayState> {
  const { algorithm, signer, jwks } = keys.ring;
  const upstreams = routing.targets.map(async (target) => {
    const { name, busy } = target;
    return { name, busy, isUp: await target.isUp() };
  });
  return {
    version,
    upstreams: await Promise.all(upstreams),
    keysStale: keys.stale,
    algorithm,
    signer: signer.kid,
    verifiers: jwks.keys.flatMap(({ kid }) => kid ?? []),
  };
}

/** What the embedded authorization server remembers, where there is one. */
async function openApplications(
  { configuration: { mcp } }: Gateway,
  { serviceDirectory }: LoadedConfiguration,
  opened: AsyncDisposableStack,
): Promise<StateStore | undefined> {
  if (!mcp.enabled || mcp.authorization_servers.length > 0) return undefined;
  const { store } = await openStateIn(stateDirectoryOf(serviceDirectory));
  opened.defer(() => store.close());
  return store;
}

/** Opens the console of a gateway. @returns how browsers reach it; undefined if none is configured */
export async function openConsoleOf(
  gateway: Gateway,
  loaded: LoadedConfiguration,
  originOf: (request: IncomingMessage) => LoginOrigin,
  opened: AsyncDisposableStack,
): Promise<string | undefined> {
  const { console, server, mcp } = gateway.configuration;
  const listen = console.listen === undefined ? undefined : parseListenAddress(console.listen);
  if (listen === undefined) return undefined;
  const running = await openConsole({
    listen,
    publicUrl: console.public_url,
    gatewayUrl: gateway.publicUrl,
    requestTimeout: server.request_timeout * 1000,
    access: gateway.access,
    revocations: gateway.revocations,
    login: gateway.login,
    passwordRule: gateway.passwordRule,
    originOf,
    state: () => stateOf(gateway),
    queries: gateway.queries,
    applications: await openApplications(gateway, loaded, opened),
    clients: mcp.clients,
    onEvent: (name, fields) => gateway.audit.event(name, fields),
    log: gateway.log,
  });
  opened.defer(() => running.close());
  return running.url;
}
