import { availableParallelism } from "node:os";
import type { Configuration } from "../config/schema.ts";
import { bodyBytesLimit } from "../gateway/system-limits.ts";

/** Processes that one gateway has at most. */
const MOST = 64;
/** Systems that share a port out among the processes that listen on it. */
const sharing: ReadonlySet<NodeJS.Platform> = new Set(["linux", "freebsd", "sunos", "aix"]);

/** One for each core, as long as each gets a part of what is bounded for all. */
function automaticCount({ server, upstream }: Configuration): number {
  const byBodies = Math.floor(bodyBytesLimit(server) / server.max_body_bytes);
  return Math.max(1, Math.min(availableParallelism(), MOST, byBodies, upstream.connections));
}

/**
 * How many processes serve.
 *
 * @throws Error if several are wanted of a system that cannot share a port among them
 */
export function workerCount(configuration: Configuration, platform = process.platform): number {
  const { workers } = configuration.server;
  const canShare = sharing.has(platform);
  if (workers === 0) return canShare ? automaticCount(configuration) : 1;
  if (workers === 1 || canShare) return workers;
  throw new Error(`server.workers: ${platform} shares no port among processes: set it to 1`);
}

/** A worker's part of what is bounded for all; the first few take what cannot be divided. */
function shareOf(total: number, count: number, number: number): number {
  return Math.floor(total / count) + (number <= total % count ? 1 : 0);
}

/**
 * The configuration of one of `count` workers: what is bounded for all of them is divided. Each has
 * room for one body at least, also if the file counts on fewer workers after a restart.
 */
export function configurationOf(
  configuration: Configuration,
  count: number,
  number: number,
): Configuration {
  const { server, upstream } = configuration;
  return {
    ...configuration,
    server: {
      ...server,
      workers: count,
      max_buffered_bytes: Math.max(
        server.max_body_bytes,
        shareOf(bodyBytesLimit(server), count, number),
      ),
    },
    upstream: { ...upstream, connections: shareOf(upstream.connections, count, number) },
  };
}
