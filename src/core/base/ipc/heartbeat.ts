import type { ChildProcess } from "node:child_process";

const PING = "ping";
const PONG = "pong";

const BEAT_MS = 1000;

export interface HeartbeatLimits {
  readonly maxMissed: number;
  readonly maxMissedAtStart?: number;
  /** Also watch the child while it owes no answer. */
  readonly whileIdle?: boolean;
  /**
   * True for a child that blocks its event loop while it works: one of its threads echoes standard
   * input to standard output.
   */
  readonly overStdio?: boolean;
}

/**
 * Pings a child process every second until it has ended.
 *
 * @param onStuck called once after too many missed pings, counted only while this process itself
 * ran
 * @param isAsked true while the child's answer matters
 * @returns the number of missed heartbeats in a row
 */
export function watchHeartbeat(
  child: ChildProcess,
  { maxMissed, maxMissedAtStart = maxMissed, overStdio = false }: HeartbeatLimits,
  onStuck: () => void,
  isAsked = () => true,
): () => number {
  if (child.pid === undefined) return () => 0;
  let missed = maxMissed - maxMissedAtStart;
  const onAlive = () => {
    missed = 0;
  };
  child.on("message", onAlive);
  if (overStdio) child.stdout?.on("data", onAlive);
  child.stdin?.on("error", () => {});
  // Counts beats rather than time, since time also passes while this process itself is stopped.
  const timer = setInterval(() => {
    if (!isAsked()) return;
    missed++;
    if (missed > maxMissed) {
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

/** Answers the parent's pings, which shows that the event loop runs. */
export function answerHeartbeat(): void {
  process.on("message", (message) => {
    if (message === PING) process.send?.(PONG, undefined, undefined, () => {});
  });
}

/** True for heartbeat messages, which other listeners must ignore. */
export function isHeartbeat(message: unknown): message is typeof PING | typeof PONG {
  return message === PING || message === PONG;
}
