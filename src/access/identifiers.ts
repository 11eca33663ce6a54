import { isPlainName } from "../query/names.ts";
import { EVERY_DATABASE } from "./roles.ts";

export const username = /^(?!\.{1,2}$)[A-Za-z0-9._@-]{1,64}$/;
export const externalUsername = /^[A-Za-z0-9_-]{1,63}:(?!\.{1,2}$)[A-Za-z0-9._@-]{1,64}$/;

/**
 * True for the name of a local user: 1 to 64 of letters, digits, `.`, `_`, `-`, `@`, but not `.` or
 * `..`.
 */
export function isUsername(text: unknown): text is string {
  return typeof text === "string" && username.test(text);
}

/** True for a user of an external authorization server, written `<prefix>:<username>`. */
export function isExternalUsername(text: unknown): text is string {
  return typeof text === "string" && externalUsername.test(text);
}

export function isDatabaseOrEvery(text: unknown): text is string {
  return text === EVERY_DATABASE || (typeof text === "string" && isPlainName(text));
}

/** True for an email address of at most 254 printable characters. */
export function isEmail(text: unknown): text is string {
  return (
    typeof text === "string" &&
    text.length > 0 &&
    text.length <= 254 &&
    text.isWellFormed() &&
    !/\p{Cc}/u.test(text)
  );
}
