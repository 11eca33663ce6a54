import { counted } from "../../core/base/suggestion.ts";
import { definitions } from "../../core/query/operations.ts";
import type { ChangeName, Operation, TableOperation } from "../../core/query/tree.ts";
import type { Constraint, EngineRefusal } from "../refusal.ts";
import type { Previewed } from "./changes.ts";
import type { Changed } from "./target.ts";

export function isReading(operation: Operation): operation is Operation<"Select"> {
  return operation.name === "Select";
}

/** True for an operation that a Batch may hold and a worker executes. */
export function isOfTables(operation: Operation): operation is TableOperation {
  return definitions[operation.name].inBatch;
}

const messages: { [Name in ChangeName]: (count: number, table: string) => string } = {
  Insert: (count) => `Inserted ${counted(count, "row")}`,
  Update: (count) => `Updated ${counted(count, "row")}`,
  Delete: (count) => `Deleted ${counted(count, "row")}`,
  Upsert: (count) => `Upserted ${counted(count, "row")}`,
  CreateTable: (_count, table) => `Table ${table} created`,
  DropTable: (_count, table) => `Table ${table} dropped`,
};

/** One JSON value in a Batch, otherwise members of the answer. */
export function* changeJson(
  { name, fields }: Operation<ChangeName>,
  { affected, data }: Changed,
  isBatch: boolean,
): Generator<string> {
  const message = JSON.stringify(messages[name](affected ?? 0, fields.table));
  if (isBatch && data === undefined) return yield message;
  yield isBatch ? "{" : `"message":${message}${affected === undefined ? "" : ","}`;
  if (affected !== undefined) yield `"affected":${affected}`;
  if (data !== undefined) yield* rowsJson(',"data":', data);
  if (isBatch) yield "}";
}

export function* previewJson(
  { affected, before, after }: Previewed,
  digest: string | undefined,
): Generator<string> {
  yield `"affected":${affected}`;
  if (digest !== undefined) yield `,"digest":"${digest}"`;
  yield* rowsJson(',"before":', before);
  yield* rowsJson(',"after":', after);
}

function* rowsJson(key: string, rows: readonly string[]): Generator<string> {
  yield `${key}[`;
  for (const [index, row] of rows.entries()) yield index === 0 ? row : `,${row}`;
  yield "]";
}

export function returnsRows({ fields }: TableOperation): boolean {
  return "returning" in fields && fields.returning !== undefined;
}

export function violated(message: string, constraint?: Constraint) {
  return ["constraint_violation", message, { constraint }] as const;
}

type Found = Omit<Constraint, "kind">;

/** Refusals about constraints. Names come from the schema; values are never shown. */
export const violations = {
  required: (table: string, column: string, found: Found = {}) =>
    violated(`${table} requires a value in column "${column}"`, {
      kind: "not_null",
      ...found,
      ...(column !== "" && { columns: [column] }),
    }),
  reference: (table: string, name: string, found: Found = {}) =>
    violated(`${table} is part of a foreign key that this would break${name}`, {
      kind: "foreign_key",
      ...found,
    }),
  unique: (table: string, name: string, found: Found = {}) =>
    violated(`${table} already has a row with this value, which must be unique${name}`, {
      kind: "unique",
      ...found,
    }),
  check: (table: string, name: string, found: Found = {}) =>
    violated(`${table} does not allow this row${name}`, { kind: "check", ...found }),
  other: (table: string, name: string) => violated(`${table} does not allow this row${name}`),
};

/** A table for messages, of which the database may not say the name. */
export function tableNamed(name: string | undefined): string {
  return name === undefined ? "A table" : `Table ${name}`;
}

/** In place of a table that the query does not name, and that another database may hold. */
export const elsewhere = "Another table, which a trigger or foreign key changes,";

export interface BrokenKey {
  readonly table: string;
  /** The table without the referenced row. Absent if rows still refer to these columns. */
  readonly missingIn?: string | undefined;
  readonly columns: readonly string[];
  /** The value of the only column, if known. */
  readonly value?: string | undefined;
  readonly constraint?: string | undefined;
}

/** The value is shown only to a client whose query contains it. */
export function brokenKey(
  broken: BrokenKey,
): Readonly<ConstructorParameters<typeof EngineRefusal>> {
  const { table, missingIn, columns, value, constraint } = broken;
  const named = constraint === undefined ? "" : ` (foreign key ${constraint})`;
  const messageFor = (key: string): string =>
    missingIn === undefined
      ? `Rows of ${table} still refer to ${key}${named}`
      : `Table ${missingIn} has no row for ${key} of ${table}${named}`;
  const found: Constraint = {
    kind: "foreign_key",
    name: constraint,
    table,
    // Those of rows that still refer are columns of the other table.
    ...(missingIn !== undefined && { columns }),
  };
  const [first = "", ...more] = columns;
  if (more.length > 0) return violated(messageFor(`(${columns.join(", ")})`), found);
  const quoting =
    value === undefined ? {} : { quoting: { value, message: messageFor(`${first} ${value}`) } };
  return ["constraint_violation", messageFor(first), { ...quoting, constraint: found }];
}
