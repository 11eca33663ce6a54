import { createHash } from "node:crypto";
import { sql } from "kysely";
import type { Operation } from "../../query/operation-types.ts";
import { EngineRefusal } from "../refusal.ts";
import { whereSql } from "./conditions.ts";
import { readInOrder } from "./key-rows.ts";
import { conflicting, type RowChangeName } from "./preview.ts";
import type { Steps } from "./steps.ts";
import type { Target } from "./target.ts";

/** The rows of a change that a digest is made of at the most; each takes 32 bytes of memory and its text. */
const MOST_ROWS = 100_000;

/** The rows that are there already and that a change would touch, whole, and locked. */
function* touchedRows<Raw>(
  target: Target<Raw>,
  operation: Operation<RowChangeName>,
): Steps<readonly string[], Raw> {
  const columns = [...target.table.columns.values()];
  switch (operation.name) {
    case "Insert":
      return [];
    case "Upsert":
      return yield* conflicting(target, operation.fields, columns, MOST_ROWS + 1);
    default: {
      const condition = whereSql([target.table], operation.fields.where);
      const end = sql` limit ${sql.lit(MOST_ROWS + 1)}${target.lock}`;
      return yield* readInOrder(target, columns, [], condition, end);
    }
  }
}

function sha256(text: string | Buffer): Buffer {
  return createHash("sha256").update(text).digest();
}

/**
 * A SHA-256 of all rows that a change would touch, in whatever order they are found, as hexadecimal
 * digits. Rows that are only added touch none.
 *
 * @throws EngineRefusal `too_many_rows`
 */
export function* digestTouched<Raw>(
  target: Target<Raw>,
  operation: Operation<RowChangeName>,
): Steps<string, Raw> {
  const touched = yield* touchedRows(target, operation);
  if (touched.length > MOST_ROWS) {
    const problem = `More than ${MOST_ROWS} rows would be touched, which is the most that can be compared`;
    throw new EngineRefusal("too_many_rows", `${problem}; nothing was changed`);
  }
  const digests = touched.map(sha256).sort(Buffer.compare);
  return sha256(Buffer.concat(digests)).toString("hex");
}

/** @throws EngineRefusal `approval_stale` unless the rows are those whose digest was told before */
export function requireSameRows(found: string, expected: string): void {
  if (found === expected) return;
  const problem = "The rows that this would touch are not those that were approved";
  throw new EngineRefusal("approval_stale", `${problem}; nothing was changed: ask for it again`);
}
