import type { Grant } from "./grant.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { DatabaseGrants, type Place, type UserGrants } from "./user-grants.ts";

/** The one entry that decides on a table, or on what is no table's. */
export interface DecidingEntry {
  readonly grant: Grant;
  /** As people call it: `main`, `*`, `main.tickets`, `*.customer_*`. */
  readonly name: string;
  /** True if its time is over and no other entry holds its place: it decides as `None`. */
  readonly isLapsed: boolean;
}

/** The entry of a place that is in force; what has lapsed is in force as `None` if it is alone. */
function entryAt(
  { lasting, temporary }: Place,
  name: string,
  now: number,
): DecidingEntry | undefined {
  const isOver = temporary?.expires !== undefined && temporary.expires <= now;
  if (temporary !== undefined && !isOver) return { grant: temporary, name, isLapsed: false };
  if (lasting !== undefined) return { grant: lasting, name, isLapsed: false };
  return temporary && { grant: temporary, name, isLapsed: true };
}

function entryIn(
  grants: UserGrants,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry | undefined {
  const held = grants.get(database);
  if (held === undefined) return undefined;
  if (!(held instanceof DatabaseGrants)) return { grant: held, name: database, isLapsed: false };
  const { whole, tables, patterns } = held;
  if (table !== undefined) {
    const named = tables.get(table);
    if (named !== undefined) return entryAt(named, `${database}.${table}`, now);
    const prefix = patterns.fitting(table);
    const fitting = prefix === undefined ? undefined : patterns.places.get(prefix);
    if (fitting !== undefined) return entryAt(fitting, `${database}.${prefix}*`, now);
  }
  return entryAt(whole, database, now);
}

/**
 * The entry that decides for a user on a database and one of its tables: the one that names the
 * table, else the one whose pattern fits, else the one for the whole database, else the same three
 * for `*`. Without a table, the last of the three each.
 *
 * @param now epoch milliseconds
 */
export function decidingEntry(
  snapshot: Snapshot,
  username: string,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry | undefined {
  const grants = grantsOf(snapshot, username);
  return (
    entryIn(grants, database, table, now) ??
    (database === EVERY_DATABASE ? undefined : entryIn(grants, EVERY_DATABASE, table, now))
  );
}

/** True if an entry of the user, for this database or for `*`, spells the table in another case. */
export function isTableSpelledOtherwise(
  grants: UserGrants,
  database: string,
  table: string,
): boolean {
  return [database, EVERY_DATABASE].some((place) => {
    const held = grants.get(place);
    return held instanceof DatabaseGrants && held.namesOtherwise(table);
  });
}
