import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { isLoopbackAddress } from "./peer.ts";

/** The host of `Host` or of an origin, without port and brackets. */
function hostname(authority: string): string | undefined {
  const url = URL.parse(authority.includes("://") ? authority : `http://${authority}`);
  return url?.hostname.replace(/^\[(.*)\]$/, "$1");
}

function isLocalName(host: string | undefined): boolean {
  return host !== undefined && (host === "localhost" || isLoopbackAddress(host));
}

/**
 * While authentication is off, keeps web pages from using the gateway through a browser on the
 * same machine: a rebound name shows in `Host`, a foreign page in `Origin`.
 *
 * @throws Refusal `host_not_allowed` or `origin_not_allowed`
 */
export function requireLocal(gateway: Gateway, { request }: Exchange): void {
  const { auth, server } = gateway.configuration;
  if (auth.enabled || auth.insecure_allow_remote) return;
  const own = hostname(gateway.publicUrl);
  const isAllowed = (authority: string | undefined) => {
    const host = authority === undefined ? undefined : hostname(authority);
    return isLocalName(host) || (host !== undefined && host === own);
  };
  if (!isAllowed(request.headers.host)) throw new Refusal("host_not_allowed");
  const { origin } = request.headers;
  const isForeign =
    origin !== undefined && !isAllowed(origin) && !server.allowed_origins.includes(origin);
  if (isForeign) throw new Refusal("origin_not_allowed");
}
