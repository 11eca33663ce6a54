/**
 * The query grammar as one table: what each operation is called, which right it needs, what it does
 * and which fields it has. The scanner, the types of the engine, the schemas of OpenAPI and of
 * models' tools come from it.
 */

import type { BodyReader } from "./body-reader.ts";
import {
  database,
  deleteFields,
  insertFields,
  judgePreview,
  judgeUpdate,
  previewed,
  table,
  tableName,
  updateFields,
  updateRules,
  upsertFields,
  where,
} from "./change-fields.ts";
import {
  extra,
  type Fields,
  type Level,
  type MakeSchema,
  type ObjectOf,
  optional,
  required,
} from "./kind.ts";
import type { OperationDraft } from "./operation-draft.ts";
import type { PermissionClass } from "./permissions.ts";
import {
  after,
  aggregates,
  columns,
  distinct,
  groupBy,
  having,
  join,
  offset,
  orderBy,
} from "./select-fields.ts";
import { judgeSelect, selectRules } from "./select-rules.ts";
import { columnDefinitions } from "./table-columns.ts";
import { count } from "./values.ts";

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
  /** Judges what its fields have to agree on, once all are read. @throws QueryRefused */
  readonly judge?: (draft: OperationDraft, reader: BodyReader, start: number) => void;
  /** What of that a schema can say. */
  readonly rules?: MakeSchema;
}

/** The fields of an operation on a table that the configuration adds. */
export const configuredFields = { database, table };

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
    rules: selectRules,
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
    rules: updateRules,
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
      Update: previewed("Update", updateFields, updateRules),
      Delete: previewed("Delete", deleteFields),
      Upsert: previewed("Upsert", upsertFields),
    },
    judge: judgePreview,
    rules: () => ({ minProperties: 1, maxProperties: 1 }),
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

/** The rights of whoever may use an operation, whatever it holds: roles give those to change rows together. */
export function permissionsOfAll({
  permissions,
  effect,
}: OperationDefinition): readonly PermissionClass[] {
  return effect === "previews" ? [...permissions, "INSERT", "UPDATE", "DELETE"] : permissions;
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
