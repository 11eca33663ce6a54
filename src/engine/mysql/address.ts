import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import type { SslOptions } from "mysql2";
import { isPercentEncoded, percentEncode } from "../../core/base/percent-encoding.ts";

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  /** A Unix socket, instead of host and port. */
  readonly socketPath: string | undefined;
  readonly user: string;
  readonly password: string | undefined;
  readonly ssl: SslOptions | undefined;
  readonly connectTimeoutMs: number | undefined;
}

/** As in MySQL's own clients, without `PREFERRED`, which would protect nothing. */
const sslModes: ReadonlyMap<string, SslOptions | undefined> = new Map([
  ["DISABLED", undefined],
  ["REQUIRED", { rejectUnauthorized: false }],
  ["VERIFY_CA", { rejectUnauthorized: true }],
  ["VERIFY_IDENTITY", { rejectUnauthorized: true, verifyIdentity: true }],
]);

const parameters = ["socket", "connect-timeout", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"];

const DEFAULT_PORT = 3306;

/** @throws Error that does not repeat the URL, which may hold the password */
export function parseAddress(url: string): ServerAddress {
  if (!isPercentEncoded(url)) throw wrong(`is invalid: ${percentEncode}`);
  const parsed = URL.parse(url);
  if (parsed === null) throw wrong("is invalid: use mysql://user@host:port/");
  const { pathname, searchParams } = parsed;
  const [user, password] = [parsed.username, parsed.password].map(decode);
  if (!user) throw wrong("names no user: use mysql://user@host:port/");
  if (pathname.length > 1) {
    throw wrong("names a database, but every query names its own: remove it");
  }
  const unknown = [...searchParams.keys()].find((name) => !parameters.includes(name));
  if (unknown !== undefined) {
    throw wrong(`has an unknown parameter "${unknown}"; use ${parameters.join(", ")}`);
  }
  const host = parsed.hostname.replace(/^\[(.*)\]$/, "$1") || "localhost";
  return {
    host,
    port: parsed.port === "" ? DEFAULT_PORT : Number(parsed.port),
    socketPath: searchParams.get("socket") ?? undefined,
    user,
    password: password || process.env.MYSQL_PWD,
    ssl: readSsl(host, searchParams),
    connectTimeoutMs: readTimeout(searchParams.get("connect-timeout")),
  };
}

function readTimeout(text: string | null): number | undefined {
  if (text === null) return undefined;
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text) * 1000;
  throw wrong("has an invalid connect-timeout: use 1 to 9999 seconds");
}

function readSsl(host: string, parameters: URLSearchParams): SslOptions | undefined {
  const file = (name: string) => readFile(name, parameters.get(name));
  const files = { ca: file("ssl-ca"), cert: file("ssl-cert"), key: file("ssl-key") };
  const given = Object.entries(files).filter(([, content]) => content !== undefined);
  const defaultMode = given.length > 0 ? "VERIFY_IDENTITY" : "DISABLED";
  const mode = (parameters.get("ssl-mode") ?? defaultMode).toUpperCase();
  if (!sslModes.has(mode)) {
    throw wrong(`has an unknown ssl-mode; use ${[...sslModes.keys()].join(", ")}`);
  }
  const options = sslModes.get(mode);
  // The driver verifies only host names, so with an address nothing would be verified.
  if (options?.verifyIdentity && isIP(host) !== 0) {
    throw wrong("has ssl-mode=VERIFY_IDENTITY, which needs a host name, not an address");
  }
  return options && { ...options, ...Object.fromEntries(given) };
}

function readFile(name: string, path: string | null): string | undefined {
  if (path === null) return undefined;
  try {
    return readFileSync(path, "utf8");
  } catch {
    throw wrong(`names a file that cannot be read: ${name}=${path}`);
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw wrong(`is invalid: ${percentEncode}`);
  }
}

function wrong(problem: string): Error {
  return new Error(`upstream.url ${problem}.`);
}
