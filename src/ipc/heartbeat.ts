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
  /**
   * True for a child whose event loop stands still while it works: a thread of it sends back on standard
   * output what arrives on standard input.
   */
  readonly overStdio?: boolean;
}

/**
 * The heartbeat (health check) of a child process: it is asked for a sign of life every second,
 * until it has ended.
 *
 * @param onStuck called once it has given none for too long, in which this process itself ran
 * @param isAsked true while its answer matters
 * @returns how many signs of life in a row are missing
 */
export function watchHeartbeat(
  child: ChildProcess,
  { missable, missableAtStart = missable, overStdio = false }: HeartbeatLimits,
  onStuck: () => void,
  isAsked = () => true,
): () => number {
  if (child.pid === undefined) return () => 0;
  let missed = missable - missableAtStart;
  const onSign = () => {
    missed = 0;
  };
  child.on("message", onSign);
  if (overStdio) child.stdout?.on("data", onSign);
  child.stdin?.on("error", () => {});
  // Beats are counted and not time, which also goes on while this process is the one that stands.
  const timer = setInterval(() => {
    if (!isAsked()) return;
    missed++;
    if (missed > missable) {
      clearInterval(timer);
      onStuck();
    } else if (overStdio) {
      child.stdin?.write(".");
    } else if (child.connected) {
      child.send(PING, () => {});
    }
  }, BEAT_MS);
  child.once("exit", () => clearInterval(timer));
  return () => missed;
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
