import type { SQLOutputValue } from "node:sqlite";
import { sql } from "kysely";
import { type Reply, rows as rowsOf, type Statement, type Steps, takeSteps } from "../sql/steps.ts";
import { namesSql, type Target } from "../sql/target.ts";
import type { DatabaseHandle } from "./handle.ts";
import { insertRows } from "./insert.ts";
import { type ResultRow, rows, run } from "./statements.ts";
import { keysSql, readTable } from "./tables.ts";

/** A table that is changed. Throws `table_not_found`, and `invalid_name` for a reserved name. */
export function targetOf(handle: DatabaseHandle, name: string): Target<SQLOutputValue> {
  const table = readTable(handle, name);
  return {
    table,
    name: sql.id(handle.schema, name),
    keys: keysSql(handle, name),
    lock: sql``,
    takesAnyKey: false,
    // biome-ignore lint/correctness/useYield: rows are inserted by statements that are kept
    *insert(values, how) {
      return insertRows(handle, table, values, how);
    },
    *returning(change, columns, key) {
      const words = sql`${change} returning ${namesSql([...columns, ...key])}`;
      const found = [...(yield* rowsOf<SQLOutputValue>(words))];
      return found.sort((one, other) => compareKeys(one, other, columns.length, key.length));
    },
    bind: (_column, raw) => raw,
  };
}

/** Takes steps in a database. Throws what they throw, and SQLite's errors. */
export function take<Result>(
  { connection }: DatabaseHandle,
  steps: Steps<Result, SQLOutputValue>,
): Result {
  return takeSteps(steps, ({ fragment, wants }: Statement): Reply<SQLOutputValue> => {
    if (wants === "rows") return { rows: [...rows(connection, fragment)], count: 0 };
    return { rows: [], count: run(connection, fragment) };
  });
}

/** SQLite answers changed rows as it meets them; they are put in the order of their keys. */
function compareKeys(one: ResultRow, other: ResultRow, start: number, count: number): number {
  for (let index = start; index < start + count; index += 1) {
    const order = compareValues(one[index] ?? null, other[index] ?? null);
    if (order !== 0) return order;
  }
  return 0;
}

/** As SQLite orders: null, numbers, text by its bytes, bytes. */
function compareValues(one: SQLOutputValue, other: SQLOutputValue): number {
  if (isNumber(one) && isNumber(other)) return Number(one > other) - Number(one < other);
  if (typeof one === "string" && typeof other === "string") {
    return Buffer.compare(Buffer.from(one), Buffer.from(other));
  }
  if (one instanceof Uint8Array && other instanceof Uint8Array) return Buffer.compare(one, other);
  return rankOf(one) - rankOf(other);
}

function isNumber(value: SQLOutputValue): value is number | bigint {
  return typeof value === "number" || typeof value === "bigint";
}

function rankOf(value: SQLOutputValue): number {
  if (value === null) return 0;
  if (isNumber(value)) return 1;
  return typeof value === "string" ? 2 : 3;
}
