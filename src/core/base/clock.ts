/** The unit of time in tokens, keys and revocations (RFC 7519, NumericDate). */
export function epochSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

/**
 * Epoch seconds by the system clock, but without jumps ahead while this process runs: after a jump,
 * counts on from the start of the process.
 */
export function steadySeconds(): number {
  return Math.floor(Math.min(Date.now(), performance.timeOrigin + performance.now()) / 1000);
}

/** Seconds by which a clock may have been wrong when the process started. */
const MARGIN = 7 * 24 * 3600;
/** A clock that is wrong at the start is usually corrected within this time. */
const SETTLED_AFTER_MS = 3_600_000;

/**
 * What expired before this moment, in epoch seconds, may be deleted permanently: it has passed even
 * if the clock was wrong at the start.
 *
 * @param running milliseconds for which this process has run
 */
export function forgettableBefore(running = performance.now()): number {
  return running < SETTLED_AFTER_MS ? 0 : steadySeconds() - MARGIN;
}

const CHECK_INTERVAL_MS = 5000;
const JUMP_MS = 10_000;

/**
 * Calls `onJump` with the seconds, ahead or back, by which the system clock was set. To a process,
 * waking from sleep looks like a clock that jumped ahead.
 *
 * @returns stops watching
 */
export function watchClock(onJump: (seconds: number) => void): () => void {
  let offset = Date.now() - performance.now();
  const timer = setInterval(() => {
    const now = Date.now() - performance.now();
    if (Math.abs(now - offset) > JUMP_MS) onJump(Math.round((now - offset) / 1000));
    offset = now;
  }, CHECK_INTERVAL_MS).unref();
  return () => clearInterval(timer);
}

let lastTime = 0;
let lastText = "";

/** The time format of log and audit: ISO 8601 in UTC with milliseconds. */
export function isoTime(): string {
  const now = Date.now();
  if (now !== lastTime) {
    lastTime = now;
    lastText = new Date(now).toISOString();
  }
  return lastText;
}

/** RFC 3339, without a zero fraction. */
export function writtenTime(epochMs: number): string {
  return new Date(epochMs).toISOString().replace(".000Z", "Z");
}

export const unitMs = new Map([
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

/** Examples of what `readMoment` parses. */
export const moments = "24h, 30d, yesterday, 2026-12-24 or 2026-12-24T18:00:00Z";

/**
 * Parses a moment into epoch milliseconds: `24h` ago, a day, which begins at midnight UTC, or a
 * time as in RFC 3339; undefined for anything else.
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
