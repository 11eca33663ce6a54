import { closeSync, openSync } from "node:fs";

/** How the gateway is asked to shut down, gracefully or at once. */

/**
 * A launcher such as npm forwards a Ctrl-C that this process has already received within this time.
 */
const ECHO_MS = 500;

export type EndSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

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
 * Distinguishes the two meanings of SIGHUP: the terminal of this process is gone, or, for any other
 * process, its files have to be reloaded.
 */
function isHangUp(hadTerminal: boolean): boolean {
  return hadTerminal && !hasControllingTerminal();
}

/**
 * Listens for signals. Resolves on the first SIGINT or SIGTERM, or when the terminal is closed.
 *
 * @param onImpatience called on a later Ctrl-C, from a user who does not want to wait
 * @param onRefresh called on a SIGHUP that was sent deliberately
 */
export function whenAskedToEnd(
  onImpatience: () => void,
  onRefresh: () => void = () => {},
): Promise<EndSignal> {
  const { promise, resolve } = Promise.withResolvers<EndSignal>();
  const hadTerminal = process.stdout.isTTY && hasControllingTerminal();
  process.on("SIGHUP", () => (isHangUp(hadTerminal) ? resolve("SIGHUP") : onRefresh()));
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
