/** Columns as the fields of an operation name them. */

import { ByteText, tokenOf } from "../json/bytes.ts";
import { quoteName } from "../json/fault.ts";
import type { BodyReader } from "./body-reader.ts";
import { type Kind, type MakeSchema, named } from "./kind.ts";
import {
  columnNamePattern,
  columnNameRule,
  isColumnName,
  isPlainText,
  joinSidePattern,
  LONGEST_COLUMN_BYTES,
  qualifiedColumnPattern,
} from "./names.ts";
import { MOST_GROUPS, type OperationDraft } from "./operation-draft.ts";

const DOT = 0x2e;
const ASTERISK = 0x2a;
/** `*` as it is nearly always written. */
const asteriskToken = tokenOf("*");

/** Reads the name of a column that is being made: no table before it. */
export function readColumnName(reader: BodyReader): ByteText {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  if (!isColumnName(text)) {
    const problem = `${quoteName(text.toString())} is no column name; allowed: ${columnNameRule}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  return text;
}

const columnSchema = named("Column", () => ({
  type: "string",
  pattern: `^(?:${columnNamePattern}|${qualifiedColumnPattern})$`,
}));

/** The schema of a column name without a table. */
export const newColumnSchema: MakeSchema = named("NewColumn", () => ({
  type: "string",
  pattern: `^${columnNamePattern}$`,
}));

/** A column of a condition or an order: `column`, or `table.column` with a table of the operation. */
export const column: Kind<string> = { read: readColumn, schema: columnSchema };

/** An element of a Select's `columns`: `*` or a column. */
export const selectedColumn: Kind<string> = {
  read: readSelectedColumn,
  schema: (reference) => ({ oneOf: [{ const: "*" }, columnSchema(reference)] }),
};

/** A column of the operation's own table, without a table before it. */
export const ownColumn: Kind<string> = {
  read(reader, draft) {
    draft.use(readColumnName(reader));
    return undefined;
  },
  schema: newColumnSchema,
};

/** The `on` of a join: `table.column = table.column`, both tables of the Select. */
export const joinColumns: Kind<string> = {
  read: readJoinColumns,
  schema: () => ({ type: "string", pattern: `^${joinSidePattern} = ${joinSidePattern}$` }),
};

function readColumn(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  if (draft.repeatsColumn(reader)) return;
  reader.expect("a string");
  noteColumn(reader.readString(), reader, draft, start);
  draft.noteColumn(start, reader.position);
}

function readSelectedColumn(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  if (!reader.skipToken(asteriskToken)) {
    reader.expect("a string");
    const text = reader.readString();
    const everything = text.end - text.start === 1 && text.bytes[text.start] === ASTERISK;
    if (!everything) return noteColumn(text, reader, draft, start);
  }
  draft.use("*");
}

function noteColumn(
  text: ByteText,
  reader: BodyReader,
  draft: OperationDraft,
  start: number,
): undefined {
  draft.use(text);
  if (draft.position === "having") noteCondition(text, draft);
  if (isColumnName(text)) return;
  const table = tableOf(text);
  if (table === undefined) {
    const allowed = `a column (${columnNameRule}), or table.column with a table of the operation`;
    const isCount = text.toString() === "*" && draft.position === "aggregate";
    const hint = isCount ? "; to count rows, leave column out" : "";
    const problem = `${quoteName(text.toString())} is no column; allowed: ${allowed}${hint}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  draft.refer(table, reader, start);
}

/** Names of a `having` that are kept: one more than can be right, so that a wrong one is found. */
const MOST_CONDITIONS = 2 * MOST_GROUPS + 1;

function noteCondition(text: ByteText, draft: OperationDraft): void {
  const { conditions } = draft.summarize();
  if (conditions.size < MOST_CONDITIONS) conditions.add(text.toString());
}

/** A column of any table: `table.column`. */
export function readForeignColumn(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const table = tableOf(text);
  if (table === undefined || !isPlainText(table)) {
    const problem = `${quoteName(text.toString())} is no column of a table; allowed: table.column`;
    throw reader.refusal("invalid_column", problem, start);
  }
  draft.use(text);
  draft.referenced ??= [];
  draft.referenced.push(table.toString());
}

/** What stands before the dot of `table.column`; undefined if the text is not of that form. */
function tableOf({ bytes, start, end }: ByteText): ByteText | undefined {
  for (let position = start; position < end; position++) {
    if (bytes[position] !== DOT) continue;
    const column = new ByteText(bytes, position + 1, end);
    return isColumnName(column) ? new ByteText(bytes, start, position) : undefined;
  }
  return undefined;
}

/** Bytes that an `on` has at most: two columns with their tables, and what is between them. */
const LONGEST_JOIN_TEXT = 2 * (2 * LONGEST_COLUMN_BYTES);

function readJoinColumns(reader: BodyReader, draft: OperationDraft): undefined {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const isShort = text.end - text.start <= LONGEST_JOIN_TEXT;
  const sides = isShort ? text.toString().split(" = ") : [];
  const tables = sides.map((side) =>
    /[ =]/.test(side) ? undefined : tableOf(ByteText.from(side)),
  );
  const [left, right, ...more] = tables;
  if (left === undefined || right === undefined || more.length > 0) {
    const allowed =
      "table.column = table.column, with one space on either side of the =, and no other space or =";
    const problem = `${quoteName(text.toString())} joins no two columns; allowed: ${allowed}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  for (const side of sides) draft.use(side);
  draft.refer(left, reader, start);
  draft.refer(right, reader, start);
  draft.joinedBy(left.toString(), right.toString());
}
