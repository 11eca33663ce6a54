import type { TableOperation } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { type Change, databaseOf, sentenceOf } from "../sql/operations.ts";
import { deleteRows, update } from "./change.ts";
import { createTable, dropTable } from "./define.ts";
import { concernsStatement, refusalOf } from "./failures.ts";
import { insert } from "./insert.ts";
import type { Place } from "./place.ts";
import { visibleSchema } from "./schemas.ts";
import { select } from "./select.ts";
import type { Session } from "./session.ts";

/** What one transaction does, and how its answer looks. */
export interface Work {
  readonly isBatch: boolean;
  readonly operations: readonly TableOperation[];
}

/**
 * Carries out the operations in their order and writes the JSON answer to the spool.
 *
 * Throws `EngineRefusal`, which names the element of a Batch that it is about, or PostgreSQL's
 * error.
 */
export async function performAll(
  session: Session,
  { isBatch, operations }: Work,
  spool: Spool,
): Promise<void> {
  const isRead = isBatch || operations.some((operation) => "Select" in operation);
  spool.write(`{"status":"success",${isRead ? '"data"' : '"message"'}:${isBatch ? "[" : ""}`);
  for (const [index, operation] of operations.entries()) {
    if (index > 0) spool.write(",");
    try {
      await perform({ session, schema: visibleSchema(databaseOf(operation)) }, operation, spool);
    } catch (error) {
      throw isBatch && concernsStatement(error)
        ? (refusalOf(error)?.at(`Batch[${index}]`) ?? error)
        : error;
    }
  }
  spool.write(isBatch ? "]}" : "}");
}

async function perform(place: Place, operation: TableOperation, spool: Spool): Promise<void> {
  if ("Select" in operation) return select(place, operation.Select, spool);
  spool.write(JSON.stringify(sentenceOf(operation, await change(place, operation))));
}

/** Returns how many rows were changed; none where tables are. */
async function change(place: Place, operation: Change): Promise<number> {
  if ("Insert" in operation) return insert(place, operation.Insert);
  if ("Update" in operation) return update(place, operation.Update);
  if ("Delete" in operation) return deleteRows(place, operation.Delete);
  if ("CreateTable" in operation) await createTable(place, operation.CreateTable);
  else await dropTable(place, operation.DropTable);
  return 0;
}
