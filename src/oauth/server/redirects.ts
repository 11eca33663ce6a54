import {
  isAppRedirect,
  isRedirectUri,
  isReverseDomainScheme,
  schemeOf,
} from "../../config/urls.ts";

const loopbackHosts: ReadonlySet<string> = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** True for a host that is the user's own machine (RFC 8252, section 7.3). */
function isLoopbackHost(hostname: string): boolean {
  return loopbackHosts.has(hostname);
}

/** True for a redirect by http to a program that listens on the user's own machine. */
export function isLoopbackRedirect(uri: string): boolean {
  const url = URL.parse(uri);
  return url?.protocol === "http:" && isLoopbackHost(url.hostname);
}

/** True for a redirect to a program on the user's own machine, by http or by an app's scheme. */
export function staysOnMachine(uri: string): boolean {
  return schemeOf(uri) !== "https";
}

/** A host that can be reached: browsers let more stand in one, such as `a;b` and `*`. */
const host = /^(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])$/;

/** Characters of a URI (RFC 3986, appendix A): browsers read others as something else. */
const written = /^[a-z0-9+.-]+:\/[^\0-\x20"<>\\^`{|}\x7f-\uffff]*$/i;

/**
 * True for a redirect URI that a client may name for itself: https; http to the user's own machine,
 * where the port does not matter; or a native app's own scheme, if that is a domain name in reverse
 * or among `appSchemes` (RFC 8252, section 7).
 */
export function isClientRedirect(uri: string, appSchemes: readonly string[]): boolean {
  const url = URL.parse(uri);
  if (url === null || !written.test(uri)) return false;
  if (isAppRedirect(uri)) {
    const scheme = schemeOf(uri);
    return isReverseDomainScheme(scheme) || appSchemes.includes(scheme);
  }
  if (!isRedirectUri(uri) || !host.test(url.hostname)) return false;
  return isLoopbackHost(url.hostname) === (url.protocol === "http:");
}
