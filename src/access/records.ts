import { quoteName } from "../json/fault.ts";
import { askWhether, didYouMean, suggestion } from "../suggestion.ts";
import { attributesForm, readAttributes } from "./conditions.ts";
import type { AttributeValue, Boundary, Grant, User } from "./grant.ts";
import { isDatabaseOrEvery, isEmail, isExternalUsername, isUsername } from "./identifiers.ts";
import {
  boundaryKeys,
  boundingKeys,
  entryKeys,
  entryRoles,
  type KeyReader,
} from "./limit-fields.ts";
import { parsePasswordHash } from "./password-hash.ts";
import { isTableName, type TableName, tables } from "./record-tables.ts";
import type { EntryRole } from "./roles.ts";

const noAttributes: ReadonlyMap<string, AttributeValue> = new Map();

/** The records of the access file in the file's own order. */
export interface AccessRecords {
  readonly users: readonly User[];
  readonly grants: readonly Grant[];
  readonly boundaries: readonly Boundary[];
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

/** True for a TOML table. */
export function isTable(value: unknown): value is TomlTable {
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
    const meant = suggestion(key, allowed);
    // Another one may be anything that was pasted, such as a secret.
    const name = meant === undefined ? "" : ` ${quoteName(key)}`;
    const reason = `unknown key${name}; allowed: ${allowed.join(", ")}${askWhether(meant)}`;
    report({ table, index, key, reason });
  }
  return record;
}

/** Reports what is wrong with a record's keys, but for one that is misspelt, which was reported. */
function failing(table: TableName, record: TomlTable, index: number, report: Report) {
  const allowed: readonly string[] = tables[table];
  return (key: string, reason: string): void => {
    const isThere = Object.hasOwn(record, key);
    const others = Object.keys(record).filter((other) => !allowed.includes(other));
    if (!isThere && others.some((other) => suggestion(other, allowed) === key)) return;
    report({ table, index, key, reason: isThere ? reason : `${reason}; it is left out` });
  };
}

const nameReason =
  "`username` must be 1 to 64 of letters, digits, '.', '_', '-', '@' (after `prefix:` for an external user)";

/** Reads a user; undefined if something was reported of which nothing can be made. */
export function readUser(value: unknown, index: number, report: Report): User | undefined {
  const record = readTable("users", value, index, report);
  if (record === undefined) return undefined;
  const { username, email, password_hash: passwordHash } = record;
  const { disabled = false, tokens_valid_after: tokensValidAfter = 0 } = record;
  const attributes = "attributes" in record ? readAttributes(record.attributes) : noAttributes;
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
  if (isNamed && isMail && isHash && isSwitch && isTime && attributes !== undefined) {
    const user = { username, email, passwordHash, disabled, tokensValidAfter };
    return attributes.size === 0 ? user : { ...user, attributes };
  }
  const fail = failing("users", record, index, report);
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
  if (attributes === undefined) fail("attributes", `\`attributes\` must be ${attributesForm}`);
  return undefined;
}

/**
 * Reads those of some keys that a table has, each into its field. False if one was reported.
 *
 * @param into the record, whose role, if it has one, each must fit
 */
function readKeys(
  record: TomlTable,
  keys: Readonly<Record<string, KeyReader>>,
  into: { readonly role?: EntryRole },
  fail: (key: string, reason: string) => void,
): boolean {
  let isGood = true;
  for (const [key, value] of Object.entries(record)) {
    const reader = Object.hasOwn(keys, key) ? keys[key] : undefined;
    if (reader === undefined) continue;
    const { field, read, form, fits } = reader;
    const found = read(value);
    const isFit = fits === undefined || into.role === undefined || fits.includes(into.role);
    if (found === undefined) fail(key, `\`${key}\` must be ${form}`);
    else if (!isFit) fail(key, `\`${key}\` goes with the role ${fits.join(" or ")} alone`);
    else Object.assign(into, { [field]: found });
    isGood &&= found !== undefined && isFit;
  }
  return isGood;
}

/** Reads a boundary; undefined if something was reported. */
export function readBoundary(value: unknown, index: number, report: Report): Boundary | undefined {
  const record = readTable("boundaries", value, index, report);
  if (record === undefined) return undefined;
  const fail = failing("boundaries", record, index, report);
  const { via } = record;
  if (via !== "mcp" && via !== "query") {
    fail("via", '`via` must be "mcp" or "query"');
    return undefined;
  }
  const bounds = Object.keys(record).some((key) => boundingKeys.includes(key));
  if (!bounds) {
    const reason = `nothing is bounded; one of ${boundingKeys.join(", ")} is needed`;
    report({ table: "boundaries", index, key: undefined, reason });
  }
  const boundary: Boundary = { via };
  return readKeys(record, boundaryKeys, boundary, fail) && bounds ? boundary : undefined;
}

/** Reads a grant; undefined if something was reported of which nothing can be made. */
export function readGrant(value: unknown, index: number, report: Report): Grant | undefined {
  const record = readTable("acl", value, index, report);
  if (record === undefined) return undefined;
  const { username, database, role } = record;
  const isNamed = isUsername(username) || isExternalUsername(username);
  const isPlace = isDatabaseOrEvery(database);
  // The role's own string, which all entries share.
  const given = entryRoles.find((known) => known === role);
  const fail = failing("acl", record, index, report);
  if (isNamed && isPlace && given !== undefined) {
    const grant: Grant = { username, database, role: given };
    return readKeys(record, entryKeys, grant, fail) ? grant : undefined;
  }
  if (!isNamed) fail("username", nameReason);
  if (!isPlace)
    fail("database", "`database` must be \"*\" or 1 to 63 of letters, digits, '_', '-'");
  if (given === undefined) {
    const hint = typeof role === "string" ? didYouMean(role, entryRoles) : "";
    fail("role", `\`role\` must be one of ${entryRoles.join(", ")}${hint}`);
  }
  return undefined;
}

type RecordOf<Name extends TableName> = { users: User; acl: Grant; boundaries: Boundary }[Name];

/** Reads a record; undefined if something was reported of which nothing can be made. */
type ReadRecord<Read> = (value: unknown, index: number, report: Report) => Read | undefined;

/** How a record of each table is read. */
export const readers: { [Name in TableName]: ReadRecord<RecordOf<Name>> } = {
  users: readUser,
  acl: readGrant,
  boundaries: readBoundary,
};

function readAll<Name extends TableName>(
  document: TomlTable,
  table: Name,
  report: Report,
): (RecordOf<Name> | undefined)[] {
  const value = document[table] ?? [];
  if (Array.isArray(value)) return value.map((one, at) => readers[table](one, at, report));
  const reason = `\`${table}\` must be written as [[${table}]]`;
  report({ table, index: 0, key: undefined, reason });
  return [];
}

/** Records as far as they could be read, each in its place. */
export interface ReadRecords {
  readonly users: readonly (User | undefined)[];
  readonly grants: readonly (Grant | undefined)[];
  readonly boundaries: readonly (Boundary | undefined)[];
}

/** Reads a whole document. */
export function readRecords(document: TomlTable, report: Report): ReadRecords {
  for (const key of Object.keys(document)) {
    if (isTableName(key)) continue;
    const reason = `only [[users]], [[acl]] and [[boundaries]] may stand here${didYouMean(key, Object.keys(tables))}`;
    report({ table: "users", index: -1, key, reason });
  }
  return {
    users: readAll(document, "users", report),
    grants: readAll(document, "acl", report),
    boundaries: readAll(document, "boundaries", report),
  };
}
