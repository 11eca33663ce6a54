import { sql } from "kysely";
import type { Row } from "../../query/operation-types.ts";
import { boundAgain } from "../remote/change.ts";
import { insertRows } from "../remote/insert.ts";
import type { Fragment } from "../sql/fragment.ts";
import { readByKeys } from "../sql/key-rows.ts";
import { cellIn } from "../sql/scope.ts";
import type { Steps } from "../sql/steps.ts";
import { comparedValue } from "../sql/stored-values.ts";
import {
  type Changed,
  type Conflict,
  type Insertion,
  needsPrimaryKey,
  readPrimaryKey,
  type Target,
} from "../sql/target.ts";
import { isDuplicate } from "./failures.ts";
import type { MysqlPlace, Raw } from "./session.ts";
import { keysSql, type MysqlColumn, type MysqlTable, readChangedTable } from "./tables.ts";

/** How rows are put into statements. */
const options = {
  /** Values in one statement: the server describes each of them when it prepares the statement. */
  valuesPerStatement: 2000,
  /** Characters in one statement, well below what servers take in one packet. */
  lengthPerStatement: 256 * 1024,
  // Where zero is a number as any other, `default` is zero.
  nextNumber: sql`null`,
};

/**
 * A table that is changed.
 *
 * @throws EngineRefusal `database_not_found`, `table_not_found`, or `permission_denied` for one whose engine can
 * take nothing back
 */
export async function targetOf(place: MysqlPlace, name: string): Promise<Target<Raw>> {
  const { session, schema } = place;
  const table = await readChangedTable(place, name);
  const target: Target<Raw> = {
    table,
    name: sql.id(schema, name),
    keys: keysSql(schema, name),
    lock: sql` for update`,
    takesAnyKey: true,
    insert(values, how) {
      const { conflict, returning } = how;
      const isAnswered = returning === undefined || session.server.isMariaDb;
      if (conflict === undefined && isAnswered) {
        return insertRows({ table, name: target.name }, values, { ...options, ...how });
      }
      return returning === undefined && conflict !== undefined && conflict.update.length > 0
        ? replaceRows(target, table, values, conflict)
        : insertEach(target, table, values, how);
    },
    bind: boundAgain,
  };
  return target;
}

/** Inserts rows or changes those that are there, all of which count. */
function* replaceRows(
  { name }: Target<Raw>,
  table: MysqlTable,
  values: readonly Row[],
  conflict: Conflict,
): Steps<Changed, Raw> {
  yield* insertRows<MysqlColumn, Raw>({ table, name }, values, {
    ...options,
    tail: onDuplicateSql(conflict),
  });
  return { affected: values.length };
}

function onDuplicateSql({ update }: Conflict): Fragment {
  if (update.length === 0) return sql``;
  const sets = update.map(({ name }) => sql`${sql.id(name)} = values(${sql.id(name)})`);
  return sql` on duplicate key update ${sql.join(sets)}`;
}

/** Inserts rows one by one, to count them, and to read them again by their keys. */
function* insertEach(
  target: Target<Raw>,
  table: MysqlTable,
  values: readonly Row[],
  { conflict, returning }: Insertion<Raw>,
): Steps<Changed, Raw> {
  const key = returning === undefined ? [] : yield* readPrimaryKey(target);
  if (returning !== undefined && key.length === 0) throw needsPrimaryKey(target, "returning");
  const columns = key.flatMap(({ name }) => table.columns.get(name) ?? []);
  const tail = conflict === undefined ? sql`` : onDuplicateSql(conflict);
  const leaves = conflict !== undefined && conflict.update.length === 0;
  const data: string[] = [];
  let affected = 0;
  for (const row of values) {
    const how = { ...options, tail, all: values };
    try {
      yield* insertRows<MysqlColumn, Raw>({ table, name: target.name }, [row], how);
    } catch (error) {
      if (!leaves || !isDuplicate(error)) throw error;
      continue;
    }
    affected += 1;
    if (returning === undefined) continue;
    const cells = columns.map(({ name, isIdentity, ...column }) => {
      const value = cellIn(row, name);
      if (isIdentity && (value ?? null) === null) return sql`last_insert_id()`;
      if (value === undefined) return sql`default(${sql.id(name)})`;
      return comparedValue({ name, ...column }, value);
    });
    data.push(...(yield* readByKeys(target, returning, key, [cells])));
  }
  return { affected, ...(returning === undefined ? {} : { data }) };
}
