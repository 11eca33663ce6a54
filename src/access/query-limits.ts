/** How many rows a query answers and changes: what is judged here, and what the database must keep. */

import type { Operation } from "../query/operation-types.ts";
import { counted } from "../suggestion.ts";
import type { Grant, Limits } from "./grant.ts";
import {
  type BytewiseColumns,
  boundaryName,
  type DecidingEntry,
  type GivenRights,
  type Objection,
  type QueryLimit,
} from "./rights.ts";
import { type ColumnSpelling, pinnedValues } from "./row-filter.ts";

/** An entry or a boundary that limits. */
export interface Limiter {
  readonly limits: Limits;
  /** The entry, or the boundary as people call it. */
  readonly by: Pick<Objection, "entry" | "boundary">;
}

function isLimiting({ maxRows, maxChanges }: Limits): boolean {
  return maxRows !== undefined || maxChanges !== undefined;
}

/** Entries and boundaries that limit an access, each once. */
export function limitersOf({ rights, boundaries }: GivenRights): Limiter[] {
  const limiters: Limiter[] = [];
  for (const { entry } of rights) {
    const limits = entry.grant;
    if (!isLimiting(limits) || limiters.some((known) => known.limits === limits)) continue;
    limiters.push({ limits, by: { entry } });
  }
  for (const limits of boundaries) {
    if (isLimiting(limits)) limiters.push({ limits, by: { boundary: boundaryName(limits) } });
  }
  return limiters;
}

/** What an operation does to numbers of rows; undefined where that is not known before. */
export interface Extent {
  /** True for a Select of rows that says no limit. */
  readonly isUnlimited: boolean;
  /** Rows that a Select answers at most. */
  readonly selected: number;
  /** Rows of `returning` and Preview. */
  readonly returned: number | undefined;
  readonly changed: number | undefined;
}

const nothing: Extent = { isUnlimited: false, selected: 0, returned: 0, changed: 0 };

function selectExtent({ fields }: Operation<"Select">): Extent {
  const { aggregate, group_by: groups, limit } = fields;
  const rows = aggregate !== undefined && groups === undefined ? Math.min(1, limit ?? 1) : limit;
  return { ...nothing, isUnlimited: rows === undefined, selected: rows ?? 0 };
}

/** Rows that the columns of `require_where` leave an operation at most; undefined if any are free. */
function pinnedRows(
  { fields }: Operation<"Update" | "Delete">,
  { requireWhere = [] }: Grant,
  spelling: ColumnSpelling,
): number | undefined {
  if (requireWhere.length === 0) return undefined;
  let rows = 1;
  for (const column of requireWhere) {
    rows *= pinnedValues(fields.where, column, spelling) ?? Number.POSITIVE_INFINITY;
  }
  return rows;
}

/**
 * How many rows an operation answers and changes.
 *
 * @param isEngine whether the database counts what is not known before, and takes it back
 */
export function extentOf(
  operation: Operation,
  isPreview: boolean,
  grant: Grant,
  spelling: ColumnSpelling,
  isEngine: boolean,
): Extent {
  switch (operation.name) {
    case "Select":
      return selectExtent(operation);
    case "Insert":
    case "Upsert": {
      const changed = operation.fields.values.length;
      const answers = isPreview || operation.fields.returning !== undefined;
      return { ...nothing, changed, returned: answers ? (isEngine ? undefined : changed) : 0 };
    }
    case "Update":
    case "Delete": {
      const changed = isEngine ? undefined : pinnedRows(operation, grant, spelling);
      const answers = isPreview || operation.fields.returning !== undefined;
      return { ...nothing, changed, returned: answers ? changed : 0 };
    }
    default:
      return nothing;
  }
}

/** What the elements under one limiter come to. */
interface Tally {
  selected: number;
  changed: number;
  /** The elements that change rows or answer changed ones, and whether it is known how many. */
  readonly changing: number[];
  readonly returning: number[];
  isChangeKnown: boolean;
}

/** Adds up what the elements of a query do, by whom they are limited. */
export class LimitTally {
  readonly #tallies = new Map<Limits, Tally>();
  readonly #isEngine: boolean;
  readonly #shown: QueryLimit[] = [];
  readonly #bytewise = new Map<string, BytewiseColumns>();

  constructor(isEngine: boolean) {
    this.#isEngine = isEngine;
  }

  #of(limits: Limits): Tally {
    let tally = this.#tallies.get(limits);
    if (tally === undefined) {
      tally = { selected: 0, changed: 0, changing: [], returning: [], isChangeKnown: true };
      this.#tallies.set(limits, tally);
    }
    return tally;
  }

  /** Adds an element to what a limiter limits; what is wrong with it, if anything is. */
  add(element: number, extent: Extent, limiter: Limiter): Objection | undefined {
    const tally = this.#of(limiter.limits);
    return (
      this.#addRows(element, extent, limiter, tally) ??
      this.#addChanges(element, extent, limiter, tally)
    );
  }

  #addRows(
    element: number,
    { isUnlimited, selected, returned }: Extent,
    limiter: Limiter,
    tally: Tally,
  ): Objection | undefined {
    const { maxRows } = limiter.limits;
    if (maxRows === undefined) return undefined;
    if (isUnlimited) {
      const message = `Say a limit of at most ${counted(maxRows, "row")}; go on with after or offset`;
      return { reason: "limit_required", message, ...limiter.by };
    }
    if (returned === undefined) tally.returning.push(element);
    if (returned === undefined && !this.#isEngine) {
      const message = `Leave out returning: at most ${counted(maxRows, "row")} may be answered, and this database cannot be told so`;
      return { reason: "not_narrowable", message, ...limiter.by };
    }
    tally.selected += selected + (returned ?? 0);
    if (tally.selected <= maxRows) return undefined;
    const message = `At most ${counted(maxRows, "row")} may be answered, by all elements of a Batch together: lower the limit, and go on with after or offset`;
    return { reason: "limit_too_high", message, ...limiter.by };
  }

  #addChanges(
    element: number,
    { changed }: Extent,
    limiter: Limiter,
    tally: Tally,
  ): Objection | undefined {
    const { maxChanges } = limiter.limits;
    if (maxChanges === undefined) return undefined;
    if (changed === undefined || changed > 0) tally.changing.push(element);
    if (changed === undefined) tally.isChangeKnown = false;
    tally.changed += changed ?? 0;
    if (tally.changed <= maxChanges) return undefined;
    const message = `At most ${counted(maxChanges, "row")} may be changed, by all elements of a Batch together: send fewer`;
    return { reason: "too_many_changes", message, ...limiter.by };
  }

  /** Notes the columns that a Preview shows, unless it shows all. */
  show(element: number, columns: readonly string[] | undefined): void {
    if (columns !== undefined) this.#shown.push({ elements: [element], columns });
  }

  /** Notes the columns of a table that are compared by bytes. */
  compareBytes({ database, table, bytewise, ...rest }: BytewiseColumns): void {
    const key = JSON.stringify([database, table]);
    const known = this.#bytewise.get(key);
    const columns = [...new Set([...(known?.bytewise ?? []), ...bytewise])];
    this.#bytewise.set(key, { ...known, database, table, bytewise: columns, ...rest });
  }

  /** What the database must compare by bytes. */
  bytewise(): BytewiseColumns[] {
    return [...this.#bytewise.values()];
  }

  /** What the database must keep. */
  limits(): QueryLimit[] {
    const counted = Array.from(this.#tallies, ([{ maxRows, maxChanges }, tally]) => [
      ...(maxChanges === undefined || tally.isChangeKnown
        ? []
        : [{ elements: tally.changing, changes: maxChanges }]),
      ...(maxRows === undefined || tally.returning.length === 0
        ? []
        : [{ elements: tally.returning, rows: maxRows - tally.selected }]),
    ]).flat();
    return [...counted, ...this.#shown];
  }
}

/**
 * What is wrong with the `where` of an Update or Delete, if anything is: it has to pin what its
 * entry demands, and, before a database that is told no limits, few enough rows.
 */
export function judgePins(
  operation: Operation<"Update" | "Delete">,
  entry: DecidingEntry,
  limiters: readonly Limiter[],
  spelling: ColumnSpelling,
  isEngine: boolean,
): Objection | undefined {
  const { requireWhere = [] } = entry.grant;
  const free = requireWhere.filter(
    (column) => pinnedValues(operation.fields.where, column, spelling) === undefined,
  );
  const [first] = free;
  if (first !== undefined) {
    const message = `Say in where which rows are meant, by = or IN of text or whole numbers, at the top or in its top-level "and", for: ${free.join(", ")}`;
    return { reason: "where_required", message, entry };
  }
  if (isEngine) return undefined;
  const rows = pinnedRows(operation, entry.grant, spelling);
  const limiter = limiters.find(
    ({ limits: { maxChanges } }) =>
      maxChanges !== undefined && !(rows !== undefined && rows <= maxChanges),
  );
  if (limiter === undefined) return undefined;
  const most = limiter.limits.maxChanges;
  const remedy =
    rows === undefined
      ? "this database counts none, so the entry needs require_where on a unique key"
      : `pin at most ${most}, by ${requireWhere.join(", ")}`;
  return {
    reason: "where_required",
    message: `At most ${most} rows may be changed: ${remedy}`,
    ...limiter.by,
  };
}

/** Limits as the value of a header: JSON in ASCII, with every digit of its whole numbers. */
export function limitsText(limits: readonly object[]): string {
  const text = JSON.stringify(limits, (_key, value: unknown) =>
    typeof value === "bigint" ? JSON.rawJSON(String(value)) : value,
  );
  return text.replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
