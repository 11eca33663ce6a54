import { type RawBuilder, sql } from "kysely";

/** A piece of SQL whose names are quoted and whose values are bound by the builder. */
export type Fragment = RawBuilder<unknown>;

/** Like a pattern whose backslash is a backslash, where the server would take it as an escape. */
export function likeBackslash(column: Fragment, pattern: string): Fragment {
  return sql`${column} like ${pattern.replaceAll("\\", "\\\\")}`;
}

/** Shapes that are remembered of a table at the most, and the longest of them in characters. */
const SHAPE_LIMIT = 100;
const LONGEST_SHAPE = 4096;

/**
 * What is worked out once for each shape of queries on a table, and forgotten with what was read of the
 * table.
 */
export class ByShape<Result> {
  readonly #known = new WeakMap<object, Map<string, Result>>();

  /** `shape` holds all that decides on the result besides the table. @throws what `make` throws */
  find(table: object, shape: string, make: () => Result): Result {
    const known = this.#known.get(table) ?? new Map<string, Result>();
    const found = known.get(shape);
    if (found !== undefined) return found;
    const made = make();
    if (shape.length > LONGEST_SHAPE) return made;
    if (known.size >= SHAPE_LIMIT) known.clear();
    this.#known.set(table, known.set(shape, made));
    return made;
  }
}
