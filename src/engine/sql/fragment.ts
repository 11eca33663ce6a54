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

/** A result row in column order, with the driver's values. */
export type ResultRow<Raw> = Readonly<Record<number, Raw | null>>;

/** A statement, and whether its rows or the number of changed rows are needed. */
export interface Statement {
  readonly fragment: Fragment;
  readonly wants: "rows" | "count";
  /** True if no statement follows, whatever the reply. */
  readonly isLast?: boolean;
}

export interface Reply<Raw> {
  readonly rows: readonly ResultRow<Raw>[];
  readonly count: number;
}

/** Database work that yields statements and receives the replies, whatever the driver. */
export type Steps<Result, Raw> = Generator<Statement, Result, Reply<Raw>>;

export function* run<Raw>(fragment: Fragment, isLast = false): Steps<number, Raw> {
  return (yield { fragment, wants: "count", isLast }).count;
}

export function* rows<Raw>(fragment: Fragment): Steps<readonly ResultRow<Raw>[], Raw> {
  return (yield { fragment, wants: "rows" }).rows;
}
