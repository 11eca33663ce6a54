import { DatabaseGrants, type NamedPlace } from "./database-grants.ts";
import type { Grant } from "./grant.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import type { Place } from "./table-patterns.ts";
import type { UserGrants } from "./user-grants.ts";

/** The one entry that decides on a table, or on what is no table's. */
export interface DecidingEntry {
  readonly grant: Grant;
  /** As people call it: `main`, `*`, `main.tickets`, `*.customer_*`. */
  readonly name: string;
  /** True if its time is over and no other entry holds its place: it decides as `None`. */
  readonly isLapsed: boolean;
}

function isOver({ expires }: Grant, now: number): boolean {
  return expires !== undefined && expires <= now;
}

/** The entry of a place that is in force; what has lapsed is in force as `None` if it is alone. */
function entryAt(
  { lasting, temporary }: Place,
  name: string,
  now: number,
): DecidingEntry | undefined {
  if (temporary !== undefined && !isOver(temporary, now))
    return { grant: temporary, name, isLapsed: false };
  if (lasting !== undefined) return { grant: lasting, name, isLapsed: false };
  return temporary && { grant: temporary, name, isLapsed: true };
}

/**
 * The places of a user's entries for a database and for `*`, in this order, and of each those that
 * `choose` takes; one with a single entry for all of it is that place.
 */
function* placesFor(
  grants: UserGrants,
  database: string,
  choose: (held: DatabaseGrants) => Iterable<NamedPlace>,
): Generator<{ readonly place: Place; readonly name: string }, undefined> {
  for (const at of database === EVERY_DATABASE ? everywhere : [database, EVERY_DATABASE]) {
    const held = grants.get(at);
    if (held instanceof DatabaseGrants) {
      for (const [table, place] of choose(held)) {
        yield { place, name: table === undefined ? at : `${at}.${table}` };
      }
    } else if (held !== undefined) {
      yield { place: { lasting: held, temporary: undefined }, name: at };
    }
  }
}

const everywhere = [EVERY_DATABASE];

/**
 * Every entry that fits a table of a database, the one that decides first: of those for this
 * database, then of those for `*`, the one that names the table, the one whose pattern fits, and the
 * one for the whole of it. Without a table, the last of the three each.
 *
 * @param now epoch milliseconds
 */
export function fittingEntries(
  grants: UserGrants,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry[] {
  const entries: DecidingEntry[] = [];
  for (const { place, name } of placesFor(grants, database, (held) => held.placesOf(table))) {
    const entry = entryAt(place, name, now);
    if (entry === undefined) continue;
    entries.push(entry);
    // Behind a temporary one; one that has lapsed and has given way fits no more.
    const { lasting } = place;
    if (lasting !== undefined && lasting !== entry.grant) {
      entries.push({ grant: lasting, name, isLapsed: false });
    }
  }
  return entries;
}

/** The one of the fitting entries that decides. */
export function decidingEntry(
  snapshot: Snapshot,
  username: string,
  database: string,
  table: string | undefined,
  now: number,
): DecidingEntry | undefined {
  return fittingEntries(grantsOf(snapshot, username), database, table, now)[0];
}

/** A table or pattern in another case than a table is written in, and its entry. */
export interface OtherSpelling {
  readonly spelling: string;
  readonly entry: DecidingEntry;
}

/** How an entry of the user, for this database or for `*`, spells a table otherwise, if one does. */
export function otherSpellingOf(
  grants: UserGrants,
  database: string,
  table: string,
  now: number,
): OtherSpelling | undefined {
  for (const place of [database, EVERY_DATABASE]) {
    const held = grants.get(place);
    if (!(held instanceof DatabaseGrants)) continue;
    const spelling = held.otherSpelling(table);
    if (spelling === undefined) continue;
    const named = held.placeOf(spelling);
    const entry = named && entryAt(named, `${place}.${spelling}`, now);
    if (entry !== undefined) return { spelling, entry };
  }
  return undefined;
}

/**
 * The entries in force through which a user may reach something of a database: those for it, and
 * those for `*` unless one is for the whole of it. What has lapsed and is alone in its place is
 * among them.
 */
export function* entriesInForce(
  grants: UserGrants,
  database: string,
  now: number,
): Generator<DecidingEntry, undefined> {
  for (const { place, name } of placesFor(grants, database, (held) => held.places())) {
    const entry = entryAt(place, name, now);
    if (entry !== undefined) yield entry;
    // Of each the whole comes last.
    if (entry !== undefined && name === database) return;
  }
}

/** True if no table and no column of a database is hidden from a user who may read it. */
export function seesSchema(snapshot: Snapshot, username: string, database: string): boolean {
  const grants = grantsOf(snapshot, username);
  const held = grants.get(database) ?? grants.get(EVERY_DATABASE);
  return !(held instanceof DatabaseGrants) && held?.columns === undefined;
}
