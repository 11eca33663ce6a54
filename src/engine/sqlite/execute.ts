import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import { sql } from "kysely";
import { isPlainName } from "../../query/names.ts";
import type {
  ChangeName,
  CreateTable,
  DropTable,
  Operation,
  Select,
  TableOperation,
} from "../../query/operation-types.ts";
import type { OperationFields, ReadingName } from "../../query/operations.ts";
import type { ColumnDefinition } from "../../query/values.ts";
import { foldCase } from "../fold-case.ts";
import { LimitCounter, type QueryLimit } from "../limits.ts";
import { parseBody } from "../parse.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import type { RowOutput, Spool } from "../spool.ts";
import {
  brokenKey,
  changeTexts,
  countChanged,
  countPreviewed,
  isOfTables,
  isReading,
  isRowChange,
  type PlaceInQuery,
  previewedIn,
  previewTexts,
} from "../sql/answers.ts";
import { deleteRows, insert, update, upsert } from "../sql/changes.ts";
import type { Fragment } from "../sql/fragment.ts";
import {
  newTableAsReferred,
  primaryKeyOf,
  primaryKeySql,
  type Referred,
  referenceSql,
  referencesOf,
  requireDistinctNames,
  requireSoleKey,
  tableExists,
  takesNoDefault,
  unknownType,
} from "../sql/new-table.ts";
import { digestTouched, preview, requireSameRows } from "../sql/preview.ts";
import {
  type AggregateDialect,
  planSelect,
  type SelectDialect,
  type SelectedTable,
  type SelectPlan,
  tableKeysOf,
  tablesOf,
} from "../sql/select.ts";
import {
  type Changed,
  type ColumnFacts,
  describe,
  readKeys,
  type TableDescription,
} from "../sql/target.ts";
import { RowWriter, storedValue } from "../sql/values.ts";
import type { SchemaPlace } from "../store.ts";
import { findBrokenKey, take, targetOf } from "./change.ts";
import type { Databases, Session } from "./databases.ts";
import { refusalOf, refusing } from "./failures.ts";
import {
  constraintOf,
  encodeStored,
  isSerial,
  kindOf,
  type SqliteKind,
  typeWords,
} from "./kinds.ts";
import { type DatabaseHandle, rows, run } from "./statements.ts";
import {
  findTaken,
  forgetColumns,
  isClientTable,
  keysSql,
  readTable,
  rememberColumns,
  requireClientTable,
} from "./tables.ts";

/**
 * Creates a STRICT table, in which a column holds only values of its type.
 *
 * @throws EngineRefusal `table_exists`, `invalid_name`, `invalid_type` or `duplicate_column`
 */
function createTable(handle: DatabaseHandle, query: CreateTable): Changed {
  const { table, columns } = query;
  requireClientTable(table);
  const taken = findTaken(handle, table);
  if (taken !== undefined) throw tableExists(taken, handle.name);
  requireDistinctNames(columns);
  const key = primaryKeyOf(columns);
  const parts = [...columns.map((column) => columnSql(column, key)), ...primaryKeySql(key)];
  for (const reference of referencesOf(query)) {
    const referred =
      reference.table === table ? newTableAsReferred(query) : readReferred(handle, reference.table);
    parts.push(referenceSql(reference, reference.column.type, referred, sql.id(reference.table)));
  }
  run(
    handle.connection,
    sql`create table ${sql.id(handle.schema, table)} (${sql.join(parts)}) strict`,
  );
  rememberColumns(handle, table, columns);
  return {};
}

function readReferred(handle: DatabaseHandle, name: string): Referred {
  const { columns } = readTable(handle, name);
  return { columns, keys: take(handle, readKeys(keysSql(handle, name))) };
}

/** @throws EngineRefusal `table_not_found`, `invalid_name` or `constraint_violation` */
function dropTable(handle: DatabaseHandle, { table }: DropTable): Changed {
  readTable(handle, table);
  requireUnreferred(handle, table);
  run(handle.connection, sql`drop table ${sql.id(handle.schema, table)}`);
  forgetColumns(handle, table);
  return {};
}

/** SQLite would keep the tables that refer to this one, and accept no more rows in them. */
function requireUnreferred({ connection, schema }: DatabaseHandle, name: string): void {
  const [referring] = rows(
    connection,
    sql`select entry."name" from ${sql.id(schema, "sqlite_schema")} as entry
      join pragma_foreign_key_list(entry."name", ${schema}) as reference
      where entry."type" = 'table' and entry."name" <> ${name}
        and reference."table" = ${name} collate nocase limit 1`,
  );
  if (referring === undefined) return;
  const problem = `Table ${referring[0]} refers to table ${name}`;
  throw new EngineRefusal("constraint_violation", problem);
}

function columnSql(column: ColumnDefinition, key: readonly ColumnDefinition[]): Fragment {
  const kind = requireKind(column);
  const partOfKey = key.includes(column);
  if (isSerial(kind)) requireSoleKey(column, key);
  const name = sql.id(column.name);
  const required = partOfKey || column.nullable === false ? sql` not null` : sql``;
  const unique = column.unique === true ? sql` unique` : sql``;
  const [type, value] = [sql.raw(kind.storage), defaultSql(column, kind)];
  return sql`${name} ${type}${required}${value}${unique}${checkSql(column.name, kind)}`;
}

function defaultSql(column: ColumnDefinition, kind: SqliteKind): Fragment {
  const { name, type, default: value = null } = column;
  if (value === null) return sql``;
  if (isSerial(kind)) throw takesNoDefault(column);
  return sql` default ${sql.raw(literalOf(storedValue({ name, type, kind }, value)))}`;
}

/** Writes a stored value as SQL, in parentheses where SQLite has no literal for it. */
function literalOf(value: SQLInputValue): string {
  if (typeof value === "string") {
    const isPlain = !value.includes("\0");
    return isPlain ? `'${value.replaceAll("'", "''")}'` : `(cast(${hexOf(value)} as text))`;
  }
  if (value instanceof Uint8Array) return hexOf(value);
  // A literal has no sign, and without the sign this is not a 64-bit integer.
  return value === -(2n ** 63n) ? `(${value + 1n} - 1)` : String(value);
}

function hexOf(bytes: string | Uint8Array): string {
  return `x'${Buffer.from(bytes).toString("hex")}'`;
}

/**
 * The database itself enforces what the storage class leaves open, because others may write to the
 * file.
 */
function checkSql(name: string, kind: SqliteKind): Fragment {
  switch (constraintOf(kind)) {
    case "boolean":
      return sql` check (${sql.id(name)} in (0, 1))`;
    case "json":
      return sql` check (json_valid(${sql.id(name)}))`;
    case undefined:
      return sql``;
  }
}

function requireKind({ name, type }: ColumnDefinition): SqliteKind {
  const kind = kindOf(type);
  if (kind === undefined) throw unknownType(name, typeWords);
  return kind;
}

const integer = kindNamed("int");
/** SQLite lets a sum or average of doubles overflow to infinity. */
const double: SqliteKind = {
  ...kindNamed("double"),
  encode(value) {
    if (typeof value !== "number" || Number.isFinite(value)) return encodeStored(value);
    throw new EngineRefusal(...refused.outOfRange);
  },
};

/** A sum beyond 64 bits comes as a double. */
const total: SqliteKind = {
  ...integer,
  encode(value) {
    if (typeof value === "bigint") return String(value);
    throw new EngineRefusal(...refused.outOfRange);
  },
};

function kindNamed(word: string): SqliteKind {
  const kind = kindOf(word);
  if (kind === undefined) throw new Error(`There is no column type ${word}`);
  return kind;
}

/**
 * SQLite gives up a sum of integers that passes 64 bits on the way. Summing two halves avoids this:
 * the lower ones carry to the upper ones.
 */
const aggregates: AggregateDialect<SqliteKind> = {
  count: integer,
  double,
  sum(column, measure) {
    if (measure !== "integer") return { expression: sql`sum(${column})`, kind: double };
    const lower = sql`sum(${column} & 4294967295)`;
    const upper = sql`(sum(${column} >> 32) + (${lower} >> 32))`;
    const whole = sql`(${upper} << 32) | (${lower} & 4294967295)`;
    const rounded = sql`${upper} * 4294967296.0 + (${lower} & 4294967295)`;
    const fits = sql`${upper} between -2147483648 and 2147483647`;
    const expression = sql`(case when count(${column}) = 0 then null when ${fits} then ${whole} else ${rounded} end)`;
    return { expression, kind: total };
  },
  average: (sum, count) => sql`(cast(${sum} as real) / ${count})`,
  extreme: (fn, column, measure) =>
    measure === "text"
      ? sql`${sql.raw(fn)}(${column} collate binary)`
      : sql`${sql.raw(fn)}(${column})`,
};

/** SQLite sorts nulls first by itself. It has no offset without a limit, and -1 means no limit. */
const dialect: SelectDialect<SqliteKind> = {
  aggregates,
  comparesRows: true,
  order: (column, direction) => sql`${column} ${direction === "DESC" ? sql`desc` : sql`asc`}`,
  limit: (limit, offset) => sql`limit ${limit ?? -1} offset ${offset ?? 0}`,
};

/** @throws EngineRefusal for unknown tables and columns and for unfit values */
function select(handle: DatabaseHandle, query: Select, output: RowOutput): void {
  const { columns, statements } = planOf(handle, query);
  const writer = new RowWriter(columns, output);
  for (const statement of statements(() => writer.count)) {
    for (const row of rows(handle.connection, statement)) writer.write(row);
  }
  writer.end();
}

/** @throws EngineRefusal for unknown tables and columns and for unfit values */
export function planOf(handle: DatabaseHandle, query: Select): SelectPlan<SqliteKind> {
  const tables = tablesOf(query).map((name): SelectedTable<SqliteKind> => {
    const { bytewise } = handle.counter?.bytewiseIn(handle.name, name) ?? {};
    const table = { ...readTable(handle, name), ...(bytewise && { bytewise }) };
    return query.after === undefined ? table : withKeys(handle, table);
  });
  return planSelect(handle.schema, tables, query, dialect);
}

/** Adds the columns that tell rows apart, and which columns hold no null. */
function withKeys(
  handle: DatabaseHandle,
  { name, columns, ...table }: SelectedTable<SqliteKind>,
): SelectedTable<SqliteKind> {
  const found = rows(
    handle.connection,
    sql`select "name", "pk" > 0, "notnull" or ("pk" and "type" = 'INTEGER')
      from pragma_table_info(${name}, ${handle.schema})`,
  );
  const marks = new Map(Array.from(found, (row) => [String(row[0]), row]));
  const known = Array.from(columns.values(), (column) => {
    const { 1: isKey, 2: isRequired } = marks.get(column.name) ?? {};
    return { ...column, isKey: Number(isKey) === 1, isNullable: Number(isRequired) !== 1 };
  });
  return {
    ...table,
    name,
    columns: new Map(known.map((column) => [column.name, column])),
    keys: tableKeysOf(known, take(handle, readKeys(keysSql(handle, name)))),
  };
}

const reads: {
  [Name in ReadingName]: (
    handle: DatabaseHandle,
    fields: OperationFields[Name],
    output: RowOutput,
  ) => void;
} = { Select: select };

const changes: {
  [Name in ChangeName]: (handle: DatabaseHandle, fields: OperationFields[Name]) => Changed;
} = {
  Insert: (handle, fields) => take(handle, insert(targetOf(handle, fields.table), fields)),
  Update: (handle, fields) => take(handle, update(targetOf(handle, fields.table), fields)),
  Delete: (handle, fields) => take(handle, deleteRows(targetOf(handle, fields.table), fields)),
  Upsert: (handle, fields) => take(handle, upsert(targetOf(handle, fields.table), fields)),
  CreateTable: createTable,
  DropTable: dropTable,
};

/**
 * Runs one operation and writes its result to the spool. Rows are one JSON array. The result of a
 * change is one value in a Batch, and otherwise some members of the answer.
 *
 * @throws EngineRefusal, or SQLite's error
 */
function perform(
  opened: DatabaseHandle,
  operation: TableOperation,
  spool: Spool,
  place: PlaceInQuery,
): void {
  const handle = { ...opened, counter: place.counter };
  if (isReading(operation)) {
    read(handle, operation, spool);
    return;
  }
  const { touched } = place.counter;
  if (touched !== undefined && isRowChange(operation)) {
    const target = targetOf(handle, operation.fields.table);
    requireSameRows(take(handle, digestTouched(target, operation)), touched);
  }
  const changed = namingKeys(handle, operation, () => change(handle, operation));
  countChanged(changed, place, spool);
  const isBatch = place.element !== undefined;
  for (const text of changeTexts(operation, changed, isBatch)) spool.write(text);
}

/** Writes the answer of a Preview, whose change will be rolled back. */
function performPreview(
  opened: DatabaseHandle,
  fields: OperationFields["Preview"],
  spool: Spool,
  counter: LimitCounter,
): void {
  const handle = { ...opened, counter };
  const operation = previewedIn(fields);
  const target = targetOf(handle, operation.fields.table);
  const digest = counter.touched && take(handle, digestTouched(target, operation));
  const previewed = take(handle, preview(target, operation, counter));
  countPreviewed(previewed, counter, spool);
  for (const text of previewTexts(previewed, digest)) spool.write(text);
}

function read<Name extends ReadingName>(
  handle: DatabaseHandle,
  { name, fields }: Operation<Name>,
  output: RowOutput,
): void {
  reads[name](handle, fields, output);
}

/** Adds the broken foreign key to an error, because SQLite does not name it. */
function namingKeys<Result>(
  handle: DatabaseHandle,
  operation: Operation<ChangeName>,
  work: () => Result,
): Result {
  try {
    return work();
  } catch (error) {
    const isOfKey = error instanceof Error && error.message === "FOREIGN KEY constraint failed";
    const broken = isOfKey && isRowChange(operation) ? findBrokenKey(handle, operation) : undefined;
    throw broken === undefined ? error : new EngineRefusal(...brokenKey(broken));
  }
}

function change<Name extends ChangeName>(
  handle: DatabaseHandle,
  { name, fields }: Operation<Name>,
): Changed {
  return changes[name](handle, fields);
}

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
