import type { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import type { TableOperation } from "../../query/operation-types.ts";
import type { OperationFields } from "../../query/operations.ts";
import { foldCase } from "../fold-case.ts";
import { LimitCounter, type QueryLimit } from "../limits.ts";
import { parseBody } from "../parse.ts";
import type { Spool } from "../spool.ts";
import { isOfTables, isReading, previewedIn } from "../sql/answers.ts";
import { type ColumnFacts, describe, readKeys, type TableDescription } from "../sql/target.ts";
import type { SchemaPlace } from "../store.ts";
import { take } from "./change.ts";
import type { Databases, Session } from "./databases.ts";
import { refusalOf, refusing } from "./failures.ts";
import { isSerial } from "./kinds.ts";
import { perform, performPreview, read } from "./operations.ts";
import { type DatabaseHandle, rows } from "./statements.ts";
import { isClientTable, keysSql, readTable } from "./tables.ts";

function listTables({ connection, schema }: DatabaseHandle): string[] {
  const found = rows(
    connection,
    sql`select "name" from ${sql.id(schema, "sqlite_schema")} where "type" = 'table' order by "name"`,
  );
  return Array.from(found, (row) => String(row[0])).filter(
    (name) => isPlainName(name) && isClientTable(name),
  );
}

/**
 * Describes a table with its columns in order and their declared types.
 *
 * @throws EngineRefusal `table_not_found`, and `invalid_name` for a reserved name
 */
function describeTable(handle: DatabaseHandle, name: string): TableDescription {
  const { columns } = readTable(handle, name);
  const found = rows(
    handle.connection,
    sql`select "name", "notnull", "pk", "dflt_value",
        (select "table" || '.' || "to" from pragma_foreign_key_list(${name}, ${handle.schema})
          where "from" = info."name" limit 1)
      from pragma_table_xinfo(${name}, ${handle.schema}) as info`,
  );
  const marks = new Map(Array.from(found, (row) => [String(row[0]), row]));
  const facts = Array.from(columns.values(), ({ name: column, type, kind }): ColumnFacts => {
    const {
      1: isRequired,
      2: place,
      3: value = null,
      4: referred = null,
    } = marks.get(column) ?? {};
    const isKey = Number(place) !== 0;
    return {
      name: column,
      type,
      isKey,
      isNullable: Number(isRequired) === 0 && !isKey,
      isSerial: isSerial(kind),
      default: value === null ? null : String(value),
      references: referred === null ? null : String(referred),
    };
  });
  const keys = take(handle, readKeys(keysSql(handle, name)));
  return describe(facts, keys, { rows: estimateRows(handle, name, [...columns.keys()]) });
}

/** Up to this number, rows are counted. Beyond it, their number is estimated. */
const COUNTED = 10_000;

/**
 * SQLite's names of the row number. A column of the same name hides each (SQLite, "ROWIDs and the
 * INTEGER PRIMARY KEY").
 */
const rowNumbers = ["rowid", "_rowid_", "oid"];

/**
 * Counts the rows of a small table. For a large one, assumes that row numbers are as dense
 * throughout as in the first `COUNTED` rows. SQLite keeps no count, and counting a large table
 * takes as long as reading it.
 */
function estimateRows(
  { connection, schema }: DatabaseHandle,
  name: string,
  columns: readonly string[],
): number | undefined {
  const taken = new Set(columns.map(foldCase));
  const number = rowNumbers.find((word) => !taken.has(word));
  const [kind] = rows(
    connection,
    sql`select "wr" from pragma_table_list where "schema" = ${schema} and "name" = ${name}`,
  );
  if (number === undefined || Number(kind?.[0]) !== 0) return undefined;
  const [id, table] = [sql.raw(number), sql.id(schema, name)];
  const [found] = rows(
    connection,
    sql`select count(*), min("id"), max("id"), (select max(${id}) from ${table})
      from (select ${id} as "id" from ${table} order by ${id} limit ${sql.lit(COUNTED)})`,
  );
  const [counted, first, end, last] = [0, 1, 2, 3].map((at) => Number(found?.[at] ?? 0));
  if (counted === undefined || counted < COUNTED) return counted;
  const [firstId = 0, endId = 0, lastId = 0] = [first, end, last];
  return Math.round((counted * (lastId - firstId + 1)) / (endId - firstId + 1));
}

interface LimitedBody {
  readonly body: Uint8Array;
  readonly limits: readonly QueryLimit[];
}

/**
 * Runs a query on tables and writes the JSON answer to the spool. When it returns, all changes are
 * durable. When it throws, none remain. `onCommit` is called before a commit.
 *
 * @throws EngineRefusal for what the client can fix
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

/** Lets a refusal quote a value of the query. */
function quoting(body: Uint8Array, work: () => void): void {
  try {
    work();
  } catch (error) {
    throw refusalOf(error)?.quote(Buffer.from(body)) ?? error;
  }
}

/** Runs a Select and writes only its rows to the spool, in the spool's form. */
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
    // Reserves disk space before the commit, so that a full disk never reports a committed query as
    // failed.
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
 * Runs a Batch as one transaction over all its databases and writes the JSON answer to the spool.
 *
 * @throws EngineRefusal that names the element
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
      // Reserves disk space before the commit, so that a full disk never reports a committed Batch
      // as failed.
      spool.flush();
      if (!operations.every(isReading)) onCommit();
    });
  } finally {
    session.close();
  }
}

/** Opens the databases of a Batch. A single database uses its open connection. */
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
 * Runs `work` as one transaction. All of it is durable when this returns. None of it remains when
 * this throws or `end` is a rollback.
 */
function transaction(
  connection: DatabaseSync,
  work: () => void,
  end: "commit" | "rollback" = "commit",
): void {
  // `immediate` takes the write lock at once, so that a busy file refuses before any work is done.
  connection.exec("begin immediate");
  try {
    work();
    connection.exec(end);
  } catch (error) {
    // Some errors, such as a full disk, have already rolled back.
    if (connection.isTransaction) connection.exec("rollback");
    throw error;
  }
}
