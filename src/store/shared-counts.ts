import type { CountedWindow, RequestCount } from "../access/rate-limits.ts";
import type { FailureCounts } from "../identity/throttle.ts";
import { SharedCounters } from "./counters.ts";
import type { Store } from "./open.ts";

/** Failed logins; the others are told of each at once. */
function failureCountsOf(counters: SharedCounters, name: string, seconds: number): FailureCounts {
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

function countRequestIn(
  counters: SharedCounters,
  { key, points, limit: { count: limit, windowMs } }: CountedWindow,
): RequestCount {
  const { count, msLeft } = counters.find(REQUESTS, key) ?? { count: 0, msLeft: windowMs };
  const secondsOf = (ms: number) => Math.max(1, Math.ceil(ms / 1000));
  // A window that is full says no, however often it is asked.
  if (count >= limit) return { counted: count, retryAfter: secondsOf(msLeft) };
  counters.add(REQUESTS, key, points, windowMs);
  const counted = count + points;
  return { counted, retryAfter: counted <= limit ? 0 : secondsOf(msLeft) };
}

/** Counts failed logins and requests over all replicas; puts the end of it on the stack. */
export async function openCounts({ database }: Store, opened: AsyncDisposableStack) {
  const counters = await SharedCounters.open(database);
  opened.defer(() => counters.close());
  return {
    openFailureCounts: (name: string, seconds: number) => failureCountsOf(counters, name, seconds),
    countRequests: async (window: CountedWindow) => countRequestIn(counters, window),
  };
}
