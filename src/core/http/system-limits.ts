import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:net";
import { z } from "zod";
import { parseListenAddress } from "../config/addresses.ts";
import type { Configuration } from "../config/schema.ts";
import type { Log } from "../observe/log.ts";

/** Workers share their port with any process that asks, so a second gateway would get no error. */
export async function requireFree(host: string, port: number): Promise<void> {
  const probe = createServer();
  probe.listen({ host, port });
  await once(probe, "listening");
  const closed = once(probe, "close");
  probe.close();
  await closed;
}

/** Otherwise an engine would start in vain, or a first password be created but never shown. */
export async function requireFreeAddresses(configuration: Configuration): Promise<void> {
  const { server, metrics, console } = configuration;
  await requireFree(server.host, server.port);
  for (const { listen } of [metrics, console]) {
    const address = listen === undefined ? undefined : parseListenAddress(listen);
    if (address !== undefined) await requireFree(address.host, address.port);
  }
}

/** Bytes of memory per byte of body, across all processes and including SQLite. */
const MEMORY_PER_BODY_BYTE = 16;

/** Lower than configured if a cgroup has little memory. */
export function bodyBytesLimit(server: Configuration["server"]): number {
  const { max_body_bytes: one, max_buffered_bytes: all } = server;
  const memory = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.max(one, Math.min(all, Math.floor(memory / MEMORY_PER_BODY_BYTE)));
}

/** File descriptors for the process itself: logs, reloaded files, Node. */
const OWN_DESCRIPTORS = 40;
/** Of the rest, the part of the console, that of the metrics, and the most that either has. */
const SIDE_PART = 1 / 16;
const MOST_SIDE = 256;
/** Allowed however low the limit of open files is. */
const FEWEST = 4;
const WARNING_INTERVAL_MS = 10_000;

const report = z.object({
  userLimits: z.object({ open_files: z.object({ soft: z.number() }) }),
});

/**
 * Limits connections by file descriptors: one for each client and one for its upstream connection.
 * Excess connections are closed at once and logged. Otherwise the gateway could accept a connection
 * but no longer reach the upstream or read its files.
 *
 * @param isSide true for the console and the metrics, which need no upstream connection
 */
export function limitConnections(server: Server, log: Log, isSide = false): void {
  // Otherwise Node looks up the name of each peer, and everything waits for the name server.
  Object.assign(process.report, { excludeNetwork: true });
  const { data } = report.safeParse(process.report.getReport());
  // It is not a number if there is no limit.
  if (data === undefined) return;
  const limit = data.userLimits.open_files.soft;
  const free = limit - OWN_DESCRIPTORS;
  const side = Math.min(MOST_SIDE, Math.floor(free * SIDE_PART));
  const connections = Math.max(FEWEST, isSide ? side : Math.floor(free / 2) - side);
  server.maxConnections = connections;
  let turnedAway = 0;
  let lastWarning = Number.NEGATIVE_INFINITY;
  server.on("drop", () => {
    turnedAway++;
    if (performance.now() - lastWarning < WARNING_INTERVAL_MS) return;
    lastWarning = performance.now();
    log.warn(
      { connections, openFilesLimit: limit, turnedAway },
      "the limit of open files allows no more connections: new ones are closed",
    );
    turnedAway = 0;
  });
}
