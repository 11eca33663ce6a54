import { writeRateLimit } from "../access/records.ts";
import { type RateWindow, rateWindowsOf } from "../access/rights.ts";
import { Refusal } from "../base/refusal.ts";
import { counted } from "../base/suggestion.ts";
import type { Query } from "../query/query.ts";
import { requireStillGood } from "./authentication.ts";
import { type Exchange, originOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** @throws Refusal `rate_limited` */
async function countIn(
  gateway: Gateway,
  exchange: Exchange,
  windows: readonly RateWindow[],
): Promise<void> {
  const { shared } = gateway;
  const { verdict } = exchange;
  const counts = await Promise.all(windows.map((window) => shared.countRequests(window)));
  const rates = windows.map(({ boundary, limit }, at) => ({
    boundary,
    limit: writeRateLimit(limit),
    counted: counts[at]?.counted ?? 0,
  }));
  verdict.rates = [...(verdict.rates ?? []), ...rates];
  const retryAfter = counts.reduce((most, count) => Math.max(most, count.retryAfter), 0);
  if (retryAfter > 0) {
    const message = `The rate limit of a permission boundary is exceeded: try again in ${counted(retryAfter, "second")}`;
    throw new Refusal("rate_limited", { retryAfter, message });
  }
  // Counting may have waited for the store, and the token been revoked in the meantime.
  requireStillGood(gateway, exchange);
}

function windowsOf({ access }: Gateway, exchange: Exchange, databases?: readonly string[]) {
  const { subject } = exchange.authenticated;
  if (subject === undefined) return [];
  return rateWindowsOf(access.snapshot, subject, originOf(exchange), databases);
}

/** Counts each element of a query in the caller's rate limits. Returns undefined without limits. */
export function countQuery(
  gateway: Gateway,
  exchange: Exchange,
  { accesses }: Query,
): Promise<void> | undefined {
  if (gateway.access.snapshot.boundaries.length === 0) return undefined;
  const databases = accesses.map(({ database }) => database);
  // The tool call was already counted in windows that are not limited to a database.
  const alreadyCounted = exchange.routed.via === "mcp" ? 1 : 0;
  const windows = windowsOf(gateway, exchange, databases)
    .map((window) => ({
      ...window,
      points: window.points - (window.isOfDatabase ? 0 : alreadyCounted),
    }))
    .filter(({ points }) => points > 0);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}

export function countCall(gateway: Gateway, exchange: Exchange): Promise<void> | undefined {
  const windows = windowsOf(gateway, exchange);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}
