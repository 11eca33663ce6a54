import { writtenTime } from "../base/clock.ts";
import { Refusal } from "../base/refusal.ts";
import { counted } from "../base/suggestion.ts";
import type { RowCondition } from "../query/limits.ts";
import { placeName } from "../query/names.ts";
import { entriesIn } from "./entries.ts";
import {
  type Attributes,
  type AttributeValue,
  attributeReference,
  type Grant,
  groupHolder,
  groupOf,
  type Holder,
  hasExpired,
  holderName,
  holderText,
  type Limits,
  type Literal,
  readAttributes,
  type User,
  userHolder,
  writtenHolder,
} from "./grant.ts";
import { listLocalGroups, mayHaveTokenGroups } from "./groups.ts";
import { entryRoles, readGrant, writtenLimits } from "./records.ts";
import { type EntryRole, EVERY_DATABASE, isExternalUsername } from "./roles.ts";
import { ownGrants, type Snapshot } from "./snapshot.ts";

/** An entry as the API shows it: database, role, and its other keys by their names in the file. */
export interface EntryView {
  readonly database: string;
  readonly role: EntryRole;
  readonly [key: string]: unknown;
}

/** Keeps every digit in `JSON.stringify`. */
function exactly(value: AttributeValue): unknown {
  if (typeof value === "object") return value.map(exactly);
  return typeof value === "bigint" ? JSON.rawJSON(value.toString()) : value;
}

export function viewEntry(grant: Grant): EntryView {
  const { database, role, rowFilter, expires } = grant;
  const filter = rowFilter?.map(({ column, cmp, value }) => ({
    column,
    cmp,
    value: exactly(value),
  }));
  return {
    database,
    role,
    ...writtenLimits(grant),
    ...(filter === undefined ? {} : { row_filter: filter }),
    ...(expires === undefined ? {} : { expires: writtenTime(expires) }),
  };
}

export function viewAttributes(attributes: Attributes = new Map()): Record<string, unknown> {
  return Object.fromEntries(attributes.entries().map(([name, value]) => [name, exactly(value)]));
}

export interface EntryPlace {
  readonly holder: Holder;
  readonly database: string;
  readonly table?: string | undefined;
}

/** @param keys the role and other keys, named as in the file, with times in RFC 3339 */
export function readEntry(
  { holder, database, table }: EntryPlace,
  keys: Readonly<Record<string, unknown>>,
): Grant {
  if (!entryRoles.some((role) => role === keys.role)) {
    const allowed = `${entryRoles.slice(0, -1).join(", ")} or ${entryRoles.at(-1)}`;
    throw new Refusal("invalid_role", { message: `Invalid role: ${allowed}` });
  }
  const tables = table === undefined ? {} : { tables: [table] };
  const reasons: string[] = [];
  const record = { ...keys, ...writtenHolder(holder), database, ...tables };
  const grant = readGrant(record, 0, ({ reason }) => reasons.push(reason));
  if (grant !== undefined && reasons.length === 0) return grant;
  throw new Refusal("invalid_entry", { message: `Invalid entry: ${reasons.join("; ")}` });
}

/** Without spaces at the ends. The lookbehind keeps the search linear. */
const conditionForm = /^(.+?)(?<!\s)\s*(!=|>=|<=|=|>|<|\bIN\b)\s*(\S.*)$/is;
const quoted = /^(?:'((?:[^']|'')*)'|"((?:[^"]|"")*)")$/;
/** Quoted text or one word. `a == b` and `a = b AND c = d` therefore never pass as values. */
const value = `'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\\s,'"=<>!()]+`;
const eachValue = new RegExp(value, "g");
const valueForm = new RegExp(`^(?:${value})$`);
const listForm = new RegExp(`^\\((?:\\s*(?:${value})\\s*(?:,|(?=\\)$)))*\\)$`);
const plainText = /^(?!(?:true|false)$)[A-Za-z_][\w.-]*$/;

function unquoted(text: string): string | undefined {
  const [, single, double] = quoted.exec(text) ?? [];
  return single?.replaceAll("''", "'") ?? double?.replaceAll('""', '"');
}

/** Quotes keep text from being read as anything else. */
function readLiteral(text: string): Literal {
  const inQuotes = unquoted(text);
  if (inQuotes !== undefined) return inQuotes;
  if (/^-?\d+$/.test(text)) {
    const number = Number(text);
    return Number.isSafeInteger(number) ? number : BigInt(text);
  }
  return text === "true" || text === "false" ? text === "true" : text;
}

/** A value in a condition, where an unquoted leading `@` names an attribute. */
function readValue(text: string): Literal {
  return unquoted(text)?.startsWith("@") ? `@${unquoted(text)}` : readLiteral(text);
}

function readValues(
  text: string,
  read: (text: string) => Literal,
): Literal | Literal[] | undefined {
  if (valueForm.test(text)) return read(text);
  return listForm.test(text) ? (text.match(eachValue) ?? []).map(read) : undefined;
}

/** Reads an attribute such as `tenant=acme`, `level=3` or `regions=(eu, us)`. */
export function readAttribute(text: string): [string, AttributeValue] | undefined {
  const [, name = "", written = ""] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
  const value = readValues(written.trim(), readLiteral);
  return [...(readAttributes({ [name.trim()]: value }) ?? [])][0];
}

/**
 * Reads a condition such as `tenant = @tenant`, `size < 5`, `name = 'O''Hara'` or `region IN (eu,
 * us)`. Returns the keys of the file, or undefined for other text. Whether the file accepts the
 * values is not checked here.
 */
export function readCondition(text: string): object | undefined {
  const [, column, operator = "", written = ""] = conditionForm.exec(text.trim()) ?? [];
  if (column === undefined) return undefined;
  const cmp = operator.toUpperCase();
  const value = readValues(written, readValue);
  const isTaken = value !== undefined && (typeof value !== "object" || cmp === "IN");
  return isTaken ? { column, cmp, value } : undefined;
}

function writeValue(value: Literal): string {
  if (typeof value !== "string") return String(value);
  if (attributeReference.test(value)) return value;
  const text = value.startsWith("@@") ? value.slice(1) : value;
  return plainText.test(text) ? text : `'${text.replaceAll("'", "''")}'`;
}

export function writeCondition({ column, cmp, value }: RowCondition): string {
  const written =
    typeof value === "object" ? `(${value.map(writeValue).join(", ")})` : writeValue(value);
  return `${column} ${cmp} ${written}`;
}

/** An entry's limits in words, without its role and place. Empty if it has none. */
export function limitsInWords(grant: Omit<Grant, "holder" | "database" | "role">): string {
  const { columns, writableColumns, rowFilter, requireWhere, maxRows, maxChanges } = grant;
  const { requireApproval, approvers, expires } = grant;
  const by = approvers === undefined ? "" : ` by ${approvers.join(" or ")}`;
  return [
    columns && `columns ${columns.join(", ")}`,
    writableColumns && `writes ${writableColumns.join(", ") || "no column"}`,
    rowFilter && `rows where ${rowFilter.map(writeCondition).join(" and ")}`,
    requireWhere && `where pins ${requireWhere.join(", ")}`,
    maxRows && `at most ${counted(maxRows, "row")}`,
    maxChanges && `at most ${counted(maxChanges, "change")}`,
    requireApproval && `${requireApproval.join(", ")} after approval${by}`,
    expires !== undefined && `until ${writtenTime(expires)}`,
  ]
    .filter((words) => typeof words === "string")
    .join("; ");
}

/** Names that a sentence lists. */
const NAMED = 6;

/** Such as `id, total and state`, or `a, b, c, d, e, f and 3 more`. */
export function namesInWords(names: readonly string[], conjunction = "and"): string {
  if (names.length < 2) return names.join();
  const isLong = names.length > NAMED + 1;
  const shown = names.slice(0, isLong ? NAMED : -1).join(", ");
  return `${shown} ${conjunction} ${isLong ? `${names.length - NAMED} more` : names.at(-1)}`;
}

/** Such as `3 Dec 2026, 18:00 UTC`. @param epochMs a moment */
export function timeInWords(epochMs: number): string {
  const [, day = "", month, year, time] = new Date(epochMs).toUTCString().split(" ");
  return `${Number(day)} ${month} ${year}, ${time?.replace(/:00$/, "")} UTC`;
}

/** The limits that entries and boundaries have, as parts of a sentence. */
export function commonLimitsInWords(limits: Limits): string[] {
  const { maxRows, maxChanges, requireApproval, approvers } = limits;
  const by = approvers ? ` by ${namesInWords(approvers.map(holderName), "or")}` : "";
  return [
    maxRows && `at most ${counted(maxRows, "row")}`,
    maxChanges && `at most ${counted(maxChanges, "change")}`,
    requireApproval && `${namesInWords(requireApproval)} only after approval${by}`,
  ].filter((words) => typeof words === "string");
}

function tablesInWords({ database, role, tables }: Grant): string {
  const isEvery = database === EVERY_DATABASE;
  const where = isEvery ? "every database" : placeName(database);
  if (tables === undefined && role === "None") return isEvery ? "any database" : where;
  if (tables === undefined) return `every table of ${where}`;
  return isEvery
    ? `${namesInWords(tables)} in every database`
    : namesInWords(tables.map((name) => placeName(database, name)));
}

/** The rights of an entry, to follow `can`, or the place that `None` withholds. */
function abilityInWords(grant: Grant): string {
  const place = tablesInWords(grant);
  // Users who need approvals or have a time limit may not grant.
  const grants = (what: string) =>
    (grant.requireApproval ?? grant.expires) === undefined ? `, and ${what}` : "";
  switch (grant.role) {
    case "None":
      return place;
    case "ReadOnly":
      return `read ${place}`;
    case "ReadWrite":
      return `read and change ${place}`;
    case "DbAdmin":
      return `read, change, create and drop ${place}${grants("grant roles up to ReadWrite")}`;
    case "Owner":
      return grant.database === EVERY_DATABASE
        ? `read, change, create and drop every table and every database${grants("manage all users, groups and grants")}`
        : `read, change, create and drop ${place} and the database itself${grants("grant every role")}`;
  }
}

/**
 * An entry in a sentence, such as `carol can read shop.orders, 3 columns (id, state and total), at
 * most 100 rows, until 3 Dec 2026, 18:00 UTC.`
 *
 * @param isPlanned true for an entry that is not in force yet
 */
export function entryInWords(grant: Grant, isPlanned = false): string {
  const { holder, role, columns, writableColumns, rowFilter, requireWhere, expires } = grant;
  const group = groupOf(holder);
  const subject = group === undefined ? holderText(holder) : `Members of the group ${group}`;
  const isOver = hasExpired(grant);
  const can = isPlanned ? "will be able to" : isOver ? "could" : "can";
  const had = isOver ? "had" : group === undefined ? "has" : "have";
  const has = isPlanned ? "will have" : had;
  const parts = [
    abilityInWords(grant),
    columns && `${counted(columns.length, "column")} (${namesInWords(columns)})`,
    writableColumns &&
      `writing ${writableColumns.length === 0 ? "no column" : `only ${namesInWords(writableColumns)}`}`,
    rowFilter && `only rows where ${rowFilter.map(writeCondition).join(" and ")}`,
    requireWhere && `updating and deleting only by ${namesInWords(requireWhere)}`,
    ...commonLimitsInWords(grant),
    expires !== undefined && `until ${timeInWords(expires)}`,
  ].filter((words) => typeof words === "string");
  return `${subject} ${role === "None" ? `${has} no access to` : can} ${parts.join(", ")}.`;
}

export function accessList(snapshot: Snapshot, holder: Holder): EntryView[] {
  return Array.from(entriesIn(ownGrants(snapshot, holder)), viewEntry);
}

/** The entries of a user, then those of the user's local groups, each with its `group`. */
export function accessOfUser(snapshot: Snapshot, username: string): EntryView[] {
  const ofGroups = listLocalGroups(snapshot, username).flatMap((group) =>
    accessList(snapshot, groupHolder(group)).map((entry) => ({ group, ...entry })),
  );
  return [...accessList(snapshot, userHolder(username)), ...ofGroups];
}

/** A user as the API shows it, never with the password hash. */
export interface UserView {
  username: string;
  email: string | null;
  disabled: boolean;
  external?: true;
  same_as?: string;
  /** The user's tokens may name groups with entries, which are not in `access`. */
  token_groups?: true;
  access: EntryView[];
}

export function viewUser(snapshot: Snapshot, user: User): UserView {
  return {
    username: user.username,
    email: user.email ?? null,
    disabled: user.disabled,
    ...(isExternalUsername(user.username) ? { external: true } : {}),
    ...(user.sameAs === undefined ? {} : { same_as: user.sameAs }),
    ...(mayHaveTokenGroups(snapshot, user.username) ? { token_groups: true } : {}),
    access: accessOfUser(snapshot, user.username),
  };
}
