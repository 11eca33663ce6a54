import { availableParallelism } from "node:os";
import { DEFAULT_POOL_SIZE, engineOver } from "../../core/config/addresses.ts";
import type { Configuration } from "../../core/config/schema.ts";
import { bodyBytesLimit } from "../../core/http/system-limits.ts";

const MOST = 64;
/** Systems that distribute connections to a port among the processes that listen on it. */
const sharing: ReadonlySet<NodeJS.Platform> = new Set(["linux", "freebsd", "sunos", "aix"]);

/** One per core, as long as each worker gets a share of every gateway-wide limit. */
function automaticCount({ server, upstream }: Configuration): number {
  const { pool_size: poolSize = DEFAULT_POOL_SIZE } = upstream;
  const engine = engineOver(upstream);
  if (engine === "sqlite") return 1;
  const byBodies = Math.floor(bodyBytesLimit(server) / server.max_body_bytes);
  const byPool = engine === undefined ? MOST : poolSize;
  const most = Math.min(availableParallelism(), MOST, byBodies, upstream.connections, byPool);
  return Math.max(1, most);
}

/** @throws Error if several processes are configured on a system that cannot share a port */
export function workerCount(configuration: Configuration, platform = process.platform): number {
  const { workers } = configuration.server;
  const canShare = sharing.has(platform);
  if (workers === 0) return canShare ? automaticCount(configuration) : 1;
  if (workers === 1 || canShare) return workers;
  throw new Error(`server.workers: ${platform} cannot share a port among processes: set it to 1`);
}

/** A worker's share of a gateway-wide limit; the first workers take the remainder. */
function workerShare(total: number, count: number, number: number): number {
  return Math.floor(total / count) + (number <= total % count ? 1 : 0);
}

/**
 * The configuration of one of `count` workers, with gateway-wide limits divided. Each worker has
 * room for at least one body, even if the file expects fewer workers after a restart.
 */
export function workerConfiguration(
  configuration: Configuration,
  count: number,
  number: number,
): Configuration {
  const { server, upstream } = configuration;
  const { pool_size: poolSize = DEFAULT_POOL_SIZE } = upstream;
  return {
    ...configuration,
    server: {
      ...server,
      workers: count,
      max_buffered_bytes: Math.max(
        server.max_body_bytes,
        workerShare(bodyBytesLimit(server), count, number),
      ),
    },
    upstream: {
      ...upstream,
      connections: workerShare(upstream.connections, count, number),
      pool_size:
        engineOver(upstream) === "server" ? workerShare(poolSize, count, number) : undefined,
    },
  };
}
