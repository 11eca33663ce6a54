import type { TargetMetrics } from "../observe/component-metrics.ts";
import { Refusal } from "../refusal.ts";
import { Backend, type BackendOptions } from "./backend.ts";
import { LoadBalancer } from "./load-balancer.ts";
import { createQueryClient, type QueryClient } from "./query-client.ts";
import type { StreamForwarder } from "./reverse-proxy.ts";
import type { UpstreamTarget } from "./target.ts";

/** Backends that serve the same databases, and the ways to whichever of them is chosen. */
export interface BackendGroup {
  readonly queries: QueryClient;
  readonly streams: StreamForwarder;
  readonly targets: readonly TargetMetrics[];
  /** True if one of them can be used. */
  isUp(): Promise<boolean>;
  close(): void;
}

const none: ReadonlySet<Backend> = new Set();

/**
 * Carries streams to the first live one of several backends: each goes to the same one as long as
 * that lives, and nothing is sent twice.
 */
function streamsTo(balancer: LoadBalancer<Backend>): StreamForwarder {
  return {
    async forward(stream) {
      const backend = balancer.first() ?? balancer.leastRecentlyFailed(none);
      try {
        await backend?.streams.forward(stream);
      } catch (error) {
        const isFailure = error instanceof Refusal && error.code === "upstream_unreachable";
        if (isFailure) backend?.noteFailure();
        throw error;
      }
    },
  };
}

/** Opens the ways to targets that serve the same; several are checked from now on. */
export function openBackendGroup(
  first: UpstreamTarget,
  others: readonly UpstreamTarget[],
  options: BackendOptions,
): BackendGroup {
  const isSingle = others.length === 0;
  const backends = [first, ...others].map((target) => new Backend(target, isSingle, options));
  return {
    queries: createQueryClient(new LoadBalancer(backends)),
    streams: streamsTo(new LoadBalancer(backends)),
    targets: backends,
    async isUp() {
      const answers = await Promise.all(backends.map((backend) => backend.isUp()));
      return answers.includes(true);
    },
    close() {
      for (const backend of backends) backend.close();
    },
  };
}
