import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:net";
import { z } from "zod";
import { parseListenAddress } from "../config/addresses.ts";
import type { Configuration } from "../config/schema.ts";
import type { Log } from "../observe/log.ts";

/**
 * Checks that the port is free. Workers share theirs with any process that asks to share it, so a
 * second gateway on the same port would get no error.
 *
 * @throws the system's error if the port is in use or not permitted
 */
export async function requireFree(host: string, port: number): Promise<void> {
  const probe = createServer();
  probe.listen({ host, port });
  await once(probe, "listening");
  const closed = once(probe, "close");
  probe.close();
  await closed;
}

/**
 * Checks first that a start can listen on its addresses. Otherwise an engine would start in vain,
 * or a first password would be created but never shown.
 *
 * @throws the system's error if it cannot
 */
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

/**
 * The limit for all bodies held at one time. It is lower than configured if a cgroup has little
 * memory.
 */
export function bodyBytesLimit(server: Configuration["server"]): number {
  const { max_body_bytes: one, max_buffered_bytes: all } = server;
  // Zero means no limit.
  const memory = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.max(one, Math.min(all, Math.floor(memory / MEMORY_PER_BODY_BYTE)));
}

/** File descriptors for the process itself: logs, reloaded files, Node. */
const OWN_DESCRIPTORS = 40;
/** The minimum number of connections, however low the limit is. */
const FEWEST = 4;
const WARNING_INTERVAL_MS = 10_000;

const report = z.object({
  userLimits: z.object({ open_files: z.object({ soft: z.number() }) }),
});

/** The limit of open files. Undefined if unlimited or unknown. */
function openFilesLimit(): number | undefined {
  const { data } = report.safeParse(process.report.getReport());
  return data?.userLimits.open_files.soft;
}

/**
 * Limits connections by file descriptors: one for each client and one for its upstream connection.
 * Excess connections are closed at once and logged. Otherwise the gateway could accept a connection
 * but no longer reach the upstream or read its files.
 */
export function limitConnections(server: Server, log: Log): void {
  const limit = openFilesLimit();
  if (limit === undefined) return;
  const connections = Math.max(FEWEST, Math.floor((limit - OWN_DESCRIPTORS) / 2));
  server.maxConnections = connections;
  let turnedAway = 0;
  let lastWarning = Number.NEGATIVE_INFINITY;
  server.on("drop", () => {
    turnedAway++;
    if (performance.now() - lastWarning < WARNING_INTERVAL_MS) return;
    lastWarning = performance.now();
    log.warn(
      { connections, openFilesLimit: limit, turnedAway },
      "as many connections are open as the limit of open files has room for: more are turned away",
    );
    turnedAway = 0;
  });
}
