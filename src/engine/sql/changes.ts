import { sql } from "kysely";
import type { Delete, Insert, Row, Update, Upsert } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { whereSql } from "./conditions.ts";
import {
  assignmentsOf,
  assignmentsSql,
  readByKeys,
  readInOrder,
  readKeysToBe,
} from "./key-rows.ts";
import { type Column, inRow, requireDistinct, resolveColumn, type Table } from "./scope.ts";
import { type ResultRow, rows, run, type Steps } from "./steps.ts";
import {
  type Changed,
  type Conflict,
  describeKeys,
  encodeRows,
  isKeyOf,
  needsPrimaryKey,
  readKeys,
  readPrimaryKey,
  returnedColumns,
  rowDenied,
  type Target,
  type TargetColumn,
  writtenColumns,
} from "./target.ts";

/**
 * Inserts rows in their order; a column that a row leaves out takes its default.
 *
 * @throws EngineRefusal, as the others do, for unknown columns and for unfit values
 */
export function* insert<Raw>(
  target: Target<Raw>,
  { values, returning }: Insert,
): Steps<Changed, Raw> {
  const columns = writtenColumns(target, columnsOf(target, returning));
  return answeredOf(yield* target.insert(values, { returning: columns }), returning);
}

/** Leaves out rows that were read for their check alone. */
function answeredOf({ data, ...changed }: Changed, returning: readonly string[] | undefined) {
  return data === undefined || returning === undefined ? changed : { ...changed, data };
}

/** Changes the rows that fulfil the condition. @throws EngineRefusal `not_supported` too */
export function* update<Raw>(target: Target<Raw>, query: Update): Steps<Changed, Raw> {
  const condition = whereSql([target.table], query.where);
  const change = updateSql(target, query);
  const { returning } = query;
  const columns = writtenColumns(target, columnsOf(target, returning));
  if (columns === undefined) return { affected: yield* run(change, true) };
  const key = yield* readPrimaryKey(target);
  if (target.returning !== undefined) {
    const found = yield* target.returning(change, columns, key);
    return answeredOf(changedOf(target, columns, found), returning);
  }
  if (key.length === 0) {
    if (returning !== undefined) throw needsPrimaryKey(target, "returning");
    // Rows without a key cannot be read again, but an Update within the filter leaves as many in it.
    const before = yield* countWithin(target);
    const affected = yield* run<Raw>(change);
    if ((yield* countWithin(target)) !== before) throw rowDenied(target.table);
    return { affected };
  }
  const keys = yield* readKeysToBe(target, key, query, condition);
  const affected = yield* run<Raw>(change);
  const data = yield* readByKeys(target, columns, key, keys);
  return answeredOf({ affected, data }, returning);
}

function* countWithin<Raw>({ name, within = sql`true`, lock }: Target<Raw>): Steps<string, Raw> {
  const [row] = yield* rows<Raw>(sql`select count(*) from ${name} where ${within}${lock}`);
  return String(row?.[0]);
}

/** An Update in SQL. */
export function updateSql<Raw>({ table, name }: Target<Raw>, query: Update) {
  const assignments = assignmentsSql(assignmentsOf(table, query));
  return sql`update ${name} set ${assignments}${whereSql([table], query.where)}`;
}

/** Deletes the rows that fulfil the condition. */
export function* deleteRows<Raw>(
  target: Target<Raw>,
  { where, returning }: Delete,
): Steps<Changed, Raw> {
  const { table, name, lock } = target;
  const condition = whereSql([table], where);
  const change = sql`delete from ${name}${condition}`;
  const columns = columnsOf(target, returning);
  if (columns === undefined) return { affected: yield* run(change, true) };
  const key = yield* readPrimaryKey(target);
  if (target.returning !== undefined) {
    return changedOf(target, columns, yield* target.returning(change, columns, key));
  }
  const data = yield* readInOrder(target, columns, key, condition, lock);
  return { affected: yield* run(change), data };
}

/**
 * Inserts rows in their order, and changes or leaves those that are there already.
 *
 * @throws EngineRefusal `no_unique_key` and `not_supported` too
 */
export function* upsert<Raw>(target: Target<Raw>, query: Upsert): Steps<Changed, Raw> {
  const conflict = yield* conflictOf(target, query);
  return yield* target.insert(query.values, {
    conflict,
    returning: columnsOf(target, query.returning),
  });
}

/** What becomes of the rows that an Upsert finds there. @throws EngineRefusal `no_unique_key` or `not_supported` */
export function* conflictOf<Raw>(
  { table, keys: keysSql, takesAnyKey }: Target<Raw>,
  { on_conflict, update: updated, values }: Upsert,
): Steps<Conflict, Raw> {
  const conflict = { key: ownColumns(table, on_conflict), update: ownColumns(table, updated) };
  const keys = yield* readKeys<Raw>(keysSql);
  if (!keys.some((known) => isKeyOf(known, on_conflict))) {
    const plain = `on_conflict takes the columns of a primary or unique key of ${table.name}`;
    throw new EngineRefusal("no_unique_key", `${plain}; ${describeKeys(keys)}`, { plain });
  }
  if (takesAnyKey && keys.length > 1) {
    const plain = "This database takes an Upsert on tables with one unique key alone";
    const problem = `${plain}, and of ${table.name} ${describeKeys(keys)}`;
    throw new EngineRefusal("not_supported", problem, { plain });
  }
  requireCells(values, [...on_conflict, ...updated]);
  return conflict;
}

function ownColumns(table: Table, names: readonly string[]): Column[] {
  const columns = names.map((name) => resolveColumn([table], name).column);
  requireDistinct(columns);
  return columns;
}

/** A row that leaves out what decides, or what is set, would be guessed at. */
function requireCells(values: readonly Row[], names: readonly string[]): void {
  for (const [index, row] of values.entries()) {
    const missing = names.find((name) => !Object.hasOwn(row, name));
    if (missing === undefined) continue;
    inRow(
      () => index,
      () => {
        const problem = `Column "${missing}" is left out; each row has those of on_conflict and update`;
        throw new EngineRefusal("invalid_value", problem);
      },
    );
  }
}

function columnsOf<Raw>(
  target: Target<Raw>,
  names: readonly string[] | undefined,
): TargetColumn<Raw>[] | undefined {
  return names === undefined ? undefined : returnedColumns(target, names);
}

function changedOf<Raw>(
  target: Target<Raw>,
  columns: readonly TargetColumn<Raw>[],
  found: readonly ResultRow<Raw>[],
): Changed {
  return { affected: found.length, data: encodeRows(target, columns, found) };
}
