/** Permission boundaries: which of them a query meets. */

import type { QueryOrigin } from "./decision.ts";
import type { Boundary, Limits } from "./grant.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";
import { entriesIn } from "./user-grants.ts";

/** A boundary as people call it: `mcp`, `mcp client=.. username=rita database=main`. */
export function boundaryName({ via, client, username, database }: Boundary): string {
  const parts = Object.entries({ client, username, database }).filter(
    ([, value]) => value !== undefined,
  );
  return [via, ...parts.map(([key, value]) => `${key}=${value}`)].join(" ");
}

function concerns(boundary: Boundary, username: string, { via, client }: QueryOrigin): boolean {
  return (
    boundary.via === via &&
    (boundary.client === undefined || boundary.client === client) &&
    (boundary.username === undefined || boundary.username === username)
  );
}

/** The boundaries for a user on a database, in whatever case that is written. */
export function boundariesFor(
  { boundaries }: Snapshot,
  username: string,
  database: string,
  context: QueryOrigin,
): readonly Boundary[] {
  if (boundaries.length === 0) return boundaries;
  const folded = database.toLowerCase();
  return boundaries.filter(
    (boundary) =>
      concerns(boundary, username, context) &&
      (boundary.database === undefined || boundary.database.toLowerCase() === folded),
  );
}

/** All that limits a user who comes this way: entries and boundaries, wherever they are for. */
export function rulesFor(
  snapshot: Snapshot,
  username: string,
  context: QueryOrigin,
): readonly Limits[] {
  if (!mayBeNarrowed(snapshot, username, context)) return [];
  const boundaries = snapshot.boundaries.filter((one) => concerns(one, username, context));
  return [...entriesIn(grantsOf(snapshot, username)), ...boundaries];
}

/**
 * True if a user's queries may be judged by more than a role on a database: then they have to be
 * scanned in detail. Looks nothing up but the user.
 */
export function mayBeNarrowed(snapshot: Snapshot, username: string, context: QueryOrigin): boolean {
  return (
    grantsOf(snapshot, username).isNarrowed ||
    (snapshot.boundaries.length > 0 &&
      snapshot.boundaries.some((boundary) => concerns(boundary, username, context)))
  );
}
