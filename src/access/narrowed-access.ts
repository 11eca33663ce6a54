/** Judges one access of a query whose caller may be narrowed. */

import type { Operation } from "../query/operation-types.ts";
import { isOperationName } from "../query/operations.ts";
import type { Access } from "../query/query.ts";
import { boundaryName } from "./boundaries.ts";
import { type DecidedTable, judgeColumns } from "./column-rules.ts";
import type { ColumnSpelling } from "./conditions.ts";
import { type DecidingEntry, entriesInForce } from "./deciding-entry.ts";
import type { DecisionContext, Objection } from "./decision.ts";
import { type Boundary, isNarrowing } from "./grant.ts";
import { extentOf, judgePins, type Limiter, type LimitTally } from "./query-limits.ts";
import type { GivenRights } from "./rights.ts";
import { conditionText, isDemanded, judgeRows, judgeUpdate, resolveFilter } from "./row-filter.ts";
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
  { context }: JudgedAccess,
  tables: readonly DecidedTable[],
  operation: Operation,
): Objection | undefined {
  const isAliased = operation.name === "Select" && operation.fields.aggregate !== undefined;
  if (!isAliased || context.isEngine) return undefined;
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

/** Judges an operation by the row filter of one of its tables. */
function filterTable(
  { snapshot, username }: JudgedAccess,
  operation: Operation,
  { table, entry }: DecidedTable,
  spelling: ColumnSpelling,
): Filters | Objection {
  const { grant } = entry;
  if (operation.name === "Upsert" && (grant.rowFilter ?? grant.requireWhere) !== undefined) {
    return unnarrowable("Use Insert or Update instead of Upsert", entry);
  }
  if (grant.rowFilter === undefined) return noFilters;
  const owner = { username, record: snapshot.users.get(username) };
  const resolved = resolveFilter(grant.rowFilter, owner);
  if (isObjection(resolved)) return resolved;
  switch (operation.name) {
    case "Insert":
      return judgeRows(operation.fields.values, resolved) ?? noFilters;
    case "Select": {
      if (!optionalTables(operation).has(table)) break;
      const message = `Join ${table} by INNER, or from its other side: only some of its rows may be read, and an outer join would show the others as absent`;
      return { reason: "join_denied", message };
    }
    case "Update": {
      const objection = judgeUpdate(operation.fields, resolved);
      if (objection !== undefined) return objection;
      break;
    }
    case "Delete":
      break;
    default:
      return noFilters;
  }
  const { where } = operation.fields;
  const missing = resolved.filter((condition) => !isDemanded(condition, where, spelling));
  return {
    filters: resolved.map((condition) => conditionText(condition, spelling)),
    additions: missing.map((condition) => conditionText(condition, spelling)),
  };
}

function limits({ maxRows, maxChanges }: Limiter["limits"]): boolean {
  return maxRows !== undefined || maxChanges !== undefined;
}

/** Entries and boundaries that limit an access, each once. */
function limitersOf({ rights, boundaries }: JudgedAccess): Limiter[] {
  const limiters: Limiter[] = [];
  for (const { entry } of rights) {
    const isNew = limiters.every(({ limits }) => limits !== entry.grant);
    if (isNew && limits(entry.grant)) limiters.push({ limits: entry.grant, by: { entry } });
  }
  for (const boundary of boundaries.filter(limits)) {
    limiters.push({ limits: boundary, by: { boundary: boundaryName(boundary) } });
  }
  return limiters;
}

function judgeNumbers(
  judged: JudgedAccess,
  operation: Operation,
  { table, entry }: DecidedTable,
): Objection | undefined {
  const { access, context, element, tally } = judged;
  const limiters = limitersOf(judged);
  const spelling = { table, isQualified: false };
  const { isEngine } = context;
  if (operation.name === "Update" || operation.name === "Delete") {
    const objection = judgePins(operation, entry, limiters, spelling, isEngine);
    if (objection !== undefined) return objection;
  }
  if (limiters.length === 0) return undefined;
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
  operation: Operation,
  tables: readonly DecidedTable[],
): Filters | Objection {
  const filters: string[] = [];
  const additions: string[] = [];
  for (const one of new Map(tables.map((table) => [table.table, table])).values()) {
    const spelling = { table: one.table, isQualified: tables.length > 1 };
    const filtered = filterTable(judged, operation, one, spelling);
    if (isObjection(filtered)) return { entry: one.entry, ...filtered };
    filters.push(...filtered.filters);
    additions.push(...filtered.additions);
  }
  return { filters, additions };
}

/** Judges an access of which each right is given, by all that narrows it. */
export function judgeNarrowed(judged: JudgedAccess): Filters | Objection {
  const { snapshot, username, access, rights, context } = judged;
  const grants = grantsOf(snapshot, username);
  const { detail, database } = access;
  const kind = judgeKind(judged);
  if (kind !== undefined) return kind;
  const decided = rights.flatMap(({ table, entry }) =>
    table === undefined ? [] : [{ table, entry }],
  );
  const own = decided.slice(0, access.tables.length);
  const [first] = own;
  const operation = detail?.fields();
  if (detail === undefined || operation === undefined || first === undefined) return noFilters;
  const filtered =
    judgeColumns(grants, database, detail, decided, own.length, context.now) ??
    judgeShown(judged, own, decided.slice(own.length)) ??
    judgeAliases(judged, own, operation) ??
    judgeRowFilters(judged, operation, own);
  if (isObjection(filtered)) return filtered;
  return judgeNumbers(judged, operation, first) ?? filtered;
}
