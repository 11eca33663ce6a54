/** The time as tokens, keys and revocations count it: epoch seconds (RFC 7519, NumericDate). */
export function epochSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

/**
 * The time in epoch seconds by the system's clock, of which a jump ahead while this process runs is
 * not believed: then it goes on from when the process started.
 */
export function steadySeconds(): number {
  return Math.floor(Math.min(Date.now(), performance.timeOrigin + performance.now()) / 1000);
}

/** Seconds by which a clock may have been wrong already when the process started. */
const MARGIN = 7 * 24 * 3600;
/** Milliseconds in which a clock that is wrong at the start is usually set right. */
const SETTLED_AFTER_MS = 3_600_000;

/**
 * What ended before this moment, in epoch seconds, may be forgotten for good: it is past beyond all
 * doubt about the clock.
 *
 * @param running milliseconds for which this process has run
 */
export function forgettableBefore(running = performance.now()): number {
  return running < SETTLED_AFTER_MS ? 0 : steadySeconds() - MARGIN;
}

const LOOK_MS = 5000;
const JUMP_MS = 10_000;

/**
 * Calls `onJump` with the seconds, ahead or back, by which the system's clock was set while nobody
 * waited for so long. To a process, a machine that wakes up has a clock that jumped ahead.
 *
 * @returns ends the watching
 */
export function watchClock(onJump: (seconds: number) => void): () => void {
  let offset = Date.now() - performance.now();
  const timer = setInterval(() => {
    const now = Date.now() - performance.now();
    if (Math.abs(now - offset) > JUMP_MS) onJump(Math.round((now - offset) / 1000));
    offset = now;
  }, LOOK_MS).unref();
  return () => clearInterval(timer);
}

let lastTime = 0;
let lastText = "";

/** The time as log and audit write it: ISO 8601 in UTC with milliseconds. */
export function isoTime(): string {
  const now = Date.now();
  if (now !== lastTime) {
    lastTime = now;
    lastText = new Date(now).toISOString();
  }
  return lastText;
}
