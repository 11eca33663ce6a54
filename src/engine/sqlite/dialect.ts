import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import { foldCase } from "../../core/query/names.ts";
import type { ColumnDefinition, CreateTable, DropTable, Select } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import { type ChangeFields, readWithKeys, rowOperations } from "../remote/change.ts";
import type { Operations } from "../remote/dialect.ts";
import { isNoTable, refused, requireFinite } from "../remote/failures.ts";
import type { RowOutput } from "../spool.ts";
import { brokenKey, elsewhere, violations } from "../sql/answers.ts";
import { ByShape, flattening } from "../sql/fragment.ts";
import type { RowSource } from "../sql/include.ts";
import { type Declaration, newTableSql } from "../sql/new-table.ts";
import { cellIn } from "../sql/scope.ts";
import type { AggregateDialect, SelectDialect } from "../sql/select.ts";
import { type Changed, describe, type TableDescription, type Target } from "../sql/target.ts";
import { cellRefused, storedValue, WHOLE_NUMBER } from "../sql/values.ts";
import { findBrokenKey, findTarget, isInForeignKey, referencedSql } from "./change.ts";
import { computing } from "./compute.ts";
import { toRefusal } from "./failures.ts";
import {
  call,
  checkSql,
  encodeStored,
  findKind,
  isSerial,
  plainKinds,
  type SqliteKind,
  typeWords,
} from "./kinds.ts";
import { compiler, rows, run, type SqliteContext, type SqliteSession } from "./statements.ts";
import {
  deleteColumnTypes,
  findExisting,
  isClientTable,
  keysSql,
  readTable,
  requireClientTable,
  type SqliteTable,
  storeColumnTypes,
  tablesSql,
} from "./tables.ts";

/** Creates a STRICT table, in which a column holds only values of its type. */
async function createTable(context: SqliteContext, query: CreateTable): Promise<Changed> {
  const { session, schema } = context;
  const { table, columns } = query;
  const parts = await newTableSql(query, {
    typeWords,
    findExisting() {
      requireClientTable(table);
      return findExisting(context, table);
    },
    declare,
    readReferenced: (name) => readWithKeys(context, name, readTable, keysSql),
    nameOf: (name) => sql.id(name),
  });
  run(session.connection, sql`create table ${sql.id(schema, table)} (${parts}) strict`);
  storeColumnTypes(context, table, columns);
  return {};
}

function declare({ name, type }: ColumnDefinition): Declaration | undefined {
  const kind = findKind(type);
  return (
    kind && {
      type: sql.raw(kind.storage),
      isSerial: isSerial(kind),
      constraint: checkSql(name, kind),
      literal: (value) => sql.raw(sqlLiteral(storedValue({ name, type, kind }, value))),
    }
  );
}

/** An expression in parentheses where SQLite has no literal. */
function sqlLiteral(value: SQLInputValue): string {
  if (typeof value === "string") {
    const isPlain = !value.includes("\0");
    return isPlain ? `'${value.replaceAll("'", "''")}'` : `(cast(${toHex(value)} as text))`;
  }
  if (value instanceof Uint8Array) return toHex(value);
  // Without its sign, which is not part of a literal, this exceeds 64 bits.
  return value === -(2n ** 63n) ? `(${value + 1n} - 1)` : String(value);
}

function toHex(bytes: string | Uint8Array): string {
  return `x'${Buffer.from(bytes).toString("hex")}'`;
}

async function dropTable(context: SqliteContext, { table }: DropTable): Promise<Changed> {
  const { session, schema } = context;
  const [view] = rows(
    session.connection,
    sql`select 1 from ${sql.id(schema, "sqlite_schema")} where "type" = 'view' and "name" = ${table}`,
  );
  if (view !== undefined) throw isNoTable(table, context.database);
  readTable(context, table);
  requireUnreferenced(context, table);
  run(session.connection, sql`drop table ${sql.id(schema, table)}`);
  deleteColumnTypes(context, table);
  return {};
}

/** SQLite would keep referring tables, and accept no more rows in them. */
function requireUnreferenced({ session, schema }: SqliteContext, name: string): void {
  const [referring] = rows(
    session.connection,
    sql`select entry."name" from ${sql.id(schema, "sqlite_schema")} as entry
      join temp.pragma_foreign_key_list(entry."name", ${schema}) as reference
      where entry."type" = 'table' and entry."name" <> ${name}
        and reference."table" = ${name} collate nocase limit 1`,
  );
  if (referring === undefined) return;
  const message = `Table ${referring[0]} refers to table ${name}`;
  const plain = `Another table refers to table ${name}`;
  throw new EngineRefusal("constraint_violation", message, { plain });
}

/** In SQLite, sums and averages of doubles overflow to infinity. */
const double: SqliteKind = {
  ...plainKinds.double,
  encode(value) {
    return encodeStored(typeof value === "number" ? requireFinite(value) : value);
  },
};

/** A sum beyond 64 bits comes as a double. */
const total: SqliteKind = {
  ...plainKinds.integer,
  operand: (sum) => call("add_integer", sum, sql`0`),
  encode(value) {
    if (typeof value === "bigint") return String(value);
    throw new EngineRefusal(...refused.outOfRange);
  },
};

/** SQLite fails if an intermediate sum exceeds 64 bits, so the two halves are summed separately. */
const aggregates: AggregateDialect<SqliteKind> = {
  count: plainKinds.integer,
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

/** SQLite sorts nulls first, and has no offset without a limit: -1 means no limit. */
const dialect: SelectDialect<SqliteKind> = {
  computing,
  aggregates,
  comparesRows: true,
  valuesPerStatement: 32_766,
  order: (column, direction) => sql`${column} ${direction === "DESC" ? sql`desc` : sql`asc`}`,
  limit: (limit, offset) => sql`limit ${limit ?? -1} offset ${offset ?? 0}`,
  readsAllIncluded: true,
  templates: new ByShape(),
  ...flattening(compiler),
};

/** A bound value has no type, but texts and numbers are compared by the types of columns. */
export function bindKey({ storage }: SqliteKind, key: SQLOutputValue): unknown {
  return storage === "ANY" ? key : sql`cast(${key} as ${sql.raw(storage)})`;
}

function rowSource({ connection }: SqliteSession): RowSource<SQLOutputValue, SqliteKind> {
  return {
    async each(statement, _columns, onRow) {
      for (const row of rows(connection, statement)) if (!onRow(row)) break;
    },
    bind: ({ kind }, raw) => bindKey(kind, raw),
  };
}

async function select(context: SqliteContext, query: Select, output: RowOutput): Promise<void> {
  const { connection } = context.session;
  // The statements of `include` must see one state.
  const begins = query.include !== undefined && !connection.isTransaction;
  if (begins) connection.exec("begin");
  try {
    await onRows.select(context, query, output);
  } finally {
    if (begins && connection.isTransaction) connection.exec("rollback");
  }
}

async function listTables({ session, schema }: SqliteContext): Promise<string[]> {
  const found = rows(session.connection, sql`select "name" from ${tablesSql(schema)}`);
  return Array.from(found, (row) => String(row[0])).filter(isClientTable);
}

async function describeTable(context: SqliteContext, name: string): Promise<TableDescription> {
  const { session, schema } = context;
  const { columns, keys, isView } = await readWithKeys(context, name, readTable, keysSql);
  const found = rows(
    session.connection,
    sql`select "name", "dflt_value",
        (select "table" || '.' || ${referencedSql(schema)}
          from temp.pragma_foreign_key_list(${name}, ${schema}) as reference
          where "from" = info."name" limit 1)
      from temp.pragma_table_xinfo(${name}, ${schema}) as info`,
  );
  const facts = new Map(Array.from(found, (row) => [String(row[0]), row]));
  const text = (value: SQLOutputValue | undefined) => (value == null ? null : String(value));
  return describe(
    Array.from(columns.values(), (column) => ({
      ...column,
      isIdentity: isSerial(column.kind),
      valueType: column.kind.family === "any" ? "any" : undefined,
      default: text(facts.get(column.name)?.[1]),
      references: text(facts.get(column.name)?.[2]),
    })),
    keys,
    { isView, rows: isView ? undefined : estimateRows(context, name, [...columns.keys()]) },
  );
}

/** More rows are estimated. */
const COUNTED_ROWS = 10_000;

/** Names of the row number; a column may hide each (SQLite, "ROWIDs and the INTEGER PRIMARY KEY"). */
const rowNumbers = ["rowid", "_rowid_", "oid"];

/**
 * Counts the rows of a small table. For a large one, assumes that row numbers are as dense
 * throughout as at the beginning: counting would take as long as reading it.
 */
function estimateRows(
  { session, schema }: SqliteContext,
  name: string,
  columns: readonly string[],
): number | undefined {
  const names = new Set(columns.map(foldCase));
  const number = rowNumbers.find((word) => !names.has(word));
  const { connection } = session;
  const [kind] = rows(
    connection,
    sql`select "wr" from temp.pragma_table_list where "schema" = ${schema} and "name" = ${name}`,
  );
  if (number === undefined || Number(kind?.[0]) !== 0) return undefined;
  const [id, table] = [sql.raw(number), sql.id(schema, name)];
  const [found] = rows(
    connection,
    sql`select count(*), min("id"), max("id"), (select max(${id}) from ${table})
      from (select ${id} as "id" from ${table} order by ${id} limit ${sql.lit(COUNTED_ROWS)})`,
  );
  const [counted = 0, first = 0, end = 0, last = 0] = [0, 1, 2, 3].map((at) =>
    Number(found?.[at] ?? 0),
  );
  if (counted < COUNTED_ROWS) return counted;
  return Math.round((counted * (last - first + 1)) / (end - first + 1));
}

const failures = { refusalOf: toRefusal, concernsStatement: () => true };

/** Adds what SQLite does not say: the foreign key, the table of a rule, the column of a value. */
async function explain(
  context: SqliteContext,
  { table }: Target<SQLOutputValue>,
  error: unknown,
  fields: ChangeFields,
): Promise<EngineRefusal | undefined> {
  if (!(error instanceof Error)) return undefined;
  const { message } = error;
  if (message === "FOREIGN KEY constraint failed") {
    const broken = findBrokenKey(context, table, fields);
    if (broken !== undefined) return new EngineRefusal(...brokenKey(broken));
    if (isInForeignKey(context, table.name)) return undefined;
    return new EngineRefusal(...violations.reference(elsewhere, ""));
  }
  if (message === "datatype mismatch") return findMismatch(readTable(context, table.name), fields);
  const [, check, index = check] =
    /^(?:CHECK constraint failed: (.+)|UNIQUE constraint failed: index '(.+)')$/s.exec(message) ??
    [];
  if (index === undefined) return undefined;
  // The rule may be of a table that a trigger changes.
  const found = rows(
    context.session.connection,
    sql`select "tbl_name" from ${sql.id(context.schema, "sqlite_schema")}
      where case when ${check ?? null} is null then "type" = 'index' and "name" = ${index}
        else "type" = 'table' and instr("sql", ${index}) > 0 end`,
  );
  const holders = Array.from(found, (row) => String(row[0]));
  const holder = holders.find((name) => name === table.name) ?? holders[0];
  return holder === undefined
    ? undefined
    : toRefusal(error, { schema: context.schema, tables: [holder] });
}

/** An integer primary key is the only column without a type of its own that SQLite does not convert. */
function findMismatch({ columns }: SqliteTable, { set = {}, values }: ChangeFields) {
  const key = [...columns.values()].find(({ isKey, type }) => isKey && /^integer$/i.test(type));
  const rows = values ?? [set];
  const index = rows.findIndex(
    (row) => !Number.isInteger(Number(cellIn(row, key?.name ?? "") ?? 0)),
  );
  if (key === undefined || index < 0) return undefined;
  return cellRefused(key, values && index, `; allowed: ${WHOLE_NUMBER}`);
}

const onRows = rowOperations<SqliteSession, SQLOutputValue, SqliteKind>({
  failures,
  readTables: (context, names) => names.map((name) => readTable(context, name)),
  keysSql,
  selectDialect: () => dialect,
  rowSource,
  targetOf: findTarget,
  explain,
});

export const { planReading: planOf } = onRows;

export function operationsIn({ schemas }: SqliteSession): Operations<SqliteSession> {
  return {
    failures,
    visibleSchema: (database) => schemas.get(database) ?? "",
    listTables,
    describeTable,
    select,
    changes: { ...onRows.changes, CreateTable: createTable, DropTable: dropTable },
    preview: onRows.preview,
    digestAffected: onRows.digestAffected,
  };
}
