import type { CountedWindow, RequestCount } from "../access/rate-limits.ts";
import type { FailureCounts } from "../identity/throttle.ts";
import type { SharedCounters } from "./counters.ts";

/** Failed logins, counted over all replicas; the others are told of each at once. */
export function failureCountsOf(
  counters: SharedCounters,
  name: string,
  seconds: number,
): FailureCounts {
  return {
    window: seconds,
    find: async (key) => counters.find(name, key),
    async add(key) {
      counters.add(name, key, 1, this.window * 1000, true);
    },
    async forget(key) {
      counters.forget(name, key);
    },
  };
}

const REQUESTS = "requests";

/** Counts a request over all replicas. */
export function countRequestIn(
  counters: SharedCounters,
  { key, points, limit: { count: limit, windowMs } }: CountedWindow,
): RequestCount {
  const { count, msLeft } = counters.find(REQUESTS, key) ?? { count: 0, msLeft: windowMs };
  // A window that is full says no, however often it is asked.
  if (count >= limit) return { counted: count, retryAfter: secondsOf(msLeft) };
  counters.add(REQUESTS, key, points, windowMs);
  const counted = count + points;
  return { counted, retryAfter: counted <= limit ? 0 : secondsOf(msLeft) };
}

function secondsOf(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}
