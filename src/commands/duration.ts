/** Times as commands take them. */
import { InvalidArgumentError } from "commander";

const secondsIn = new Map([
  ["s", 1],
  ["m", 60],
  ["h", 3600],
  ["d", 86_400],
]);

/** Reads `90d`, `12h`, `30m` or `3600s` as seconds. @throws InvalidArgumentError past `most` */
export function readDuration(text: string, most: number = 366 * 86_400): number {
  const [, count = "", unit = ""] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const seconds = Number(count) * (secondsIn.get(unit) ?? 0);
  if (seconds >= 1 && seconds <= most) return seconds;
  throw new InvalidArgumentError("allowed: such as 90d, 12h, 30m or 3600s, at most 366d");
}
