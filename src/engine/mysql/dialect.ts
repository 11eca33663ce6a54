import { sql } from "kysely";
import type {
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
  insertRows,
  readWithKeys,
  rowOperations,
} from "../remote/change.ts";
import type { Dialect, Mode } from "../remote/dialect.ts";
import { isNoTable, require64Bits, requireFinite } from "../remote/failures.ts";
import { openRemoteStore, type RemoteOptions } from "../remote/store.ts";
import type { RowOutput } from "../spool.ts";
import { elsewhere, violations } from "../sql/answers.ts";
import { keyCondition, readByKeys, requireFound } from "../sql/changes.ts";
import { ByShape, type Fragment, flattening, PARAMETER_LIMIT } from "../sql/fragment.ts";
import type { RowSource } from "../sql/include.ts";
import { type Declaration, newTableSql } from "../sql/new-table.ts";
import { type Column, cellIn, type PresentValue } from "../sql/scope.ts";
import type { AggregateDialect, SelectDialect } from "../sql/select.ts";
import {
  type Changed,
  type Conflict,
  describe,
  type Insertion,
  needsPrimaryKey,
  readPrimaryKey,
  type TableDescription,
  type Target,
} from "../sql/target.ts";
import { allowedForm, cellRefused, comparedValue, numberText, storedValue } from "../sql/values.ts";
import type { Store } from "../store.ts";
import { parseAddress } from "./address.ts";
import { computingIn } from "./compute.ts";
import { MysqlConnection } from "./connection.ts";
import {
  failures,
  findDuplicateKey,
  findUnfitPlace,
  isDuplicate,
  requiredColumn,
  ServerError,
} from "./failures.ts";
import {
  kindOfNew,
  LONGLONG,
  type MysqlKind,
  newType,
  readMark,
  typeWords,
  writeMark,
} from "./kinds.ts";
import type { Raw, RawRow } from "./rows.ts";
import {
  compiler,
  type Isolation,
  type MysqlContext,
  type MysqlSession,
  SORTED_BYTES,
} from "./session.ts";
import {
  createDatabase,
  dropDatabase,
  keysSql,
  listDatabases,
  type MysqlTable,
  readChangedTable,
  readTable,
  readTables,
  requireDatabase,
  requirePreservedCase,
  tableMissing,
  visibleDatabase,
} from "./tables.ts";

async function listTables({ session, schema }: MysqlContext): Promise<string[]> {
  await requireDatabase(session, schema);
  const found = await session.rows(
    sql`select table_name from information_schema.tables where table_schema = ${schema}`,
  );
  return found.map(([table]) => String(table));
}

async function describeTable(context: MysqlContext, name: string): Promise<TableDescription> {
  const { session, schema } = context;
  const { columns, keys } = await readWithKeys(context, name, readTable, keysSql);
  const found = await session.rows(sql`
    select column_name, column_default, column_comment,
      (select concat(referenced_table_name, '.', referenced_column_name)
        from information_schema.key_column_usage as reference
        where reference.table_schema = described.table_schema
          and reference.table_name = described.table_name
          and reference.column_name = described.column_name
          and reference.referenced_table_schema = described.table_schema limit 1)
    from information_schema.columns as described
    where table_schema = ${schema} and table_name = ${name}`);
  const [[comment, rows, isView] = []] = await session.rows(sql`
    select case when table_type = 'BASE TABLE' then table_comment end, table_rows,
      table_type = 'VIEW'
    from information_schema.tables where table_schema = ${schema} and table_name = ${name}`);
  const facts = new Map(found.map(([column, ...rest]) => [String(column), rest]));
  return describe(
    Array.from(columns.values(), (column) => {
      const [value, remark, references] = rowTexts(facts.get(column.name) ?? []);
      const isMark = readMark(remark ?? "") !== undefined;
      return {
        ...column,
        labels: column.kind.labels,
        // MariaDB reports a missing default as a word.
        default: session.server.isMariaDb && value === "NULL" ? undefined : value,
        references,
        comment: isMark ? undefined : remark,
      };
    }),
    keys,
    {
      isView: Number(isView) === 1,
      comment: rowTexts([comment ?? null])[0],
      rows: rows == null ? undefined : Number(rows),
    },
  );
}

function rowTexts(row: RawRow): (string | undefined)[] {
  return row.map((value) => (value === null ? undefined : String(value)));
}

const options = {
  /** The server describes each value when it prepares the statement. */
  valuesPerStatement: 2000,
  /** In characters, well below the usual size of packets. */
  lengthPerStatement: 256 * 1024,
  // With `NO_AUTO_VALUE_ON_ZERO`, `default` would be zero.
  nextNumber: sql`null`,
  /** Keeps which row of the query the server blames. */
  noteRow(error: unknown, part: readonly Row[], all: readonly Row[]) {
    if (!(error instanceof ServerError)) return;
    const row = part[findUnfitPlace(error).row - 1];
    if (row !== undefined) error.row = all.indexOf(row);
  },
};

async function findTarget(context: MysqlContext, name: string): Promise<Target<Raw>> {
  const { session, schema } = context;
  const table = await readChangedTable(context, name);
  const destination = { session, table, name: sql.id(schema, name) };
  const target: Target<Raw> = {
    ...destination,
    keys: keysSql(schema, name),
    lock: sql` for update`,
    ignoresConflictKey: true,
    followsUpdates: true,
    async insert(values, how) {
      const { conflict, returning } = how;
      const isAnswered = returning === undefined || session.server.isMariaDb;
      if (conflict === undefined && isAnswered) {
        return await insertRows(destination, values, { ...options, ...how });
      }
      if (conflict === undefined || conflict.update.length === 0 || returning !== undefined) {
        return await insertEach(target, table, values, how);
      }
      const tail = onDuplicateSql(conflict);
      await insertRows(destination, values, { ...options, tail });
      // All rows count as affected, inserted or updated.
      return { affected: values.length };
    },
    bind: bindReadValue,
  };
  return target;
}

function onDuplicateSql({ update }: Conflict): Fragment {
  if (update.length === 0) return sql``;
  const sets = update.map(({ name }) => sql`${sql.id(name)} = values(${sql.id(name)})`);
  return sql` on duplicate key update ${sql.join(sets)}`;
}

/** One by one, to count the rows and to read them back by key. */
async function insertEach(
  target: Target<Raw>,
  table: MysqlTable,
  values: readonly Row[],
  { conflict, returning }: Insertion<Raw>,
): Promise<Changed> {
  const { session, name } = target;
  const key = returning === undefined ? [] : await readPrimaryKey(target);
  if (returning !== undefined && key.length === 0) throw needsPrimaryKey(target);
  const tail = conflict === undefined ? sql`` : onDuplicateSql(conflict);
  const skipped = conflict?.update.length === 0 ? conflict.key : undefined;
  const toCells = (key: readonly Column[], row: Row) =>
    key.map((column) => {
      const value = cellIn(row, column.name);
      const isIdentity = table.columns.get(column.name)?.isIdentity === true;
      if (isIdentity && (value ?? null) === null) return sql`last_insert_id()`;
      if (value === undefined) return sql`default(${sql.id(column.name)})`;
      return comparedValue(column, value);
    });
  const data: string[] = [];
  let affected = 0;
  for (const row of values) {
    const how = { ...options, tail, all: values };
    try {
      await insertRows({ session, table, name }, [row], how);
    } catch (error) {
      if (skipped === undefined || !isDuplicate(error)) throw error;
      // A trigger may have met the unique key of another table.
      const own = keyCondition(skipped, toCells(skipped, row));
      const [held] = await session.rows(sql`select 1 from ${name} where ${own}`);
      if (held === undefined) throw error;
      continue;
    }
    affected += 1;
    if (returning === undefined) continue;
    const found = await readByKeys(target, returning, key, [toCells(key, row)]);
    for (const text of found) data.push(text);
    requireFound(table, { affected, data });
  }
  return { affected, ...(returning === undefined ? {} : { data }) };
}

/** In characters. */
const MAX_NAME_LENGTH = 64;

/** A key has at most 3,072 bytes, with the lengths of its parts. */
const KEY_BYTES = 3000;

async function createTable(context: MysqlContext, query: CreateTable): Promise<Changed> {
  const { session, schema } = context;
  const collation = sql.raw(session.server.collation);
  const parts = await newTableSql(query, {
    typeWords,
    requireName: requireStorableName,
    async findExisting() {
      requirePreservedCase(session, query.table);
      await requireDatabase(session, schema);
      const [[existing] = []] = await session.rows(sql`select table_name
        from information_schema.tables
        where table_schema = ${schema} and lower(table_name) = lower(${query.table})`);
      return existing;
    },
    declare: (column, key) => declare(column, key, collation),
    readReferenced: (name) => readWithKeys(context, name, readTable, keysSql),
    nameOf: (name) => sql.id(schema, name),
  });
  await session.define(sql`create table ${sql.id(schema, query.table)} (${parts})
    engine = InnoDB default character set utf8mb4 collate ${collation}`);
  return {};
}

async function dropTable(context: MysqlContext, { table }: DropTable): Promise<Changed> {
  const { session, schema } = context;
  const found = await session.rows(sql`select table_name, table_type
    from information_schema.tables where table_schema = ${schema} and table_name = ${table}`);
  const type = found.find(([name]) => name === table)?.[1];
  if (type === undefined) throw await tableMissing(context, table);
  if (type === "VIEW" || type === "SEQUENCE") throw isNoTable(table, schema);
  await session.define(sql`drop table ${sql.id(schema, table)}`);
  return {};
}

/** MySQL's names hold only characters up to U+FFFF, and no trailing space. */
function requireStorableName(name: string): void {
  if (name.length <= MAX_NAME_LENGTH && !/[\u{10000}-\u{10ffff}]| $/u.test(name)) return;
  throw new EngineRefusal(
    "invalid_name",
    `MySQL does not allow the column name "${name}": use at most ${MAX_NAME_LENGTH} characters, none beyond U+FFFF and no space at the end`,
  );
}

function declare(
  { name, type: declared, unique, references }: ColumnDefinition,
  key: readonly ColumnDefinition[],
  collation: Fragment,
): Declaration | undefined {
  const type = newType(declared);
  if (type === undefined) return undefined;
  const isSingle = unique === true || references !== undefined;
  const isInKey = key.some((column) => column.name === name);
  const parts = Math.max(isSingle ? 1 : 0, isInKey ? key.length : 0);
  const keyName = parts > 0 ? type.keyName?.(Math.floor(KEY_BYTES / parts)) : undefined;
  const typeName = keyName ?? type.name;
  const collated = type.isText ? sql` character set utf8mb4 collate ${collation}` : sql``;
  const numbering = type.isSerial ? sql` auto_increment` : sql``;
  const comment = type.mark && sql`comment ${sql.lit(writeMark(type.mark))}`;
  const isJson = type.mark === "json";
  return {
    type: sql`${sql.raw(typeName)}${collated}${numbering}`,
    isSerial: type.isSerial === true,
    catalogType: type.name,
    constraint: isJson ? sql`${comment} check (json_valid(${sql.id(name)}))` : comment,
    literal(value) {
      const kind = kindOfNew({ ...type, name: typeName });
      const literal = sql.raw(
        sqlLiteral(value, storedValue({ name, type: declared, kind }, value)),
      );
      // For a long column, MySQL takes an expression but no literal.
      return typeName.startsWith("long") ? sql`(${literal})` : literal;
    },
  };
}

function sqlLiteral(value: PresentValue, stored: unknown): string {
  if (Buffer.isBuffer(stored)) return `x'${stored.toString("hex")}'`;
  if (typeof stored === "string") return `'${stored.replace(/['\\]/g, "\\$&")}'`;
  return numberText(value) ?? String(Number(value));
}

/** MySQL has no offset without a limit. */
const EVERY_ROW = 2n ** 64n - 1n;

const anyDouble = kindOfNew({ name: "double" });

/** In MariaDB, sums and averages of doubles overflow to infinity. */
const double: MysqlKind = {
  ...anyDouble,
  encode(raw) {
    requireFinite(Number(raw));
    return anyDouble.encode(raw);
  },
};

/** MySQL adds integers as decimals, so the sum is checked for 64 bits here. */
const total: MysqlKind = {
  ...kindOfNew({ name: "decimal(65)" }),
  family: "integer",
  // A cast would cut what exceeds 64 bits.
  operand: (sum) => sql`(${sum} div 1)`,
  encode: (raw) => String(require64Bits(BigInt(String(raw)))),
};

const aggregates: Omit<AggregateDialect<MysqlKind>, "extreme" | "text"> = {
  count: kindOfNew({ name: "bigint" }),
  double,
  sum(column, measure, kind) {
    if (measure === "double") {
      return { expression: sql`sum(cast(${column} as double))`, kind: double };
    }
    return { expression: sql`sum(${column})`, kind: measure === "decimal" ? kind : total };
  },
  // A cast would turn infinity into the largest double.
  average: (sum, count) => sql`((0e0 + ${sum}) / ${count})`,
};

/** MySQL sorts nulls first, and scans a whole table for `(a, b) > (1, 2)`. */
function createSelectDialect(collation: string, isMariaDb: boolean): SelectDialect<MysqlKind> {
  const computing = computingIn(collation, double);
  return {
    aggregates: {
      ...aggregates,
      text: computing.kinds.text,
      extreme(fn, column, measure) {
        if (measure !== "text") return sql`${sql.raw(fn)}(${column})`;
        const bytes = sql`cast(convert(${column} using utf8mb4) as binary)`;
        return sql`(convert(${sql.raw(fn)}(${bytes}) using utf8mb4) collate ${sql.raw(collation)})`;
      },
    },
    computing,
    row: isMariaDb ? "" : "row",
    valuesPerStatement: PARAMETER_LIMIT,
    keyRows(keys, { listedAs }) {
      if (isMariaDb || listedAs === undefined) return undefined;
      return sql`select place, value from json_table(${JSON.stringify(keys)}, '$[*]'
        columns (place for ordinality, value ${listedAs} path '$')) as listed`;
    },
    comparesRows: false,
    locksChanged: true,
    needsPrefilter: true,
    losesDistinctOffset: isMariaDb,
    order: (column, direction) => sql`${column} ${direction === "DESC" ? sql`desc` : sql`asc`}`,
    limit: (limit, offset) =>
      sql`limit ${LONGLONG.unsigned(limit ?? EVERY_ROW)} offset ${LONGLONG.unsigned(offset ?? 0)}`,
    sortedBytes: SORTED_BYTES,
    templates: new ByShape(),
    ...flattening(compiler),
  };
}

const selectDialects = new Map<string, SelectDialect<MysqlKind>>();

function selectDialect({ server }: MysqlSession): SelectDialect<MysqlKind> {
  const { collation, isMariaDb } = server;
  const key = `${collation} ${isMariaDb}`;
  const known = selectDialects.get(key);
  if (known !== undefined) return known;
  const dialect = createSelectDialect(collation, isMariaDb);
  selectDialects.set(key, dialect);
  return dialect;
}

function rowSource(session: MysqlSession, output: RowOutput): RowSource<Raw, MysqlKind> {
  return {
    each(statement, _columns, onRow) {
      let isWanted = true;
      return session.stream(statement, output, (row) => {
        if (isWanted) isWanted = onRow(row);
      });
    },
    bind(column, raw) {
      try {
        const { sortsSpellings: isSpelled, encode } = column.kind;
        return isSpelled === true ? encode(raw) : bindReadValue(column, raw);
      } catch (error) {
        // The driver makes an object of a geometry.
        if (typeof raw === "object" && !Buffer.isBuffer(raw)) throw error;
        // Some stored values, such as the date 0000-00-00, cannot be written in a query.
        return raw;
      }
    },
  };
}

/** Adds what the server does not say: the columns of a unique key, and whose table is meant. */
async function explain(
  { session, schema }: MysqlContext,
  { table, keys }: Target<Raw>,
  error: unknown,
  fields: ChangeFields,
): Promise<EngineRefusal | undefined> {
  if (!(error instanceof ServerError)) return undefined;
  const { set = {}, values = [set] } = fields;
  const required = requiredColumn(error);
  if (required !== undefined) {
    const isGiven = values.every((row) => (cellIn(row, required) ?? null) !== null);
    if (!isGiven && table.columns.has(required)) return undefined;
    const [code, message] = violations.other(elsewhere, "");
    return new EngineRefusal(code, message, { constraint: { kind: "not_null" }, cause: error });
  }
  if (!isDuplicate(error)) return unfitCell(error, schema, table, fields);
  const { key, table: holder = table.name } = findDuplicateKey(error);
  const found = holder === table.name ? await session.rows(keys) : [];
  const columns = found.filter(([name]) => name === key).map(([, , column]) => column ?? null);
  if (columns.length === 0 || columns.includes(null)) return undefined;
  // In MariaDB, a trigger's own Insert fails with the same words.
  const [trigger] = session.server.isMariaDb
    ? await session.rows(sql`select 1 from information_schema.triggers
        where event_object_schema = ${schema} and event_object_table = ${table.name} limit 1`)
    : [];
  const other = trigger === undefined ? "" : ", or another one that a trigger changes,";
  const names = columns.map(String);
  const [code, message, options] = violations.unique(
    `Table ${table.name}${other}`,
    ` (${names.join(", ")})`,
    // The table is unknown if a trigger may have changed another one.
    { name: key, ...(trigger === undefined && { table: table.name, columns: names }) },
  );
  return new EngineRefusal(code, message, { ...options, cause: error });
}

/** Names the cell of the query that the server blames. */
function unfitCell(
  error: ServerError,
  schema: string,
  table: Target<Raw>["table"],
  { set = {}, values }: ChangeFields,
): EngineRefusal | undefined {
  const place = findUnfitPlace(error);
  const column = table.columns.get(place.column ?? "");
  const row = values === undefined ? set : values[error.row ?? -1];
  const isOwn =
    [undefined, table.name].includes(place.table) && [undefined, schema].includes(place.schema);
  if (column === undefined || row === undefined || !isOwn || !Object.hasOwn(row, column.name)) {
    return undefined;
  }
  const refusal = failures.refusalOf(error);
  if (refusal === undefined) return undefined;
  const limit = column.kind.family === "text" ? "its character set" : "the range of its type";
  const form = allowedForm(column.type);
  const allowed = form === "" ? "" : `${form} in ${limit}`;
  const { code } = refusal;
  return cellRefused(column, values && error.row, allowed, { code, cause: error });
}

const { planReading, ...onRows } = rowOperations<MysqlSession, Raw, MysqlKind>({
  failures,
  readTables,
  keysSql,
  selectDialect,
  rowSource,
  targetOf: findTarget,
  explain,
});

export { planReading as planOf };

const mysql: Dialect<MysqlSession> = {
  ...onRows,
  name: "MySQL",
  failures,
  begin,
  requireAtomic,
  visibleSchema: visibleDatabase,
  listDatabases,
  createDatabase,
  dropDatabase,
  listTables,
  describeTable,
  changes: { ...onRows.changes, CreateTable: createTable, DropTable: dropTable },
  readsAfterChange: true,
};

/**
 * A single statement reads one state at any level. A snapshot begins before the tables are known, so
 * that none is read that was altered since.
 */
const beginnings: Record<Mode, { readonly level?: Isolation; readonly words?: string }> = {
  "read only": {},
  "read committed": { level: "read committed" },
  "snapshot, read only": { level: "repeatable read", words: "with consistent snapshot, read only" },
  serializable: { level: "serializable", words: "" },
};

async function begin(session: MysqlSession, mode: Mode, timeLimit: number): Promise<void> {
  const { level, words } = beginnings[mode];
  session.isUntouched = true;
  await session.limitTime(timeLimit);
  // For this transaction only: in a session that stays serializable, plain reads would take locks.
  if (level === "serializable")
    await session.command("set transaction isolation level serializable");
  else if (level !== undefined) await session.isolate(level);
  await session.begin(words, mode.endsWith("read only"));
}

/** MySQL commits what precedes a definition of a table. */
function requireAtomic(operations: readonly TableOperation[]): void {
  const index = operations.findIndex(({ name }) => name === "CreateTable" || name === "DropTable");
  if (index < 0 || operations.length === 1) return;
  throw new EngineRefusal(
    "batch_not_atomic",
    `Batch[${index}]: MySQL cannot create or drop a table in a transaction with other operations; send it separately`,
  );
}

export async function openMysqlStore(url: string, options: RemoteOptions): Promise<Store> {
  const address = parseAddress(url);
  const { place, user, password } = address;
  const connections = {
    // A connection reaches all databases of the server.
    targetOf: () => "",
    open: () => MysqlConnection.open(address, options.timeLimit),
  };
  const hint = password === undefined ? " without a password, since $MYSQL_PWD is not set" : "";
  const requested = `of user ${user}${hint}`;
  return openRemoteStore({ dialect: mysql, connections, place, requested }, options);
}
