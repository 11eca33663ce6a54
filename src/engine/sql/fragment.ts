import {
  createQueryId,
  isExpression,
  PrimitiveValueListNode,
  type QueryCompiler,
  type RawBuilder,
  SqliteQueryCompiler,
  sql,
} from "kysely";
import { EngineRefusal } from "../refusal.ts";

/** A piece of SQL. The builder quotes its names and binds its values. */
export type Fragment = RawBuilder<unknown>;

export function compile(compiler: QueryCompiler, fragment: Fragment) {
  return compiler.compileQuery(fragment.toOperationNode(), createQueryId());
}

const anyCompiler = new SqliteQueryCompiler();

export function countValues(fragment: Fragment): number {
  return compile(anyCompiler, fragment).parameters.length;
}

/** True if a statement may contain it twice, at each level of Selects. */
export function isShort(fragment: Fragment): boolean {
  const { sql, parameters } = compile(anyCompiler, fragment);
  return parameters.length <= 1000 && sql.length <= 16 * 1024;
}

/** The protocols of PostgreSQL and MySQL count the parameters of a statement with 16 bits. */
export const PARAMETER_LIMIT = 65_535;

/** @throws EngineRefusal `query_too_complex` for more values than a statement can carry */
export function requireSendable(count: number): void {
  if (count > PARAMETER_LIMIT)
    throw tooComplex(`more than ${PARAMETER_LIMIT} values in one statement`);
}

export function compileForServer(compiler: QueryCompiler, fragment: Fragment) {
  const compiled = compile(compiler, fragment);
  requireSendable(compiled.parameters.length);
  return compiled;
}

/** Marks a part in the text of a statement. No name contains it. */
const PART = "\0";

/** Makes a fragment of two others. */
type Around = (first: Fragment, second: Fragment) => Fragment;

/** Compile what has no values to text, so that names are quoted once. */
export interface Flattening {
  flatten(fragment: Fragment): Fragment;
  /** The two parts may have values. */
  flattenAround(make: Around): Around;
}

export function flattening(compiler: QueryCompiler): Flattening {
  return {
    flatten(fragment) {
      const { sql: text, parameters } = compile(compiler, fragment);
      return parameters.length === 0 ? sql.raw(text) : fragment;
    },
    flattenAround(make) {
      const { sql: text, parameters } = compile(compiler, make(sql.raw(PART), sql.raw(PART)));
      if (parameters.length > 0) return make;
      const texts = text.split(PART);
      const around = Object.assign(texts, { raw: texts });
      return (...parts) => sql(around, ...parts);
    },
  };
}

/** Values in parentheses. A node for each would take several times as long to build and compile. */
export function listSql(values: readonly unknown[]): Fragment {
  if (values.some(isExpression)) return sql`(${sql.join(values)})`;
  return sql`${{ toOperationNode: () => PrimitiveValueListNode.create(values) }}`;
}

export function tooComplex(limit: string): EngineRefusal {
  const problem = `The query exceeds a limit of the database: ${limit}`;
  return new EngineRefusal("query_too_complex", problem);
}

/** About one for each column or literal. A thousand take a database 10 ms. */
const LARGEST_STATEMENT = 20_000;

/** Limits what names add to statements: each is an expression, which may repeat others. */
export class SizeBudget {
  spent = 0;

  /** @throws EngineRefusal `query_too_complex` */
  spend(size: number): void {
    this.spent += size;
    if (this.spent > LARGEST_STATEMENT) throw tooComplex("computed names are used too often");
  }
}

/** Cached shapes per table, and characters of a shape. */
const SHAPE_LIMIT = 100;
const MAX_SHAPE_LENGTH = 4096;

interface Shaped<Result> {
  readonly result: Result;
  readonly others: readonly object[];
}

/** Caches results by query shape on a table, as long as the table's cached schema. */
export class ByShape<Result> {
  readonly #known = new WeakMap<object, Map<string, Shaped<Result>>>();

  /**
   * `shape` must contain everything that determines the result besides the table and the `others`,
   * which must still be the same.
   */
  find(table: object, shape: string, make: () => Result, others: readonly object[] = []): Result {
    const known = this.#known.get(table) ?? new Map<string, Shaped<Result>>();
    const found = known.get(shape);
    if (found?.others.every((one, at) => one === others[at])) return found.result;
    const result = make();
    if (shape.length > MAX_SHAPE_LENGTH) return result;
    if (known.size >= SHAPE_LIMIT) known.clear();
    this.#known.set(table, known.set(shape, { result, others }));
    return result;
  }
}

/** A result row in column order, with the driver's values. */
export type ResultRow<Raw> = Readonly<Record<number, Raw | null>>;

/** Runs statements of one transaction, whatever the driver. */
export interface StatementRunner<Raw> {
  rows(fragment: Fragment): Promise<readonly ResultRow<Raw>[]>;
  /** Returns how many rows were changed. `isLast` marks the last statement of a change. */
  run(fragment: Fragment, isLast?: boolean): Promise<number>;
}
