import { closeSync, openSync } from "node:fs";

/** A launcher such as npm forwards a Ctrl-C that this process has received within this time. */
const ECHO_MS = 500;

/** True unless the terminal that started this process has been closed. */
function hasControllingTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return true;
  } catch {
    return false;
  }
}

/**
 * Resolves on the first SIGINT or SIGTERM, or when the terminal is closed.
 *
 * @param onImpatience called on a later Ctrl-C, from a user who does not want to wait
 * @param onRefresh called on a SIGHUP that was sent deliberately
 */
export function whenAskedToEnd(onImpatience: () => void, onRefresh: () => void = () => {}) {
  const { promise, resolve } = Promise.withResolvers<"SIGINT" | "SIGTERM" | "SIGHUP">();
  const hadTerminal = process.stdout.isTTY && hasControllingTerminal();
  // Either the terminal of this process is gone, or its files have to be reloaded.
  process.on("SIGHUP", () => {
    if (hadTerminal && !hasControllingTerminal()) resolve("SIGHUP");
    else onRefresh();
  });
  let askedAt: number | undefined;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      const now = performance.now();
      if (askedAt === undefined) {
        askedAt = now;
        resolve(signal);
      } else if (signal === "SIGINT" && now - askedAt > ECHO_MS) onImpatience();
    });
  }
  return promise;
}
