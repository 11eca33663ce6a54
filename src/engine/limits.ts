import type { z } from "zod";
import { counted } from "../suggestion.ts";
import type { bytewiseShape, limitShape } from "./limits-header.ts";
import { EngineRefusal } from "./refusal.ts";

/** The header by which the gateway says what a query may do at the most. */
export const limitsHeader = "x-gatehouse-limits";

/** The header by which the gateway says that the caller may not see all of the schema. */
export const narrowedHeader = "x-gatehouse-narrowed";

/**
 * What some elements of a query may do together: `changes` rows inserted, updated or deleted, and
 * `rows` of them answered, of which a Preview shows these `columns` alone. `elements` are the places
 * in a Batch; all, if they are left out. `touched` has a Preview tell the digest of all rows that it
 * would touch, or is that of the rows that a single change has to touch.
 */
type CountedLimit = z.infer<typeof limitShape>;

/**
 * `bytewise` are columns of a table that comparisons of the query tell apart by their bytes. Rows that
 * it inserts or updates must satisfy `written`.
 */
export type BytewiseColumns = z.infer<typeof bytewiseShape>;

export type QueryLimit = CountedLimit | BytewiseColumns;

function isBytewise(limit: QueryLimit): limit is BytewiseColumns {
  return "bytewise" in limit;
}

/** Counts what a query does while its transaction can be taken back. */
export class LimitCounter {
  /** What is asked of the rows that the query touches; undefined if nothing is. */
  readonly touched: CountedLimit["touched"];
  readonly #limits: { readonly limit: CountedLimit; changes: number; rows: number }[];
  readonly #bytewise: readonly BytewiseColumns[];

  constructor(limits: readonly QueryLimit[]) {
    this.#bytewise = limits.filter(isBytewise);
    const others = limits.filter((limit): limit is CountedLimit => !isBytewise(limit));
    this.touched = others.find(({ touched }) => touched !== undefined)?.touched;
    this.#limits = others.map((limit) => ({ limit, changes: 0, rows: 0 }));
  }

  /** The columns that a Preview shows; undefined for all. */
  get columns(): readonly string[] | undefined {
    return this.#limits.find(({ limit }) => limit.columns !== undefined)?.limit.columns;
  }

  /** What is compared by bytes in a table; undefined if nothing is. */
  bytewiseIn(database: string, table: string): BytewiseColumns | undefined {
    return this.#bytewise.find((one) => one.database === database && one.table === table);
  }

  /** Counts what one element did. @throws EngineRefusal `too_many_changes` or `too_many_rows` */
  count(element: number, changes: number, rows: number): void {
    for (const tally of this.#limits) {
      const { limit } = tally;
      if (limit.elements?.includes(element) === false) continue;
      tally.changes += changes;
      tally.rows += rows;
      if (tally.changes > (limit.changes ?? Number.POSITIVE_INFINITY)) {
        const problem = `More than ${counted(limit.changes ?? 0, "row")} would be changed, which is the most here`;
        throw new EngineRefusal("too_many_changes", `${problem}; nothing was changed`);
      }
      if (tally.rows > (limit.rows ?? Number.POSITIVE_INFINITY)) {
        const problem = `More than ${counted(limit.rows ?? 0, "row")} would be answered, which is the most here`;
        throw new EngineRefusal("too_many_rows", `${problem}; nothing was changed`);
      }
    }
  }
}
