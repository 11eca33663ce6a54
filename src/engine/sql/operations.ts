import type { ReadingName } from "../../query/operations.ts";
import { definitions } from "../../query/operations.ts";
import type { ChangeName, Operation, TableOperation } from "../../query/shape.ts";

/** True for an operation that answers with rows and changes nothing. */
export function isReading(operation: Operation): operation is Operation<ReadingName> {
  return definitions[operation.name].effect === "reads";
}

/** True for an operation that a Batch may hold, and a worker carries out. */
export function isOfTables(operation: Operation): operation is TableOperation {
  return definitions[operation.name].inBatch;
}

/** What a change answers; `count` is how many rows were changed. */
const sentences: { [Name in ChangeName]: (count: number, table: string) => string } = {
  Insert: (count) => `Inserted ${rowCount(count)}`,
  Update: (count) => `Updated ${rowCount(count)}`,
  Delete: (count) => `Deleted ${rowCount(count)}`,
  CreateTable: (_count, table) => `Table ${table} created`,
  DropTable: (_count, table) => `Table ${table} dropped`,
};

/** The sentence that says what was done; `count` is how many rows, if rows were changed. */
export function sentenceOf({ name, fields }: Operation<ChangeName>, count: number): string {
  return sentences[name](count, fields.table);
}

function rowCount(count: number): string {
  return count === 1 ? "1 row" : `${count} rows`;
}
