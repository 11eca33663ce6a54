/** How many requests boundaries let through: which windows a request counts in. */

import type { QueryOrigin } from "./decision.ts";
import type { RateLimit } from "./grant.ts";
import { boundariesFor, boundaryName } from "./rights.ts";
import type { Snapshot } from "./snapshot.ts";

/** A window in which requests are counted. */
export interface CountedWindow {
  /** What is counted, of whom; another limit begins another window. */
  readonly key: string;
  readonly limit: RateLimit;
  /** How much is counted now. */
  readonly points: number;
}

/** A window in which requests of one user are counted. */
export interface RateWindow extends CountedWindow {
  /** The boundary, as people call it. */
  readonly boundary: string;
  /** True if requests on one database alone are counted. */
  readonly isOfDatabase: boolean;
}

/** What a window comes to once a request was counted in it. */
export interface RequestCount {
  readonly counted: number;
  /** Seconds after which there is room again, 0 if the request passes. */
  readonly retryAfter: number;
}

/** Counts in a window, over all processes of a gateway, and over all replicas. */
export type CountRequests = (window: CountedWindow) => Promise<RequestCount>;

/**
 * The windows in which a request counts.
 *
 * @param databases one for each element of a query: a boundary for a database counts those on it;
 *   undefined for a request that is none, which counts once where no database is meant
 */
export function rateWindowsOf(
  snapshot: Snapshot,
  username: string,
  origin: QueryOrigin,
  databases: readonly string[] | undefined,
): RateWindow[] {
  if (!snapshot.boundaries.some(({ rateLimit }) => rateLimit !== undefined)) return [];
  const windows = new Map<string, RateWindow>();
  for (const database of databases ?? [""]) {
    for (const boundary of boundariesFor(snapshot, username, database, origin)) {
      const { rateLimit: limit } = boundary;
      if (limit === undefined) continue;
      const name = boundaryName(boundary);
      const key = `${name} ${limit.count}/${limit.windowMs} ${username}`;
      const isOfDatabase = boundary.database !== undefined;
      const points = (windows.get(key)?.points ?? 0) + 1;
      windows.set(key, { key, boundary: name, limit, isOfDatabase, points });
    }
  }
  return [...windows.values()];
}
