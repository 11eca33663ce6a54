import { type ByteText, byteTable, characterTable } from "../json/lexical.ts";

export const plainNameRule = "1 to 63 ASCII letters, digits, _ and -";

/** `isPlainName` as an unanchored regular expression. */
export const plainNamePattern = "[A-Za-z0-9_-]{1,63}";

export const wholePlainName = new RegExp(`^${plainNamePattern}$`);
export const columnNameRule =
  "1 to 128 characters, not *, without control characters, quotes, backslash, backtick or dot";

/** A database of a configured route may be two plain names. The regular expression has no anchors. */
export const databasePattern: string = `${plainNamePattern}(?:\\.${plainNamePattern})?`;
export const wholeDatabase: RegExp = new RegExp(`^${databasePattern}$`);

export function isDatabaseName(text: string): boolean {
  return wholeDatabase.test(text);
}

/** Indexes and collections of other databases have longer names than tables, with dots. */
const foreignCharacter = "[A-Za-z0-9._-]";
/** A table of another database. No server reads its name as a pattern, a list or a command. */
export const foreignTable: RegExp = new RegExp(`^(?!_)${foreignCharacter}{1,512}$`);
/** A table in an entry, or a pattern: a prefix followed by `*`. */
export const tablePattern: RegExp = new RegExp(
  `^(?!\\.)(?:${foreignCharacter}{1,512}|${foreignCharacter}{1,511}\\*)$`,
);

/** True for a valid name of a database or table, which cannot reach into another database. */
export function isPlainName(text: string): boolean {
  return wholePlainName.test(text);
}

const columnCharacter = "[^\\u0000-\\u001f\\u007f-\\u009f'\"\\\\`.]";
/** A column name as a regular expression without anchors. It must be followed by `$`. */
export const columnNamePattern = `(?!\\*$)${columnCharacter}{1,128}`;
/** `table.column` as a regular expression without anchors. It must be followed by `$`. */
export const qualifiedColumnPattern = `${plainNamePattern}\\.${columnNamePattern}`;
const wholeColumnName = new RegExp(`^${columnNamePattern}$`, "u");

export function isColumnText(text: string): boolean {
  return wholeColumnName.test(text);
}

/** The column of `table.column`, or of a column alone. */
export function withoutTable(column: string): string {
  return column.slice(column.indexOf(".") + 1);
}

/** One side of a join's `on`. */
export const joinSidePattern = `${plainNamePattern}\\.(?!\\*(?: |$))(?:(?![ =])${columnCharacter}){1,128}`;

const forbidden = characterTable("'\"\\`.");
const LONGEST_COLUMN_NAME = 128;
/** A UTF-8 character has at most four bytes. */
export const LONGEST_COLUMN_BYTES = 4 * LONGEST_COLUMN_NAME;
const columnByte = byteTable((byte) => byte >= 0x20 && byte !== 0x7f && forbidden[byte] !== 1);

/** As `isColumnText`, for the keys of rows. */
export function isColumnName(text: ByteText): boolean {
  const { bytes, start, end } = text;
  if (end - start > LONGEST_COLUMN_BYTES) return false;
  if (end - start === 1 && bytes[start] === 0x2a) return false;
  let characters = 0;
  for (let position = start; position < end; position++) {
    const byte = bytes[position] ?? 0;
    if (columnByte[byte] !== 1) return false;
    // C1 controls: U+0080 to U+009F.
    if (byte === 0xc2 && (bytes[position + 1] ?? 0) <= 0x9f) return false;
    // Not a continuation byte (RFC 3629, section 3).
    if ((byte & 0xc0) !== 0x80) characters++;
  }
  return characters >= 1 && characters <= LONGEST_COLUMN_NAME;
}

/** Folds the case of ASCII letters only. */
export function foldCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** The names of joined tables that an outer join may fill with nulls. */
export function optionalNames(
  names: readonly string[],
  joinTypes: readonly string[],
): ReadonlySet<string> {
  const optional = new Set<string>();
  for (const [at, type] of joinTypes.entries()) {
    if (type === "LEFT") optional.add(names[at + 1] ?? "");
    if (type === "RIGHT") for (const name of names.slice(0, at + 1)) optional.add(name);
  }
  return optional;
}

/** The first of `names` that is also an earlier one or one of `taken`, ignoring case. */
export function findTaken(
  names: readonly string[],
  taken: readonly string[] = [],
): string | undefined {
  const seen = new Set(taken.map((name) => name.toLowerCase()));
  for (const name of names) {
    const folded = name.toLowerCase();
    if (seen.has(folded)) return name;
    seen.add(folded);
  }
  return undefined;
}

/** A database, optionally with a table or a table pattern. */
export interface Place {
  readonly database: string;
  readonly table?: string | undefined;
}

/** `main`, `main.tickets`, or `'acme.shop'.tickets`, since a dot would begin the table's name. */
export function placeName(database: string, table?: string): string {
  const name = database.includes(".") ? `'${database}'` : database;
  return table === undefined ? name : `${name}.${table}`;
}

/** Reads what `placeName` writes, also with double quotes. Checks no name. */
export function splitPlace(text: string): Place {
  const [, , quoted, plain = "", table] =
    /^(?:(['"])(.*?)\1|([^.]*))(?:\.(.*))?$/s.exec(text) ?? [];
  return { database: quoted ?? plain, table };
}
