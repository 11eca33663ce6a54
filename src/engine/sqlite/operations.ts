import type { SQLInputValue } from "node:sqlite";
import { sql } from "kysely";
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
import type { LimitCounter } from "../limits.ts";
import { EngineRefusal } from "../refusal.ts";
import { refused } from "../remote/failures.ts";
import type { RowOutput, Spool } from "../spool.ts";
import {
  brokenKey,
  changeTexts,
  countChanged,
  countPreviewed,
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
import { type Changed, readKeys } from "../sql/target.ts";
import { RowWriter, storedValue } from "../sql/values.ts";
import { findBrokenKey, take, targetOf } from "./change.ts";
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
export function perform(
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
export function performPreview(
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

export function read<Name extends ReadingName>(
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
