import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import type { ConnectionOptions } from "node:tls";
import { Client } from "pg";

export interface ServerAddress {
  /** A host name, or the directory of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  readonly ssl: boolean | ConnectionOptions;
  /** Undefined: `$PGAPPNAME`, or else `gatehouse`. */
  readonly applicationName: string | undefined;
  /** In milliseconds. Defaults to `CONNECT_TIMEOUT_MS`. */
  readonly connectTimeout: number | undefined;
  /**
   * Looked up whenever a connection needs it, so that a new password takes no restart.
   *
   * @throws PasswordMissing
   */
  password(database: string): Promise<string>;
}

/**
 * Parses `postgres://user:password@host:port/database`. Missing parts come from `PGHOST`, `PGPORT`,
 * `PGUSER`, `PGDATABASE`, `PGSSLMODE` and `PGPASSWORD`. A missing password is also looked up in
 * `~/.pgpass`.
 *
 * @param what name of the URL in error messages
 * @throws Error that does not repeat the URL, which may hold the password
 */
export function parseAddress(url: string, what = "The engine's URL"): ServerAddress {
  const given = URL.parse(url)?.searchParams ?? new URLSearchParams();
  requireKnown(given, what);
  const connectTimeout = readTimeout(given.get("connect_timeout"), what);
  const { host, port, user, database, password, ssl } = readUrl(url, what);
  if (user === undefined || database === undefined) {
    throw new Error(`${what} names no user: postgres://user@host:port/database.`);
  }
  const login = { host, port, user };
  return {
    ...login,
    database,
    ssl,
    applicationName: given.get("application_name") ?? undefined,
    connectTimeout,
    password: async (database) => password || (await findPassword({ ...login, database })),
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

/** `pg` treats all modes but the first and the last as `verify-full`. */
const sslModes = ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"];

/** `pg` ignores unknown parameters, and a misspelled `sslmode` would connect without TLS. */
function requireKnown(given: URLSearchParams, what: string): void {
  const unknown = [...given.keys()].find((name) => !parameters.includes(name));
  if (unknown !== undefined) {
    const known = `known are ${parameters.join(", ")}`;
    throw new Error(`${what} has an unknown parameter "${unknown}"; ${known}.`);
  }
  if (!sslModes.includes(given.get("sslmode") ?? "disable")) {
    throw new Error(`${what} has an unknown sslmode; known are ${sslModes.join(", ")}.`);
  }
}

/**
 * Converts seconds to milliseconds. Refuses 0, which libpq reads as no limit, because queries would
 * wait forever.
 */
function readTimeout(text: string | null, what: string): number | undefined {
  if (text === null) return undefined;
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text) * 1000;
  throw new Error(`${what} has a connect_timeout that is no number of seconds from 1 to 9999.`);
}

/** Uses `pg` only as a parser. The client never connects. */
function readUrl(url: string, what: string): Client {
  try {
    new URL(url);
    return new Client({ connectionString: url });
  } catch (error) {
    if (error instanceof Error && "path" in error) {
      throw new Error(`${what} names a file that cannot be read: ${error.path}.`);
    }
    throw new Error(`${what} cannot be read: it is written postgres://user@host:port/database.`);
  }
}

export class PasswordMissing extends Error {
  constructor() {
    super("it asks for a password; give one in $PGPASSWORD, ~/.pgpass (mode 0600) or the URL");
    this.name = "PasswordMissing";
  }
}

interface LoginAddress {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
}

/**
 * Looks up a password in `~/.pgpass` or `$PGPASSFILE` (PostgreSQL, libpq, "The Password File").
 * Like libpq, ignores a file that group or others may access.
 *
 * @throws PasswordMissing
 */
export async function findPassword(login: LoginAddress): Promise<string> {
  const password = await readPassword(login);
  if (password === undefined) throw new PasswordMissing();
  return password;
}

async function readPassword(login: LoginAddress): Promise<string | undefined> {
  const file = process.env.PGPASSFILE ?? path.join(homedir(), ".pgpass");
  try {
    const status = await stat(file);
    if (!status.isFile() || (status.mode & 0o077) !== 0) return undefined;
    return passwordIn(await readFile(file, "utf8"), login);
  } catch {
    return undefined;
  }
}

/**
 * Returns the password of the first matching line: `host:port:database:user:password`, where `*`
 * matches anything.
 */
export function passwordIn(text: string, login: LoginAddress): string | undefined {
  const host = login.host.startsWith("/") ? "localhost" : login.host;
  const wanted = [host, String(login.port), login.database, login.user];
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("#")) continue;
    const fields = fieldsOf(line);
    const password = fields[wanted.length];
    const fits = wanted.every((value, index) => ["*", value].includes(fields[index] ?? ""));
    if (fits && password !== undefined) return password;
  }
  return undefined;
}

/** Fields are separated by colons. A backslash escapes a colon or a backslash. */
function fieldsOf(line: string): string[] {
  const fields = line.split(/(?<=(?:^|[^\\])(?:\\\\)*):/);
  return fields.map((field) => field.replace(/\\(.)/g, "$1"));
}
