/** Judges one access of a query whose caller may be narrowed. */

import type { OperationDetail } from "../query/operation-detail.ts";
import type { Operation } from "../query/operation-types.ts";
import { isOperationName, type OperationName } from "../query/operations.ts";
import type { Access } from "../query/query.ts";
import { type DecidedTable, judgeColumns } from "./column-rules.ts";
import { type DecidingEntry, entriesInForce } from "./deciding-entry.ts";
import type { DecisionContext, Objection } from "./decision.ts";
import { type Boundary, isNarrowing } from "./grant.ts";
import { extentOf, judgePins, type LimitTally, limitersOf } from "./query-limits.ts";
import { boundaryName, type GivenRight, type GivenRights } from "./rights.ts";
import {
  conditionText,
  filterOf,
  isDemanded,
  judgeRows,
  judgeUpdate,
  type ResolvedCondition,
} from "./row-filter.ts";
import { grantsOf, type Snapshot } from "./snapshot.ts";

/** An access with all that it is judged by. */
export interface JudgedAccess extends GivenRights {
  readonly snapshot: Snapshot;
  readonly username: string;
  readonly context: DecisionContext;
  readonly access: Access;
  /** Its place in a Batch. */
  readonly element: number;
  readonly tally: LimitTally;
}

/** The conditions of an access that passes. */
export interface Filters {
  readonly filters: readonly string[];
  readonly additions: readonly string[];
}

const noFilters: Filters = { filters: [], additions: [] };

function isObjection(value: object): value is Objection {
  return "reason" in value;
}

function unnarrowable(what: string, entry: DecidingEntry | undefined): Objection {
  const message = `${what}: it cannot be kept within what may be read and changed here`;
  return { reason: "not_narrowable", message, entry };
}

/** By what a caller may not reach everything on a database that its role would open. */
export function narrowingOn(
  snapshot: Snapshot,
  username: string,
  database: string,
  boundaries: readonly Boundary[],
  now: number,
): Pick<Objection, "entry" | "boundary"> | undefined {
  const grants = grantsOf(snapshot, username);
  const [entry] = entriesInForce(grants, database, now)
    .filter(({ grant: { requireApproval, ...grant }, isLapsed }) => isLapsed || isNarrowing(grant))
    .toArray()
    .sort((one, other) => (one.name < other.name ? -1 : 1));
  if (entry !== undefined) return { entry };
  const boundary = boundaries.find(
    ({ maxRows, maxChanges }) => maxRows !== undefined || maxChanges !== undefined,
  );
  return boundary && { boundary: boundaryName(boundary) };
}

/** What to do instead of an operation that cannot be narrowed at all. */
function remedyFor(
  { operation, detail }: Access,
  { isEngine }: DecisionContext,
): string | undefined {
  if (!isOperationName(operation)) {
    return `Use Select, Insert, Update or Delete instead of ${operation}`;
  }
  if (operation === "Preview" && !isEngine) return "Leave out Preview before this database";
  if (!detail?.isWhole) return "Send a query of the grammar";
  return detail.hasExtraFields ? "Leave out the fields that the configuration adds" : undefined;
}

/** What cannot be narrowed at all, where the caller is narrowed. */
function judgeKind(judged: JudgedAccess): Objection | undefined {
  const { snapshot, username, access, boundaries, context } = judged;
  const remedy = remedyFor(access, context);
  if (remedy === undefined) return undefined;
  const narrowing = narrowingOn(snapshot, username, access.database, boundaries, context.now);
  return narrowing && { ...unnarrowable(remedy, undefined), ...narrowing };
}

function judgeAliases(
  { context, access }: JudgedAccess,
  tables: readonly DecidedTable[],
): Objection | undefined {
  if (access.detail?.isAggregate !== true || context.isEngine) return undefined;
  const narrowed = tables.find(({ entry }) => entry.grant.columns !== undefined);
  return narrowed && unnarrowable("Leave out aggregate before this database", narrowed.entry);
}

/** A new table can point at rows that may not be seen. A Preview shows the columns that may be named. */
function judgeShown(
  { access, element, tally }: JudgedAccess,
  own: readonly DecidedTable[],
  referenced: readonly DecidedTable[],
): Objection | undefined {
  const hidden = own.find(({ entry }) => entry.grant.columns !== undefined);
  if (access.operation === "Preview") tally.show(element, hidden?.entry.grant.columns);
  const filtered = referenced.find(({ entry }) => entry.grant.rowFilter !== undefined);
  return filtered && unnarrowable(`Leave out references to ${filtered.table}`, filtered.entry);
}

/** The tables of a Select that an outer join may leave without a row. */
function optionalTables({ fields }: Operation<"Select">): ReadonlySet<string> {
  const joins = fields.join === undefined ? [] : [fields.join].flat();
  const optional = new Set<string>();
  const before = [fields.from];
  for (const { table, join_type: type } of joins) {
    if (type === "RIGHT") for (const name of before) optional.add(name);
    if (type === "LEFT") optional.add(table);
    before.push(table);
  }
  return optional;
}

/** What is wrong with what an operation reads or writes of a table, under its row filter, if anything is. */
function judgeContents(
  operation: Operation,
  { table, entry }: DecidedTable,
  filter: readonly ResolvedCondition[],
): Objection | undefined {
  switch (operation.name) {
    case "Insert":
      return judgeRows(operation.fields.values, filter, entry.grant);
    case "Update":
      return judgeUpdate(operation.fields, filter);
    case "Select": {
      if (!optionalTables(operation).has(table)) return undefined;
      const message = `Join ${table} by INNER, or from its other side: only some of its rows may be read, and an outer join would show the others as absent`;
      return { reason: "join_denied", message };
    }
    default:
      return undefined;
  }
}

/** Operations whose rows a `where` chooses. */
const choosing: ReadonlySet<string> = new Set<OperationName>(["Select", "Update", "Delete"]);

/** Judges an operation by the row filter of one of its tables. */
function filterTable(
  { snapshot, username, access: { database }, tally }: JudgedAccess,
  detail: OperationDetail,
  decided: DecidedTable,
  isJoin: boolean,
): Filters | Objection {
  const { table, entry } = decided;
  const { rowFilter, requireWhere } = entry.grant;
  if (detail.operation === "Upsert" && (rowFilter ?? requireWhere) !== undefined) {
    return unnarrowable("Use Insert or Update instead of Upsert", entry);
  }
  const isPinned = detail.operation === "Update" || detail.operation === "Delete";
  if (isPinned && requireWhere !== undefined) {
    tally.compareBytes({ database, table, bytewise: requireWhere });
  }
  if (rowFilter === undefined) return noFilters;
  const filter = filterOf(entry.grant, snapshot.users.get(username));
  if (isObjection(filter)) return filter;
  // A Select of one table is not parsed: nothing in it is in the way.
  const operation = detail.operation === "Select" && !isJoin ? undefined : detail.fields();
  const objection = operation && judgeContents(operation, decided, filter);
  if (objection !== undefined) return objection;
  const isWritten = detail.operation === "Insert" || detail.operation === "Update";
  const written = filter.map(({ column, cmp, value }) => ({ column, cmp, value }));
  const bytewise = filter.map(({ column }) => column);
  tally.compareBytes({ database, table, bytewise, ...(isWritten ? { written } : {}) });
  if (!choosing.has(detail.operation)) return noFilters;
  const spelling = { table, isQualified: isJoin };
  const where = detail.condition();
  const missing = filter.filter((condition) => !isDemanded(condition, where, spelling));
  const textsOf = (conditions: readonly ResolvedCondition[]) =>
    conditions.map((condition) => conditionText(condition, spelling));
  const filters = textsOf(filter);
  return { filters, additions: missing.length === filter.length ? filters : textsOf(missing) };
}

function judgeNumbers(
  judged: JudgedAccess,
  detail: OperationDetail,
  { table, entry }: DecidedTable,
): Objection | undefined {
  const { access, context, element, tally } = judged;
  const limiters = limitersOf(judged);
  if (limiters.length === 0 && entry.grant.requireWhere === undefined) return undefined;
  const operation = detail.fields();
  if (operation === undefined) return undefined;
  const spelling = { table, isQualified: false };
  const { isEngine } = context;
  if (operation.name === "Update" || operation.name === "Delete") {
    const objection = judgePins(operation, entry, limiters, spelling, isEngine);
    if (objection !== undefined) return objection;
  }
  const isPreview = access.operation === "Preview";
  const extent = extentOf(operation, isPreview, entry.grant, spelling, isEngine);
  for (const limiter of limiters) {
    const objection = tally.add(element, extent, limiter);
    if (objection !== undefined) return objection;
  }
  return undefined;
}

/** Judges an operation by the row filters of its tables. */
function judgeRowFilters(
  judged: JudgedAccess,
  detail: OperationDetail,
  tables: readonly DecidedTable[],
): Filters | Objection {
  const filters: string[] = [];
  const additions: string[] = [];
  const seen = new Set<string>();
  for (const one of tables) {
    if (seen.has(one.table)) continue;
    seen.add(one.table);
    const filtered = filterTable(judged, detail, one, tables.length > 1);
    if (isObjection(filtered)) return { entry: one.entry, ...filtered };
    filters.push(...filtered.filters);
    additions.push(...filtered.additions);
  }
  return { filters, additions };
}

/** Judges an access of which each right is given, by all that narrows it. */
export function judgeNarrowed(judged: JudgedAccess): Filters | Objection {
  const { access, rights } = judged;
  const { detail, tables } = access;
  const kind = judgeKind(judged);
  if (kind !== undefined) return kind;
  const decided = rights.filter(isOfTable);
  const [first] = decided;
  if (first === undefined || detail === undefined) return noFilters;
  if (!isOperationName(detail.operation)) return noFilters;
  const own = decided.slice(0, tables.length);
  const filtered =
    judgeColumns(detail, decided, own.length) ??
    judgeShown(judged, own, decided.slice(own.length)) ??
    judgeAliases(judged, own) ??
    judgeRowFilters(judged, detail, own);
  if (isObjection(filtered)) return filtered;
  return judgeNumbers(judged, detail, first) ?? filtered;
}

function isOfTable(right: GivenRight): right is GivenRight & DecidedTable {
  return right.table !== undefined;
}
