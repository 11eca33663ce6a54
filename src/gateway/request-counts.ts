import { RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import type { RateWindow } from "../access/rate-limits.ts";

/** Counts in a window: the seconds after which there is room again, 0 if there is now. */
export type CountRequests = (window: RateWindow) => Promise<number>;

/** Counts in memory, in fixed windows that begin with their first request. */
export function createRequestCounts(): CountRequests {
  const limiters = new Map<string, RateLimiterMemory>();
  return async ({ key, limit: { count, windowMs }, points }) => {
    const name = `${count}/${windowMs}`;
    const limiter =
      limiters.get(name) ?? new RateLimiterMemory({ points: count, duration: windowMs / 1000 });
    limiters.set(name, limiter);
    try {
      await limiter.consume(key, points);
      return 0;
    } catch (error) {
      if (error instanceof RateLimiterRes) return Math.max(1, Math.ceil(error.msBeforeNext / 1000));
      throw error;
    }
  };
}
