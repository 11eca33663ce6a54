import { createHash } from "node:crypto";
import { outline } from "../toml/outline.ts";
import { parseToml, TomlSyntaxError } from "../toml/parse.ts";
import { isDatabaseOrEvery, isEmail, isExternalUsername, isUsername } from "./names.ts";
import { parsePasswordHash } from "./password-hash.ts";
import { EVERY_DATABASE, isRole, type Role, roles } from "./roles.ts";
import type { Grant, Snapshot, User } from "./snapshot.ts";

/** The access file cannot be used; says where and why, never with text from the file. */
export class AccessFileError extends Error {
  readonly file: string;
  readonly line: number | undefined;
  readonly reason: string;

  constructor(file: string, line: number | undefined, reason: string) {
    super(line === undefined ? `${file}: ${reason}` : `${file}:${line}: ${reason}`);
    this.name = "AccessFileError";
    this.file = file;
    this.line = line;
    this.reason = reason;
  }
}

/** The records of the access file in the file's own order. */
export interface AccessRecords {
  readonly users: readonly User[];
  readonly grants: readonly Grant[];
}

const tables = {
  users: ["username", "email", "password_hash", "disabled", "tokens_valid_after"],
  acl: ["username", "database", "role"],
} as const;
type TableName = keyof typeof tables;

/** What is wrong in which record; the line is looked up only when there is something wrong. */
class RecordError extends Error {
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

type TomlTable = Record<string, unknown>;

function isTable(value: unknown): value is TomlTable {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date)
  );
}

function readTables(document: TomlTable, table: TableName): TomlTable[] {
  const value = document[table];
  if (value === undefined) return [];
  if (!Array.isArray(value)) {
    throw new RecordError(table, 0, undefined, `\`${table}\` must be written as [[${table}]]`);
  }
  return value.map((record: unknown, index) => {
    if (!isTable(record)) throw new RecordError(table, index, undefined, "not a table");
    const allowed: readonly string[] = tables[table];
    for (const key of Object.keys(record)) {
      if (!allowed.includes(key)) {
        throw new RecordError(table, index, key, `unknown key; allowed: ${allowed.join(", ")}`);
      }
    }
    return record;
  });
}

function readUsername(table: TableName, record: TomlTable, index: number): string {
  const { username } = record;
  if (isUsername(username) || isExternalUsername(username)) return username;
  const reason =
    "`username` must be 1 to 64 of letters, digits, '.', '_', '-', '@' (after `prefix:` for an external user)";
  throw new RecordError(table, index, "username", reason);
}

function readUser(record: TomlTable, index: number): User {
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

function readGrant(record: TomlTable, index: number): Grant {
  const username = readUsername("acl", record, index);
  const { database, role } = record;
  if (!isDatabaseOrEvery(database)) {
    const reason = "`database` must be \"*\" or 1 to 63 of letters, digits, '_', '-'";
    throw new RecordError("acl", index, "database", reason);
  }
  if (!isRole(role)) {
    throw new RecordError("acl", index, "role", `\`role\` must be one of ${roles.join(", ")}`);
  }
  return { username, database, role };
}

function indexUsers(users: readonly User[]): Map<string, User> {
  const byName = new Map<string, User>();
  for (const [index, user] of users.entries()) {
    if (byName.has(user.username)) {
      throw new RecordError("users", index, "username", "this user has a record already");
    }
    byName.set(user.username, user);
  }
  return byName;
}

function indexGrants(grants: readonly Grant[]): Pick<Snapshot, "grants" | "databases"> {
  const byUser = new Map<string, Map<string, Role>>();
  const databases = new Map<string, string>();
  for (const [index, { username, database, role }] of grants.entries()) {
    const folded = database.toLowerCase();
    const known = databases.get(folded);
    if (known !== undefined && known !== database) {
      const reason = "another entry names a database that differs from this one only by case";
      throw new RecordError("acl", index, "database", reason);
    }
    if (database !== EVERY_DATABASE) databases.set(folded, database);
    const own = byUser.get(username) ?? new Map<string, Role>();
    byUser.set(username, own);
    if (own.has(database)) {
      throw new RecordError(
        "acl",
        index,
        undefined,
        "this user has an entry for this database already",
      );
    }
    own.set(database, role);
  }
  return { grants: byUser, databases };
}

function lineOf(text: string, { table, index, key }: RecordError): number | undefined {
  let line: number | undefined;
  let inside = false;
  for (const statement of outline(text)) {
    const isHeader = statement.kind !== "key";
    if (isHeader)
      inside =
        statement.kind === "array-table" &&
        statement.path[0] === table &&
        statement.index === index;
    if (isHeader && inside) line = statement.line;
    else if (inside && key !== undefined && statement.path.at(-1) === key) return statement.line;
    else if (!isHeader && !inside && statement.path[0] === table) line ??= statement.line;
  }
  return line;
}

/** A short hash by which the contents of two files can be told apart. */
export function contentVersion(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}

/**
 * Reads the access file's text as records in their order.
 *
 * @throws AccessFileError with the line, if anything in it is not as it must be
 */
export function parseRecords(text: string, file: string): AccessRecords {
  return readDocument(text, file).records;
}

/**
 * Reads the access file's text as a snapshot.
 *
 * @throws AccessFileError with the line, if anything in it is not as it must be
 */
export function parseAccessFile(text: string, file: string): Snapshot {
  return readDocument(text, file).snapshot;
}

function readDocument(text: string, file: string): { records: AccessRecords; snapshot: Snapshot } {
  try {
    const document = parseToml(text, file).values;
    const unknown = Object.keys(document).some((key) => !Object.hasOwn(tables, key));
    if (unknown)
      throw new AccessFileError(file, undefined, "only [[users]] and [[acl]] may stand here");
    const users = readTables(document, "users").map(readUser);
    const grants = readTables(document, "acl").map(readGrant);
    if (users.length === 0 && grants.length === 0) {
      throw new AccessFileError(file, undefined, "holds no user and no grant: taken as truncated");
    }
    const snapshot = {
      version: contentVersion(text),
      users: indexUsers(users),
      ...indexGrants(grants),
    };
    return { records: { users, grants }, snapshot };
  } catch (error) {
    if (error instanceof TomlSyntaxError) throw new AccessFileError(file, error.line, error.reason);
    if (!(error instanceof RecordError)) throw error;
    throw new AccessFileError(file, lineOf(text, error), error.message);
  }
}

/** The names that have entries but no record: allowed for external users, else worth a warning. */
export function namesWithoutRecord(snapshot: Snapshot): string[] {
  return [...snapshot.grants.keys()].filter(
    (name) => !snapshot.users.has(name) && !isExternalUsername(name),
  );
}
