/** Times on pages: in the zone that the visitor has chosen, otherwise in the server's. */
import { AsyncLocalStorage } from "node:async_hooks";
import { type Html, html } from "../../core/base/html.ts";

const serverZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** For suggestions. More names are known. */
export const zones: readonly string[] = ["UTC", ...Intl.supportedValuesOf("timeZone")];

/** The zone as it is usually spelled. Undefined for an offset, of which there are thousands. */
export function knownZone(name = ""): string | undefined {
  if (/^[+-]/.test(name)) return undefined;
  try {
    return Intl.DateTimeFormat("en", { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

/** The zone of the request that is being answered. */
const chosen = new AsyncLocalStorage<string>();

/** Answers in this zone, or in the server's if it is unknown. */
export function inZone<Result>(zone: string | undefined, answer: () => Result): Result {
  return chosen.run(knownZone(zone) ?? serverZone, answer);
}

export function zoneInUse(): string {
  return chosen.getStore() ?? serverZone;
}

/** One for each known zone at most. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** Milliseconds by which local time is ahead of UTC at this moment. */
export function zoneOffset(epochMs: number): number {
  const timeZone = zoneInUse();
  const format =
    formats.get(timeZone) ??
    new Intl.DateTimeFormat("en", { timeZone, timeZoneName: "longOffset" });
  formats.set(timeZone, format);
  const name = format.formatToParts(epochMs).find(({ type }) => type === "timeZoneName");
  const [, sign, hours, minutes] = /([+-])(\d\d):(\d\d)/.exec(name?.value ?? "") ?? [];
  const ahead = (Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * 60_000;
  return sign === "-" ? -ahead : ahead;
}

/** Local time such as `2026-11-29 11:24:06`. */
export function localTime(epochMs: number): string {
  return new Date(epochMs + zoneOffset(epochMs)).toISOString().slice(0, 19).replace("T", " ");
}

/** The moment of a local time. Of two in the hour that is repeated in autumn, the second. NaN if invalid. */
export function readLocalTime(local: string): number {
  const asUtc = Date.parse(`${local}Z`);
  if (Number.isNaN(asUtc)) return asUtc;
  const guess = asUtc - zoneOffset(asUtc);
  return asUtc - zoneOffset(guess);
}

/** Such as `UTC+01:00`, or `UTC`. */
export function offsetName(epochMs: number): string {
  const offset = zoneOffset(epochMs);
  if (offset === 0) return "UTC";
  const ahead = new Date(Math.abs(offset)).toISOString().slice(11, 16);
  return `UTC${offset < 0 ? "-" : "+"}${ahead}`;
}

/** Text about a moment. Its tooltip is the moment in UTC. */
export function timeElement(epochMs: number, text: string): Html {
  const utc = new Date(epochMs).toISOString();
  const title = `${utc.slice(0, 19).replace("T", " ")} UTC`;
  return html`<time datetime="${utc}" title="${title}">${text}</time>`;
}

/**
 * Local time with its offset, such as `2026-11-29 11:24 +01:00`.
 *
 * @param end of the part of `localTime`: up to the minute unless said
 */
export function dateInWords(epochMs: number, end = 16, begin = 0): string {
  const offset = offsetName(epochMs).replace(/^UTC(?=.)/, "");
  return `${localTime(epochMs).slice(begin, end)} ${offset}`;
}

/** As `dateInWords`, with UTC as its tooltip. @param seconds since the epoch */
export function formatDate(seconds: number, end = 16, begin = 0): Html {
  return timeElement(seconds * 1000, dateInWords(seconds * 1000, end, begin));
}
