import { isRedirectUri } from "../../config/urls.ts";

const loopbackHosts: ReadonlySet<string> = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** True for a host that is the user's own machine (RFC 8252, section 7.3). */
export function isLoopbackHost(hostname: string): boolean {
  return loopbackHosts.has(hostname);
}

/**
 * True for a redirect URI that a client may register: https, or http to the user's own machine,
 * where the port does not matter.
 */
export function isClientRedirect(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || !isRedirectUri(text)) return false;
  return isLoopbackHost(url.hostname) === (url.protocol === "http:");
}
