/** The fields of every operation of the query grammar. */

import { readColumn, readJoinColumns, readSelectedColumn } from "./columns.ts";
import { readWhere } from "./conditions.ts";
import { type Field, ObjectShape, optional, required } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import type { OperationName } from "./operations.ts";
import { readColumnDefinitions } from "./table-columns.ts";
import { readCount, readList, readPlainName, WordList } from "./values.ts";

type OperationField = Field<OperationDraft>;

/** The database that the operation is judged by. */
export const database: OperationField = required("database", (reader, draft) => {
  draft.database = readPlainName(reader);
});

/** The table that the operation is about. */
export const table: OperationField = required("table", (reader, draft) => {
  draft.table = readPlainName(reader);
});

const from: OperationField = required("from", table.read);

const selectedColumns: OperationField = required("columns", (reader, draft) =>
  readList(reader, () => readSelectedColumn(reader, draft)),
);

const joinTypes = new WordList(["INNER", "LEFT", "RIGHT"]);
const directions = new WordList(["ASC", "DESC"]);

const joinShape = new ObjectShape<OperationDraft>([
  required("table", (reader, draft) => {
    draft.joinedTable = readPlainName(reader);
  }),
  required("on", readJoinColumns),
  required("join_type", (reader) => {
    joinTypes.read(reader);
  }),
]);

const orderShape = new ObjectShape<OperationDraft>([
  required("column", readColumn),
  optional("direction", (reader) => {
    directions.read(reader);
  }),
]);

const rows: OperationField = required("values", (reader, { rows }) =>
  readList(reader, () => rows.read()),
);

const changes: OperationField = required("set", (reader, { rows }) => {
  const start = reader.position;
  const rest = rows.read();
  if (rest === undefined && rows.cells === 0) {
    const problem = "the object is empty; at least one column is needed";
    throw reader.refusal("invalid_value", problem, start);
  }
  return rest;
});

/** The fields of each operation of the grammar. */
export const operationFields: Readonly<Record<OperationName, readonly OperationField[]>> = {
  Select: [
    database,
    from,
    selectedColumns,
    optional("where", readWhere),
    optional("join", (reader, draft) => joinShape.read(reader, draft)),
    optional("order_by", (reader, draft) => orderShape.read(reader, draft)),
    optional("limit", readCount),
    optional("offset", readCount),
  ],
  Insert: [database, table, rows],
  Update: [database, table, changes, required("where", readWhere)],
  Delete: [database, table, required("where", readWhere)],
  CreateTable: [database, table, required("columns", readColumnDefinitions)],
  DropTable: [database, table],
  CreateDatabase: [database],
  DropDatabase: [database],
};
