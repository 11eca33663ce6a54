import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:net";
import { z } from "zod";
import { parseListenAddress } from "../config/addresses.ts";
import type { Configuration } from "../config/schema.ts";
import type { Log } from "../observe/log.ts";

/**
 * Makes sure that nobody listens on a port. Workers share theirs with whoever asks for sharing: a
 * second gateway on the same port would not be told that it is taken.
 *
 * @throws the system's error if somebody does, or nobody may
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
 * Makes sure before all else that a start can listen where it is told to, so that no engine is
 * started in vain, and a first password is made only where it will be shown.
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

/** Bytes of memory that one byte of a body takes in all processes, SQLite's included. */
const MEMORY_PER_BODY_BYTE = 16;

/** Bytes of bodies that are held at one time: fewer than configured where a cgroup has little memory. */
export function bodyBytesLimit(server: Configuration["server"]): number {
  const { max_body_bytes: one, max_buffered_bytes: all } = server;
  // Zero where nothing limits it.
  const memory = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.max(one, Math.min(all, Math.floor(memory / MEMORY_PER_BODY_BYTE)));
}

/** File descriptors of the process's own: logs, files that are read again, Node itself. */
const OWN_DESCRIPTORS = 40;
/** Connections that are taken however low the limit is. */
const FEWEST = 4;
/** Milliseconds between two lines of the log that say the same. */
const WARNING_INTERVAL_MS = 10_000;

const report = z.object({
  userLimits: z.object({ open_files: z.object({ soft: z.number() }) }),
});

/** How many files the process may have open; undefined if there is no limit, or nobody can tell. */
function openFilesLimit(): number | undefined {
  const { data } = report.safeParse(process.report.getReport());
  return data?.userLimits.open_files.soft;
}

/**
 * Takes no more connections than there are file descriptors for: each client's, and one to the
 * upstream for each. One that is too many is closed at once and told of in the log; without this,
 * the gateway could still take it, but not reach the upstream or read its files any more.
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
