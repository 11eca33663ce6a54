import { EVERY_DATABASE } from "./roles.ts";
import type { Snapshot } from "./snapshot.ts";

/** A database that is denied to everybody, since the access file names it in another case. */
export interface Shadow {
  /** The name in the file. */
  readonly named: string;
  /** The database that is there. */
  readonly database: string;
  /** Some of those who would have it by their entry for `*`. */
  readonly users: readonly string[];
}

/** Users that are named of one shadow; there may be many. */
const NAMED = 5;

/** Which of the databases that are there the file shadows, and for whom. */
export function shadowsOf(snapshot: Snapshot, databases: Iterable<string>): Shadow[] {
  const shadowed = [...new Set(databases)].flatMap((database) => {
    const named = snapshot.databases.get(database.toLowerCase());
    return named === undefined || named === database ? [] : [{ named, database }];
  });
  return shadowed.map(({ named, database }) => ({
    named,
    database,
    users: snapshot.grants
      .entries()
      .filter(([, own]) => own.has(EVERY_DATABASE) && !own.has(named))
      .map(([username]) => username)
      .take(NAMED)
      .toArray(),
  }));
}
