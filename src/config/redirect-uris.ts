/** Redirect URIs of clients, and the parts of them that an operator may name. */
import { isRedirectUri } from "./urls.ts";

const scheme = /^[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)*$/;
const LONGEST_SCHEME = 64;

/** What a browser or a system takes for itself: to be sent there is more than to get an answer. */
const taken: ReadonlySet<string> = new Set([
  ...["about", "blob", "cid", "data", "file", "filesystem", "ftp", "http", "https", "intent"],
  ...["javascript", "jar", "ldap", "mailto", "mid", "search", "search-ms", "sftp", "shell", "smb"],
  ...["sms", "ssh", "tel", "telnet", "urn", "vbscript", "view-source", "vnc", "ws", "wss"],
]);

/** True for a scheme that can be an app's own, in lower case and without the colon. */
export function isAppScheme(name: string): boolean {
  if (name.length > LONGEST_SCHEME || !scheme.test(name)) return false;
  return !taken.has(name) && !/^(?:ms|chrome|x-apple)-/.test(name);
}

/**
 * True for a scheme that says by its form whose it is: the domain name of the app's maker in
 * reverse, so with a dot in it (RFC 8252, sections 7.1 and 8.4).
 */
export function isReverseDomainScheme(name: string): boolean {
  return name.includes(".") && isAppScheme(name);
}

/** The scheme of a URI, in lower case and without the colon; empty if it has none. */
export function schemeOf(uri: string): string {
  return (URL.parse(uri)?.protocol ?? "").replace(/:$/, "");
}

/** Visible ASCII but what no URI holds (RFC 3986, appendix A), and no fragment. */
const appRedirect = /^[a-z][a-z0-9+.-]*:\/[^\0-\x20"#<>\\^`{|}\x7f-\uffff]*$/;

/** True for the redirect URI of a native app by a scheme of its own (RFC 8252, section 7.1). */
export function isAppRedirect(uri: string): boolean {
  const url = URL.parse(uri);
  if (url === null || !appRedirect.test(uri) || !isAppScheme(schemeOf(uri))) return false;
  return url.username === "" && url.password === "";
}

/** True for a redirect URI that an operator may give a client. */
export function isConfiguredRedirect(uri: string): boolean {
  return isRedirectUri(uri) || isAppRedirect(uri);
}

/** True for `host` or `host:port` as it stands in an https URL: lower case, 443 left out. */
export function isHttpsHost(text: string): boolean {
  return !text.includes("*") && URL.parse(`https://${text}`)?.host === text;
}
