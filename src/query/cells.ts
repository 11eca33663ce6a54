/** Rows of cells, as fields of an operation. */

import { DistinctKeys, hashKey } from "../json/distinct-keys.ts";
import { quoteName } from "../json/fault.ts";
import { type Rest, repeat } from "../json/rest.ts";
import type { BodyReader } from "./body-reader.ts";
import { newColumnSchema, readColumnName } from "./columns.ts";
import type { Kind, Schema } from "./kind.ts";
import type { OperationDraft, Position } from "./operation-draft.ts";
import type { QueryRefused } from "./refusal.ts";
import { list } from "./values.ts";

/** A cell's value, once parsed: any JSON, integers that a double cannot hold as bigint. */
export type CellValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | CellValue[]
  | { [key: string]: CellValue };

/** Values by column. */
export type Row = Record<string, CellValue>;

/** Reads a row; its columns stand in this position. */
function readRow(draft: OperationDraft, position: Position): Rest {
  draft.position = position;
  return draft.rows.read(draft, position === "values");
}

function emptyObject(reader: BodyReader, start: number): QueryRefused {
  const problem = "the object is empty; at least one column is needed";
  return reader.refusal("invalid_value", problem, start);
}

const row: Kind<Row> = {
  read: (_reader, draft) => readRow(draft, "values"),
  schema: (reference): Schema => ({
    type: "object",
    propertyNames: newColumnSchema(reference),
    additionalProperties: true,
  }),
};

/** The rows of an Insert. */
export const rows: Kind<Row[]> = list(row);

/** The changes of an Update: a row that is not empty. */
export const changes: Kind<Row> = {
  read(reader, draft) {
    const start = reader.position;
    draft.changesColumns = true;
    const rest = readRow(draft, "set");
    if (rest === undefined && draft.rows.isEmpty) throw emptyObject(reader, start);
    return rest;
  },
  schema: (reference) => ({ ...row.schema(reference), minProperties: 1 }),
};

/** Numbers by column, which an Update adds to what is there. */
export const additions: Kind<Record<string, number | bigint>> = {
  read(reader, draft) {
    const start = reader.position;
    draft.changesColumns = true;
    draft.enter("add");
    if (!reader.openObject()) throw emptyObject(reader, start);
    const columns = new DistinctKeys(reader);
    return repeat(
      () => readAddition(reader, draft, columns),
      () => reader.nextMember(),
    );
  },
  schema: (reference) => ({
    type: "object",
    propertyNames: newColumnSchema(reference),
    additionalProperties: { type: "number" },
    minProperties: 1,
  }),
};

function readAddition(reader: BodyReader, draft: OperationDraft, columns: DistinctKeys): Rest {
  const start = reader.position;
  const column = readColumnName(reader);
  if (!columns.add(start, hashKey(column))) {
    const problem = `the column ${quoteName(column.toString())} is given twice; each may stand once`;
    throw reader.refusal("duplicate_key", problem, start);
  }
  draft.use(column);
  reader.skipColon();
  reader.expect("a number");
  reader.skipNumber();
  return reader.pause();
}
