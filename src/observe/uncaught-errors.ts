import type { Log } from "./log.ts";

/**
 * Lets the gateway live through an error that nobody caught, from a callback or a forgotten
 * promise: it is logged, and at most the request that it belongs to is lost. No decision depends on
 * state that such an error could leave half-changed, since snapshots are swapped whole.
 */
export function outliveErrors(log: Log): void {
  process.on("uncaughtException", (error, origin) => {
    log.error({ origin, err: error }, "an error that nobody caught");
  });
}

/**
 * Ends the process with such an error, as Node does by itself; but Node would print the error's
 * message.
 */
export function endWithErrors(log: Log): void {
  process.on("uncaughtException", (error, origin) => {
    log.fatal({ origin, err: error }, "an error that nobody caught");
    process.exit(1);
  });
}
