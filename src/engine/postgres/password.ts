import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";

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
 * Throws `PasswordMissing`.
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
