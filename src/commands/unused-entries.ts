import type { Grant, Snapshot } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { entryNames } from "../gateway/change-records.ts";
import { readLines } from "../observe/audit-files.ts";
import { NAMED_OPERATIONS, useName } from "../observe/audit-lines.ts";

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
    if (Number(count) > NAMED_OPERATIONS) this.#uncertain.add(user);
  }

  /** True if it is known by now that an entry was used. */
  has({ username, role }: Grant, names: readonly string[]): boolean {
    if (this.#uncertain.has(username)) return true;
    if (this.#administrators.has(username) && administering.has(role)) return true;
    return names.some((name) => this.#used.has(`${username} ${name}`));
  }
}

/**
 * The entries of the access file by which nothing was allowed. One that narrows (`None`) is used by
 * denying: it is not listed. Where the audit cannot tell, an entry counts as used.
 *
 * @param since epoch milliseconds
 */
export async function findUnused(
  snapshot: Snapshot,
  { file, files }: { readonly file: string; readonly files: readonly string[] },
  since: number,
): Promise<Usage> {
  const used = new UsedEntries();
  const from = new Date(since).toISOString();
  const take = (bytes: Buffer) => {
    const line = bytes.toString("latin1");
    if (!isOlder(line, from)) used.take(line);
    else used.begins ??= since;
  };
  let left = candidatesIn(snapshot);
  const wanted = (mayHave: (name: string) => boolean) => {
    left = left.filter(({ grant, names }) => !used.has(grant, names));
    return used.begins === undefined || left.some(({ uses }) => uses.some(mayHave));
  };
  for (const one of files) {
    await readLines(one, { needles: [], since, indexed: { file, wanted }, take });
  }
  const entries = left
    .filter(({ grant, names }) => !used.has(grant, names))
    .map(({ grant: { username, role }, names }) => ({ username, entry: names.join(","), role }));
  return { entries, begins: used.begins };
}

/** An entry that may turn out to be unused. */
interface Candidate {
  readonly grant: Grant;
  readonly names: readonly string[];
  /** What stands in the index where it is used, or counts as used. */
  readonly uses: readonly string[];
}

function candidatesIn({ grants }: Snapshot): Candidate[] {
  return [...grants.values()].flatMap((held) =>
    Array.from(entriesIn(held)).flatMap((grant): Candidate[] => {
      if (grant.role === "None") return [];
      const names = entryNames(grant);
      const api = administering.has(grant.role) ? ["/api"] : [];
      const uses = [...names, ...api, "more"].map((what) => useName(grant.username, what));
      return [{ grant, names, uses }];
    }),
  );
}

/** Times of the audit are all of one form, and so is their order. */
function isOlder(line: string, from: string): boolean {
  const at = line.indexOf('"time":"');
  return at !== -1 && line.slice(at + 8, at + 8 + from.length) < from;
}
