import { type RawBuilder, sql } from "kysely";

/** A piece of SQL. The builder quotes its names and binds its values. */
export type Fragment = RawBuilder<unknown>;

/** `like` with literal backslashes, for servers that treat them as escapes. */
export function likeBackslash(column: Fragment, pattern: string): Fragment {
  return sql`${column} like ${pattern.replaceAll("\\", "\\\\")}`;
}

/** Most cached shapes per table, and the most characters of a shape. */
const SHAPE_LIMIT = 100;
const LONGEST_SHAPE = 4096;

/**
 * Caches a result per query shape on a table. The cache is dropped with the table's cached schema.
 */
export class ByShape<Result> {
  readonly #known = new WeakMap<object, Map<string, Result>>();

  /**
   * `shape` must contain everything that determines the result besides the table. @throws what
   * `make` throws
   */
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
