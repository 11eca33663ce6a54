import { didYouMean } from "../suggestion.ts";
import { isTableName, type TableName, tables } from "./blocks.ts";
import { isDatabaseOrEvery, isEmail, isExternalUsername, isUsername } from "./names.ts";
import { parsePasswordHash } from "./password-hash.ts";
import { isRole, roles } from "./roles.ts";
import type { Grant, User } from "./snapshot.ts";

/** The records of the access file in the file's own order. */
export interface AccessRecords {
  readonly users: readonly User[];
  readonly grants: readonly Grant[];
}

/** What is wrong in which record; the line is looked up only when there is something wrong. */
export class RecordError extends Error {
  readonly table: TableName;
  readonly index: number;
  readonly key: string | undefined;

  constructor(table: TableName, index: number, key: string | undefined, reason: string) {
    super(reason);
    this.table = table;
    this.index = index;
    this.key = key;
  }
}

/** A TOML table that has not been looked into. */
export type TomlTable = Record<string, unknown>;

function isTable(value: unknown): value is TomlTable {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date)
  );
}

function requireTable(table: TableName, record: unknown, index: number): TomlTable {
  if (!isTable(record)) throw new RecordError(table, index, undefined, "not a table");
  const allowed: readonly string[] = tables[table];
  const unknown = Object.keys(record).find((key) => !allowed.includes(key));
  if (unknown === undefined) return record;
  const reason = `unknown key; allowed: ${allowed.join(", ")}${didYouMean(unknown, allowed)}`;
  throw new RecordError(table, index, unknown, reason);
}

function readUsername(table: TableName, record: TomlTable, index: number): string {
  const { username } = record;
  if (isUsername(username) || isExternalUsername(username)) return username;
  const reason =
    "`username` must be 1 to 64 of letters, digits, '.', '_', '-', '@' (after `prefix:` for an external user)";
  throw new RecordError(table, index, "username", reason);
}

/** @throws RecordError */
export function readUser(value: unknown, index: number): User {
  const record = requireTable("users", value, index);
  const username = readUsername("users", record, index);
  const fail = (key: string, reason: string): never => {
    throw new RecordError("users", index, key, `\`${key}\` ${reason}`);
  };
  const { email, password_hash: hash, disabled = false, tokens_valid_after: after = 0 } = record;
  if (email !== undefined && !isEmail(email)) {
    return fail("email", "must be a string of 1 to 254 printable characters");
  }
  if (hash !== undefined && (typeof hash !== "string" || parsePasswordHash(hash) === undefined)) {
    return fail(
      "password_hash",
      "is not an Argon2id hash with costs m 8 to 1048576, t and p 1 to 64",
    );
  }
  if (typeof disabled !== "boolean") return fail("disabled", "must be true or false");
  if (typeof after !== "number" || !Number.isSafeInteger(after) || after < 0) {
    return fail("tokens_valid_after", "must be a whole number of epoch seconds");
  }
  return { username, email, passwordHash: hash, disabled, tokensValidAfter: after };
}

/** @throws RecordError */
export function readGrant(value: unknown, index: number): Grant {
  const record = requireTable("acl", value, index);
  const username = readUsername("acl", record, index);
  const { database, role } = record;
  if (!isDatabaseOrEvery(database)) {
    const reason = "`database` must be \"*\" or 1 to 63 of letters, digits, '_', '-'";
    throw new RecordError("acl", index, "database", reason);
  }
  if (!isRole(role)) {
    const hint = typeof role === "string" ? didYouMean(role, roles) : "";
    const reason = `\`role\` must be one of ${roles.join(", ")}${hint}`;
    throw new RecordError("acl", index, "role", reason);
  }
  return { username, database, role };
}

function arrayOf(document: TomlTable, table: TableName): unknown[] {
  const value = document[table] ?? [];
  if (Array.isArray(value)) return value;
  throw new RecordError(table, 0, undefined, `\`${table}\` must be written as [[${table}]]`);
}

/** Reads a whole document. @throws RecordError */
export function readRecords(document: TomlTable): AccessRecords {
  const stranger = Object.keys(document).find((key) => !isTableName(key));
  if (stranger !== undefined) {
    const reason = `only [[users]] and [[acl]] may stand here${didYouMean(stranger, Object.keys(tables))}`;
    throw new RecordError("users", -1, stranger, reason);
  }
  return {
    users: arrayOf(document, "users").map(readUser),
    grants: arrayOf(document, "acl").map(readGrant),
  };
}
