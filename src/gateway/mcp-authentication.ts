import { authenticatePrincipal } from "../mcp/authenticate.ts";
import { mcpScopes } from "../oauth/scopes.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { requireOwnHost, requireOwnOrigin } from "./hosts.ts";
import { isLoopbackAddress } from "./peer.ts";

/** Where the metadata of the protected resource `/mcp` is (RFC 9728, section 3.1). */
export const metadataPath = "/.well-known/oauth-protected-resource";

/** The canonical identifier of the protected resource: the audience of its tokens (RFC 8707). */
export function resourceOf({ publicUrl }: Pick<Gateway, "publicUrl">): string {
  return `${publicUrl}/mcp`;
}

/** True if clients reach the gateway on this machine alone, where names can be rebound. */
function isLocalOnly({ request }: Exchange): boolean {
  return isLoopbackAddress(request.socket.localAddress?.replace(/^::ffff:/, "") ?? "");
}

/**
 * Finds out who is calling `/mcp`; the challenge leads whoever has no good token to one.
 *
 * @throws Refusal `host_not_allowed`, `origin_not_allowed`, or one of the 401 codes
 */
export async function authenticateMcp(gateway: Gateway, exchange: Exchange): Promise<void> {
  const metadata = `${gateway.publicUrl}${metadataPath}/mcp`;
  exchange.resource = { metadata, scope: mcpScopes.join(" ") };
  if (isLocalOnly(exchange) && !exchange.peer.isTrusted) requireOwnHost(gateway, exchange);
  requireOwnOrigin(gateway, exchange);
  if (!gateway.configuration.auth.enabled) return;
  const { authorization } = exchange.request.headers;
  const { sources } = await gateway.mcp();
  exchange.principal = await authenticatePrincipal(sources, authorization);
  exchange.username = exchange.principal.subject.username;
}
