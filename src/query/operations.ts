/**
 * The query grammar as one table: what each operation is called, which right it needs, what it does
 * and which fields it has. The scanner, the types of the engine, the schemas of OpenAPI and of
 * models' tools come from it.
 */

import { changes, rows } from "./cells.ts";
import { column, joinColumns, selectedColumn } from "./columns.ts";
import { where } from "./conditions.ts";
import { type Fields, type ObjectOf, optional, required } from "./kind.ts";
import { object } from "./object-shape.ts";
import type { OperationDraft } from "./operation-draft.ts";
import type { PermissionClass } from "./permissions.ts";
import { columnDefinitions } from "./table-columns.ts";
import { count, list, oneOf, plainName } from "./values.ts";

/** What an operation is, apart from how it is carried out. */
export interface OperationDefinition {
  /** The right that it needs on its database. */
  readonly permission: PermissionClass;
  /** What it does to what is there: `replaces` is a change that may be repeated, `removes` too. */
  readonly effect: "reads" | "adds" | "replaces" | "removes";
  /** Whether it may be an element of a Batch. */
  readonly inBatch: boolean;
  /** What it does, in a few words, for whoever looks for it. */
  readonly title: string;
  /** What it does, in a sentence or two. */
  readonly description: string;
  readonly fields: Fields<OperationDraft>;
}

const databaseName = plainName((draft: OperationDraft, name) => {
  draft.database = name;
});
const tableName = plainName((draft: OperationDraft, name) => {
  draft.table = name;
});
const joinedTableName = plainName((draft: OperationDraft, name) => {
  draft.joinedTable = name;
});

const database = required(databaseName, "Name of the database.");
const table = required(tableName, "Name of the table.");
const everyRow = "Which rows; null means every row, and has to be said.";

/** The fields of an operation on a table that the configuration adds. */
export const configuredFields = { database, table };

/** Every operation of the grammar, by its key. */
export const operations = {
  Select: {
    permission: "SELECT",
    effect: "reads",
    inBatch: true,
    title: "Read rows",
    description: "Reads rows of a table, or of two that are joined.",
    fields: {
      database,
      from: required(tableName, "The table that is read."),
      columns: required(list(selectedColumn), 'Columns that are read; ["*"] for all.'),
      where: optional(where, "Which rows; all if left out."),
      join: optional(
        object({
          table: required(joinedTableName),
          on: required(joinColumns, "table.column = table.column, both of this select."),
          join_type: required(oneOf(["INNER", "LEFT", "RIGHT"])),
        }),
      ),
      order_by: optional(
        object({ column: required(column), direction: optional(oneOf(["ASC", "DESC"])) }),
      ),
      limit: optional(count, "Rows at most."),
      offset: optional(count, "Rows that are skipped first."),
    },
  },
  Insert: {
    permission: "INSERT",
    effect: "adds",
    inBatch: true,
    title: "Add rows",
    description: "Adds rows to a table.",
    fields: { database, table, values: required(rows, "Rows, each as its values by column.") },
  },
  Update: {
    permission: "UPDATE",
    effect: "replaces",
    inBatch: true,
    title: "Change rows",
    description: "Changes the rows of a table that fulfil a condition.",
    fields: {
      database,
      table,
      set: required(changes, "New values by column."),
      where: required(where, everyRow),
    },
  },
  Delete: {
    permission: "DELETE",
    effect: "removes",
    inBatch: true,
    title: "Delete rows",
    description: "Deletes the rows of a table that fulfil a condition. They cannot be got back.",
    fields: { database, table, where: required(where, everyRow) },
  },
  CreateTable: {
    permission: "CREATE",
    effect: "adds",
    inBatch: true,
    title: "Create a table",
    description: "Creates an empty table.",
    fields: { database, table, columns: required(columnDefinitions) },
  },
  DropTable: {
    permission: "DROP",
    effect: "removes",
    inBatch: true,
    title: "Drop a table",
    description: "Drops a table with all its rows. They cannot be got back.",
    fields: { database, table },
  },
  CreateDatabase: {
    permission: "CREATE DATABASE",
    effect: "adds",
    inBatch: false,
    title: "Create a database",
    description: "Creates an empty database.",
    fields: { database },
  },
  DropDatabase: {
    permission: "DROP DATABASE",
    effect: "removes",
    inBatch: false,
    title: "Drop a database",
    description: "Drops a database with all its tables. They cannot be got back.",
    fields: { database },
  },
} as const satisfies Record<string, OperationDefinition>;

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
