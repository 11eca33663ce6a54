import type { DatabaseSync } from "node:sqlite";
import type { TableOperation } from "../../query/operation-types.ts";
import type { OperationFields } from "../../query/operations.ts";
import { LimitCounter, type QueryLimit } from "../limits.ts";
import { parseBody } from "../parse.ts";
import type { Spool } from "../spool.ts";
import { isOfTables, isReading, previewedIn } from "../sql/answers.ts";
import type { SchemaPlace } from "../store.ts";
import { describeTable, listTables } from "./catalog.ts";
import type { Databases, Session } from "./databases.ts";
import { refusalOf, refusing } from "./failures.ts";
import { perform, performPreview, read } from "./operations.ts";
import type { DatabaseHandle } from "./statements.ts";

/** The bytes of a query, and what it may do. */
interface LimitedBody {
  readonly body: Uint8Array;
  readonly limits: readonly QueryLimit[];
}

/**
 * Carries out a query on tables and writes the JSON answer to the spool. When it returns, what
 * was written is durable; when it throws, nothing of the query stays. `onCommit` is called before a commit.
 *
 * @throws EngineRefusal for what the client can mend
 */
export function executeQuery(
  databases: Databases,
  { body, limits }: LimitedBody,
  spool: Spool,
  onCommit: () => void,
): void {
  quoting(body, () => {
    const query = parseBody(Buffer.from(body));
    const counter = new LimitCounter(limits);
    const [only] = query.operations;
    if (only?.name === "Preview") return executePreview(databases, only.fields, spool, counter);
    const operations = query.operations.filter(isOfTables);
    const [first] = operations;
    if (first === undefined) throw new Error("A worker was asked to make or drop a database");
    if (query.isBatch) executeBatch(databases, operations, spool, counter, onCommit);
    else executeOne(databases, first, spool, counter, onCommit);
  });
}

/** Does the work for a query; a refusal quotes a value that the query holds. */
function quoting(body: Uint8Array, work: () => void): void {
  try {
    work();
  } catch (error) {
    throw refusalOf(error)?.quote(Buffer.from(body)) ?? error;
  }
}

/** Carries out a Select and writes its rows to the spool, alone and in its form. @throws as `executeQuery` does */
export function executeSelect(
  databases: Databases,
  { body, limits }: LimitedBody,
  spool: Spool,
): void {
  refusing(() => {
    const [operation] = parseBody(Buffer.from(body)).operations.filter(isReading);
    if (operation === undefined) throw new Error("A worker was asked for the rows of no Select");
    const handle = databases.open(operation.fields.database);
    read({ ...handle, counter: new LimitCounter(limits) }, operation, spool);
  });
}

/**
 * Writes a database's tables or a table's columns to the spool, as a JSON answer.
 *
 * @throws EngineRefusal `database_not_found` or `table_not_found`
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
  onCommit: () => void,
): void {
  const handle = databases.open(operation.fields.database);
  const onlyReads = isReading(operation);
  spool.write(`{"status":"success",${onlyReads ? '"data":' : ""}`);
  const work = (): void => {
    perform(handle, operation, spool, { counter });
    spool.write("}");
    // Its room is taken before the commit: no committed query is reported as failed for it.
    spool.flush();
    if (!onlyReads) onCommit();
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

/**
 * Carries out a Batch as one transaction over all its databases and writes the JSON answer to
 * the spool.
 *
 * @throws EngineRefusal, which names the element that it is about
 */
function executeBatch(
  databases: Databases,
  operations: readonly TableOperation[],
  spool: Spool,
  counter: LimitCounter,
  onCommit: () => void,
): void {
  const session = openSession(databases, operations);
  try {
    spool.write(`{"status":"success","data":`);
    transaction(session.connection, () => {
      performAll(session, operations, spool, counter);
      spool.write("]}");
      // Its room is taken before the commit: no committed Batch is reported as failed for it.
      spool.flush();
      if (!operations.every(isReading)) onCommit();
    });
  } finally {
    session.close();
  }
}

/** The databases of a Batch; one that is alone is reached by the connection that is kept. */
function openSession(databases: Databases, operations: readonly TableOperation[]): Session {
  const places = operations.map(({ fields }) => fields.database);
  const names = [...new Set(places)];
  for (const name of names) {
    inElement(places.indexOf(name), () => databases.requireExisting(name));
  }
  const [first, ...others] = names;
  if (first === undefined || others.length > 0) return databases.openTogether(names);
  const handle = databases.open(first);
  return { connection: handle.connection, handles: new Map([[first, handle]]), close() {} };
}

function performAll(
  session: Session,
  operations: readonly TableOperation[],
  spool: Spool,
  counter: LimitCounter,
): void {
  for (const [index, operation] of operations.entries()) {
    spool.write(index === 0 ? "[" : ",");
    const handle = handleOf(session, operation);
    inElement(index, () => perform(handle, operation, spool, { counter, element: index }));
  }
}

/** Does the work for one element of a Batch; a refusal then says which. */
function inElement(index: number, work: () => void): void {
  try {
    work();
  } catch (error) {
    throw refusalOf(error)?.inElement(index) ?? error;
  }
}

function handleOf(session: Session, operation: TableOperation): DatabaseHandle {
  const handle = session.handles.get(operation.fields.database);
  if (handle === undefined) throw new Error("A Batch reached past its session");
  return handle;
}

/**
 * Runs `work` as one transaction: all of it is durable when this returns, and none of it stays
 * when it throws, or if its end is said to be a rollback.
 */
function transaction(
  connection: DatabaseSync,
  work: () => void,
  end: "commit" | "rollback" = "commit",
): void {
  // "immediate" takes the write lock at once, so that a busy file refuses before work is done.
  connection.exec("begin immediate");
  try {
    work();
    connection.exec(end);
  } catch (error) {
    // Some errors, such as a full disk, have rolled back already.
    if (connection.isTransaction) connection.exec("rollback");
    throw error;
  }
}
