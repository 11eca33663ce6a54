import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import type { SslOptions } from "mysql2";
import { percentEncode, serverUrlProblem } from "../../core/config/addresses.ts";

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  /** A Unix socket, instead of host and port. */
  readonly socketPath: string | undefined;
  /** For messages: the host and port, or the socket. */
  readonly place: string;
  readonly user: string;
  readonly password: string | undefined;
  readonly ssl: SslOptions | undefined;
  readonly connectTimeoutMs: number | undefined;
}

const sslModes: ReadonlyMap<string, SslOptions | undefined> = new Map([
  ["DISABLED", undefined],
  ["REQUIRED", { rejectUnauthorized: false }],
  ["VERIFY_CA", { rejectUnauthorized: true }],
  ["VERIFY_IDENTITY", { rejectUnauthorized: true, verifyIdentity: true }],
]);

const DEFAULT_PORT = 3306;

/** @throws Error that does not repeat the URL, which may hold the password */
export function parseAddress(url: string): ServerAddress {
  const problem = serverUrlProblem(url);
  if (problem !== undefined) throw wrong(problem);
  const parsed = new URL(url);
  const { searchParams } = parsed;
  const [user = "", password] = [parsed.username, parsed.password].map(decode);
  const timeout = searchParams.get("connect-timeout");
  const host = parsed.hostname.replace(/^\[(.*)\]$/, "$1") || "localhost";
  const port = parsed.port === "" ? DEFAULT_PORT : Number(parsed.port);
  const socketPath = searchParams.get("socket") ?? undefined;
  return {
    host,
    port,
    socketPath,
    place: socketPath ?? `${host}:${port}`,
    user,
    password: password || process.env.MYSQL_PWD,
    ssl: readSsl(host, searchParams),
    connectTimeoutMs: timeout === null ? undefined : Number(timeout) * 1000,
  };
}

function readSsl(host: string, parameters: URLSearchParams): SslOptions | undefined {
  const file = (name: string) => readFile(name, parameters.get(name));
  const files = { ca: file("ssl-ca"), cert: file("ssl-cert"), key: file("ssl-key") };
  const given = Object.entries(files).filter(([, content]) => content !== undefined);
  const defaultMode = given.length > 0 ? "VERIFY_IDENTITY" : "DISABLED";
  const mode = (parameters.get("ssl-mode") ?? defaultMode).toUpperCase();
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
