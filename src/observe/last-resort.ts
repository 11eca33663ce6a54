import type { Log } from "./log.ts";

/**
 * Lets the gateway live through an error that nobody caught, from a callback or a forgotten
 * promise: it is logged, and at most the request that it belongs to is lost. No decision depends on
 * state that such an error could leave half-changed, since snapshots are swapped whole.
 */
export function outliveErrors(log: Log): void {
  process.on("uncaughtException", (error, origin) => {
    // Anything can be thrown, also what is no error.
    const what = error instanceof Error ? { name: error.name, stack: error.stack } : {};
    log.error({ origin, ...what }, "an error that nobody caught");
  });
}
