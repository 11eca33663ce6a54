/**
 * The query grammar as one table: what each operation is called, which right it needs, what it does
 * and which fields it has. The scanner, the types of the engine, the schemas of OpenAPI and of
 * models' tools come from it.
 */

import type { BodyReader } from "./body-reader.ts";
import { additions, changes, rows } from "./cells.ts";
import { ownColumn, selectedColumn } from "./columns.ts";
import { where as condition } from "./conditions.ts";
import { extra, type Fields, type Level, type ObjectOf, optional, required } from "./kind.ts";
import { object } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import type { PermissionClass } from "./permissions.ts";
import {
  after,
  aggregates,
  at,
  columns,
  distinct,
  groupBy,
  having,
  join,
  offset,
  orderBy,
} from "./select-fields.ts";
import { judgeSelect } from "./select-rules.ts";
import { columnDefinitions } from "./table-columns.ts";
import { count, list, plainName } from "./values.ts";

/** What an operation is, apart from how it is carried out. */
export interface OperationDefinition {
  /** The rights that it needs on its database. */
  readonly permissions: readonly PermissionClass[];
  /** What it does to what is there: `replaces` and `removes` may be repeated, `previews` keeps nothing. */
  readonly effect: "reads" | "previews" | "adds" | "replaces" | "removes";
  /** Whether it may be an element of a Batch. */
  readonly inBatch: boolean;
  /** What it does, in a few words, for whoever looks for it. */
  readonly title: string;
  /** What it does, in a sentence or two. */
  readonly description: string;
  readonly fields: Fields<OperationDraft>;
  /** The least level of the grammar that has it. */
  readonly level?: Level;
  /** Judges what its fields have to agree on, once all are read. Throws `QueryRefused`. */
  readonly judge?: (draft: OperationDraft, reader: BodyReader, start: number) => void;
}

const databaseName = plainName((draft: OperationDraft, name) => {
  draft.database = name;
});
const tableName = plainName((draft: OperationDraft, name) => {
  draft.table = name;
});
const database = required(databaseName, "Name of the database.");
const table = required(tableName, "Name of the table.");
const where = at("where", condition);
const changedRows = required(where, "Which rows; null means every row, and has to be said.");
const values = required(rows, "Rows, each as its values by column.");
const returning = extra(
  at("returning", list(selectedColumn)),
  "Columns of the changed rows that are answered.",
);

/** The fields of an operation on a table that the configuration adds. */
export const configuredFields = { database, table };

const insertFields = { database, table, values, returning };
const updateFields = {
  database,
  table,
  set: optional(changes, "New values by column."),
  add: extra(additions, "Numbers by column that are added to what is there."),
  where: changedRows,
  returning,
};
const deleteFields = { database, table, where: changedRows, returning };
const upsertFields = {
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

/** One of the operations under a Preview. */
function previewed<Of extends Fields<OperationDraft>>(name: string, fields: Of) {
  const kind = object(fields);
  return extra<ObjectOf<Of>, OperationDraft>({
    read(reader, draft) {
      if (draft.previewed !== undefined) {
        const problem = "a Preview is of one operation";
        throw reader.refusal("several_operations", problem);
      }
      draft.previewed = name;
      return kind.read(reader, draft);
    },
    schema: kind.schema,
  });
}

/** Every operation of the grammar, by its key. */
export const operations = {
  Select: {
    permissions: ["SELECT"],
    effect: "reads",
    inBatch: true,
    title: "Read rows",
    description: "Reads rows of tables, or groups of them with what they amount to.",
    fields: {
      database,
      from: required(tableName, "The table that is read."),
      columns: optional(columns, 'Columns that are read; ["*"] for all.'),
      where: optional(where, "Which rows; all if left out."),
      join: optional(join),
      group_by: extra(groupBy, "Columns of which each combination of values is one row."),
      aggregate: extra(aggregates, "What the rows of a group amount to."),
      having: extra(having, "Which groups, by aliases and columns of group_by."),
      distinct: extra(distinct, "Each row once."),
      order_by: optional(orderBy),
      after: extra(after, "The last row's values of order_by: the page goes on behind it."),
      limit: optional(count, "Rows at most."),
      offset: optional(offset, "Rows that are skipped first."),
    },
    judge: judgeSelect,
  },
  Insert: {
    permissions: ["INSERT"],
    effect: "adds",
    inBatch: true,
    title: "Add rows",
    description: "Adds rows to a table.",
    fields: insertFields,
  },
  Update: {
    permissions: ["UPDATE"],
    effect: "replaces",
    inBatch: true,
    title: "Change rows",
    description: "Changes the rows of a table that fulfil a condition.",
    fields: updateFields,
    judge: judgeUpdate,
  },
  Delete: {
    permissions: ["DELETE"],
    effect: "removes",
    inBatch: true,
    title: "Delete rows",
    description: "Deletes the rows of a table that fulfil a condition. They cannot be got back.",
    fields: deleteFields,
  },
  Upsert: {
    permissions: ["INSERT", "UPDATE"],
    effect: "replaces",
    inBatch: true,
    level: "full",
    title: "Add or change rows",
    description: "Adds rows to a table, and changes those that are there already.",
    fields: upsertFields,
  },
  Preview: {
    // And the right of the operation that it holds.
    permissions: ["SELECT"],
    effect: "previews",
    inBatch: false,
    level: "full",
    title: "Preview a change",
    description: "Shows which rows a change would touch, before and after, and keeps nothing.",
    fields: {
      Insert: previewed("Insert", insertFields),
      Update: previewed("Update", updateFields),
      Delete: previewed("Delete", deleteFields),
      Upsert: previewed("Upsert", upsertFields),
    },
    judge: judgePreview,
  },
  CreateTable: {
    permissions: ["CREATE"],
    effect: "adds",
    inBatch: true,
    title: "Create a table",
    description: "Creates an empty table.",
    fields: { database, table, columns: required(columnDefinitions) },
  },
  DropTable: {
    permissions: ["DROP"],
    effect: "removes",
    inBatch: true,
    title: "Drop a table",
    description: "Drops a table with all its rows. They cannot be got back.",
    fields: { database, table },
  },
  CreateDatabase: {
    permissions: ["CREATE DATABASE"],
    effect: "adds",
    inBatch: false,
    title: "Create a database",
    description: "Creates an empty database.",
    fields: { database },
  },
  DropDatabase: {
    permissions: ["DROP DATABASE"],
    effect: "removes",
    inBatch: false,
    title: "Drop a database",
    description: "Drops a database with all its tables. They cannot be got back.",
    fields: { database },
  },
} as const satisfies Record<string, OperationDefinition>;

function judgeUpdate({ changesColumns }: OperationDraft, reader: BodyReader, start: number): void {
  if (changesColumns) return;
  const either = reader.isFull ? "set or add" : "set";
  const problem = `the field "set" is left out; required: database, table, ${either}, where`;
  throw reader.refusal("missing_field", problem, start);
}

function judgePreview(draft: OperationDraft, reader: BodyReader, start: number): void {
  const name = draft.previewed;
  if (name === undefined) {
    const problem = "the object is empty; one key is needed: Insert, Update, Delete, Upsert";
    throw reader.refusal("no_operation", problem, start);
  }
  if (name === "Update") judgeUpdate(draft, reader, start);
}

/**
 * The rights that an operation needs: its own, those of the change under a Preview, and SELECT for
 * the tables that a new one refers to.
 */
export function permissionsOf(
  own: readonly PermissionClass[],
  { previewed: change, referenced }: OperationDraft,
): readonly PermissionClass[] {
  if (change !== undefined && isOperationName(change)) {
    return [...definitions[change].permissions, ...own];
  }
  return referenced === undefined ? own : [...own, "SELECT"];
}

type Operations = typeof operations;

/** An operation key of the grammar. */
export type OperationName = keyof Operations;

/** The keys of the operations whose definition has this. */
type NamesWith<Property> = {
  [Name in OperationName]: Operations[Name] extends Property ? Name : never;
}[OperationName];

/** An operation that a Batch may hold. */
export type TableOperationName = NamesWith<{ readonly inBatch: true }>;

/** An operation that answers with rows and changes nothing. */
export type ReadingName = NamesWith<{ readonly effect: "reads" }>;

/** The fields of each operation, once parsed. */
export type OperationFields = {
  [Name in OperationName]: ObjectOf<Operations[Name]["fields"]>;
};

/** The keys of the grammar's operations. */
export const operationNames: readonly OperationName[] =
  Object.keys(operations).filter(isOperationName);

/** True if `text` is an operation key of the grammar. */
export function isOperationName(text: string): text is OperationName {
  return Object.hasOwn(operations, text);
}

/** Every operation's definition by its key, for whoever treats all alike. */
export const definitions: Readonly<Record<OperationName, OperationDefinition>> = operations;
