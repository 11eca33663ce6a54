import RateLimiterMemory from "rate-limiter-flexible/lib/RateLimiterMemory.js";
import RateLimiterRes from "rate-limiter-flexible/lib/RateLimiterRes.js";
import type { CountRequests } from "../access/rate-limits.ts";

/** Counts in memory, in fixed windows that begin with their first request. */
export function createRequestCounts(): CountRequests {
  const limiters = new Map<string, RateLimiterMemory>();
  return async ({ key, limit: { count, windowMs }, points }) => {
    const name = `${count}/${windowMs}`;
    const limiter =
      limiters.get(name) ?? new RateLimiterMemory({ points: count, duration: windowMs / 1000 });
    limiters.set(name, limiter);
    try {
      const { consumedPoints: counted } = await limiter.consume(key, points);
      return { counted, retryAfter: 0 };
    } catch (error) {
      if (!(error instanceof RateLimiterRes)) throw error;
      const { consumedPoints: counted, msBeforeNext } = error;
      return { counted, retryAfter: Math.max(1, Math.ceil(msBeforeNext / 1000)) };
    }
  };
}
