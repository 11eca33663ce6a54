import { counted } from "../base/suggestion.ts";
import type { BytewiseColumns } from "../query/limits.ts";
import type { OperationNode } from "../query/node.ts";
import type { Operation } from "../query/tree.ts";
import type { TableRight } from "./column-checks.ts";
import type { DecidingEntry } from "./entries.ts";
import type { Grant, Limits } from "./grant.ts";
import {
  boundaryName,
  Denied,
  type ElementLimit,
  type GivenRights,
  type Objection,
} from "./rights.ts";
import { type ColumnSpelling, pinnedValues } from "./row-filter.ts";

/** An entry or boundary that limits numbers of rows. */
interface Limiter {
  readonly limits: Limits;
  readonly by: Pick<Objection, "entry" | "boundary">;
}

export function isLimiting({ maxRows, maxChanges }: Limits): boolean {
  return (maxRows ?? maxChanges) !== undefined;
}

export function findLimiters({ rights, boundaries }: GivenRights): Limiter[] {
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
interface Extent {
  /** True for a Select that returns rows without a `limit`. */
  readonly isUnlimited: boolean;
  /** True if `from` is a Select, whose limit does not count. */
  readonly readsSelect?: boolean;
  readonly selected: number;
  /** True if `selected` counts included rows. */
  readonly includes?: boolean;
  /** Rows returned by `returning` and Preview. */
  readonly returned: number | undefined;
  readonly changed: number | undefined;
}

const noRows: Extent = { isUnlimited: false, selected: 0, returned: 0, changed: 0 };

/** The number of rows that the columns of `require_where` allow at most. */
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
 * @param operation undefined for a Select
 * @param isEngine true if the upstream counts unknown numbers itself and rolls back
 */
function operationExtent(
  { mostRows }: OperationNode,
  operation: Operation | undefined,
  isPreview: boolean,
  grant: Grant,
  spelling: ColumnSpelling,
  isEngine: boolean,
): Extent {
  switch (operation?.name) {
    case undefined:
    case "Select":
      return { ...noRows, isUnlimited: mostRows === undefined, selected: mostRows ?? 0 };
    case "Insert":
    case "Upsert": {
      const changed = operation.fields.values.length;
      const answers = isPreview || operation.fields.returning !== undefined;
      return { ...noRows, changed, returned: answers ? (isEngine ? undefined : changed) : 0 };
    }
    case "Update":
    case "Delete": {
      const changed = isEngine ? undefined : pinnedRows(operation, grant, spelling);
      const answers = isPreview || operation.fields.returning !== undefined;
      return { ...noRows, changed, returned: answers ? changed : 0 };
    }
    // Without a default, the compiler asks for each new operation.
    case "Preview":
    case "CreateTable":
    case "DropTable":
    case "CreateDatabase":
    case "DropDatabase":
      return noRows;
  }
}

interface Totals {
  selected: number;
  changed: number;
  /** Indices of the elements that change rows or return changed ones. */
  readonly changing: number[];
  readonly returning: number[];
  isChangeKnown: boolean;
}

/** Adds up the numbers of rows of all elements of a query. */
export class LimitTotals {
  readonly #totals = new Map<Limits, Totals>();
  readonly #isEngine: boolean;
  readonly #previews: ElementLimit[] = [];
  readonly #bytewise = new Map<string, BytewiseColumns>();

  constructor(isEngine: boolean) {
    this.#isEngine = isEngine;
  }

  /** @throws Denied */
  add(element: number, extent: Extent, limiter: Limiter): void {
    const none = { selected: 0, changed: 0, changing: [], returning: [], isChangeKnown: true };
    const totals: Totals = this.#totals.get(limiter.limits) ?? none;
    this.#totals.set(limiter.limits, totals);
    this.#addRows(element, extent, limiter, totals);
    this.#addChanges(element, extent, limiter, totals);
  }

  #addRows(
    element: number,
    { isUnlimited, readsSelect = false, selected, includes = false, returned }: Extent,
    limiter: Limiter,
    totals: Totals,
  ): void {
    const { maxRows } = limiter.limits;
    if (maxRows === undefined) return;
    // The core grammar, which other databases have, lacks after.
    const next = this.#isEngine ? "after or offset" : "offset";
    if (isUnlimited) {
      const place = readsSelect ? " to the outer Select; a limit in from does not count" : "";
      const message = `Add a limit of at most ${counted(maxRows, "row")}${place}; continue with ${next}`;
      throw new Denied({ reason: "limit_required", message, ...limiter.by });
    }
    if (returned === undefined) totals.returning.push(element);
    if (returned === undefined && !this.#isEngine) {
      const message = `Omit returning: at most ${counted(maxRows, "row")} may be returned, and this database cannot enforce that`;
      throw new Denied({ reason: "not_narrowable", message, ...limiter.by });
    }
    totals.selected += selected + (returned ?? 0);
    if (totals.selected <= maxRows) return;
    const limits = includes ? "the limits, also of include (100 without one)" : "the limit";
    const message = `At most ${counted(maxRows, "row")} may be returned, by all elements of a Batch together: lower ${limits}, and continue with ${next}`;
    throw new Denied({ reason: "limit_too_high", message, ...limiter.by });
  }

  #addChanges(element: number, { changed }: Extent, limiter: Limiter, totals: Totals): void {
    const { maxChanges } = limiter.limits;
    if (maxChanges === undefined) return;
    if (changed === undefined || changed > 0) totals.changing.push(element);
    if (changed === undefined) totals.isChangeKnown = false;
    totals.changed += changed ?? 0;
    if (totals.changed <= maxChanges) return;
    const message = `At most ${counted(maxChanges, "row")} may be changed, by all elements of a Batch together: change fewer`;
    throw new Denied({ reason: "too_many_changes", message, ...limiter.by });
  }

  limitPreview(element: number, columns: readonly string[] | undefined): void {
    if (columns !== undefined) this.#previews.push({ elements: [element], columns });
  }

  compareBytes({ database, table, bytewise, ...rest }: BytewiseColumns): void {
    const key = JSON.stringify([database, table]);
    const known = this.#bytewise.get(key);
    const isWritten = rest.written === undefined || known?.written !== undefined;
    if (isWritten && bytewise.every((column) => known?.bytewise.includes(column))) return;
    const columns = [...new Set([...(known?.bytewise ?? []), ...bytewise])];
    this.#bytewise.set(key, { ...known, database, table, bytewise: columns, ...rest });
  }

  bytewise(): BytewiseColumns[] {
    return [...this.#bytewise.values()];
  }

  limits(): ElementLimit[] {
    const limits: ElementLimit[] = [];
    for (const [{ maxRows, maxChanges }, totals] of this.#totals) {
      const { changing, returning, selected, isChangeKnown } = totals;
      if (maxChanges !== undefined && !isChangeKnown) {
        limits.push({ elements: changing, changes: maxChanges });
      }
      if (maxRows !== undefined && returning.length > 0) {
        limits.push({ elements: returning, rows: maxRows - selected });
      }
    }
    return [...limits, ...this.#previews];
  }
}

/**
 * Checks that the `where` of an Update or Delete pins the columns that the entry requires, and few
 * enough rows if the database enforces no limits.
 *
 * @throws Denied
 */
function checkPins(
  operation: Operation<"Update" | "Delete">,
  entry: DecidingEntry,
  limiters: readonly Limiter[],
  spelling: ColumnSpelling,
  isEngine: boolean,
): void {
  const { requireWhere = [] } = entry.grant;
  const free = requireWhere.filter(
    (column) => pinnedValues(operation.fields.where, column, spelling) === undefined,
  );
  const [first] = free;
  if (first !== undefined) {
    const message = `The where must select rows by = or IN with text or whole numbers, at the top or in its top-level "and", for: ${free.join(", ")}`;
    throw new Denied({ reason: "where_required", message, entry });
  }
  if (isEngine) return;
  const rows = pinnedRows(operation, entry.grant, spelling);
  const limiter = limiters.find(
    ({ limits: { maxChanges } }) =>
      maxChanges !== undefined && !(rows !== undefined && rows <= maxChanges),
  );
  if (limiter === undefined) return;
  const most = limiter.limits.maxChanges;
  const remedy =
    rows === undefined
      ? "this database does not count rows, so the entry needs require_where on a unique key"
      : `select at most ${most}, by ${requireWhere.join(", ")}`;
  const message = `At most ${most} rows may be changed: ${remedy}`;
  throw new Denied({ reason: "where_required", message, ...limiter.by });
}

interface NestedTables {
  readonly node: OperationNode;
  readonly tables: readonly TableRight[];
}

interface Counted {
  /** Index in a Batch. */
  readonly element: number;
  readonly totals: LimitTotals;
  readonly isEngine: boolean;
  readonly isPreview: boolean;
  /** Undefined for a Select. */
  readonly operation: Operation | undefined;
}

/**
 * Checks how many rows an operation returns and changes, as far as that is known.
 *
 * @param table the one that is changed, whose entry may require a `where`
 * @throws Denied
 */
export function checkNumbers(
  { element, totals, isEngine, isPreview, operation }: Counted,
  node: OperationNode,
  { table, entry }: TableRight,
  nested: readonly NestedTables[],
  limiters: readonly Limiter[],
): void {
  const spelling = { table, isQualified: false };
  if (operation?.name === "Update" || operation?.name === "Delete") {
    checkPins(operation, entry, limiters, spelling, isEngine);
  }
  const extent = operationExtent(node, operation, isPreview, entry.grant, spelling, isEngine);
  const { readsSelect } = node;
  for (const limiter of limiters) {
    const times = includedRows(nested, limiter);
    const selected = extent.selected * times.reduce((most, one) => Math.max(most, one), 1);
    // Tables in `exists` and `select` are only read.
    const isChanged = limiter.by.entry === undefined || limiter.limits === entry.grant;
    const changed = isChanged ? extent.changed : 0;
    const includes = times.length > 0;
    totals.add(element, { ...extent, changed, selected, includes, readsSelect }, limiter);
  }
}

/** The most rows of each included table that the limits bound, for each outer row. */
function includedRows(nested: readonly NestedTables[], { limits, by }: Limiter): number[] {
  const rows = new Map<string, number>();
  for (const { node, tables } of nested) {
    const [one] = tables;
    if (one === undefined || node.nesting !== "include") continue;
    if (by.entry !== undefined && one.entry.grant !== limits) continue;
    rows.set(one.table, (rows.get(one.table) ?? 0) + node.rowsPerRow);
  }
  return [...rows.values()];
}
