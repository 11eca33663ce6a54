import type { TableOperation } from "../../query/operation-types.ts";
import type { OperationFields } from "../../query/operations.ts";
import { LimitCounter, type QueryLimit } from "../limits.ts";
import { parseBody } from "../parse.ts";
import type { Spool } from "../spool.ts";
import { isOfTables, isReading, previewedIn } from "../sql/operations.ts";
import type { SchemaPlace } from "../store.ts";
import { executeBatch } from "./batch.ts";
import { describeTable, listTables } from "./catalog.ts";
import type { Databases } from "./databases.ts";
import { refusing } from "./failures.ts";
import { perform, performPreview } from "./operations.ts";
import { transaction } from "./transaction.ts";

/**
 * Carries out a query on tables and writes the JSON answer to the spool. When it returns, what
 * was written is durable; when it throws, nothing of the query stays.
 *
 * Throws `EngineRefusal` for what the client can mend.
 */
export function executeQuery(
  databases: Databases,
  { body, limits }: { readonly body: Uint8Array; readonly limits: readonly QueryLimit[] },
  spool: Spool,
): void {
  refusing(() => {
    const query = parseBody(Buffer.from(body));
    const counter = new LimitCounter(limits);
    const [only] = query.operations;
    if (only?.name === "Preview") return executePreview(databases, only.fields, spool, counter);
    const operations = query.operations.filter(isOfTables);
    const [first] = operations;
    if (first === undefined) throw new Error("A worker was asked to make or drop a database");
    if (query.isBatch) executeBatch(databases, operations, spool, counter);
    else executeOne(databases, first, spool, counter);
  });
}

/**
 * Writes a database's tables or a table's columns to the spool, as a JSON answer.
 *
 * Throws `database_not_found` or `table_not_found`.
 */
export function executeSchema(databases: Databases, place: SchemaPlace, spool: Spool): void {
  const { database = "", table } = place;
  refusing(() => {
    const handle = databases.open(database);
    const data =
      table === undefined ? { tables: listTables(handle) } : describeTable(handle, table);
    spool.write(JSON.stringify({ status: "success", data }));
  });
}

function executeOne(
  databases: Databases,
  operation: TableOperation,
  spool: Spool,
  counter: LimitCounter,
): void {
  const handle = databases.open(operation.fields.database);
  const onlyReads = isReading(operation);
  spool.write(`{"status":"success",${onlyReads ? '"data":' : ""}`);
  const work = (): void => {
    perform(handle, operation, spool, { counter });
    spool.write("}");
    // Its room is taken before the commit: no committed query is reported as failed for it.
    spool.flush();
  };
  if (onlyReads) work();
  else transaction(handle.connection, work);
}

function executePreview(
  databases: Databases,
  fields: OperationFields["Preview"],
  spool: Spool,
  counter: LimitCounter,
): void {
  const handle = databases.open(previewedIn(fields).fields.database);
  transaction(handle.connection, () => performPreview(handle, fields, spool, counter), "rollback");
}
