import { createHash } from "node:crypto";
import { sql } from "kysely";
import type { Operation, Upsert } from "../../core/query/tree.ts";
import { EngineRefusal } from "../refusal.ts";
import {
  conflictOf,
  deleteRows,
  insert,
  keyCondition,
  readInOrder,
  update,
  updateByKeys,
  upsert,
} from "./changes.ts";
import { whereSql } from "./conditions.ts";
import { cellIn } from "./scope.ts";
import {
  type Changed,
  readPrimaryKey,
  returnedColumns,
  type Target,
  type TargetColumn,
} from "./target.ts";
import { comparedValue } from "./values.ts";

export type RowChangeName = "Insert" | "Update" | "Delete" | "Upsert";

export interface Previewed {
  readonly affected: number;
  readonly before: readonly string[];
  readonly after: readonly string[];
}

export interface PreviewOptions {
  /** The columns that the caller may see; all if absent. */
  readonly visible: readonly string[] | undefined;
  /** An approver sees all columns, since the requester chooses `returning`. */
  readonly isForApprover: boolean;
  /** Rows to read before and after the change each. A change may return more. */
  readonly limit: number;
}

/** Runs a change in a transaction that the caller rolls back. */
export async function preview<Raw>(
  target: Target<Raw>,
  operation: Operation<RowChangeName>,
  { visible, isForApprover, limit }: PreviewOptions,
): Promise<Previewed> {
  const wanted = isForApprover ? undefined : operation.fields.returning;
  const columns = returnedColumns(target, wanted ?? ["*"]).filter(
    ({ name }) => visible?.includes(name) ?? true,
  );
  if (columns.length === 0) {
    throw new EngineRefusal("not_supported", "The caller may see none of these columns");
  }
  const returning = columns.map(({ name }) => name);
  switch (operation.name) {
    case "Insert":
      return previewed([], await insert(target, { ...operation.fields, returning }));
    case "Update":
    case "Delete": {
      const condition = whereSql([target.table], operation.fields.where);
      const end = sql` limit ${sql.lit(limit)}`;
      const key = await readPrimaryKey(target);
      const before = await readInOrder(target, columns, key, condition, end);
      if (operation.name === "Delete") {
        const { returning: _, ...fields } = operation.fields;
        return previewed(before, await deleteRows(target, fields));
      }
      const { fields } = operation;
      const change =
        key.length === 0 || target.check !== undefined
          ? update(target, { ...fields, returning })
          : updateByKeys(target, columns, key, fields, end);
      return previewed(before, await change);
    }
    case "Upsert": {
      const before = await conflicting(target, operation.fields, columns, limit);
      return previewed(before, await upsert(target, { ...operation.fields, returning }));
    }
  }
}

function previewed(before: readonly string[], { affected = 0, data = [] }: Changed): Previewed {
  return { affected, before, after: data };
}

/** The existing rows that an Upsert changes, each once, in the order of the values. */
async function conflicting<Raw>(
  target: Target<Raw>,
  query: Upsert,
  columns: readonly TargetColumn<Raw>[],
  most: number,
): Promise<string[]> {
  const { key, update: changed } = await conflictOf(target, query);
  // Rows are identified by all of their columns.
  const all = [...target.table.columns.values()];
  const found = new Map<string, string>();
  if (changed.length === 0) return [];
  for (const value of query.values) {
    if (found.size === most) break;
    if (key.some(({ name }) => (cellIn(value, name) ?? null) === null)) continue;
    const cells = key.map((column) => comparedValue(column, cellIn(value, column.name) ?? null));
    const condition = sql` where ${keyCondition(key, cells)}`;
    const [row] = await readInOrder(target, all, [], condition, sql``);
    if (row === undefined || found.has(row)) continue;
    const [text = row] =
      columns.length === all.length
        ? [row]
        : await readInOrder(target, columns, [], condition, sql``);
    found.set(row, text);
  }
  return [...found.values()];
}

/** Each takes 32 bytes of memory plus its text. */
const MAX_DIGEST_ROWS = 100_000;

function sha256(text: string | Buffer): Buffer {
  return createHash("sha256").update(text).digest();
}

/**
 * SHA-256 in hexadecimal over the existing rows that a change affects, in any order, with all
 * columns. Locks the rows of an Update or Delete.
 */
export async function digestAffected<Raw>(
  target: Target<Raw>,
  operation: Operation<RowChangeName>,
): Promise<string> {
  const columns = [...target.table.columns.values()];
  const most = MAX_DIGEST_ROWS + 1;
  let touched: readonly string[] = [];
  if (operation.name === "Upsert") {
    touched = await conflicting(target, operation.fields, columns, most);
  } else if (operation.name !== "Insert") {
    const condition = whereSql([target.table], operation.fields.where);
    const end = sql` limit ${sql.lit(most)}${target.lock}`;
    touched = await readInOrder(target, columns, [], condition, end);
  }
  if (touched.length > MAX_DIGEST_ROWS) {
    const problem = `More than ${MAX_DIGEST_ROWS} rows are affected, too many to compare`;
    throw new EngineRefusal("too_many_rows", `${problem}; nothing was changed`);
  }
  const digests = touched.map(sha256).sort(Buffer.compare);
  return sha256(Buffer.concat(digests)).toString("hex");
}

export function requireSameRows(found: string, expected: string): void {
  if (found === expected) return;
  const problem = "The affected rows have changed since the approval";
  throw new EngineRefusal(
    "approval_stale",
    `${problem}; nothing was changed. Request approval again`,
  );
}
