import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import type { ConnectionOptions } from "node:tls";
import { Client } from "pg";
import { isPercentEncoded, percentEncode } from "../../core/base/percent-encoding.ts";

export interface ServerAddress {
  /** A host name, or the directory of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  readonly ssl: boolean | ConnectionOptions;
  /** Undefined: `$PGAPPNAME`, or else `gatehouse`. */
  readonly applicationName: string | undefined;
  readonly connectTimeoutMs: number | undefined;
  /**
   * Looked up for each connection, so that a new password needs no restart.
   *
   * @throws PasswordMissing
   */
  password(database: string): Promise<string>;
}

/**
 * Missing parts of the URL come from `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`, `PGSSLMODE` and
 * `PGPASSWORD`, and a missing password also from `~/.pgpass`.
 *
 * @param name of the URL in error messages
 * @throws Error that does not repeat the URL, which may hold the password
 */
export function parseAddress(url: string, name = "upstream.url"): ServerAddress {
  if (!isPercentEncoded(url)) throw new Error(`${name} is invalid: ${percentEncode}.`);
  const given = URL.parse(url)?.searchParams ?? new URLSearchParams();
  requireKnown(given, name);
  const connectTimeoutMs = readTimeout(given.get("connect_timeout"), name);
  const { host, port, user, database, password, ssl } = readUrl(url, name);
  if (user === undefined || database === undefined) {
    throw new Error(`${name} names no user: use postgres://user@host:port/database.`);
  }
  const login = { host, port, user };
  return {
    ...login,
    database,
    ssl,
    applicationName: given.get("application_name") ?? undefined,
    connectTimeoutMs,
    password: async (database) => password || (await findPassword({ ...login, database })),
  };
}

/** Options of `pg` for a connection to one of the server's databases. */
export function clientOptions(address: ServerAddress, database: string, timeoutMs: number) {
  const { host, port, user, ssl, connectTimeoutMs = timeoutMs, applicationName } = address;
  return {
    host,
    port,
    user,
    database,
    ssl,
    password: () => address.password(database),
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    application_name: applicationName,
    fallback_application_name: "gatehouse",
  };
}

const parameters = [
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
];

/** All modes but the first and the last mean `verify-full`. */
const sslModes = ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"];

/** `pg` ignores unknown parameters, and a misspelled `sslmode` would connect without TLS. */
function requireKnown(given: URLSearchParams, urlName: string): void {
  const unknown = [...given.keys()].find((name) => !parameters.includes(name));
  if (unknown !== undefined) {
    const known = parameters.join(", ");
    throw new Error(`${urlName} has an unknown parameter "${unknown}"; use ${known}.`);
  }
  if (!sslModes.includes(given.get("sslmode") ?? "disable")) {
    throw new Error(`${urlName} has an unknown sslmode; use ${sslModes.join(", ")}.`);
  }
}

/** Refuses 0, which libpq reads as no limit, because queries would wait forever. */
function readTimeout(text: string | null, urlName: string): number | undefined {
  if (text === null) return undefined;
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text) * 1000;
  throw new Error(`${urlName} has an invalid connect_timeout: use 1 to 9999 seconds.`);
}

/** Uses `pg` only as a parser. The client never connects. */
function readUrl(url: string, urlName: string): Client {
  try {
    const parsed = new URL(url);
    const mode = parsed.searchParams.get("sslmode") ?? "";
    // The driver prints a warning about the other names of this mode.
    if (sslModes.slice(1, -1).includes(mode)) parsed.searchParams.set("sslmode", "verify-full");
    return new Client({ connectionString: parsed.href });
  } catch (error) {
    if (error instanceof Error && "path" in error) {
      throw new Error(`${urlName} names a file that cannot be read: ${error.path}.`);
    }
    throw new Error(`${urlName} is invalid: use postgres://user@host:port/database.`);
  }
}

export class PasswordMissing extends Error {
  constructor() {
    super(
      "it requires a password; set $PGPASSWORD, ~/.pgpass (mode 0600) or a password in the URL",
    );
    this.name = "PasswordMissing";
  }
}

type LoginAddress = Pick<ServerAddress, "host" | "port" | "user" | "database">;

/**
 * Reads `~/.pgpass` or `$PGPASSFILE` (PostgreSQL, libpq, "The Password File"). Like libpq, ignores a
 * file that group or others may access.
 *
 * @throws PasswordMissing
 */
export async function findPassword(login: LoginAddress): Promise<string> {
  const file = process.env.PGPASSFILE ?? path.join(homedir(), ".pgpass");
  try {
    const status = await stat(file);
    const isPrivate = status.isFile() && (status.mode & 0o077) === 0;
    const password = isPrivate ? passwordIn(await readFile(file, "utf8"), login) : undefined;
    if (password !== undefined) return password;
  } catch {
    // A file that cannot be read holds no password.
  }
  throw new PasswordMissing();
}

/** Lines are `host:port:database:user:password`, where `*` matches anything. The first match counts. */
export function passwordIn(text: string, login: LoginAddress): string | undefined {
  const host = login.host.startsWith("/") ? "localhost" : login.host;
  const wanted = [host, String(login.port), login.database, login.user];
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("#")) continue;
    const fields = splitFields(line);
    const password = fields[wanted.length];
    const fits = wanted.every((value, index) => ["*", value].includes(fields[index] ?? ""));
    if (fits && password !== undefined) return password;
  }
  return undefined;
}

/** Fields are separated by colons. A backslash escapes a colon or a backslash. */
function splitFields(line: string): string[] {
  const fields = line.split(/(?<=(?:^|[^\\])(?:\\\\)*):/);
  return fields.map((field) => field.replace(/\\(.)/g, "$1"));
}
