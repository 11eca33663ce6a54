const unitMs = new Map([
  ["s", 1000],
  ["m", 60_000],
  ["h", 3_600_000],
  ["d", 86_400_000],
]);
const rfc3339 = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))?$/;

/** What `readMoment` takes, for people. */
export const moments = "such as 24h, 30d, 2026-12-24 or 2026-12-24T18:00:00Z";

/**
 * Reads a moment of the past as epoch milliseconds: `24h` ago, or a date or time as RFC 3339 has it;
 * undefined if it is none.
 */
export function readMoment(text: string): number | undefined {
  const [, count = "", unit = ""] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const ago = Number(count) * (unitMs.get(unit) ?? Number.NaN);
  const moment = Number.isNaN(ago) && rfc3339.test(text) ? Date.parse(text) : Date.now() - ago;
  return Number.isNaN(moment) ? undefined : moment;
}
