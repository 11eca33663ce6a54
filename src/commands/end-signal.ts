/** How the gateway is asked to end, and how it is asked to do so at once. */

/** Milliseconds in which a launcher such as npm passes on a Ctrl-C that has come already. */
const ECHO_MS = 500;

export type EndSignal = "SIGINT" | "SIGTERM";

/**
 * Resolves on the first SIGINT or SIGTERM.
 *
 * @param onImpatience called on a Ctrl-C after that, by somebody who does not want to wait
 */
export function whenAskedToEnd(onImpatience: () => void): Promise<EndSignal> {
  const { promise, resolve } = Promise.withResolvers<EndSignal>();
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
