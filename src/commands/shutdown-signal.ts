import { closeSync, openSync } from "node:fs";

/** How the gateway is asked to end, and how it is asked to do so at once. */

/** Milliseconds in which a launcher such as npm passes on a Ctrl-C that has come already. */
const ECHO_MS = 500;

export type EndSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

/** True unless the terminal that this process was started on has been closed. */
function hasControllingTerminal(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return true;
  } catch {
    return false;
  }
}

/**
 * Tells the two meanings of SIGHUP apart: to a process on a terminal that its terminal is gone,
 * and to any other that its files are to be read again.
 */
function isHangUp(hadTerminal: boolean): boolean {
  return hadTerminal && !hasControllingTerminal();
}

/**
 * Listens for signals from now on. Resolves on the first SIGINT or SIGTERM, or when the terminal is closed.
 *
 * @param onImpatience called on a Ctrl-C after that, by somebody who does not want to wait
 * @param onRefresh called on a SIGHUP that somebody has sent
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
