import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

/** Addresses as the configuration spells them: hosts, listeners, proxies. */

/** Where a listener binds. */
export interface ListenAddress {
  readonly host: string;
  /** From 0, any free port, to 65535. */
  readonly port: number;
}

const HIGHEST_PORT = 65535;
const hostName =
  /^(?=.{1,253}$)(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;

/** True for an IP address (IPv6 without brackets or zone) or a host name (RFC 1123, section 2.1). */
export function isHost(text: string): boolean {
  return isAddress(text) || (hostName.test(text) && !numericEnd.test(text));
}

/**
 * True if nothing but this machine can connect to `host`: `localhost`, 127.0.0.0/8, ::1, that also
 * in the brackets of URLs. Every other name is taken for a public one, since what it resolves to may
 * change.
 */
export function isLoopback(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, "").toLowerCase();
  return name === "localhost" || (isAddress(name) && ipaddr.process(name).range() === "loopback");
}

/** True if `host` stands for every address of this machine: `0.0.0.0`, `::`. */
export function isUnspecified(host: string): boolean {
  return isAddress(host) && ipaddr.process(host).range() === "unspecified";
}

/** True for a plain IP address or a network such as `10.0.0.0/8`. */
export function isAddressOrNetwork(text: string): boolean {
  const [address = "", prefix, ...rest] = text.split("/");
  if (rest.length > 0 || !isAddress(address)) return false;
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && ipaddr.isValidCIDR(text));
}

/** Reads `host:port`, an IPv6 host in brackets. @returns undefined if `text` is anything else */
export function parseListenAddress(text: string): ListenAddress | undefined {
  const match = /^(?:\[(?<bracketed>[^\]]*)\]|(?<plain>[^:]*)):(?<digits>\d{1,5})$/.exec(text);
  const { bracketed, plain = "", digits } = match?.groups ?? {};
  const port = Number(digits);
  if (digits === undefined || port > HIGHEST_PORT) return undefined;
  if (bracketed !== undefined) {
    return isIP(bracketed) === 6 && isAddress(bracketed) ? { host: bracketed, port } : undefined;
  }
  return isHost(plain) ? { host: plain, port } : undefined;
}

/** `node:net` decides, since `ipaddr.js` also reads `127.1` and `0x7f.0.0.1`. */
function isAddress(text: string): boolean {
  return isIP(text) !== 0 && !text.includes("%");
}

/** A name that ends in a number is an IPv4 address to URL parsers (WHATWG URL, section 3.5). */
const numericEnd = /(?:^|\.)(?:\d+|0[xX][0-9A-Fa-f]*)$/;

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

interface StoreSettings {
  readonly store: { readonly url?: string | undefined; readonly access: "store" | "file" };
}

/** The URL of the store that replicas share, as people may see it; undefined if there is none. */
export function storeName({ store }: StoreSettings): string | undefined {
  return store.url === undefined ? undefined : withoutPassword(store.url);
}

/** True if users and grants are in a store. */
export function storesAccess({ store }: StoreSettings): boolean {
  return store.url !== undefined && store.access === "store";
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
export function isConfidential({ protocol, hostname }: URL): boolean {
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

/** Redirect URIs of clients, and the parts of them that an operator may name. */
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
