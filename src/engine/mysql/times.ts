/** Dates and times, between how they are written in JSON (ISO 8601) and how MySQL writes them. */

import { trimPlaces } from "../sql/cell-text.ts";

const dayForm = /^(\d{4})-(\d\d)-(\d\d)$/;
const clockForm = /^(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?$/;
const spanForm = /^-?\d{2,3}:[0-5]\d(?::[0-5]\d(?:\.(\d{1,6}))?)?$/;
const momentForm = /^(\d{4}-\d\d-\d\d)(?:[T ]([\d:.]+)(Z|[+-]\d\d(?::?\d\d)?)?)?$/;

/** A day that is in the calendar, as it is written; undefined for any other text. */
export function readDay(text: string): string | undefined {
  const [, year = "", month, day] = dayForm.exec(text) ?? [];
  if (year === "" || year === "0000") return undefined;
  const date = new Date(`${year}-${month}-${day}T00:00:00Z`);
  // The 30th of February would be read as a day of March.
  return Number.isNaN(date.getTime()) || !date.toISOString().startsWith(text) ? undefined : text;
}

/** A time, or a span of hours, of at most `places` places of a second. */
export function readSpan(text: string, places: number): string | undefined {
  const [whole, fraction = ""] = spanForm.exec(text) ?? [];
  return whole === undefined || isFiner(fraction, places) ? undefined : whole;
}

/** A moment of the calendar with no zone of its own; one with an offset is undefined. */
export function readLocal(text: string, places: number): string | undefined {
  return momentForm.exec(text)?.[3] === undefined ? readInstant(text, places) : undefined;
}

/** A moment with any offset, or none for UTC, as MySQL writes it in UTC. */
export function readInstant(text: string, places: number): string | undefined {
  const [, day = "", clock = "00:00:00", zone = "Z"] = momentForm.exec(text) ?? [];
  const [, hour, minute, second = "00", fraction = ""] = clockForm.exec(clock) ?? [];
  const offset = offsetOf(zone);
  if (readDay(day) === undefined || hour === undefined || offset === undefined) return undefined;
  if (isFiner(fraction, places)) return undefined;
  const local = Date.parse(`${day}T${hour}:${minute}:${second}Z`);
  if (Number.isNaN(local) || hour === "24") return undefined;
  const moment = new Date(local - offset * 60_000).toISOString();
  // Years before the first and after 9999 have a sign there, or are all zeros.
  if (!/^(?!0000)\d{4}-/.test(moment)) return undefined;
  return `${moment.slice(0, 10)} ${moment.slice(11, 19)}${fraction === "" ? "" : `.${fraction}`}`;
}

/** MySQL's date or time as JSON has it, without the zeros at the end of a second. */
export function writeTime(text: string): string {
  return trimPlaces(text.replace(" ", "T"));
}

/** Minutes east of Greenwich. */
function offsetOf(zone: string): number | undefined {
  if (zone === "Z") return 0;
  const [, sign, hours, minutes = "0"] = /^([+-])(\d\d):?(\d\d)?$/.exec(zone) ?? [];
  const offset = Number(hours) * 60 + Number(minutes);
  if (Number(hours) > 15 || Number(minutes) > 59) return undefined;
  return sign === "-" ? -offset : offset;
}

function isFiner(fraction: string, places: number): boolean {
  return fraction.replace(/0+$/, "").length > places;
}
