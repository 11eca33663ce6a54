import type { ChildProcess } from "node:child_process";

/** What is said to a child, and what it says in return. */
const PING = "ping";
const PONG = "pong";

/** Milliseconds between two pings. */
const BEAT_MS = 1000;

/** When a child is taken for stuck. */
export interface HeartbeatLimits {
  /** Pings in a row that may go unanswered. */
  readonly missable: number;
  /** The same while the child starts, if that is more. */
  readonly missableAtStart?: number;
  /** Also watched while it owes no answer. */
  readonly whileIdle?: boolean;
}

/**
 * The heartbeat (health check) of a child process: it is asked for a sign of life every second,
 * until it has ended.
 *
 * @param onStuck called once it has given none for too long, in which this process itself ran
 * @param isAsked true while its answer matters
 */
export function watchHeartbeat(
  child: ChildProcess,
  { missable, missableAtStart = missable }: HeartbeatLimits,
  onStuck: () => void,
  isAsked = () => true,
): void {
  if (child.pid === undefined) return;
  let missed = missable - missableAtStart;
  child.on("message", () => {
    missed = 0;
  });
  // Beats are counted and not time, which also goes on while this process is the one that stands.
  const timer = setInterval(() => {
    if (!isAsked()) return;
    missed++;
    if (missed > missable) {
      clearInterval(timer);
      onStuck();
    } else if (child.connected) {
      child.send(PING, () => {});
    }
  }, BEAT_MS);
  child.once("exit", () => clearInterval(timer));
}

/** Tells the parent process, whenever it asks, that the event loop turns. */
export function answerHeartbeat(): void {
  process.on("message", (message) => {
    if (message === PING) process.send?.(PONG, undefined, undefined, () => {});
  });
}

/** True if a message is part of the heartbeat, and of no concern to anybody else. */
export function isHeartbeat(message: unknown): message is typeof PING | typeof PONG {
  return message === PING || message === PONG;
}
