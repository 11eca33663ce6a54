import type { Grant, Snapshot } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { entryNames } from "../gateway/change-records.ts";
import { readLines } from "../observe/audit-files.ts";

/** An entry that nobody has used. */
export interface UnusedEntry {
  readonly username: string;
  /** As the audit calls it: `main`, `*`, `main.tickets`; several tables with commas. */
  readonly entry: string;
  readonly role: string;
}

/** How far the audit reaches, and what it does not show. */
export interface Usage {
  readonly entries: readonly UnusedEntry[];
  /** Epoch milliseconds of its first line; undefined if there is none. */
  readonly begins: number | undefined;
}

const administering = new Set(["Owner", "DbAdmin"]);

/** What was used, by what the lines say. */
class UsedEntries {
  readonly #used = new Set<string>();
  readonly #administrators = new Set<string>();
  /** Users of whom not every entry is told that was used. */
  readonly #uncertain = new Set<string>();
  begins: number | undefined;

  /** Takes a line, whose texts are escaped: no one else's text looks like a member. */
  take(line: string): void {
    this.begins ??= Date.parse(/"time":"([^"]+)"/.exec(line)?.[1] ?? "") || undefined;
    const user = /"user":"([^"]+)"/.exec(line)?.[1];
    if (user === undefined || !line.includes('"decision":"allow"')) return;
    for (const [, entries = ""] of line.matchAll(/"entry":"([^"]+)"/g)) {
      for (const entry of entries.split(",")) this.#used.add(`${user} ${entry.trim()}`);
    }
    if (line.includes('"path":"/api/')) this.#administrators.add(user);
    const [, count = "0"] = /"operationCount":(\d+)/.exec(line) ?? [];
    if (Number(count) > NAMED) this.#uncertain.add(user);
  }

  has({ username, role }: Grant, names: readonly string[]): boolean {
    if (this.#uncertain.has(username)) return true;
    if (this.#administrators.has(username) && administering.has(role)) return true;
    return names.some((name) => this.#used.has(`${username} ${name}`));
  }
}
/** Operations of a query that the audit names. */
const NAMED = 16;

/**
 * The entries of the access file by which nothing was allowed. One that narrows (`None`) is used by
 * denying: it is not listed. Where the audit cannot tell, an entry counts as used.
 *
 * @param since epoch milliseconds
 */
export async function findUnused(
  snapshot: Snapshot,
  files: readonly string[],
  since: number,
): Promise<Usage> {
  const used = new UsedEntries();
  const from = new Date(since).toISOString();
  const take = (bytes: Buffer) => {
    const line = bytes.toString("latin1");
    if (!isOlder(line, from)) used.take(line);
    else used.begins ??= since;
  };
  for (const file of files) await readLines(file, { needles: [], since, take });
  const entries = [...snapshot.grants.values()].flatMap((grants) =>
    Array.from(entriesIn(grants)).flatMap((grant): UnusedEntry[] => {
      const names = entryNames(grant);
      const { username, role } = grant;
      if (role === "None" || used.has(grant, names)) return [];
      return [{ username, entry: names.join(","), role }];
    }),
  );
  return { entries, begins: used.begins };
}

/** Times of the audit are all of one form, and so is their order. */
function isOlder(line: string, from: string): boolean {
  const at = line.indexOf('"time":"');
  return at !== -1 && line.slice(at + 8, at + 8 + from.length) < from;
}
