import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

export interface ListenAddress {
  readonly host: string;
  /** From 0, any free port, to 65535. */
  readonly port: number;
}

const hostName =
  /^(?=.{1,253}$)(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;

/** True for an IP address (IPv6 without brackets or zone) or a host name (RFC 1123, section 2.1). */
export function isHost(text: string): boolean {
  return isAddress(text) || (hostName.test(text) && !numericEnd.test(text));
}

/**
 * True if only this machine can connect to `host`: `localhost`, 127.0.0.0/8, or ::1, also in
 * brackets. Any other name counts as public, since its address may change.
 */
export function isLoopback(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, "").toLowerCase();
  return name === "localhost" || (isAddress(name) && ipaddr.process(name).range() === "loopback");
}

/** True if `host` means every address of this machine: `0.0.0.0`, `::`. */
export function isUnspecified(host: string): boolean {
  return isAddress(host) && ipaddr.process(host).range() === "unspecified";
}

export function isAddressOrNetwork(text: string): boolean {
  const [address = "", prefix, ...rest] = text.split("/");
  if (rest.length > 0 || !isAddress(address)) return false;
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && ipaddr.isValidCIDR(text));
}

/** Parses `host:port`, with an IPv6 host in brackets; undefined for anything else. */
export function parseListenAddress(text: string): ListenAddress | undefined {
  const match = /^(?:\[(?<bracketed>[^\]]*)\]|(?<plain>[^:]*)):(?<digits>\d{1,5})$/.exec(text);
  const { bracketed, plain = "", digits } = match?.groups ?? {};
  const port = Number(digits);
  if (digits === undefined || port > 65_535) return undefined;
  if (bracketed !== undefined) {
    return isIP(bracketed) === 6 && isAddress(bracketed) ? { host: bracketed, port } : undefined;
  }
  return isHost(plain) ? { host: plain, port } : undefined;
}

/** Uses `node:net`, since `ipaddr.js` also accepts `127.1` and `0x7f.0.0.1`. */
function isAddress(text: string): boolean {
  return isIP(text) !== 0 && !text.includes("%");
}

/** A name that ends in a number is an IPv4 address to URL parsers (WHATWG URL, section 3.5). */
const numericEnd = /(?:^|\.)(?:\d+|0[xX][0-9A-Fa-f]*)$/;

const baseUrl = /^https?:\/\/[^\s\\/?#@]+\/?$/i;

/** True for `http(s)://host[:port]` with an optional slash; no credentials, path or query. */
export function isBaseUrl(text: string): boolean {
  return baseUrl.test(text) && !text.includes("*") && URL.canParse(text);
}

/** Host in lower case, no default port, no trailing slash. Other texts are returned unchanged. */
export function normalBaseUrl(text: string): string {
  return isBaseUrl(text) ? new URL(text).origin : text;
}

export function isServerUrl(text: string): boolean {
  const isServer = /^(?:postgres|postgresql|mysql|mariadb):\/\/[^\s\\]+$/.test(text);
  return isServer && isPercentEncoded(text) && URL.canParse(text);
}

const serverUrls = {
  postgres: {
    example: "postgres://user@host:port/database",
    parameters: [
      "host",
      "port",
      "user",
      "password",
      "application_name",
      "connect_timeout",
      "sslmode",
      "sslrootcert",
      "sslcert",
      "sslkey",
    ],
    timeout: "connect_timeout",
    mode: "sslmode",
    modes: ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"],
  },
  mysql: {
    example: "mysql://user@host:port/",
    parameters: ["socket", "connect-timeout", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"],
    timeout: "connect-timeout",
    mode: "ssl-mode",
    // As in MySQL's own clients, without `PREFERRED`, which would protect nothing.
    modes: ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"],
  },
};

export const percentEncode =
  "percent-encode special characters in the user and password, such as @ (%40), / (%2F), # (%23), ? (%3F) and % (%25)";

/**
 * False if a character of the user or password may end them, as in `app:p@ss/word@host`: parsers
 * would use a piece of the password as the host.
 */
function isPercentEncoded(url: string): boolean {
  return /^[a-z]+:\/\/(?:[^@/?#]*@)?[^@#]*$/i.test(url) && !/%(?![0-9a-f]{2})/i.test(url);
}

/**
 * The first problem of the URL of a database server, without any piece of its password. The drivers
 * ignore unknown parameters, and a misspelled `sslmode` would connect without TLS.
 */
export function serverUrlProblem(url: string): string | undefined {
  if (!isPercentEncoded(url)) return `is invalid: ${percentEncode}`;
  const isMysql = /^(?:mysql|mariadb):/.test(url);
  const { example, parameters, timeout, mode, modes } = serverUrls[isMysql ? "mysql" : "postgres"];
  const parsed = URL.parse(url);
  if (parsed === null) return `is invalid: use ${example}`;
  const { username, pathname, searchParams: given } = parsed;
  if (isMysql && username === "") return `names no user: use ${example}`;
  if (isMysql && pathname.length > 1) {
    return "names a database, but every query names its own: remove it";
  }
  const unknown = [...given.keys()].find((name) => !parameters.includes(name));
  if (unknown !== undefined) {
    return `has an unknown parameter "${unknown}"; use ${parameters.join(", ")}`;
  }
  const chosen = given.get(mode);
  if (chosen !== null && !modes.includes(isMysql ? chosen.toUpperCase() : chosen)) {
    return `has an unknown ${mode}; use ${modes.join(", ")}`;
  }
  // 0 would mean no limit, and queries would wait forever.
  const isTime = /^[1-9]\d{0,3}$/.test(given.get(timeout) ?? "1");
  return isTime ? undefined : `has an invalid ${timeout}: use 1 to 9999 seconds`;
}

/** Undefined for `sqlite://name`, where the directory `name` would look like one of the root. */
export function sqliteDirectory(url: string): string | undefined {
  return /^sqlite:(?!\/\/[^/])(?:\/\/(?=\/))?([^\0]+)$/.exec(url)?.[1];
}

export interface UpstreamAddress {
  readonly url?: string | undefined;
  readonly urls?: readonly string[] | undefined;
}

/** The engine's kind of database, or undefined if a foreign upstream runs the queries. */
export function engineOver({ url, urls }: UpstreamAddress): "sqlite" | "server" | undefined {
  if (url === undefined) return urls === undefined ? "sqlite" : undefined;
  if (isServerUrl(url)) return "server";
  return sqliteDirectory(url) === undefined ? undefined : "sqlite";
}

/** Connections of the engine to a database server, unless `upstream.pool_size` says another number. */
export const DEFAULT_POOL_SIZE = 16;

/** A URL for display: that of a database without its password and its parameters. */
export function withoutPassword(url: string): string {
  if (!isServerUrl(url)) return url;
  const { protocol, username, host, pathname } = new URL(url);
  return `${protocol}//${username === "" ? "" : `${username}@`}${host}${pathname}`;
}

type StoreSettings = { readonly store: { readonly url?: string | undefined; access: string } };

export function storeName({ store }: StoreSettings): string | undefined {
  return store.url === undefined ? undefined : withoutPassword(store.url);
}

export function storesAccess({ store }: StoreSettings): boolean {
  return store.url !== undefined && store.access === "store";
}

export function holdsPassword(url: string): boolean {
  if (!isServerUrl(url)) return false;
  const { password, searchParams } = new URL(url);
  return password !== "" || searchParams.has("password");
}

export function unixSocketPath(url: string): string | undefined {
  return url.startsWith("unix:") ? url.slice("unix:".length) : undefined;
}

/** True for an origin exactly as browsers send it (RFC 6454, section 6.2). */
export function isOrigin(text: string): boolean {
  if (text.includes("*") || !URL.canParse(text)) return false;
  const { protocol, host } = new URL(text);
  return host !== "" && text === `${protocol}//${host}`;
}

/** True for a URL that is safe for secrets: https, or http that stays on this machine. */
export function isConfidential({ protocol, hostname }: URL): boolean {
  return protocol === "https:" || (protocol === "http:" && isLoopback(hostname));
}

function isPlain({ username, password, hash }: URL): boolean {
  return username === "" && password === "" && hash === "";
}

/** True for a valid issuer of an authorization server (RFC 8414, section 2). */
export function isIssuer(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && isConfidential(url) && isPlain(url) && !/[?#]/.test(text);
}

/** True for a redirect URI of a web client or of one on this machine (RFC 8252, section 7.3). */
export function isRedirectUri(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && isConfidential(url) && isPlain(url) && !text.includes("#");
}

export function isMcpUrl(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) && isPlain(url) && !/[?#]/.test(text);
}

const scheme = /^(?=.{1,64}$)[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)*$/;

/** A browser or the system handles these itself: a redirect does more than deliver an answer. */
const taken: ReadonlySet<string> = new Set([
  "about",
  "blob",
  "cid",
  "data",
  "file",
  "filesystem",
  "ftp",
  "http",
  "https",
  "intent",
  "javascript",
  "jar",
  "ldap",
  "mailto",
  "mid",
  "search",
  "search-ms",
  "sftp",
  "shell",
  "smb",
  "sms",
  "ssh",
  "tel",
  "telnet",
  "urn",
  "vbscript",
  "view-source",
  "vnc",
  "ws",
  "wss",
]);

/** True for a possible private-use scheme of an app, in lower case and without the colon. */
export function isAppScheme(name: string): boolean {
  return scheme.test(name) && !taken.has(name) && !/^(?:ms|chrome|x-apple)-/.test(name);
}

/** The scheme of a URI in lower case without the colon; empty for a text without one. */
export function readScheme(uri: string): string {
  return (URL.parse(uri)?.protocol ?? "").replace(/:$/, "");
}

/** Visible ASCII except characters that URIs exclude (RFC 3986, appendix A), without a fragment. */
const appRedirect = /^[a-z][a-z0-9+.-]*:\/[^\0-\x20"#<>\\^`{|}\x7f-\uffff]*$/;

/** True for a redirect URI of a native app with its own scheme (RFC 8252, section 7.1). */
export function isAppRedirect(uri: string): boolean {
  const url = URL.parse(uri);
  if (url === null || !appRedirect.test(uri) || !isAppScheme(readScheme(uri))) return false;
  return url.username === "" && url.password === "";
}

export function isConfiguredRedirect(uri: string): boolean {
  return isRedirectUri(uri) || isAppRedirect(uri);
}

/** True for `host` or `host:port` as in an https URL: lower case, without port 443. */
export function isHttpsHost(text: string): boolean {
  return !text.includes("*") && URL.parse(`https://${text}`)?.host === text;
}
