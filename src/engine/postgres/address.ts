import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import type { ConnectionOptions } from "node:tls";
import { Client } from "pg";
import { serverUrlProblem } from "../../core/config/addresses.ts";

export interface ServerAddress {
  /** A host name, or the directory of a Unix socket. */
  readonly host: string;
  readonly port: number;
  /** For messages: both of these. */
  readonly place: string;
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
  const problem = serverUrlProblem(url);
  if (problem !== undefined) throw new Error(`${name} ${problem}.`);
  const { searchParams: given } = new URL(url);
  const timeout = given.get("connect_timeout");
  const { host, port, user, database, password, ssl } = readUrl(url, name);
  if (user === undefined || database === undefined) {
    throw new Error(`${name} names no user: use postgres://user@host:port/database.`);
  }
  const login = { host, port, user };
  return {
    ...login,
    place: `${host}:${port}`,
    database,
    ssl,
    applicationName: given.get("application_name") ?? undefined,
    connectTimeoutMs: timeout === null ? undefined : Number(timeout) * 1000,
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

/** Uses `pg` only as a parser. The client never connects. */
function readUrl(url: string, urlName: string): Client {
  try {
    const parsed = new URL(url);
    const mode = parsed.searchParams.get("sslmode") ?? "";
    // The driver prints a warning about these other names of the mode.
    if (["prefer", "require", "verify-ca"].includes(mode))
      parsed.searchParams.set("sslmode", "verify-full");
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
async function findPassword(login: LoginAddress): Promise<string> {
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
  return line.split(/(?<=(?:^|[^\\])(?:\\\\)*):/).map((field) => field.replace(/\\(.)/g, "$1"));
}
