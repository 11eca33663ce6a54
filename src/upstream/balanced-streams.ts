import { Refusal } from "../refusal.ts";
import type { Backend } from "./backend.ts";
import { LoadBalancer } from "./load-balancer.ts";
import type { StreamForwarder } from "./reverse-proxy.ts";

const none: ReadonlySet<Backend> = new Set();

/**
 * Carries streams to the first live one of several targets: each goes to the same one as long as
 * that lives, and nothing is sent twice.
 */
export function createBalancedStreams(targets: readonly Backend[]): StreamForwarder {
  const choice = new LoadBalancer(targets);
  return {
    async forward(stream) {
      const target = choice.first() ?? choice.leastRecentlyFailed(none);
      try {
        await target?.streams.forward(stream);
      } catch (error) {
        const isFailure = error instanceof Refusal && error.code === "upstream_unreachable";
        if (isFailure) target?.noteFailure();
        throw error;
      }
    },
  };
}
