import { isPlainName } from "../query/names.ts";
import { didYouMean } from "../suggestion.ts";
import { parsePasswordHash } from "./password-hash.ts";
import { EVERY_DATABASE, isRole, roles } from "./roles.ts";
import type { Grant, User } from "./snapshot.ts";

/** What `isUsername` accepts. */
export const username = /^(?!\.{1,2}$)[A-Za-z0-9._@-]{1,64}$/;
/** What `isExternalUsername` accepts. */
export const externalUsername = /^[A-Za-z0-9_-]{1,63}:(?!\.{1,2}$)[A-Za-z0-9._@-]{1,64}$/;

/** True for a user of this gateway: 1 to 64 of letters, digits, `.`, `_`, `-`, `@`; not `.`, `..`. */
export function isUsername(text: unknown): text is string {
  return typeof text === "string" && username.test(text);
}

/** True for a user of an external authorization server: `<prefix>:<username>`. */
export function isExternalUsername(text: unknown): text is string {
  return typeof text === "string" && externalUsername.test(text);
}

/** True for what a grant may name: a database's plain name, or `*` for every database. */
export function isDatabaseOrEvery(text: unknown): text is string {
  return text === EVERY_DATABASE || (typeof text === "string" && isPlainName(text));
}

/** True for an email address that the access file may hold: at most 254 printable characters. */
export function isEmail(text: unknown): text is string {
  return (
    typeof text === "string" &&
    text.length > 0 &&
    text.length <= 254 &&
    text.isWellFormed() &&
    !/\p{Cc}/u.test(text)
  );
}

/** The two kinds of table in the access file, and the keys that each may have. */
export const tables = {
  users: ["username", "email", "password_hash", "disabled", "tokens_valid_after"],
  acl: ["username", "database", "role"],
} as const;
export type TableName = keyof typeof tables;

/** True for a table's name in the access file. */
export function isTableName(name: string | undefined): name is TableName {
  return name !== undefined && Object.hasOwn(tables, name);
}

/** The records of the access file in the file's own order. */
export interface AccessRecords {
  readonly users: readonly User[];
  readonly grants: readonly Grant[];
}

/** What is wrong in which record; the line is looked up only when there is something wrong. */
export interface RecordProblem {
  readonly table: TableName;
  /** Which of the table's records, from 0; -1 for what may not stand in the file at all. */
  readonly index: number;
  readonly key: string | undefined;
  readonly reason: string;
}

/** Records that break the rules. */
export class RecordsError extends Error {
  readonly problems: readonly RecordProblem[];

  constructor(problems: readonly RecordProblem[]) {
    super("the records break the rules");
    this.problems = problems;
  }
}

/** Told of each problem; reading goes on. */
export type Report = (problem: RecordProblem) => void;

/** A TOML table that has not been looked into. */
export type TomlTable = Record<string, unknown>;

function isTable(value: unknown): value is TomlTable {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date)
  );
}

/** The record as a table, all of whose keys are allowed; what is not is reported. */
function readTable(
  table: TableName,
  record: unknown,
  index: number,
  report: Report,
): TomlTable | undefined {
  if (!isTable(record)) {
    report({ table, index, key: undefined, reason: "not a table" });
    return undefined;
  }
  const allowed: readonly string[] = tables[table];
  for (const key of Object.keys(record)) {
    if (allowed.includes(key)) continue;
    const reason = `unknown key; allowed: ${allowed.join(", ")}${didYouMean(key, allowed)}`;
    report({ table, index, key, reason });
  }
  return record;
}

const nameReason =
  "`username` must be 1 to 64 of letters, digits, '.', '_', '-', '@' (after `prefix:` for an external user)";

/** Reads a user; undefined if something was reported of which nothing can be made. */
export function readUser(value: unknown, index: number, report: Report): User | undefined {
  const record = readTable("users", value, index, report);
  if (record === undefined) return undefined;
  const { username, email, password_hash: passwordHash } = record;
  const { disabled = false, tokens_valid_after: tokensValidAfter = 0 } = record;
  const isNamed = isUsername(username) || isExternalUsername(username);
  const isMail = email === undefined || isEmail(email);
  const isHash =
    passwordHash === undefined ||
    (typeof passwordHash === "string" && parsePasswordHash(passwordHash) !== undefined);
  const isSwitch = typeof disabled === "boolean";
  const isTime =
    typeof tokensValidAfter === "number" &&
    Number.isSafeInteger(tokensValidAfter) &&
    tokensValidAfter >= 0;
  if (isNamed && isMail && isHash && isSwitch && isTime) {
    return { username, email, passwordHash, disabled, tokensValidAfter };
  }
  const fail = (key: string, reason: string) => report({ table: "users", index, key, reason });
  if (!isNamed) fail("username", nameReason);
  if (!isMail) fail("email", "`email` must be a string of 1 to 254 printable characters");
  if (!isHash) {
    const reason = "is not an Argon2id hash with costs m 8 to 1048576, t and p 1 to 64";
    fail("password_hash", `\`password_hash\` ${reason}`);
  }
  if (!isSwitch) fail("disabled", "`disabled` must be true or false");
  if (!isTime) {
    fail("tokens_valid_after", "`tokens_valid_after` must be a whole number of epoch seconds");
  }
  return undefined;
}

/** Reads a grant; undefined if something was reported of which nothing can be made. */
export function readGrant(value: unknown, index: number, report: Report): Grant | undefined {
  const record = readTable("acl", value, index, report);
  if (record === undefined) return undefined;
  const { username, database, role } = record;
  const isNamed = isUsername(username) || isExternalUsername(username);
  const isPlace = isDatabaseOrEvery(database);
  const isGiven = isRole(role);
  if (isNamed && isPlace && isGiven) return { username, database, role };
  const fail = (key: string, reason: string) => report({ table: "acl", index, key, reason });
  if (!isNamed) fail("username", nameReason);
  if (!isPlace)
    fail("database", "`database` must be \"*\" or 1 to 63 of letters, digits, '_', '-'");
  if (!isGiven) {
    const hint = typeof role === "string" ? didYouMean(role, roles) : "";
    fail("role", `\`role\` must be one of ${roles.join(", ")}${hint}`);
  }
  return undefined;
}

function arrayOf(document: TomlTable, table: TableName, report: Report): unknown[] {
  const value = document[table] ?? [];
  if (Array.isArray(value)) return value;
  const reason = `\`${table}\` must be written as [[${table}]]`;
  report({ table, index: 0, key: undefined, reason });
  return [];
}

/** Records as far as they could be read, each in its place. */
export interface ReadRecords {
  readonly users: readonly (User | undefined)[];
  readonly grants: readonly (Grant | undefined)[];
}

/** Reads a whole document. */
export function readRecords(document: TomlTable, report: Report): ReadRecords {
  for (const key of Object.keys(document)) {
    if (isTableName(key)) continue;
    const reason = `only [[users]] and [[acl]] may stand here${didYouMean(key, Object.keys(tables))}`;
    report({ table: "users", index: -1, key, reason });
  }
  return {
    users: arrayOf(document, "users", report).map((user, at) => readUser(user, at, report)),
    grants: arrayOf(document, "acl", report).map((grant, at) => readGrant(grant, at, report)),
  };
}
