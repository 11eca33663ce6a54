import { writeRateLimit } from "../access/limit-fields.ts";
import { type RateWindow, rateWindowsOf } from "../access/rate-limits.ts";
import type { Query } from "../query/query.ts";
import { Refusal } from "../refusal.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { originOf } from "./judge.ts";

/** Counts in all windows, and notes for the audit what they come to. @throws Refusal `rate_limited` */
async function countIn(
  { shared }: Gateway,
  { verdict }: Exchange,
  windows: readonly RateWindow[],
): Promise<void> {
  const counts = await Promise.all(windows.map((window) => shared.countRequests(window)));
  const rates = windows.map(({ boundary, limit }, at) => ({
    boundary,
    limit: writeRateLimit(limit),
    counted: counts[at]?.counted ?? 0,
  }));
  verdict.rates = [...(verdict.rates ?? []), ...rates];
  const retryAfter = Math.max(...counts.map((count) => count.retryAfter));
  if (retryAfter > 0) throw new Refusal("rate_limited", { retryAfter });
}

function windowsOf({ access }: Gateway, exchange: Exchange, databases?: readonly string[]) {
  const { subject } = exchange.authenticated;
  if (subject === undefined) return [];
  return rateWindowsOf(access.snapshot, subject.username, originOf(exchange), databases);
}

/**
 * Counts a query in the rate limits of its caller, a Batch as its elements; undefined if there are
 * none. A query that a tool asks was counted with the tool's call, but for further elements.
 *
 * @throws Refusal `rate_limited`
 */
export function countQuery(
  gateway: Gateway,
  exchange: Exchange,
  { accesses }: Query,
): Promise<void> | undefined {
  if (gateway.access.snapshot.boundaries.length === 0) return undefined;
  const databases = accesses.map(({ database }) => database);
  // The call of a tool was counted, where no database is meant.
  const known = exchange.authenticated.principal === undefined ? 0 : 1;
  const windows = windowsOf(gateway, exchange, databases)
    .map((window) => ({ ...window, points: window.points - (window.isOfDatabase ? 0 : known) }))
    .filter(({ points }) => points > 0);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}

/** Counts a call of a tool, or what is no query; undefined if nothing limits it. @throws Refusal `rate_limited` */
export function countCall(gateway: Gateway, exchange: Exchange): Promise<void> | undefined {
  const windows = windowsOf(gateway, exchange);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}
