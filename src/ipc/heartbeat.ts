import type { ChildProcess } from "node:child_process";

/** What is said to a child, and what it says in return. */
export const ping = "ping";
export const pong = "pong";

/** Milliseconds between two pings. */
const BEAT_MS = 1000;
/** Pings without an answer after which a child is taken for stuck. */
const MOST_MISSED = 10;

/**
 * Asks a child process for a sign of life every second, until it has ended.
 *
 * @param onStuck called once it has given none for ten seconds, in which this process itself ran
 */
export function watchHeartbeat(child: ChildProcess, onStuck: () => void): void {
  let missed = 0;
  child.on("message", () => {
    missed = 0;
  });
  // Beats are counted and not time, which also goes on while this process is the one that stands.
  const timer = setInterval(() => {
    missed++;
    if (missed > MOST_MISSED) {
      clearInterval(timer);
      onStuck();
    } else if (child.connected) {
      child.send(ping, () => {});
    }
  }, BEAT_MS);
  child.once("exit", () => clearInterval(timer));
}
