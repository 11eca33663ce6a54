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

/** True for a database server that `gatehouse engine` speaks to. */
export function isServerUrl(text: string): boolean {
  return /^(?:postgres|postgresql|mysql|mariadb):\/\/[^\s\\]+$/.test(text) && URL.canParse(text);
}

/** The directory of a `sqlite:` URL as it is written, or undefined for any other URL. */
export function sqliteDirectory(url: string): string | undefined {
  return /^sqlite:(?:\/\/(?=\/))?([^\0]+)$/.exec(url)?.[1];
}

/** True for a database that the gateway starts an engine for. */
export function isEngineUrl(text: string): boolean {
  return isServerUrl(text) || sqliteDirectory(text) !== undefined;
}

/** A URL as people may see it: that of a database without its password and its parameters. */
export function withoutPassword(url: string): string {
  if (!isServerUrl(url)) return url;
  const { protocol, username, host, pathname } = new URL(url);
  return `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`;
}

/** True if a URL of a database holds a password. */
export function holdsPassword(url: string): boolean {
  if (!isServerUrl(url)) return false;
  const { password, searchParams } = new URL(url);
  return password !== "" || searchParams.has("password");
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

const loopbackHost = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** True for a URL that is safe to send secrets to: https, or http that stays on this machine. */
function isConfidential({ protocol, hostname }: URL): boolean {
  return protocol === "https:" || (protocol === "http:" && loopbackHost.test(hostname));
}

function isPlain({ username, password, hash }: URL): boolean {
  return username === "" && password === "" && hash === "";
}

/** True for the issuer of an authorization server (RFC 8414, section 2). */
export function isIssuer(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && isConfidential(url) && isPlain(url) && !/[?#]/.test(text);
}

/** True for a redirect URI of a web client or of one on this machine (RFC 8252, section 7.3). */
export function isRedirectUri(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && isConfidential(url) && isPlain(url) && !text.includes("#");
}

/** True for the URL of an MCP server. */
export function isMcpUrl(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) && isPlain(url) && !/[?#]/.test(text);
}
