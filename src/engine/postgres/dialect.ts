import { sql } from "kysely";
import { DatabaseError } from "pg";
import type {
  CellValue,
  ColumnDefinition,
  CreateTable,
  DropTable,
  Row,
  TableOperation,
} from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import {
  bindReadValue,
  type ChangeFields,
  type Destination,
  type InsertOptions,
  insertRows,
  readWithKeys,
  rowOperations,
} from "../remote/change.ts";
import type { Dialect } from "../remote/dialect.ts";
import { databaseNotFound, isNoTable, require64Bits, safeWords } from "../remote/failures.ts";
import { KnownTables, OutdatedTable } from "../remote/known-tables.ts";
import { openRemoteStore, type RemoteOptions } from "../remote/store.ts";
import type { RowOutput } from "../spool.ts";
import { ByShape, type Fragment, flattening, type ResultRow } from "../sql/fragment.ts";
import type { RowSource } from "../sql/include.ts";
import { type Declaration, newTableSql, readDeclaredType, typesByWord } from "../sql/new-table.ts";
import { type Column, cellIn, columnAlias } from "../sql/scope.ts";
import type { AggregateDialect, SelectDialect } from "../sql/select.ts";
import {
  type Changed,
  type Conflict,
  columnNameSql,
  conflictSql,
  describe,
  existingRows,
  type Insertion,
  type TableDescription,
  type Target,
} from "../sql/target.ts";
import { cellRefused, storedValue } from "../sql/values.ts";
import type { Store } from "../store.ts";
import { parseAddress } from "./address.ts";
import { computing } from "./compute.ts";
import {
  createDatabase,
  createSchema,
  dropDatabase,
  dropSchema,
  listDatabases,
  listSchemas,
  openDatabase,
  PostgresConnection,
  publicSchemaName,
  requireDroppable,
  visibleDatabase,
  visibleSchema,
} from "./databases.ts";
import { failures } from "./failures.ts";
import { findKind, type PostgresKind, type PostgresTable } from "./kinds.ts";
import {
  compile,
  compiler,
  type PostgresContext,
  type PostgresSession,
  unreadText,
} from "./session.ts";
import { keysSql, knownTable, knownTables, readTable } from "./tables.ts";

async function listTables({ session, database, schema }: PostgresContext): Promise<string[]> {
  const found = await session.rows(sql`
    select class.relname from pg_catalog.pg_namespace as namespace
    left join pg_catalog.pg_class as class on class.relnamespace = namespace.oid
      and class.relkind in ('r', 'p', 'f', 'v', 'm')
    where namespace.nspname = ${schema}`);
  if (found.length === 0) throw databaseNotFound(database);
  return found.flatMap(([table]) => table ?? []);
}

async function describeTable(context: PostgresContext, name: string): Promise<TableDescription> {
  const { session, schema } = context;
  const { columns, keys, isTable } = await readWithKeys(context, name, readTable, keysSql);
  const found = await session.rows(sql`
    select attribute.attname,
      case when attribute.attgenerated = '' then pg_catalog.pg_get_expr(value.adbin, value.adrelid) end,
      (select other.relname || '.' || target.attname
        from pg_catalog.pg_constraint as reference
        cross join lateral pg_catalog.generate_subscripts(reference.conkey, 1) as place
        join pg_catalog.pg_class as other on other.oid = reference.confrelid
          and other.relnamespace = class.relnamespace
        join pg_catalog.pg_attribute as target on target.attrelid = other.oid
          and target.attnum = reference.confkey[place]
        where reference.conrelid = class.oid and reference.contype = 'f'
          and reference.conkey[place] = attribute.attnum
        order by reference.oid limit 1),
      pg_catalog.col_description(class.oid, attribute.attnum),
      pg_catalog.obj_description(class.oid, 'pg_class'),
      case when pg_catalog.pg_stat_get_live_tuples(class.oid) > 0
          then pg_catalog.pg_stat_get_live_tuples(class.oid)
        when class.reltuples >= 0 then class.reltuples end
    from pg_catalog.pg_class as class
    join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
    join pg_catalog.pg_attribute as attribute on attribute.attrelid = class.oid
      and attribute.attnum > 0 and not attribute.attisdropped
    left join pg_catalog.pg_attrdef as value on value.adrelid = class.oid
      and value.adnum = attribute.attnum
    where namespace.nspname = ${schema} and class.relname = ${name}`);
  const known = new Map(found.map(([column, ...rest]) => [column, rest]));
  const [[, , , , comment, rows] = []] = found;
  return describe(
    Array.from(columns.values(), (column) => {
      const [value, references, remark] = known.get(column.name) ?? [];
      const facts = { labels: column.kind.labels, default: value, references, comment: remark };
      return { ...column, ...facts };
    }),
    keys,
    { isView: !isTable, comment, rows: rows == null ? undefined : Math.round(Number(rows)) },
  );
}

/** Far below the protocol's limit of 65,535: a statement is built in one turn of the event loop. */
const VALUES_PER_STATEMENT = 4000;

async function findTarget(
  context: PostgresContext,
  name: string,
  isRead: boolean,
): Promise<Target<string>> {
  const { session, schema } = context;
  const table = await (isRead ? readTable(context, name) : knownTable(context, name));
  const destination = { session, table, name: sql.id(schema, table.name) };
  return {
    ...destination,
    keys: keysSql(schema, table.name),
    lock: sql` for update`,
    ignoresConflictKey: false,
    insert: (values, how) => insert(context, destination, values, how),
    returning: (change, columns, key) => returning(session, change, columns, key),
    bind: bindReadValue,
  };
}

function insert(
  { session, schema }: PostgresContext,
  destination: Destination<string>,
  values: readonly Row[],
  { conflict, returning }: Insertion<string>,
): Promise<Changed> {
  const { name } = destination.table;
  const options: InsertOptions<string> = {
    valuesPerStatement: VALUES_PER_STATEMENT,
    all: values,
    endsWithRow: conflict === undefined,
    alias: conflict && existingRows,
    tail: conflictSql(conflict),
    returning,
    onNumbers: (identity, numbers) =>
      advanceSequence(session, schema, name, identity.name, numbers),
  };
  if (conflict === undefined) return insertRows(destination, values, options);
  return insertGroups(destination, splitByKey(values, conflict), options);
}

/** Rows of one statement must not conflict with each other. */
async function insertGroups(
  destination: Destination<string>,
  parts: Iterable<Row[]>,
  options: InsertOptions<string>,
): Promise<Changed> {
  let affected = 0;
  const data: string[] = [];
  for (const some of parts) {
    const changed = await insertRows(destination, some, options);
    affected += changed.affected ?? 0;
    for (const text of changed.data ?? []) data.push(text);
  }
  return options.returning === undefined ? { affected } : { affected, data };
}

const changedRows = sql.id("changed rows");

async function returning(
  session: PostgresSession,
  change: Fragment,
  columns: readonly Column[],
  key: readonly Column[],
): Promise<readonly ResultRow<string>[]> {
  const all = [...columns, ...key];
  const names = all.map((_, index) => sql.id(columnAlias(index)));
  const answered = all.map((column, index) => sql`${columnNameSql(column)} as ${names[index]}`);
  const order = key.length === 0 ? sql`` : sql` order by ${sql.join(names.slice(-key.length))}`;
  return await session.rows(
    sql`with ${changedRows} as (${change} returning ${sql.join(answered)})
      select ${sql.join(names.slice(0, columns.length))} from ${changedRows}${order}`,
  );
}

/**
 * An Upsert may repeat a key, but one statement cannot change a row twice. A key that is not all
 * numbers and text gets a group of its own: other values may be equal in different spellings.
 */
function* splitByKey(values: readonly Row[], { key }: Conflict): Generator<Row[]> {
  let some: Row[] = [];
  let keys = new Set<string>();
  for (const row of values) {
    const cells = key.map((column) => spelling(column, cellIn(row, column.name)));
    const own = JSON.stringify(cells);
    if (keys.has(own) || cells.includes(undefined)) {
      if (some.length > 0) yield some;
      some = [];
      keys = new Set();
    }
    some.push(row);
    keys.add(own);
    if (!cells.includes(undefined)) continue;
    yield some;
    some = [];
  }
  if (some.length > 0) yield some;
}

function spelling({ type }: Column, value: CellValue | undefined): string | undefined {
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  const isText = /^(text|character varying)/.test(type);
  return isText && typeof value === "string" ? `"${value}"` : undefined;
}

/** Moves an identity column's sequence past the numbers that rows have set, if it may. */
async function advanceSequence(
  session: PostgresSession,
  schema: string,
  table: string,
  column: string,
  numbers: readonly (CellValue | undefined)[],
): Promise<void> {
  const largest = largestValue(numbers);
  if (largest === undefined) return;
  const target = `"${schema}"."${table}"`;
  const [found] = await session.rows(sql`
    select name, pg_catalog.has_sequence_privilege(name, 'UPDATE, SELECT')
    from (select pg_catalog.pg_get_serial_sequence(${target}, ${column}) as name) as found
    where name is not null`);
  const [sequence, mayMove] = [found?.[0], found?.[1]];
  if (sequence == null || mayMove === "f" || mayMove === "false") return;
  // The server has quoted the name. A new sequence has not used its `last_value` yet.
  await session.rows(sql`
    select pg_catalog.setval(cast(${sequence} as regclass), cast(${largest} as bigint))
    from ${sql.raw(sequence)}
    where last_value < cast(${largest} as bigint)
      or (last_value = cast(${largest} as bigint) and not is_called)`);
}

function largestValue(values: readonly (CellValue | undefined)[]): bigint | undefined {
  let largest: bigint | undefined;
  for (const value of values) {
    if (typeof value !== "number" && typeof value !== "bigint") continue;
    const integer = BigInt(value);
    if (largest === undefined || integer > largest) largest = integer;
  }
  return largest;
}

interface NewType {
  readonly name: string;
  readonly oid: number;
  /** True if the type has a precision. */
  readonly isSized?: boolean;
  readonly isSerial?: boolean;
  readonly isText?: boolean;
}

const TEXT = 25;
const VARCHAR = 1043;

const types = typesByWord<NewType>({
  integer: { name: "bigint", oid: 20 },
  serial: { name: "bigint", oid: 20, isSerial: true },
  double: { name: "double precision", oid: 701 },
  decimal: { name: "numeric", oid: 1700, isSized: true },
  text: { name: "text", oid: TEXT, isText: true },
  instant: { name: "timestamp with time zone", oid: 1184 },
  bytes: { name: "bytea", oid: 17 },
  uuid: { name: "uuid", oid: 2950 },
  date: { name: "date", oid: 1082 },
  time: { name: "time", oid: 1083 },
  boolean: { name: "boolean", oid: 16 },
  json: { name: "json", oid: 114 },
  jsonb: { name: "jsonb", oid: 3802 },
});

export const typeWords: readonly string[] = [...types.keys()];

function columnType(type: string) {
  const { word, size } = readDeclaredType(type);
  const found = types.get(word);
  if (found === undefined) return undefined;
  const { oid, isText = false, isSerial = false } = found;
  // PostgreSQL's `char(n)` pads what it stores, and its `text` takes no length.
  const sized = isText && size !== "" ? `varchar${size}` : found.name;
  const name = found.isSized ? found.name + size : sized;
  const [, first, places = "0"] = /^\((\d+)(?:,(\d+))?/.exec(size) ?? [];
  const length = first === undefined ? undefined : Number(first);
  const scale = found.isSized && length !== undefined ? Number(places) : undefined;
  const id = isText && length !== undefined ? VARCHAR : oid;
  // A cast to a shorter string would truncate it.
  const sqlName = isText ? found.name : name;
  return {
    sql: sql.raw(name),
    kind: findKind({ id, elementId: 0, sqlName, length, scale }),
    isSerial,
    isText,
  };
}

/** PostgreSQL truncates longer names, which may then be equal. */
const MAX_NAME_BYTES = 63;

async function createTable(context: PostgresContext, query: CreateTable): Promise<Changed> {
  const { session, schema } = context;
  let collation = sql``;
  const parts = await newTableSql(query, {
    typeWords,
    requireName: requireShortName,
    async findExisting() {
      const { existing, hasBytewiseOrder } = await readNamespace(context, query.table);
      if (hasBytewiseOrder) collation = sql` collate "C"`;
      return existing;
    },
    declare: (column) => declare(context, column, collation),
    readReferenced: (name) => readWithKeys(context, name, readTable, keysSql),
    nameOf: (name) => sql.id(schema, name),
  });
  await session.define(sql`create table ${sql.id(schema, query.table)} (${parts})`);
  return {};
}

function declare(
  { session }: PostgresContext,
  { name, type: declared }: ColumnDefinition,
  collation: Fragment,
): Declaration | undefined {
  const type = columnType(declared);
  if (type === undefined) return undefined;
  const numbering = type.isSerial ? sql` generated by default as identity` : sql``;
  return {
    type: sql`${type.sql}${type.isText ? collation : sql``}${numbering}`,
    isSerial: type.isSerial,
    /** A definition takes no parameters, so the server quotes the value first. */
    async literal(value) {
      const stored = storedValue({ name, type: declared, kind: type.kind }, value);
      const [[literal] = []] = await session.rows(
        sql`select pg_catalog.quote_literal(cast(${stored} as text))`,
      );
      return sql.raw(literal ?? "null");
    },
  };
}

async function dropTable(context: PostgresContext, { table }: DropTable): Promise<Changed> {
  const { isTable } = await readTable(context, table);
  if (!isTable) throw isNoTable(table, context.database);
  await context.session.define(sql`drop table ${sql.id(context.schema, table)}`);
  return {};
}

/** A server without the collation `C` orders by bytes anyway. */
async function readNamespace(
  { session, database, schema }: PostgresContext,
  table: string,
): Promise<{ existing: string | null; hasBytewiseOrder: boolean }> {
  const [row] = await session.rows(sql`
    select (select class.relname from pg_catalog.pg_class as class
        where class.relnamespace = namespace.oid
          and pg_catalog.lower(class.relname) = pg_catalog.lower(${table}) limit 1),
      exists (select 1 from pg_catalog.pg_collation where collname = 'C')
    from pg_catalog.pg_namespace as namespace where namespace.nspname = ${schema}`);
  if (row === undefined) throw databaseNotFound(database);
  const [existing = null, hasBytewiseOrder] = row;
  return { existing, hasBytewiseOrder: hasBytewiseOrder === "t" || hasBytewiseOrder === "true" };
}

function requireShortName(name: string): void {
  if (Buffer.byteLength(name) <= MAX_NAME_BYTES) return;
  throw new EngineRefusal(
    "invalid_name",
    `Column name "${name}" exceeds PostgreSQL's limit of ${MAX_NAME_BYTES} bytes`,
  );
}

/** PostgreSQL adds `bigint` without bounds as `numeric`, so the sum is checked for 64 bits here. */
const total: PostgresKind = {
  ...computing.kinds.decimal,
  family: "integer",
  operand: (sum) => sql`cast(${sum} as bigint)`,
  encode: (text) => String(require64Bits(BigInt(text))),
};

const aggregates: AggregateDialect<PostgresKind> = {
  count: computing.kinds.integer,
  double: computing.kinds.double,
  text: computing.kinds.text,
  sum(column, measure, kind) {
    if (measure === "double") {
      const expression = sql`sum(cast(${column} as double precision))`;
      return { expression, kind: computing.kinds.double };
    }
    if (measure === "decimal") return { expression: sql`sum(${column})`, kind };
    const expression =
      kind.isShort === true
        ? sql`cast(sum(${column}) as numeric)`
        : sql`sum(cast(${column} as bigint))`;
    return { expression, kind: total };
  },
  average: (sum, count) => sql`(cast(${sum} as double precision) / nullif(${count}, 0))`,
  extreme(fn, column, measure, kind) {
    if (measure !== "text") return sql`${sql.raw(fn)}(${column})`;
    const found = sql`${sql.raw(fn)}(cast(${column} as text) collate "C")`;
    // A `uuid` is compared as text too.
    return kind.isWrittenAs(TEXT) ? found : sql`cast(${found} as uuid)`;
  },
};

const dialect: SelectDialect<PostgresKind> = {
  computing,
  aggregates,
  comparesRows: true,
  joinsExcluded: true,
  // With `=`, the primary key would provide the order too, and be scanned for rows with the value.
  equalFirst: (column, value) => sql`${column} = any(array[${value}])`,
  // Without nulls, any index serves the order.
  order(column, direction, hasNulls) {
    if (direction === "DESC") return sql`${column} desc${hasNulls ? sql` nulls last` : sql``}`;
    return sql`${column} asc${hasNulls ? sql` nulls first` : sql``}`;
  },
  limit(limit, offset) {
    const most = limit === undefined ? sql`all` : bigintSql(limit);
    return offset === undefined
      ? sql`limit ${most}`
      : sql`limit ${most} offset ${bigintSql(offset)}`;
  },
  // Within a Select, the number of keys is unknown to the planner, so that it keeps one plan.
  keyRows: (keys, { sqlType }) => sql`select ordinality, cast(key as ${sqlType})
    from pg_catalog.unnest((select cast(${keys} as text[]))) with ordinality as list (key, ordinality)`,
  templates: new ByShape(),
  ...flattening(compiler),
};

function rowSource(session: PostgresSession, output: RowOutput): RowSource<string, PostgresKind> {
  return {
    each(statement, columns, onRow) {
      let areKnown = false;
      let isWanted = true;
      return session.stream(statement, output, (row, types) => {
        areKnown ||= columns.every(({ column, expression }, index) => {
          const { dataTypeID = 0 } = types[index] ?? {};
          const isStored = expression === undefined && "isKey" in column;
          const isGrouped = !isStored && column.kind.grouped !== undefined;
          return column.kind.isWrittenAs(dataTypeID) || (isGrouped && dataTypeID === TEXT);
        });
        if (!areKnown) throw new OutdatedTable();
        if (isWanted) isWanted = onRow(row);
      });
    },
    bind: (_column, raw) => raw,
  };
}

function bigintSql(value: number): Fragment {
  return sql`cast(${value} as bigint)`;
}

/** Names the cell whose text the server could not read as a value of the column's type. */
async function explainUnread(
  _context: PostgresContext,
  { table }: Target<string>,
  error: unknown,
  { set = {}, values }: ChangeFields,
): Promise<EngineRefusal | undefined> {
  if (!(error instanceof DatabaseError && /^(22|3F|42)/.test(error.code ?? ""))) return undefined;
  const unread = unreadText(error);
  if (unread === undefined) return undefined;
  const words = safeWords(error.message) ?? "the database cannot read it";
  for (const [index, row] of (values ?? [set]).entries()) {
    for (const [name, value] of Object.entries(row)) {
      const column = table.columns.get(name);
      const stored = value === null ? undefined : column?.kind.store(value);
      if (column === undefined || stored === undefined) continue;
      if (compile(sql`${stored}`).values[0] !== unread) continue;
      return cellRefused(column, values && index, `: ${words}`, { cause: error });
    }
  }
  return undefined;
}

const { planReading, ...onRows } = rowOperations<PostgresSession, string, PostgresKind>({
  failures,
  readTables: knownTables,
  keysSql,
  selectDialect: () => dialect,
  rowSource,
  targetOf: findTarget,
  explain: explainUnread,
});

export { planReading as planOf };

/** Databases of queries are schemas. */
const schemaDialect: Dialect<PostgresSession> = {
  ...onRows,
  name: "PostgreSQL",
  failures,
  async begin(session, mode, timeLimit, changes) {
    session.begin(mode, timeLimit, changes);
  },
  visibleSchema,
  listDatabases: listSchemas,
  createDatabase: createSchema,
  dropDatabase: dropSchema,
  listTables,
  describeTable,
  changes: { ...onRows.changes, CreateTable: createTable, DropTable: dropTable },
  readsAfterChange: false,
};

/** Databases of queries are the server's. A connection reaches one of them. */
const databaseDialect: Dialect<PostgresSession> = {
  ...schemaDialect,
  requireAtomic: requireOneDatabase,
  visibleSchema: publicSchemaName,
  listDatabases,
  createDatabase,
  dropDatabase,
  requireDroppable,
};

/** PostgreSQL commits in each database separately. */
function requireOneDatabase(operations: readonly TableOperation[]): void {
  const [first, ...others] = operations.map(({ fields }) => fields.database);
  const index = others.findIndex((database) => database !== first);
  if (index < 0) return;
  throw new EngineRefusal(
    "batch_not_atomic",
    `Batch[${index + 1}]: PostgreSQL cannot run operations in ${first} and ${others[index]} as one transaction; send a Batch for each database`,
  );
}

/** A query's `database` is a schema of the URL's database, or a database of the server. */
export type PostgresDatabases = "schemas" | "databases";

export async function openPostgresStore(
  url: string,
  options: RemoteOptions & { readonly databases: PostgresDatabases },
): Promise<Store> {
  const address = parseAddress(url);
  const { place, database: home } = address;
  const { timeLimit } = options;
  const tables = new KnownTables<PostgresTable>();
  const server = { place, requested: `to database ${home}` };
  if (options.databases === "schemas") {
    const connections = {
      targetOf: () => home,
      open: () => PostgresConnection.open(address, home, { tables, timeLimit }),
    };
    return openRemoteStore({ ...server, dialect: schemaDialect, connections }, options);
  }
  const connections = {
    targetOf: (database?: string) => (database === undefined ? home : visibleDatabase(database)),
    open: (target: string) => openDatabase(address, target, { tables, timeLimit }),
  };
  return openRemoteStore({ ...server, dialect: databaseDialect, connections }, options);
}
