import type { Server } from "node:http";
import { z } from "zod";
import type { Log } from "../observe/log.ts";

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
