import { closeSync, openSync } from "node:fs";

/** Launchers such as npm forward the same Ctrl-C again within this time. */
const ECHO_MS = 500;

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
 * @param onImpatience called on a second Ctrl-C, from a user who does not want to wait
 * @param onRefresh called on a SIGHUP while the terminal, if any, is still open
 */
export function shutdownSignal(onImpatience: () => void, onRefresh: () => void = () => {}) {
  const { promise, resolve } = Promise.withResolvers<"SIGINT" | "SIGTERM" | "SIGHUP">();
  const hadTerminal = process.stdout.isTTY && hasControllingTerminal();
  // A terminal that closes sends SIGHUP, and so does an operator who wants files to be reloaded.
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
