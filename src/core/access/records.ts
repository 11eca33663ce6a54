import { type Steps, visitEach } from "../base/cooperative-scheduling.ts";
import { didYouMean, formatHint, suggestion } from "../base/suggestion.ts";
import type { Writable } from "../base/toml.ts";
import { isObject, keysOf } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { type RowCondition, rowComparisons } from "../query/limits.ts";
import { columnNamePattern, databasePattern, plainNameRule, tablePattern } from "../query/names.ts";
import { type PermissionClass, permissionClasses } from "../query/permissions.ts";
import { GrantCollection } from "./entries.ts";
import {
  type AttributeValue,
  attributeReference,
  attributesForm,
  type Boundary,
  type Grant,
  type Group,
  groupHolder,
  groupOf,
  type Holder,
  isLiteral,
  isWhole,
  type RateLimit,
  readAttributes,
  readHolder,
  type User,
  updatedUser,
  userHolder,
  writtenHolder,
} from "./grant.ts";
import { parsePasswordHash } from "./password-hash.ts";
import {
  type EntryRole,
  externalGroupRule,
  externalNameRule,
  isAnyUsername,
  isDatabaseOrEvery,
  isEmail,
  isGroupName,
  isLocalGroupName,
  roles,
} from "./roles.ts";
import { addDatabase, caseConflict, conflictReason, type Snapshot } from "./snapshot.ts";

interface KeyReader<Field extends string = string> {
  readonly field: Field;
  readonly read: (value: unknown) => unknown;
  /** The expected form, as a continuation of "must be". */
  readonly form: string;
  /** The roles that may have it. All by default. */
  readonly fits?: readonly EntryRole[];
}

const asIf =
  (test: (value: unknown) => boolean) =>
  (value: unknown): unknown =>
    test(value) ? value : undefined;

const listOf =
  (test: (value: unknown) => boolean, least = 1) =>
  (value: unknown): unknown =>
    Array.isArray(value) &&
    value.length >= least &&
    new Set(value).size === value.length &&
    value.every(test)
      ? [...value]
      : undefined;

const matching = (pattern: RegExp) => (value: unknown) =>
  typeof value === "string" && pattern.test(value);

const isColumn = matching(new RegExp(`^${columnNamePattern}$`));

function isFilterValue(value: unknown): boolean {
  if (typeof value !== "string" || !value.startsWith("@")) return isLiteral(value);
  return value.startsWith("@@") ? isLiteral(value) : attributeReference.test(value);
}

const isReference = matching(attributeReference);

function fitsComparison(cmp: RowCondition["cmp"], value: unknown): boolean {
  if (cmp === "IN") {
    return Array.isArray(value)
      ? value.every((one) => isFilterValue(one) && !isReference(one))
      : isReference(value);
  }
  if (cmp === "=" || cmp === "!=") return isFilterValue(value);
  return (isWhole(value) && isLiteral(value)) || isReference(value);
}

function isRowCondition(record: unknown): record is RowCondition {
  if (!isTable(record)) return false;
  const { column, cmp, value, ...others } = record;
  const comparison = rowComparisons.find((known) => known === cmp);
  return (
    comparison !== undefined &&
    isColumn(column) &&
    fitsComparison(comparison, value) &&
    Object.keys(others).length === 0
  );
}

/** A copy, so that a file and a JSON body give equal results. */
function readRowFilter(value: unknown): RowCondition[] | undefined {
  const isFilter = Array.isArray(value) && value.length > 0 && value.every(isRowCondition);
  return isFilter ? value.map((condition) => ({ ...condition })) : undefined;
}

const count = asIf(
  (value) => typeof value === "number" && Number.isSafeInteger(value) && value > 0,
);

export const approvable: readonly PermissionClass[] = permissionClasses.filter(
  (permission) => permission !== "GRANT",
);

/** Epoch milliseconds of a TOML time with an offset, or of an RFC 3339 string. */
function readTime(value: unknown): number | undefined {
  const text = value instanceof Date ? value.toISOString() : value;
  const form = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:[Zz]|[+-]\d{2}:\d{2})$/;
  if (typeof text !== "string" || !form.test(text)) return undefined;
  const time = Date.parse(text.replace(" ", "T"));
  return Number.isNaN(time) ? undefined : time;
}

const windows = { s: 1000, min: 60_000, hour: 3_600_000, day: 86_400_000 };

function readRateLimit(value: unknown): RateLimit | undefined {
  const match = typeof value === "string" ? /^([1-9]\d{0,8})\/(s|min|hour|day)$/.exec(value) : null;
  if (match === null) return undefined;
  const [, number, unit] = match;
  return { count: Number(number), windowMs: windows[unit as keyof typeof windows] };
}

export function writeRateLimit({ count: number, windowMs }: RateLimit): string {
  const [unit] = Object.entries(windows).find(([, ms]) => ms === windowMs) ?? [];
  return `${number}/${unit}`;
}

const columnForm = "columns, each once: names of 1 to 128 characters without *, dots and quotes";
const columnsForm = `a list of one or more ${columnForm}`;
export const entryRoles: readonly EntryRole[] = [...roles, "None"];
const narrowable: readonly EntryRole[] = ["ReadWrite", "ReadOnly"];
const countForm = "a whole number from 1";
const isApprover = (value: unknown) =>
  isAnyUsername(value) || (typeof value === "string" && isGroupName(groupOf(readHolder(value))));
function readMembers(value: unknown): readonly string[] | undefined {
  const isList = Array.isArray(value) && value.every(isAnyUsername);
  return isList && new Set(value).size === value.length ? [...value] : undefined;
}

function readGroupHolder(value: unknown): Holder | undefined {
  return isGroupName(value) ? groupHolder(value) : undefined;
}

function readUserHolder(value: unknown): Holder | undefined {
  return isAnyUsername(value) ? userHolder(value) : undefined;
}

const limits = {
  max_rows: { field: "maxRows", read: count, form: countForm },
  max_changes: { field: "maxChanges", read: count, form: countForm },
  require_approval: {
    field: "requireApproval",
    read: listOf((value) => approvable.some((known) => known === value)),
    form: `a list of one or more rights, each once: ${approvable.join(", ")}`,
  },
  approvers: {
    field: "approvers",
    read: listOf(isApprover),
    form: 'a list of one or more usernames and groups, each once, such as "group:analysts"',
  },
} as const satisfies Record<string, KeyReader<keyof Grant & keyof Boundary>>;

export const entryKeys = {
  tables: {
    field: "tables",
    read: listOf(matching(tablePattern)),
    form: 'a list of one or more tables, each once: names of letters, digits, "_", "-" and ".", not "." first, with * only at the end',
    fits: [...narrowable, "None"],
  },
  columns: { field: "columns", read: listOf(isColumn), form: columnsForm, fits: narrowable },
  writable_columns: {
    field: "writableColumns",
    read: listOf(isColumn, 0),
    form: `a list of ${columnForm}`,
    fits: narrowable,
  },
  row_filter: {
    field: "rowFilter",
    read: readRowFilter,
    form: `a list of { column, cmp, value }: cmp is one of ${rowComparisons.join(" ")}; value is text, a whole number, true, false or "@attribute"; for IN, a list or "@attribute"; for <, <=, > and >=, a whole number or "@attribute"; "@@x" is the text "@x"`,
    fits: narrowable,
  },
  require_where: {
    field: "requireWhere",
    read: listOf(isColumn),
    form: columnsForm,
    fits: narrowable,
  },
  ...limits,
  max_rows: { ...limits.max_rows, fits: narrowable },
  max_changes: { ...limits.max_changes, fits: narrowable },
  expires: {
    field: "expires",
    read: readTime,
    form: "a time with its offset, such as 2026-12-24T18:00:00Z",
  },
} as const satisfies Record<string, KeyReader<keyof Grant>>;

const boundaryKeys = {
  client: {
    field: "client",
    read: asIf(matching(/^[\x21-\x7e]{1,2048}$/)),
    form: "the identifier of an OAuth client",
  },
  username: { field: "holder", read: readUserHolder, form: "a username" },
  group: { field: "holder", read: readGroupHolder, form: "the name of a group" },
  database: {
    field: "database",
    read: asIf(matching(new RegExp(`^${databasePattern}$`))),
    form: "a database",
  },
  role: {
    field: "role",
    read: asIf((value) => entryRoles.some((role) => role === value)),
    form: `one of ${entryRoles.join(", ")}`,
  },
  ...limits,
  rate_limit: {
    field: "rateLimit",
    read: readRateLimit,
    form: 'a number of requests and a time, such as "60/min": /s, /min, /hour, /day',
  },
} as const satisfies Record<string, KeyReader<keyof Boundary>>;

/** A boundary needs at least one of these keys. */
const boundingKeys = ["role", ...Object.keys(limits), "rate_limit"];

export function writtenEntry(grant: Grant): Record<string, Writable> {
  const { holder, database, role } = grant;
  return { ...writtenHolder(holder), database, role, ...writtenLimits(grant) };
}

/** The keys of an entry beyond its holder, database and role. */
export function writtenLimits(grant: Grant): Record<string, Writable> {
  const { expires } = grant;
  const written: Record<string, Writable> = {};
  for (const [key, { field }] of Object.entries(entryKeys)) {
    const value = grant[field];
    if (value !== undefined) written[key] = value;
  }
  if (expires !== undefined) written.expires = new Date(expires);
  return written;
}

export function writtenBoundary(boundary: Boundary): Record<string, Writable> {
  const written: Record<string, Writable> = { via: boundary.via };
  for (const [key, { field }] of Object.entries(boundaryKeys)) {
    if (field === "rateLimit") {
      if (boundary.rateLimit) written[key] = writeRateLimit(boundary.rateLimit);
    } else if (field === "holder") {
      const { holder } = boundary;
      if (holder !== undefined) Object.assign(written, writtenHolder(holder));
    } else if (boundary[field] !== undefined) written[key] = boundary[field];
  }
  return written;
}

export const tables = {
  users: [
    "username",
    "email",
    "password_hash",
    "disabled",
    "tokens_valid_after",
    "attributes",
    "same_as",
  ],
  groups: ["name", "members"],
  acl: ["username", "group", "database", "role", ...keysOf(entryKeys)],
  boundaries: ["via", ...keysOf(boundaryKeys)],
} as const;
export type TableName = keyof typeof tables;

export function isTableName(name: string | undefined): name is TableName {
  return name !== undefined && Object.hasOwn(tables, name);
}

export interface AccessRecords {
  readonly users: readonly User[];
  readonly groups: readonly Group[];
  readonly grants: readonly Grant[];
  readonly boundaries: readonly Boundary[];
}

export interface RecordProblem {
  readonly table: TableName;
  /** Index among the table's records, or -1 for something that is not allowed in the file. */
  readonly index: number;
  readonly key: string | undefined;
  /** The rule for the key, such as "must be true or false". */
  readonly rule?: string;
  /** The whole sentence. */
  readonly reason: string;
}

export class RecordsError extends Error {
  readonly problems: readonly RecordProblem[];

  constructor(problems: readonly RecordProblem[]) {
    super("the records break the rules");
    this.problems = problems;
  }
}

export type Report = (problem: RecordProblem) => void;

export type TomlTable = Record<string, unknown>;

function isTable(value: unknown): value is TomlTable {
  return isObject(value) && !(value instanceof Date);
}

type Fail = (key: string, rule: string, reason?: string) => void;

/** @param read also reports what is wrong: with a key by `fail`, with the whole record by `refuse` */
function recordReader<Read>(
  table: TableName,
  read: (record: TomlTable, fail: Fail, refuse: (reason: string) => void) => Read | undefined,
) {
  const allowed: readonly string[] = tables[table];
  return (record: unknown, index: number, report: Report): Read | undefined => {
    const refuse = (reason: string) => report({ table, index, key: undefined, reason });
    if (!isTable(record)) {
      refuse("not a table");
      return undefined;
    }
    const others = Object.keys(record).filter((key) => !allowed.includes(key));
    for (const key of others) {
      const meant = suggestion(key, allowed);
      // Any other key may be pasted text such as a secret, so it is not quoted.
      const name = meant === undefined ? "" : ` ${quoteName(key)}`;
      const reason = `unknown key${name}; allowed: ${allowed.join(", ")}${formatHint(meant)}`;
      report({ table, index, key, reason });
    }
    const fail: Fail = (key, rule, reason = `\`${key}\` ${rule}`) => {
      const isThere = Object.hasOwn(record, key);
      // A missing key may have been reported as misspelled.
      if (!isThere && others.some((other) => suggestion(other, allowed) === key)) return;
      report({ table, index, key, rule, reason: isThere ? reason : `${reason}; it is missing` });
    };
    return read(record, fail, refuse);
  };
}

const nameRule = `must be 1 to 64 of letters, digits, '.', '_', '-', '@'; or, for an external user, \`prefix:\` and ${externalNameRule}`;

const groupRule = `must be a local group's name, ${plainNameRule}, or \`prefix:\` and ${externalGroupRule}`;

const otherNameForm = "the name of another user, or of a user of an issuer with its `prefix:`";

/** Returns undefined if a problem was reported that makes the user unusable. */
export const readUser = recordReader("users", (record, fail): User | undefined => {
  const { username, email, password_hash: passwordHash, same_as: sameAs } = record;
  const { disabled = false, tokens_valid_after: tokensValidAfter = 0 } = record;
  const attributes =
    "attributes" in record ? readAttributes(record.attributes) : new Map<string, AttributeValue>();
  const isNamed = isAnyUsername(username);
  const isMail = email === undefined || isEmail(email);
  const isHash =
    passwordHash === undefined ||
    (typeof passwordHash === "string" && parsePasswordHash(passwordHash) !== undefined);
  const isSwitch = typeof disabled === "boolean";
  const isTime =
    typeof tokensValidAfter === "number" &&
    Number.isSafeInteger(tokensValidAfter) &&
    tokensValidAfter >= 0 &&
    // Milliseconds are more.
    tokensValidAfter < 1e11;
  const isOther = sameAs === undefined || (isAnyUsername(sameAs) && sameAs !== username);
  if (isNamed && isMail && isHash && isSwitch && isTime && attributes !== undefined && isOther) {
    const user = { username, email, passwordHash, disabled, tokensValidAfter };
    return updatedUser(user, { attributes, sameAs });
  }
  if (!isNamed) fail("username", nameRule);
  if (!isMail) fail("email", "must be a string of 1 to 254 printable characters");
  if (!isHash) {
    fail("password_hash", "is not an Argon2id hash with costs m 8 to 1048576, t and p 1 to 64");
  }
  if (!isSwitch) fail("disabled", "must be true or false");
  if (!isTime) {
    fail("tokens_valid_after", "must be a whole number of epoch seconds");
  }
  if (attributes === undefined) fail("attributes", `must be ${attributesForm}`);
  if (!isOther) fail("same_as", `must be ${otherNameForm}`);
  return undefined;
});

export const readGroup = recordReader("groups", (record, fail): Group | undefined => {
  const { name } = record;
  const members = readMembers(record.members);
  const isNamed = isLocalGroupName(name);
  if (isNamed && members !== undefined) return { name, members };
  if (!isNamed) fail("name", `must be ${plainNameRule}`);
  if (members === undefined) fail("members", "must be a list of usernames, each once");
  return undefined;
});

const twoHolders = "either `username` or `group` is allowed, not both";

/** Reads those of `keys` that the table has `into` a record. False if a problem was reported. */
function readKeys(
  record: TomlTable,
  keys: Readonly<Record<string, KeyReader>>,
  into: { readonly role?: EntryRole },
  fail: Fail,
): boolean {
  let isGood = true;
  for (const [key, value] of Object.entries(record)) {
    const reader = Object.hasOwn(keys, key) ? keys[key] : undefined;
    if (reader === undefined) continue;
    const { field, read, form, fits } = reader;
    const found = read(value);
    const isFit = fits === undefined || into.role === undefined || fits.includes(into.role);
    if (found === undefined) fail(key, `must be ${form}`);
    else if (!isFit) fail(key, `is allowed only with the role ${fits.join(" or ")}`);
    else Object.assign(into, { [field]: found });
    isGood &&= found !== undefined && isFit;
  }
  return isGood;
}

export const readBoundary = recordReader("boundaries", (record, fail, refuse) => {
  const { via } = record;
  if (via !== "mcp" && via !== "query") {
    fail("via", 'must be "mcp" or "query"');
    return undefined;
  }
  const bounds = Object.keys(record).some((key) => boundingKeys.includes(key));
  if (!bounds) {
    refuse(`the boundary limits nothing; one of ${boundingKeys.join(", ")} is required`);
  }
  const isForBoth = "username" in record && "group" in record;
  if (isForBoth) fail("group", twoHolders, twoHolders);
  const boundary: Boundary = { via };
  const isRead = readKeys(record, boundaryKeys, boundary, fail);
  return isRead && bounds && !isForBoth ? boundary : undefined;
});

export const readGrant = recordReader("acl", (record, fail): Grant | undefined => {
  const { database, role } = record;
  const isOfGroup = "group" in record;
  const isForBoth = isOfGroup && "username" in record;
  const holder = isOfGroup ? readGroupHolder(record.group) : readUserHolder(record.username);
  const isPlace = isDatabaseOrEvery(database);
  const given = entryRoles.find((known) => known === role);
  if (holder !== undefined && !isForBoth && isPlace && given !== undefined) {
    const grant: Grant = { holder, database, role: given };
    return readKeys(record, entryKeys, grant, fail) ? grant : undefined;
  }
  if (isForBoth) fail("group", twoHolders, twoHolders);
  else if (holder === undefined && isOfGroup) fail("group", groupRule);
  else if (holder === undefined) {
    if ("username" in record) fail("username", nameRule);
    else fail("username", "is required", "`username` or `group` is required");
  }
  if (!isPlace)
    fail(
      "database",
      "must be \"*\" or 1 to 63 of letters, digits, '_', '-', or two such names with a dot between",
    );
  if (given === undefined) {
    const hint = typeof role === "string" ? didYouMean(role, entryRoles) : "";
    fail("role", `must be one of ${entryRoles.join(", ")}${hint}`);
  }
  return undefined;
});

interface ReadRecords {
  readonly users: readonly (User | undefined)[];
  readonly groups: readonly (Group | undefined)[];
  readonly grants: readonly (Grant | undefined)[];
  readonly boundaries: readonly (Boundary | undefined)[];
}

export function readRecords(document: TomlTable, report: Report): ReadRecords {
  for (const key of Object.keys(document)) {
    if (isTableName(key)) continue;
    const reason = `only [[users]], [[groups]], [[acl]] and [[boundaries]] are allowed here${didYouMean(key, Object.keys(tables))}`;
    report({ table: "users", index: -1, key, reason });
  }
  function readAll<Read>(
    table: TableName,
    read: (value: unknown, index: number, report: Report) => Read,
  ): Read[] {
    const value = document[table] ?? [];
    if (Array.isArray(value)) return value.map((one, at) => read(one, at, report));
    const reason = `\`${table}\` must be written as [[${table}]]`;
    report({ table, index: 0, key: undefined, reason });
    return [];
  }
  return {
    users: readAll("users", readUser),
    groups: readAll("groups", readGroup),
    grants: readAll("acl", readGrant),
    boundaries: readAll("boundaries", readBoundary),
  };
}

export function* indexRecords(read: ReadRecords, version: string, report: Report): Steps<Snapshot> {
  const users = new Map<string, User>();
  yield* visitEach(read.users, (user, index) => {
    if (user === undefined) return;
    const reason = "this user already has a record";
    if (users.has(user.username)) report({ table: "users", index, key: "username", reason });
    users.set(user.username, user);
  });
  const groups = new Map<string, Group>();
  yield* visitEach(read.groups, (group, index) => {
    if (group === undefined) return;
    const reason = "this group already has a record";
    if (groups.has(group.name)) report({ table: "groups", index, key: "name", reason });
    groups.set(group.name, group);
  });
  const databases = new Map<string, string>();
  const refused = new Set<string | undefined>();
  const note = (table: TableName) => (namer: Grant | Boundary | undefined, index: number) => {
    const database = namer?.database;
    if (addDatabase(databases, database) || refused.has(database)) return;
    refused.add(database);
    report({ table, index, key: "database", reason: caseConflict });
  };
  yield* visitEach(read.grants, note("acl"));
  yield* visitEach(read.boundaries, note("boundaries"));
  const grants = new Map<Holder, GrantCollection>();
  yield* visitEach(read.grants, (grant, index) => {
    if (grant === undefined) return;
    const own = grants.get(grant.holder) ?? new GrantCollection();
    grants.set(grant.holder, own);
    const conflict = own.add(grant);
    if (conflict === undefined) return;
    report({ table: "acl", index, key: undefined, reason: conflictReason(conflict, grant) });
  });
  const boundaries = read.boundaries.filter((boundary) => boundary !== undefined);
  return { version, users, groups, databases, grants, boundaries };
}
