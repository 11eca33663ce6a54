import { sql } from "kysely";
import type { CellValue, Row } from "../../query/operation-types.ts";
import { boundAgain } from "../remote/change.ts";
import { type Destination, type InsertOptions, insertRows } from "../remote/insert.ts";
import type { Fragment } from "../sql/fragment.ts";
import { type Column, cellIn } from "../sql/scope.ts";
import { type ResultRow, rows, type Steps } from "../sql/steps.ts";
import {
  type Changed,
  type Conflict,
  columnNameSql,
  conflictSql,
  type Insertion,
  type Target,
} from "../sql/target.ts";
import { flatten } from "./compile.ts";
import type { PostgresPlace } from "./session.ts";
import {
  keysSql,
  knownTable,
  type PostgresColumn,
  type PostgresTable,
  readTable,
} from "./tables.ts";

/** Values in one statement, well below what the protocol allows. */
const VALUES_PER_STATEMENT = 20_000;

/** A table that is changed. @throws EngineRefusal `database_not_found` or `table_not_found` */
export function targetOf(
  place: PostgresPlace,
  name: string,
  isRead: boolean,
): Target<string> | Promise<Target<string>> {
  const found = isRead ? readTable(place, name) : knownTable(place, name);
  const { schema } = place;
  return found instanceof Promise
    ? found.then((table) => toTarget(schema, table))
    : toTarget(schema, found);
}

function toTarget(schema: string, table: PostgresTable): Target<string> {
  const destination = { table, name: sql.id(schema, table.name), flatten };
  return {
    table,
    name: destination.name,
    keys: keysSql(schema, table.name),
    lock: sql` for update`,
    takesAnyKey: false,
    insert: (values, how) => insert(schema, destination, values, how),
    returning,
    bind: boundAgain,
  };
}

function insert(
  schema: string,
  destination: Destination<PostgresColumn>,
  values: readonly Row[],
  { conflict, returning }: Insertion<string>,
): Steps<Changed, string> {
  const { name } = destination.table;
  const options: InsertOptions<PostgresColumn, string> = {
    valuesPerStatement: VALUES_PER_STATEMENT,
    all: values,
    endsWithRow: conflict === undefined,
    tail: conflictSql(conflict),
    returning,
    onNumbers: (identity, numbers) => moveSequence(schema, name, identity.name, numbers),
  };
  if (conflict === undefined) return insertRows(destination, values, options);
  return insertApart(destination, apart(values, conflict), options);
}

/** Inserts rows some after others, since those of one statement may not meet each other. */
function* insertApart(
  destination: Destination<PostgresColumn>,
  parts: Iterable<Row[]>,
  options: InsertOptions<PostgresColumn, string>,
): Steps<Changed, string> {
  let affected = 0;
  const data: string[] = [];
  for (const some of parts) {
    const changed = yield* insertRows(destination, some, options);
    affected += changed.affected ?? 0;
    data.push(...(changed.data ?? []));
  }
  return options.returning === undefined ? { affected } : { affected, data };
}

function* returning(
  change: Fragment,
  columns: readonly Column[],
  key: readonly Column[],
): Steps<readonly ResultRow<string>[], string> {
  const all = [...columns, ...key];
  const names = all.map((_, index) => sql.id(`c${index}`));
  const answered = all.map((column, index) => sql`${columnNameSql(column)} as ${names[index]}`);
  const order = key.length === 0 ? sql`` : sql` order by ${sql.join(names.slice(-key.length))}`;
  return yield* rows<string>(
    sql`with changed as (${change} returning ${sql.join(answered)})
      select ${sql.join(names.slice(0, columns.length))} from changed${order}`,
  );
}

/**
 * Some rows after others, of which no two have one key: one statement cannot meet a row twice, and
 * an Upsert may. Only of numbers and text is it known that other spellings are other values.
 */
function* apart(values: readonly Row[], { key }: Conflict): Generator<Row[]> {
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

/**
 * Moves the sequence of an identity column past the numbers that rows have given to it, so that the next
 * one is not taken already. Without the right to, it stays where it is.
 */
function* moveSequence(
  schema: string,
  table: string,
  column: string,
  numbers: readonly (CellValue | undefined)[],
): Steps<void, string> {
  const largest = largestOf(numbers);
  if (largest === undefined) return;
  const target = `"${schema}"."${table}"`;
  const [found] = yield* rows<string>(sql`
    select name, pg_catalog.has_sequence_privilege(name, 'UPDATE, SELECT')
    from (select pg_catalog.pg_get_serial_sequence(${target}, ${column}) as name) as found
    where name is not null`);
  const [sequence, mayMove] = [found?.[0], found?.[1]];
  if (sequence == null || mayMove === "f" || mayMove === "false") return;
  // The server has quoted its name. A new sequence stands at a number that it has not given yet.
  yield* rows<string>(sql`
    select pg_catalog.setval(cast(${sequence} as regclass), cast(${largest} as bigint))
    from ${sql.raw(sequence)}
    where last_value < cast(${largest} as bigint)
      or (last_value = cast(${largest} as bigint) and not is_called)`);
}

function largestOf(values: readonly (CellValue | undefined)[]): bigint | undefined {
  let largest: bigint | undefined;
  for (const value of values) {
    if (typeof value !== "number" && typeof value !== "bigint") continue;
    const integer = BigInt(value);
    if (largest === undefined || integer > largest) largest = integer;
  }
  return largest;
}
