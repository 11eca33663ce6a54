import type { TargetFigures } from "../observe/target-metrics.ts";
import { Backend, type BackendOptions } from "./backend.ts";
import { createBalancedStreams } from "./balanced-streams.ts";
import { HealthCheck } from "./health-check.ts";
import { createBalancedClient } from "./query-balance.ts";
import { createQueryClient, type QueryClient } from "./query-client.ts";
import { QueryLink, type QueryLinkOptions } from "./query-link.ts";
import type { QueryMetrics } from "./query-metrics.ts";
import { createReverseProxy, type StreamForwarder } from "./reverse-proxy.ts";
import { targetName, type UpstreamTarget } from "./target.ts";

/** Targets that serve the same databases, and the ways to whichever of them is chosen. */
export interface BackendGroup {
  readonly queries: QueryClient;
  readonly streams: StreamForwarder;
  readonly targets: readonly TargetFigures[];
  /** True if one of them can be used. */
  isUp(): Promise<boolean>;
  close(): void;
}

/** What holds for each target. */
export interface BackendGroupOptions extends Omit<QueryLinkOptions, "target"> {
  /** What a check asks for; empty: that a connection is taken is enough. */
  readonly healthPath: string;
  /** Milliseconds between two checks of each of several targets. */
  readonly healthInterval: number;
  /** The `Authorization` header that a check of a path sends, if any. */
  readonly authorization: string | undefined;
  readonly figures: QueryMetrics;
  readonly onChange: BackendOptions["onChange"];
}

function waysTo(target: UpstreamTarget, options: BackendGroupOptions) {
  const { healthPath: path, authorization, figures } = options;
  return {
    name: targetName(target),
    link: new QueryLink({ ...options, target }, figures),
    streams: createReverseProxy({ ...options, target }),
    probe: new HealthCheck({ target, path, authorization }),
  };
}

function single(target: UpstreamTarget, options: BackendGroupOptions): BackendGroup {
  const { name, link, streams, probe } = waysTo(target, options);
  const isUp = () => probe.isUp();
  const figures = {
    name,
    isUp,
    get busy() {
      return link.limiter.busy;
    },
  };
  return {
    queries: createQueryClient(link),
    streams,
    targets: [figures],
    isUp,
    close() {
      link.close();
      streams.close();
    },
  };
}

/** Opens the ways to targets that serve the same; several are checked from now on. */
export function openBackendGroup(
  first: UpstreamTarget,
  others: readonly UpstreamTarget[],
  options: BackendGroupOptions,
): BackendGroup {
  // One has nothing to be chosen among, and its queries pay for no choice.
  if (others.length === 0) return single(first, options);
  const { healthInterval: interval, onChange } = options;
  const targets = [first, ...others].map(
    (target) => new Backend({ ...waysTo(target, options), interval, onChange }),
  );
  return {
    queries: createBalancedClient(targets),
    streams: createBalancedStreams(targets),
    targets,
    async isUp() {
      const answers = await Promise.all(targets.map((target) => target.isUp()));
      return answers.includes(true);
    },
    close() {
      for (const target of targets) target.close();
    },
  };
}
