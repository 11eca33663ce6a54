import { sql } from "kysely";
import type { Operation, Upsert } from "../../query/operation-types.ts";
import { conflictOf, deleteRows, insert, update, updateSql, upsert } from "./changes.ts";
import { whereSql } from "./conditions.ts";
import { keyCondition, readByKeys, readInOrder, readKeysToBe } from "./key-rows.ts";
import { cellIn } from "./scope.ts";
import { run, type Steps } from "./steps.ts";
import { comparedValue } from "./stored-values.ts";
import { type Changed, readPrimaryKey, type Target } from "./target.ts";

/** The rows of an answer, before and after each. */
const MOST_ROWS = 100;
const limit = sql` limit ${sql.lit(MOST_ROWS)}`;

/** The operations that can be previewed. */
export type RowChangeName = "Insert" | "Update" | "Delete" | "Upsert";

/** What a change does to rows, which are JSON texts. */
export interface Previewed {
  readonly affected: number;
  readonly before: readonly string[];
  readonly after: readonly string[];
}

/**
 * Carries out a change in a transaction that is taken back, and returns the rows that it touches.
 *
 * @throws what the change throws
 */
export function* preview<Raw>(
  target: Target<Raw>,
  operation: Operation<RowChangeName>,
): Steps<Previewed, Raw> {
  const returning = ["*"];
  const columns = [...target.table.columns.values()];
  switch (operation.name) {
    case "Insert":
      return previewed([], yield* insert(target, { ...operation.fields, returning }));
    case "Update":
      return yield* previewUpdate(target, operation);
    case "Delete": {
      const { where } = operation.fields;
      const condition = whereSql([target.table], where);
      const key = yield* readPrimaryKey(target);
      const before = yield* readInOrder(target, columns, key, condition, limit);
      const { database, table } = operation.fields;
      return previewed(before, yield* deleteRows(target, { database, table, where }));
    }
    case "Upsert": {
      const before = yield* conflicting(target, operation.fields);
      return previewed(before, yield* upsert(target, { ...operation.fields, returning }));
    }
  }
}

function previewed(before: readonly string[], { affected = 0, data = [] }: Changed): Previewed {
  return { affected, before, after: data.slice(0, MOST_ROWS) };
}

/** The rows after an Update are told by the keys of those before, if there is a primary key. */
function* previewUpdate<Raw>(
  target: Target<Raw>,
  { fields }: Operation<"Update">,
): Steps<Previewed, Raw> {
  const condition = whereSql([target.table], fields.where);
  const columns = [...target.table.columns.values()];
  const key = yield* readPrimaryKey(target);
  const before = yield* readInOrder(target, columns, key, condition, limit);
  if (key.length === 0)
    return previewed(before, yield* update(target, { ...fields, returning: ["*"] }));
  const keys = yield* readKeysToBe(target, key, fields, condition, limit);
  const affected = yield* run<Raw>(updateSql(target, fields));
  return { affected, before, after: yield* readByKeys(target, columns, key, keys) };
}

/** The rows that an Upsert finds there already and changes, each once, by the order of values. */
function* conflicting<Raw>(target: Target<Raw>, query: Upsert): Steps<string[], Raw> {
  const { key, update: changed } = yield* conflictOf(target, query);
  const columns = [...target.table.columns.values()];
  const found = new Set<string>();
  if (changed.length === 0) return [];
  for (const row of query.values) {
    if (found.size === MOST_ROWS) break;
    if (key.some(({ name }) => (cellIn(row, name) ?? null) === null)) continue;
    const cells = key.map((column) => comparedValue(column, cellIn(row, column.name) ?? null));
    const condition = sql` where ${keyCondition(key, cells)}`;
    const [text] = yield* readInOrder(target, columns, [], condition, sql``);
    if (text !== undefined) found.add(text);
  }
  return [...found];
}
