import { counted } from "../core/base/suggestion.ts";
import type { BytewiseColumns, CountedLimit, QueryLimit } from "../core/query/limits.ts";
import { EngineRefusal, type RefusalCode } from "./refusal.ts";

export class LimitCounter {
  readonly touched: CountedLimit["touched"];
  readonly #limits: { readonly limit: CountedLimit; changes: number; rows: number }[];
  readonly #bytewise: readonly BytewiseColumns[];

  constructor(limits: readonly QueryLimit[]) {
    this.#bytewise = limits.filter((limit) => "bytewise" in limit);
    const others = limits.flatMap((limit) => ("bytewise" in limit ? [] : [limit]));
    this.touched = others.find(({ touched }) => touched !== undefined)?.touched;
    this.#limits = others.map((limit) => ({ limit, changes: 0, rows: 0 }));
  }

  /** The columns that a Preview of an element may show. Undefined for all. */
  columnsOf(element: number): readonly string[] | undefined {
    const found = this.#limits.find(
      ({ limit }) => limit.columns !== undefined && limit.elements?.includes(element) !== false,
    );
    return found?.limit.columns;
  }

  bytewiseIn(database: string, table: string): BytewiseColumns | undefined {
    return this.#bytewise.find((one) => one.database === database && one.table === table);
  }

  count(element: number, changes: number, rows: number): void {
    for (const used of this.#limits) {
      const { limit } = used;
      if (limit.elements?.includes(element) === false) continue;
      used.changes += changes;
      used.rows += rows;
      requireAtMost(used.changes, limit.changes, "too_many_changes", "changed");
      requireAtMost(used.rows, limit.rows, "too_many_rows", "returned");
    }
  }
}

function requireAtMost(
  count: number,
  most: number | undefined,
  code: RefusalCode,
  done: string,
): void {
  if (most === undefined || count <= most) return;
  const problem = `More than ${counted(most, "row")} would be ${done}`;
  throw new EngineRefusal(
    code,
    `${problem}, which exceeds the caller's limit; nothing was changed`,
  );
}
