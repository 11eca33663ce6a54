import type { ReadingName } from "../../query/operations.ts";
import type { ChangeName, Operation, TableOperation } from "../../query/shape.ts";
import type { Spool } from "../spool.ts";
import { isReading, sentenceOf } from "../sql/operations.ts";
import type { Dialect } from "./dialect.ts";
import type { Place } from "./place.ts";
import type { Session } from "./session.ts";

/** What one transaction does, and how its answer looks. */
export interface Work {
  readonly isBatch: boolean;
  readonly operations: readonly TableOperation[];
}

/**
 * Carries out the operations in their order and writes the JSON answer to the spool.
 *
 * Throws `EngineRefusal`, which names the element of a Batch that it is about, or the server's
 * error.
 */
export async function performAll<Lent extends Session>(
  dialect: Dialect<Lent>,
  session: Lent,
  { isBatch, operations }: Work,
  spool: Spool,
): Promise<void> {
  const { refusalOf, concernsStatement } = dialect.failures;
  const isRead = isBatch || operations.some(isReading);
  spool.write(`{"status":"success",${isRead ? '"data"' : '"message"'}:${isBatch ? "[" : ""}`);
  for (const [index, operation] of operations.entries()) {
    if (index > 0) spool.write(",");
    try {
      const place = placeOf(dialect, session, operation.fields.database);
      await perform(dialect, place, operation, spool);
    } catch (error) {
      throw isBatch && concernsStatement(error)
        ? (refusalOf(error)?.at(`Batch[${index}]`) ?? error)
        : error;
    }
  }
  spool.write(isBatch ? "]}" : "}");
}

/** A database in a session. Throws `database_not_found` for one that no query can name. */
export function placeOf<Lent extends Session>(
  dialect: Dialect<Lent>,
  session: Lent,
  database: string,
): Place<Lent> {
  return { session, database, schema: dialect.visibleSchema(database) };
}

async function perform<Lent extends Session>(
  dialect: Dialect<Lent>,
  place: Place<Lent>,
  operation: TableOperation,
  spool: Spool,
): Promise<void> {
  if (isReading(operation)) return read(dialect, place, operation, spool);
  const count = await change(dialect, place, operation);
  spool.write(JSON.stringify(sentenceOf(operation, count)));
}

function read<Lent extends Session, Name extends ReadingName>(
  { reads }: Dialect<Lent>,
  place: Place<Lent>,
  { name, fields }: Operation<Name>,
  spool: Spool,
): Promise<void> {
  return reads[name](place, fields, spool);
}

function change<Lent extends Session, Name extends ChangeName>(
  { changes }: Dialect<Lent>,
  place: Place<Lent>,
  { name, fields }: Operation<Name>,
): Promise<number> {
  return changes[name](place, fields);
}
