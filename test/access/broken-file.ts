/** What files that break a rule of the access file are made of. */

/** A file that must be refused. */
export interface BrokenFile {
  readonly rule: string;
  readonly text: string;
  readonly line: number | undefined;
  readonly reason: RegExp;
}

/** Stands in names and hashes, and must never be in a reason. */
export const SECRET = "hunter2";

export const name = `username = "${SECRET}"`;
export const record = `[[users]]\n${name}\n`;
export const entry = `[[acl]]\n${name}\n`;
export const hashReason = /^`password_hash` is not an Argon2id hash with costs m 8 to 1048576/;
export const nameReason = /^`username` must be 1 to 64 of letters/;
export const databaseReason = /^`database` must be "\*" or 1 to 63/;
export const roleReason =
  /^`role` must be one of Owner, DbAdmin, ReadWrite, ReadOnly, None(?: \(did you mean \w+\?\))?$/;
export const emailReason = /^`email` must be a string of 1 to 254 printable characters$/;
export const afterReason = /^`tokens_valid_after` must be a whole number of epoch seconds$/;

export function broken(
  rule: string,
  text: string,
  line: number | undefined,
  reason: RegExp,
): BrokenFile {
  return { rule, text, line, reason };
}
