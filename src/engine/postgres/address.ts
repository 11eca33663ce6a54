import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import type { ConnectionOptions } from "node:tls";
import { Client } from "pg";

/** How a server is reached, and as whom. */
export interface ServerAddress {
  /** A host, or the directory of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  readonly ssl: boolean | ConnectionOptions;
  /** By which the server knows the connection; undefined: `$PGAPPNAME`, or the product's own name. */
  readonly applicationName: string | undefined;
  /** How long the server may take to take a connection, in milliseconds; undefined: as ever. */
  readonly connectTimeout: number | undefined;
  /**
   * The password for a database. Looked up at each connection that is asked for one, so that a new
   * one needs no restart. @throws PasswordMissing
   */
  password(database: string): Promise<string>;
}

/**
 * Reads `postgres://user:password@host:port/database`. What it leaves out comes from the
 * environment, as with every client of PostgreSQL: `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`,
 * `PGSSLMODE`, `PGPASSWORD`, and the password also from `~/.pgpass`.
 *
 * @param what names the URL in messages
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

/** The driver takes all but the first and the last for `verify-full`. */
const sslModes = ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"];

/**
 * The driver would pass over a parameter that it does not know, and a misspelled `sslmode` would go
 * without TLS.
 */
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

/** Reads `connect_timeout`, in seconds; libpq's 0, which waits without end, would keep queries. */
function readTimeout(text: string | null, what: string): number | undefined {
  if (text === null) return undefined;
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text) * 1000;
  throw new Error(`${what} has a connect_timeout that is no number of seconds from 1 to 9999.`);
}

/** The driver reads the URL, and never connects. */
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

/** The server asks for a password, and there is none. */
export class PasswordMissing extends Error {
  constructor() {
    super("it asks for a password; give one in $PGPASSWORD, ~/.pgpass (mode 0600) or the URL");
    this.name = "PasswordMissing";
  }
}

/** What a line of a password file is about. */
interface LoginPlace {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
}

/**
 * The password that `~/.pgpass`, or the file that `$PGPASSFILE` names, has for a login
 * (PostgreSQL, libpq, "The Password File"). A file that others may read is passed over, as
 * PostgreSQL's own clients do.
 *
 * @throws PasswordMissing
 */
export async function findPassword(place: LoginPlace): Promise<string> {
  const password = await readPassword(place);
  if (password === undefined) throw new PasswordMissing();
  return password;
}

async function readPassword(place: LoginPlace): Promise<string | undefined> {
  const file = process.env.PGPASSFILE ?? path.join(homedir(), ".pgpass");
  try {
    const status = await stat(file);
    if (!status.isFile() || (status.mode & 0o077) !== 0) return undefined;
    return passwordIn(await readFile(file, "utf8"), place);
  } catch {
    // Where there is no file there is no password in it.
    return undefined;
  }
}

/** The password of the first line that fits: `host:port:database:user:password`, `*` for any. */
export function passwordIn(text: string, place: LoginPlace): string | undefined {
  const host = place.host.startsWith("/") ? "localhost" : place.host;
  const wanted = [host, String(place.port), place.database, place.user];
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("#")) continue;
    const fields = fieldsOf(line);
    const password = fields[wanted.length];
    const fits = wanted.every((value, index) => ["*", value].includes(fields[index] ?? ""));
    if (fits && password !== undefined) return password;
  }
  return undefined;
}

/** Fields end at a colon; a colon or backslash in one stands behind a backslash. */
function fieldsOf(line: string): string[] {
  const fields = line.split(/(?<=(?:^|[^\\])(?:\\\\)*):/);
  return fields.map((field) => field.replace(/\\(.)/g, "$1"));
}
