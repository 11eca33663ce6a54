/** URLs as the configuration spells them. */

const unixScheme = "unix:";
const baseUrl = /^https?:\/\/[^\s\\/?#@]+\/?$/i;

/** True for `http(s)://host[:port]`, a closing slash allowed; no credentials, path or query. */
export function isBaseUrl(text: string): boolean {
  return baseUrl.test(text) && !text.includes("*") && URL.canParse(text);
}

/**
 * A base URL in its one spelling: host in lower case, no default port, no closing slash. Every
 * other text comes back as it is.
 */
export function normalBaseUrl(text: string): string {
  return isBaseUrl(text) ? new URL(text).origin : text;
}

/** The path of a `unix:` URL as it is written, or undefined for any other URL. */
export function unixSocketPath(url: string): string | undefined {
  return url.startsWith(unixScheme) ? url.slice(unixScheme.length) : undefined;
}

/** The `unix:` URL of the socket at `path`. */
export function unixSocketUrl(path: string): string {
  return `${unixScheme}${path}`;
}

/**
 * True for a browser origin exactly as browsers send it (RFC 6454, section 6.2): no wildcard, no
 * path, host in lower case, no default port.
 */
export function isOrigin(text: string): boolean {
  if (text.includes("*") || !URL.canParse(text)) return false;
  const { protocol, host } = new URL(text);
  return host !== "" && text === `${protocol}//${host}`;
}
