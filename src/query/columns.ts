/** Columns as the fields of an operation name them. */

import { ByteText } from "./byte-text.ts";
import type { JsonReader } from "./json-reader.ts";
import { columnNameRule, isColumnName } from "./names.ts";
import type { OperationDraft } from "./operation-draft.ts";
import { quoteName } from "./refusal.ts";

const dot = 0x2e;
const asterisk = 0x2a;

/** Reads the name of a column that is being made: no table before it. */
export function readColumnName(reader: JsonReader): string {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const name = text.toString();
  if (!isColumnName(text)) {
    const problem = `${quoteName(name)} is no column name; allowed: ${columnNameRule}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  return name;
}

/** Reads a column of a condition or an order: `column`, or `table.column` with a table of the operation. */
export function readColumn(reader: JsonReader, draft: OperationDraft): void {
  const start = reader.position;
  reader.expect("a string");
  noteColumn(reader.readString(), reader, draft, start);
}

/** Reads an element of a Select's `columns`: `*` or what `readColumn` takes. */
export function readSelectedColumn(reader: JsonReader, draft: OperationDraft): void {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString();
  const everything = text.end - text.start === 1 && text.bytes[text.start] === asterisk;
  if (!everything) noteColumn(text, reader, draft, start);
}

function noteColumn(
  text: ByteText,
  reader: JsonReader,
  draft: OperationDraft,
  start: number,
): void {
  if (isColumnName(text)) return;
  const table = tableOf(text);
  if (table === undefined) {
    const allowed = `a column (${columnNameRule}), or table.column with a table of the operation`;
    const problem = `${quoteName(text.toString())} is no column; allowed: ${allowed}`;
    throw reader.refusal("invalid_column", problem, start);
  }
  draft.refer(table, reader, start);
}

/** What stands before the dot of `table.column`; undefined if the text is not of that form. */
function tableOf({ bytes, start, end }: ByteText): ByteText | undefined {
  for (let position = start; position < end; position++) {
    if (bytes[position] !== dot) continue;
    const column = new ByteText(bytes, position + 1, end);
    return isColumnName(column) ? new ByteText(bytes, start, position) : undefined;
  }
  return undefined;
}

/** Reads the `on` of a join: `table.column = table.column`, both tables of the Select. */
export function readJoinColumns(reader: JsonReader, draft: OperationDraft): void {
  const start = reader.position;
  reader.expect("a string");
  const text = reader.readString().toString();
  const sides = text.split(" = ");
  const tables = sides.map((side) =>
    /[ =]/.test(side) ? undefined : tableOf(ByteText.from(side)),
  );
  for (const table of tables) {
    if (table === undefined || tables.length !== 2) {
      const allowed =
        "table.column = table.column, with one space on either side of the =, and no other space or =";
      const problem = `${quoteName(text)} joins no two columns; allowed: ${allowed}`;
      throw reader.refusal("invalid_column", problem, start);
    }
    draft.refer(table, reader, start);
  }
}
