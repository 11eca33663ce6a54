import { Refusal } from "../refusal.ts";
import { counted } from "../suggestion.ts";
import type { Attributes, AttributeValue, Grant, Literal, RowCondition } from "./grant.ts";
import { entryRoles, readGrant, writtenEntry } from "./records.ts";
import type { EntryRole } from "./roles.ts";
import { attributeReference, readAttributes } from "./row-filter.ts";

/** Entries by the keys of the file, one by one: as they are shown, and as they are asked for. */

/** An entry as the interface shows it: its database and role, and the other keys that it has. */
export interface EntryView {
  readonly database: string;
  readonly role: EntryRole;
  readonly [key: string]: unknown;
}

/** A value as `JSON.stringify` writes it to the last digit. */
function exactly(value: AttributeValue): unknown {
  if (typeof value === "object") return value.map(exactly);
  return typeof value === "bigint" ? JSON.rawJSON(value.toString()) : value;
}

/** A moment as RFC 3339 writes it, without a fraction that is nothing. */
export function writtenTime(epochMs: number): string {
  return new Date(epochMs).toISOString().replace(".000Z", "Z");
}

/** The entry, to be written as JSON, without whose it is. */
export function viewEntry(grant: Grant): EntryView {
  const { database, role, rowFilter, expires } = grant;
  const { username: _, ...entry } = writtenEntry(grant);
  return {
    ...entry,
    database,
    role,
    ...(rowFilter === undefined
      ? {}
      : {
          row_filter: rowFilter.map(({ column, cmp, value }) => ({
            column,
            cmp,
            value: exactly(value),
          })),
        }),
    ...(expires === undefined ? {} : { expires: writtenTime(expires) }),
  };
}

/** A user's attributes, to be written as JSON. */
export function viewAttributes(attributes: Attributes = new Map()): Record<string, unknown> {
  return Object.fromEntries(attributes.entries().map(([name, value]) => [name, exactly(value)]));
}

/** Where an entry is: on a database (or `*`), or on one of its tables or patterns of tables. */
export interface EntryPlace {
  readonly username: string;
  readonly database: string;
  readonly table?: string | undefined;
}

/**
 * Reads the entry for a place.
 *
 * @param keys its role, and what else it says, by the keys of the file; times in RFC 3339
 * @throws Refusal `invalid_role`, or `invalid_entry` that says what is wrong
 */
export function readEntry(
  { username, database, table }: EntryPlace,
  keys: Readonly<Record<string, unknown>>,
): Grant {
  if (!entryRoles.some((role) => role === keys.role)) {
    const allowed = `${entryRoles.slice(0, -1).join(", ")} or ${entryRoles.at(-1)}`;
    throw new Refusal("invalid_role", { message: `Invalid role: ${allowed}` });
  }
  const tables = table === undefined ? {} : { tables: [table] };
  const reasons: string[] = [];
  const record = { ...keys, username, database, ...tables };
  const grant = readGrant(record, 0, ({ reason }) => reasons.push(reason));
  if (grant !== undefined && reasons.length === 0) return grant;
  throw new Refusal("invalid_entry", { message: `Invalid entry: ${reasons.join("; ")}` });
}

/** Entries in words for people, and row filters as a command line takes and shows them. */

const conditionForm = /^\s*(.+?)\s*(!=|>=|<=|=|>|<|\bIN\b)\s*(\S.*?)\s*$/is;
const quoted = /^(?:'((?:[^']|'')*)'|"((?:[^"]|"")*)")$/;
/** In quotes, or one word: `a == b`, or `a = b AND c = d`, is none, whatever it was meant for. */
const value = `'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\\s,'"=<>!()]+`;
const eachValue = new RegExp(value, "g");
const valueForm = new RegExp(`^(?:${value})$`);
const listForm = new RegExp(`^\\((?:\\s*(?:${value})\\s*(?:,|(?=\\)$)))*\\)$`);
const plainText = /^(?!(?:true|false)$)[A-Za-z_][\w.-]*$/;

/** What stands between quotes; undefined for text without. */
function unquoted(text: string): string | undefined {
  const [, single, double] = quoted.exec(text) ?? [];
  return single?.replaceAll("''", "'") ?? double?.replaceAll('""', '"');
}

/** A value: a whole number, true, false, or text, which quotes keep from being anything else. */
function readLiteral(text: string): Literal {
  const inQuotes = unquoted(text);
  if (inQuotes !== undefined) return inQuotes;
  if (/^-?\d+$/.test(text)) {
    const number = Number(text);
    return Number.isSafeInteger(number) ? number : BigInt(text);
  }
  return text === "true" || text === "false" ? text === "true" : text;
}

/** A value of a condition, in which `@` begins the name of an attribute unless it is in quotes. */
function readValue(text: string): Literal {
  return unquoted(text)?.startsWith("@") ? `@${unquoted(text)}` : readLiteral(text);
}

/** Reads values as `eu` or `(eu, us)`; undefined if there are none. */
function readValues(
  text: string,
  read: (text: string) => Literal,
): Literal | Literal[] | undefined {
  if (valueForm.test(text)) return read(text);
  return listForm.test(text) ? (text.match(eachValue) ?? []).map(read) : undefined;
}

/**
 * Reads an attribute such as `tenant=acme`, `level=3` or `regions=(eu, us)`; undefined if it is
 * none.
 */
export function readAttribute(text: string): [string, AttributeValue] | undefined {
  const [, name = "", written = ""] = /^\s*([^=]*?)\s*=\s*(.*?)\s*$/s.exec(text) ?? [];
  const value = readValues(written, readLiteral);
  return [...(readAttributes({ [name]: value }) ?? [])][0];
}

/**
 * Reads a condition such as `tenant = @tenant`, `size < 5`, `name = 'O''Hara'` or
 * `region IN (eu, us)`, by the keys of the file; undefined if it is none. What the file does not
 * take is not found out.
 */
export function readCondition(text: string): object | undefined {
  const [, column, operator = "", written = ""] = conditionForm.exec(text) ?? [];
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

/** A condition as `readCondition` takes it. */
export function writeCondition({ column, cmp, value }: RowCondition): string {
  const written =
    typeof value === "object" ? `(${value.map(writeValue).join(", ")})` : writeValue(value);
  return `${column} ${cmp} ${written}`;
}

/** What an entry says beyond its role and its place, in words; empty if that is all. */
export function limitsInWords(grant: Omit<Grant, "username" | "database" | "role">): string {
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
