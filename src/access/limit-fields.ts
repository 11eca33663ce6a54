/** The keys by which entries and boundaries of the access file say more than a role. */

import { columnNamePattern, plainNamePattern } from "../query/names.ts";
import { type PermissionClass, permissionClasses } from "../query/permissions.ts";
import type { Writable } from "../toml/values.ts";
import { attributeReference, isLiteral, isWhole } from "./conditions.ts";
import {
  type Boundary,
  type Grant,
  type RateLimit,
  type RowCondition,
  rowComparisons,
} from "./grant.ts";
import { isExternalUsername, isUsername } from "./identifiers.ts";
import type { EntryRole } from "./roles.ts";
import { roles } from "./roles.ts";

/** A key of a table: which field of the record it is, how it is read, and what it must be. */
export interface KeyReader<Field extends string = string> {
  readonly field: Field;
  /** The value; undefined if it is not one. */
  readonly read: (value: unknown) => unknown;
  /** What it must be, in words that go on after "must be". */
  readonly form: string;
  /** The roles that it fits; every one if left out. */
  readonly fits?: readonly EntryRole[];
}

const asIf =
  (test: (value: unknown) => boolean) =>
  (value: unknown): unknown =>
    test(value) ? value : undefined;

/** Reads a list without repetitions of values that each pass; the copy takes no more room than it needs. */
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

const longestPrefix = plainNamePattern.replace("{1,63}", "{1,62}");
/** A table, or a pattern of tables: the beginning of a name, and `*`. */
export const tablePattern: RegExp = new RegExp(`^(?:${plainNamePattern}|${longestPrefix}\\*)$`);
const isColumn = matching(new RegExp(`^${columnNamePattern}$`));

/** True for a literal, and for text that stands for an attribute or, by `@@`, for itself. */
function isFilterValue(value: unknown): boolean {
  if (typeof value !== "string" || !value.startsWith("@")) return isLiteral(value);
  return value.startsWith("@@") ? isLiteral(value) : attributeReference.test(value);
}

function isReference(value: unknown): boolean {
  return typeof value === "string" && attributeReference.test(value);
}

function fitsComparison(cmp: RowCondition["cmp"], value: unknown): boolean {
  if (cmp === "IN") {
    return Array.isArray(value)
      ? value.every((one) => isFilterValue(one) && !isReference(one))
      : isReference(value);
  }
  if (cmp === "=" || cmp === "!=") return isFilterValue(value);
  return isWhole(value) || isReference(value);
}

function isRowCondition(value: unknown): value is RowCondition {
  if (typeof value !== "object" || value === null) return false;
  const { column, cmp, value: compared, ...others } = value as Record<string, unknown>;
  const comparison = rowComparisons.find((known) => known === cmp);
  return (
    comparison !== undefined &&
    isColumn(column) &&
    fitsComparison(comparison, compared) &&
    Object.keys(others).length === 0
  );
}

/** Conditions of their own, alike whether a file or a body of JSON said them. */
function readRowFilter(value: unknown): RowCondition[] | undefined {
  const isFilter = Array.isArray(value) && value.length > 0 && value.every(isRowCondition);
  return isFilter ? value.map((condition) => ({ ...condition })) : undefined;
}

const count = asIf(
  (value) => typeof value === "number" && Number.isSafeInteger(value) && value > 0,
);

/** The rights that queries need. */
export const approvable: readonly PermissionClass[] = permissionClasses.filter(
  (permission) => permission !== "GRANT",
);

/** Epoch milliseconds of a TOML time that says its offset, or of one as RFC 3339 writes it. */
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

/** The rate limit as it is written. */
export function writeRateLimit({ count: number, windowMs }: RateLimit): string {
  const [unit] = Object.entries(windows).find(([, ms]) => ms === windowMs) ?? [];
  return `${number}/${unit}`;
}

const columnForm = "a list of columns, each 1 to 128 characters";
/** The roles of an entry. */
export const entryRoles: readonly EntryRole[] = [...roles, "None"];
/** Those that can be narrowed. */
const narrowable: readonly EntryRole[] = ["ReadWrite", "ReadOnly"];
const countForm = "a whole number from 1";
const isAnyUsername = (value: unknown) => isUsername(value) || isExternalUsername(value);
const usernames = listOf(isAnyUsername);

/** Limits that entries and boundaries have alike. */
const limits = {
  max_rows: { field: "maxRows", read: count, form: countForm },
  max_changes: { field: "maxChanges", read: count, form: countForm },
  require_approval: {
    field: "requireApproval",
    read: listOf((value) => approvable.some((known) => known === value)),
    form: `a list of ${approvable.join(", ")}`,
  },
  approvers: { field: "approvers", read: usernames, form: "a list of usernames" },
} as const satisfies Record<string, KeyReader<keyof Grant & keyof Boundary>>;

/** The keys of an entry beside its user, database and role. */
export const entryKeys = {
  tables: {
    field: "tables",
    read: listOf(matching(tablePattern)),
    form: 'a list of tables: names of letters, digits, "_" and "-", with * only at the end',
    fits: [...narrowable, "None"],
  },
  columns: { field: "columns", read: listOf(isColumn), form: columnForm, fits: narrowable },
  writable_columns: {
    field: "writableColumns",
    read: listOf(isColumn, 0),
    form: columnForm,
    fits: narrowable,
  },
  row_filter: {
    field: "rowFilter",
    read: readRowFilter,
    form: `a list of { column, cmp, value }: cmp is one of ${rowComparisons.join(" ")}; value is text, a whole number, true, false or "@attribute", of IN a list or "@attribute", and of < and its like a whole number or "@attribute"; "@@x" is the text "@x"`,
    fits: narrowable,
  },
  require_where: {
    field: "requireWhere",
    read: listOf(isColumn),
    form: columnForm,
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

/** The keys of a boundary beside `via`. */
export const boundaryKeys = {
  client: {
    field: "client",
    read: asIf(matching(/^[\x21-\x7e]{1,2048}$/)),
    form: "the identifier of an OAuth client",
  },
  username: {
    field: "username",
    read: asIf(isAnyUsername),
    form: "a username",
  },
  database: {
    field: "database",
    read: asIf(matching(new RegExp(`^${plainNamePattern}$`))),
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

/** The keys of which a boundary has one at least. */
export const boundingKeys = ["role", ...Object.keys(limits), "rate_limit"];

/** An entry by the keys of the file, as an edit writes it and the interface shows it. */
export function writtenEntry(grant: Grant): Record<string, Writable> {
  const { username, database, role, expires } = grant;
  const written: Record<string, Writable> = { username, database, role };
  for (const [key, { field }] of Object.entries(entryKeys)) {
    const value = grant[field];
    if (value !== undefined) written[key] = value;
  }
  if (expires !== undefined) written.expires = new Date(expires);
  return written;
}

/** A boundary by the keys of the access file. */
export function writtenBoundary(boundary: Boundary): Record<string, Writable> {
  const written: Record<string, Writable> = { via: boundary.via };
  for (const [key, { field }] of Object.entries(boundaryKeys)) {
    if (field === "rateLimit") {
      if (boundary.rateLimit) written[key] = writeRateLimit(boundary.rateLimit);
    } else if (boundary[field] !== undefined) written[key] = boundary[field];
  }
  return written;
}
