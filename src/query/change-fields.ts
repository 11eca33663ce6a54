/** The fields of the operations that name a table and change it, and what they have to agree on. */

import type { BodyReader } from "./body-reader.ts";
import { additions, changes, rows } from "./cells.ts";
import { ownColumn, selectedColumn } from "./columns.ts";
import { where as condition } from "./conditions.ts";
import {
  extra,
  type Fields,
  type MakeSchema,
  type ObjectOf,
  oneNeeded,
  optional,
  required,
} from "./kind.ts";
import { object } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import { at, spanning } from "./select-fields.ts";
import { list, plainName } from "./values.ts";

const databaseName = plainName((draft: OperationDraft, name) => {
  draft.database = name;
});
/** The table that an operation is about. */
export const tableName = plainName((draft: OperationDraft, name) => {
  draft.table = name;
});
/** The database that an operation is judged by. */
export const database = required(databaseName, "Name of the database.");
/** The field `table`. */
export const table = required(tableName, "Name of the table.");
/** A `where`. */
export const where = spanning(at("where", condition), (draft, start, end) => {
  draft.whereStart = start;
  draft.whereEnd = end;
});
const changedRows = required(where, "Which rows; null means every row, and has to be said.");
const values = required(rows, "Rows, each as its values by column.");
const returning = extra(at("returning", list(selectedColumn)), "Columns to answer of these rows.");

/** The fields of an Insert. */
export const insertFields = { database, table, values, returning };
/** The fields of an Update. */
export const updateFields = {
  database,
  table,
  set: optional(changes, "New values by column."),
  add: extra(
    additions,
    "Numbers by column that are added to what is there. Null stays null, and counts as affected.",
  ),
  where: changedRows,
  returning,
};
/** What of `judgeUpdate` a schema can say. */
export const updateRules = oneNeeded(updateFields, ["set", "add"]);
/** The fields of a Delete. */
export const deleteFields = { database, table, where: changedRows, returning };
/** The fields of an Upsert. */
export const upsertFields = {
  database,
  table,
  values,
  on_conflict: required(
    at("on_conflict", list(ownColumn)),
    "Columns whose values, together, each row has alone.",
  ),
  update: required(
    at("update", list(ownColumn, { least: 0 })),
    "Columns that are set where such a row is there; [] leaves it as it is.",
  ),
  returning,
};

/** One of the operations under a Preview, and what its schema says beside its fields. */
export function previewed<Of extends Fields<OperationDraft>>(
  name: string,
  fields: Of,
  rules: MakeSchema = () => ({}),
) {
  const kind = spanning(object(fields), (draft, start, end) => {
    draft.previewedStart = start;
    draft.previewedEnd = end;
  });
  return extra<ObjectOf<Of>, OperationDraft>({
    read(reader, draft) {
      if (draft.previewed !== undefined) {
        const problem = "a Preview is of one operation";
        throw reader.refusal("several_operations", problem);
      }
      draft.previewed = name;
      return kind.read(reader, draft);
    },
    schema: (reference) => ({ ...kind.schema(reference), ...rules(reference) }),
  });
}

/** An Update says what changes. @throws QueryRefused `missing_field` */
export function judgeUpdate(
  { changesColumns }: OperationDraft,
  reader: BodyReader,
  start: number,
): void {
  if (changesColumns) return;
  const either = reader.isFull ? "set or add" : "set";
  const problem = `the field "set" is left out; required: database, table, ${either}, where`;
  throw reader.refusal("missing_field", problem, start);
}

/** A Preview holds one operation. @throws QueryRefused `no_operation`, or what that operation is refused for */
export function judgePreview(draft: OperationDraft, reader: BodyReader, start: number): void {
  const name = draft.previewed;
  if (name === undefined) {
    const problem = "the object is empty; one key is needed: Insert, Update, Delete, Upsert";
    throw reader.refusal("no_operation", problem, start);
  }
  if (name === "Update") judgeUpdate(draft, reader, start);
}
