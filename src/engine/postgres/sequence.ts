import { sql } from "kysely";
import type { CellValue } from "../../query/shape.ts";
import { rows, type Steps } from "../sql/steps.ts";

/**
 * Moves the sequence of an identity column past the numbers that rows have given to it, so that the next
 * one is not taken already. Without the right to, it stays where it is.
 */
export function* moveSequence(
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
