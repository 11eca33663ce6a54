/** Rows of cells, as fields of an operation. */

import { newColumnSchema } from "./columns.ts";
import type { Kind } from "./kind.ts";
import type { Schema } from "./schema.ts";
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

const row: Kind<Row> = {
  read: (_reader, { rows }) => rows.read(),
  schema: (reference): Schema => ({ type: "object", propertyNames: newColumnSchema(reference) }),
};

/** The rows of an Insert. */
export const rows: Kind<Row[]> = list(row);

/** The changes of an Update: a row that is not empty. */
export const changes: Kind<Row> = {
  read(reader, { rows }) {
    const start = reader.position;
    const rest = rows.read();
    if (rest === undefined && rows.cells === 0) {
      const problem = "the object is empty; at least one column is needed";
      throw reader.refusal("invalid_value", problem, start);
    }
    return rest;
  },
  schema: (reference) => ({ ...row.schema(reference), minProperties: 1 }),
};
