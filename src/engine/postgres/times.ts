import { type Codec, strings, stringsLike } from "./codec.ts";

const day = String.raw`\d{4,6}-\d\d-\d\d`;
const clock = String.raw`\d\d:\d\d(:\d\d(\.\d{1,6})?)?`;
const zone = String.raw`(Z|[+-]\d\d(:?\d\d)?)`;

/** `2026-01-02`, the days before year 1 with ` BC` after them, and the ends of time. */
export const dates = stringsLike(new RegExp(`^(${day}( BC)?|-?infinity)$`));

/** `03:04:05` with up to six places of a second. */
export const times = stringsLike(new RegExp(`^${clock}$`));

/**
 * Instants, written in UTC (ISO 8601): `2026-01-02T03:04:05Z`. They are taken with any offset;
 * without one they are in UTC.
 */
export const instants: Codec = {
  write: stringsLike(new RegExp(`^(${day}([T ]${clock}${zone}?)?( BC)?|-?infinity)$`)).write,
  read: (text) => strings.read(text.replace(" ", "T").replace(/\+00(?::00)?(?= BC$|$)/, "Z")),
  bytes: "instant",
};

/** Dates with a time of day that belong to no zone: `2026-01-02T03:04:05`; an offset is refused. */
export const localTimes: Codec = {
  write: stringsLike(new RegExp(`^(${day}([T ]${clock})?( BC)?|-?infinity)$`)).write,
  read: (text) => strings.read(text.replace(" ", "T")),
  bytes: "local",
};
