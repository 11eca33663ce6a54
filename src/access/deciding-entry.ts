import type { Grant } from "./grant.ts";
import { EVERY_DATABASE } from "./roles.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import type { Place } from "./table-patterns.ts";
import { DatabaseGrants, type UserGrants } from "./user-grants.ts";

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

/** The entries of a place, but for one that has lapsed and given way. */
function* entriesAt(
  { lasting, temporary }: Place,
  name: string,
  now: number,
): Generator<DecidingEntry, undefined> {
  if (lasting !== undefined) yield { grant: lasting, name, isLapsed: false };
  if (temporary === undefined) return;
  const isLapsed = isOver(temporary, now);
  if (!isLapsed || lasting === undefined) yield { grant: temporary, name, isLapsed };
}

/** Every entry of the user that fits a table, for this database or for `*`, whichever decides. */
export function* fittingEntries(
  grants: UserGrants,
  database: string,
  table: string,
  now: number,
): Generator<DecidingEntry, undefined> {
  for (const place of new Set([database, EVERY_DATABASE])) {
    const held = grants.get(place);
    if (held === undefined) continue;
    if (!(held instanceof DatabaseGrants)) {
      yield { grant: held, name: place, isLapsed: false };
      continue;
    }
    const named = held.tables.get(table);
    if (named !== undefined) yield* entriesAt(named, `${place}.${table}`, now);
    const prefix = held.patterns.fitting(table);
    const fitting = prefix === undefined ? undefined : held.patterns.places.get(prefix);
    if (fitting !== undefined) yield* entriesAt(fitting, `${place}.${prefix}*`, now);
    yield* entriesAt(held.whole, place, now);
  }
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
  for (const place of new Set([database, EVERY_DATABASE])) {
    const held = grants.get(place);
    if (held === undefined) continue;
    if (!(held instanceof DatabaseGrants)) {
      yield { grant: held, name: place, isLapsed: false };
      return;
    }
    for (const [name, at] of held.places()) {
      const entry = entryAt(at, name === undefined ? place : `${place}.${name}`, now);
      if (entry !== undefined) yield entry;
    }
    if (entryAt(held.whole, place, now) !== undefined) return;
  }
}

/** True if no table and no column of a database is hidden from a user who may read it. */
export function seesSchema(snapshot: Snapshot, username: string, database: string): boolean {
  const grants = grantsOf(snapshot, username);
  const held = grants.get(database) ?? grants.get(EVERY_DATABASE);
  return !(held instanceof DatabaseGrants) && held?.columns === undefined;
}
