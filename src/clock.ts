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

const unitMs = new Map([
  ["s", 1000],
  ["m", 60_000],
  ["h", 3_600_000],
  ["d", 86_400_000],
]);
const daysFromToday = new Map([
  ["yesterday", -1],
  ["today", 0],
  ["tomorrow", 1],
]);
const rfc3339 = /^\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d))?$/;

/** What `readMoment` takes, for people. */
export const moments = "such as 24h, 30d, yesterday, 2026-12-24 or 2026-12-24T18:00:00Z";

/**
 * Reads a moment as epoch milliseconds: `24h` ago, a day, which begins at midnight UTC, or a time as
 * in RFC 3339; undefined for anything else.
 */
export function readMoment(text: string): number | undefined {
  const [, count = "", unit = ""] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const ms = unitMs.get(unit);
  if (ms !== undefined) return Date.now() - Number(count) * ms;
  const days = daysFromToday.get(text);
  if (days !== undefined) return new Date().setUTCHours(24 * days, 0, 0, 0);
  const moment = rfc3339.test(text) ? Date.parse(text.replace(" ", "T")) : Number.NaN;
  return Number.isNaN(moment) ? undefined : moment;
}
