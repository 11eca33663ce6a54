/**
 * Limits on the rows that a query returns and changes: some are checked here, the rest by the
 * database.
 */

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

export interface Limiter {
  readonly limits: Limits;
  readonly by: Pick<Objection, "entry" | "boundary">;
}

function isLimiting({ maxRows, maxChanges }: Limits): boolean {
  return maxRows !== undefined || maxChanges !== undefined;
}

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

/** How many rows an operation returns and changes. Undefined if unknown before it runs. */
export interface Extent {
  /** True for a Select that returns rows without a `limit`. */
  readonly isUnlimited: boolean;
  readonly selected: number;
  /** Rows returned by `returning` and Preview. */
  readonly returned: number | undefined;
  readonly changed: number | undefined;
}

const nothing: Extent = { isUnlimited: false, selected: 0, returned: 0, changed: 0 };

function selectExtent({ fields }: Operation<"Select">): Extent {
  const { aggregate, group_by: groups, limit } = fields;
  const rows = aggregate !== undefined && groups === undefined ? Math.min(1, limit ?? 1) : limit;
  return { ...nothing, isUnlimited: rows === undefined, selected: rows ?? 0 };
}

/**
 * The number of rows that the columns of `require_where` allow at most. Undefined if none are
 * required.
 */
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
 * @param isEngine whether the upstream is `gatehouse engine`, which counts unknown numbers itself
 * and rolls back
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

interface Tally {
  selected: number;
  changed: number;
  /** Indices of the elements that change rows or return changed ones. */
  readonly changing: number[];
  readonly returning: number[];
  isChangeKnown: boolean;
}

/** Adds up the rows of a query's elements under each limit. */
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

  /** Adds an element under a limiter. Returns an objection if the limit is exceeded. */
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

  /** Records the columns that a Preview may show. Undefined for all. */
  show(element: number, columns: readonly string[] | undefined): void {
    if (columns !== undefined) this.#shown.push({ elements: [element], columns });
  }

  compareBytes({ database, table, bytewise, ...rest }: BytewiseColumns): void {
    const key = JSON.stringify([database, table]);
    const known = this.#bytewise.get(key);
    const columns = [...new Set([...(known?.bytewise ?? []), ...bytewise])];
    this.#bytewise.set(key, { ...known, database, table, bytewise: columns, ...rest });
  }

  bytewise(): BytewiseColumns[] {
    return [...this.#bytewise.values()];
  }

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
 * Checks the `where` of an Update or Delete. It must pin the columns that the entry requires. If
 * the database enforces no limits, it must also pin few enough rows.
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

/** Limits as a header value: ASCII JSON with every digit of whole numbers. */
export function limitsText(limits: readonly object[]): string {
  const text = JSON.stringify(limits, (_key, value: unknown) =>
    typeof value === "bigint" ? JSON.rawJSON(String(value)) : value,
  );
  return text.replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
