import { writeDigits } from "../json/document.ts";
import { quoteName } from "../json/fault.ts";
import type { BytewiseColumns } from "../query/limits.ts";
import type { NestedDetail, OperationDetail } from "../query/operation-detail.ts";
import type { Position } from "../query/operation-draft.ts";
import type { Operation } from "../query/operation-types.ts";
import { definitions, isOperationName } from "../query/operations.ts";
import type { Access, PermissionClass, Query } from "../query/query.ts";
import { counted } from "../suggestion.ts";
import { FoldedNames } from "./entries.ts";
import {
  type Boundary,
  type Grant,
  isNarrowing,
  type Limits,
  type RowCondition,
  type Subject,
} from "./grant.ts";
import { type Caller, grantsFor } from "./groups.ts";
import {
  type ApprovalRule,
  boundaryName,
  type DecidingEntry,
  type Decision,
  type DecisionContext,
  denied,
  type ElementLimit,
  entriesInForce,
  type GivenRight,
  type GivenRights,
  granted,
  judgeRights,
  type Objection,
  type QueryDecision,
  type WantedRight,
} from "./rights.ts";
import {
  type ColumnSpelling,
  conditionText,
  filterOf,
  isDemanded,
  judgeBinding,
  judgeRows,
  judgeUpdate,
  pinnedValues,
} from "./row-filter.ts";
import type { Snapshot } from "./snapshot.ts";

/** `name` is the table's name in the query, which `as` may give. */
type DecidedTable = GivenRight & { readonly table: string; readonly name: string };

type NestedTables = NestedDetail & { readonly tables: readonly DecidedTable[] };

const folded = new WeakMap<Grant, FoldedNames>();

/** All columns that an entry names, remembered because folding takes longer than judging. */
function columnsNamedBy(grant: Grant): FoldedNames {
  let names = folded.get(grant);
  if (names === undefined) {
    const { columns = [], writableColumns = [], rowFilter = [], requireWhere = [] } = grant;
    const filtered = rowFilter.map(({ column }) => column);
    names = new FoldedNames();
    for (const name of new Set([...columns, ...writableColumns, ...filtered, ...requireWhere])) {
      names.add(name);
    }
    folded.set(grant, names);
  }
  return names;
}

const writing: ReadonlySet<Position> = new Set(["values", "set", "add", "bind", "update"]);

/** In a join, columns of such a table must be qualified. */
function isPartial({ entry: { grant } }: DecidedTable): boolean {
  return (grant.columns ?? grant.writableColumns ?? grant.rowFilter) !== undefined;
}

function list(columns: readonly string[] = []): string {
  return columns.length === 0 ? "none" : columns.map(quoteName).join(", ");
}

function judgeStar(tables: readonly DecidedTable[], isSole: boolean): Objection | undefined {
  const narrowed = tables.filter(({ entry }) => entry.grant.columns !== undefined);
  const allowed = narrowed.flatMap(({ name, entry: { grant } }) =>
    (grant.columns ?? []).map((column) => (isSole ? column : `${name}.${column}`)),
  );
  const message = `Name the columns instead of *: ${list(allowed)}`;
  return narrowed[0] && { reason: "columns_required", message, entry: narrowed[0].entry };
}

function judgeColumn(
  position: Position,
  column: string,
  { table, entry, matching }: DecidedTable,
): Objection | undefined {
  const written = () => `The column ${quoteName(column)} of ${quoteName(table)}`;
  for (const other of matching) {
    const spelling = columnsNamedBy(other.grant).otherSpelling(column);
    if (spelling === undefined) continue;
    const message = `${written()} differs only by case or form from ${quoteName(spelling)}: use that spelling`;
    return { reason: "name_case_mismatch", message, entry: other };
  }
  const { columns, writableColumns } = entry.grant;
  if (columns?.includes(column) === false) {
    const place = position === "on" ? " in on, which takes only columns of tables" : "";
    const message = `${written()} may not be used${place}; allowed: ${list(columns)}`;
    return { reason: "column_denied", message, entry };
  }
  if (!writing.has(position) || writableColumns?.includes(column) !== false) return undefined;
  const allowed = writableColumns.filter((name) => columns?.includes(name) !== false);
  const message = `${written()} may not be written; allowed: ${list(allowed)}`;
  return { reason: "column_denied", message, entry };
}

function qualifiedNames(column: string, tables: readonly DecidedTable[]): string {
  const likely = tables.filter(({ entry }) => entry.grant.columns?.includes(column) !== false);
  const places = likely.length === 0 ? tables : likely;
  return places.map(({ name }) => quoteName(`${name}.${column}`)).join(" or ");
}

function judgeUse(
  position: Position,
  written: string,
  tables: readonly DecidedTable[],
  own: readonly DecidedTable[],
  isSole: boolean,
): Objection | undefined {
  if (written === "*") return position === "aggregate" ? undefined : judgeStar(own, isSole);
  const dot = written.indexOf(".");
  const partial = dot === -1 && !isSole ? own.find(isPartial) : undefined;
  if (partial !== undefined) {
    const message = `Write the column ${quoteName(written)} with its table, as in ${qualifiedNames(written, own)}, since only a part of ${quoteName(partial.table)} may be read`;
    return { reason: "column_unqualified", message, entry: partial.entry };
  }
  const column = written.slice(dot + 1);
  const table = dot === -1 ? undefined : written.slice(0, dot);
  for (const one of table === undefined ? own : tables) {
    if (table !== undefined && one.name !== table) continue;
    const objection = judgeColumn(position, column, one);
    if (objection !== undefined) return objection;
  }
  return undefined;
}

/** True if columns need no table's name, since nothing else is read. */
function readsOneTable({ tables, readsSelect }: OperationDetail): boolean {
  return tables.length === 1 && !readsSelect;
}

/** @param tables the operation's `own` tables, then those that a new table refers to */
function judgeColumns(
  detail: OperationDetail,
  tables: readonly DecidedTable[],
  own: readonly DecidedTable[],
): Objection | undefined {
  const isSole = readsOneTable(detail);
  for (const [position, columns] of detail.uses) {
    for (const column of columns) {
      const objection = judgeUse(position, column, tables, own, isSole);
      if (objection !== undefined) return objection;
    }
  }
  return undefined;
}

interface Limiter {
  readonly limits: Limits;
  readonly by: Pick<Objection, "entry" | "boundary">;
}

function isLimiting({ maxRows, maxChanges }: Limits): boolean {
  return (maxRows ?? maxChanges) !== undefined;
}

function limitersOf({ rights, boundaries }: GivenRights): Limiter[] {
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
function extentOf(
  { mostRows }: OperationDetail,
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

interface Tally {
  selected: number;
  changed: number;
  /** Indices of the elements that change rows or return changed ones. */
  readonly changing: number[];
  readonly returning: number[];
  isChangeKnown: boolean;
}

class LimitTally {
  readonly #tallies = new Map<Limits, Tally>();
  readonly #isEngine: boolean;
  readonly #previews: ElementLimit[] = [];
  readonly #bytewise = new Map<string, BytewiseColumns>();

  constructor(isEngine: boolean) {
    this.#isEngine = isEngine;
  }

  add(element: number, extent: Extent, limiter: Limiter): Objection | undefined {
    const none = { selected: 0, changed: 0, changing: [], returning: [], isChangeKnown: true };
    const tally: Tally = this.#tallies.get(limiter.limits) ?? none;
    this.#tallies.set(limiter.limits, tally);
    return (
      this.#addRows(element, extent, limiter, tally) ??
      this.#addChanges(element, extent, limiter, tally)
    );
  }

  #addRows(
    element: number,
    { isUnlimited, readsSelect = false, selected, includes = false, returned }: Extent,
    limiter: Limiter,
    tally: Tally,
  ): Objection | undefined {
    const { maxRows } = limiter.limits;
    if (maxRows === undefined) return undefined;
    if (isUnlimited) {
      const place = readsSelect ? " to the outer Select; a limit in from does not count" : "";
      const message = `Add a limit of at most ${counted(maxRows, "row")}${place}; continue with after or offset`;
      return { reason: "limit_required", message, ...limiter.by };
    }
    if (returned === undefined) tally.returning.push(element);
    if (returned === undefined && !this.#isEngine) {
      const message = `Omit returning: at most ${counted(maxRows, "row")} may be returned, and this database cannot enforce that`;
      return { reason: "not_narrowable", message, ...limiter.by };
    }
    tally.selected += selected + (returned ?? 0);
    if (tally.selected <= maxRows) return undefined;
    const limits = includes ? "the limits, also of include (100 without one)" : "the limit";
    const message = `At most ${counted(maxRows, "row")} may be returned, by all elements of a Batch together: lower ${limits}, and continue with after or offset`;
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
    const message = `At most ${counted(maxChanges, "row")} may be changed, by all elements of a Batch together: change fewer`;
    return { reason: "too_many_changes", message, ...limiter.by };
  }

  limitPreview(element: number, columns: readonly string[] | undefined): void {
    if (columns !== undefined) this.#previews.push({ elements: [element], columns });
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

  limits(): ElementLimit[] {
    const totals = Array.from(this.#tallies, ([{ maxRows, maxChanges }, tally]) => [
      ...(maxChanges === undefined || tally.isChangeKnown
        ? []
        : [{ elements: tally.changing, changes: maxChanges }]),
      ...(maxRows === undefined || tally.returning.length === 0
        ? []
        : [{ elements: tally.returning, rows: maxRows - tally.selected }]),
    ]).flat();
    return [...totals, ...this.#previews];
  }
}

/**
 * Checks that the `where` of an Update or Delete pins the columns that the entry requires, and few
 * enough rows if the database enforces no limits.
 */
function judgePins(
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
    const message = `The where must select rows by = or IN with text or whole numbers, at the top or in its top-level "and", for: ${free.join(", ")}`;
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
      ? "this database does not count rows, so the entry needs require_where on a unique key"
      : `select at most ${most}, by ${requireWhere.join(", ")}`;
  return {
    reason: "where_required",
    message: `At most ${most} rows may be changed: ${remedy}`,
    ...limiter.by,
  };
}

interface JudgedAccess extends GivenRights {
  readonly snapshot: Snapshot;
  readonly subject: Subject;
  readonly context: DecisionContext;
  readonly access: Access;
  /** Index in a Batch. */
  readonly element: number;
  readonly tally: LimitTally;
  /** The parsed fields. Undefined for a Select, of which the scan has noted all that matters. */
  readonly fields: (detail: OperationDetail) => Operation | undefined;
}

interface Filters {
  readonly filters: readonly string[];
  readonly additions: readonly string[];
}

type Narrowing = Filters & Pick<Decision, "placed">;

const noFilters: Filters = { filters: [], additions: [] };

function unnarrowable(what: string, entry: DecidingEntry | undefined): Objection {
  const message = `${what}: it cannot be limited to what the caller may read and change`;
  return { reason: "not_narrowable", message, entry };
}

/**
 * The entry or boundary that keeps a caller from everything the role would allow on a database.
 *
 * @param ofTable the deciding entry of a table, if only that table is reached
 */
export function narrowingOn(
  snapshot: Snapshot,
  caller: Caller,
  database: string,
  boundaries: readonly Boundary[],
  now: number,
  ofTable?: DecidingEntry,
): Pick<Objection, "entry" | "boundary"> | undefined {
  const grants = grantsFor(snapshot, caller, now);
  const entries = ofTable ? [ofTable] : [...entriesInForce(grants, database, now)];
  const [entry] = entries
    .filter(({ grant: { requireApproval, tables, ...grant }, isExpired }) => {
      const isOfPart = ofTable === undefined && tables !== undefined;
      return isExpired || isOfPart || isNarrowing(grant);
    })
    .sort((one, other) => (one.name < other.name ? -1 : 1));
  if (entry !== undefined) return { entry };
  const boundary = boundaries.find(isLimiting);
  return boundary && { boundary: boundaryName(boundary) };
}

function remedyFor(
  { operation, detail }: Access,
  { isEngine }: DecisionContext,
): string | undefined {
  if (!isOperationName(operation)) {
    return `Use Select, Insert, Update or Delete instead of ${operation}`;
  }
  if (operation === "Preview" && !isEngine) return "Do not use Preview with this database";
  if (!detail?.isWhole) return "Use only the query grammar";
  // Another database may take a column of the condition for one of the tables around it.
  if (detail.nested.length > 0 && !isEngine) {
    return "Omit exists, select and include with this database";
  }
  return detail.hasExtraFields ? "Omit the fields that the configuration adds" : undefined;
}

function judgeKind(judged: JudgedAccess): Objection | undefined {
  const { snapshot, subject, access, boundaries, context } = judged;
  const remedy = remedyFor(access, context);
  if (remedy === undefined) return undefined;
  const narrowing = narrowingOn(snapshot, subject, access.database, boundaries, context.now);
  return narrowing && { ...unnarrowable(remedy, undefined), ...narrowing };
}

/** Other databases may let a new name hide a column, even that of a row filter. */
function judgeAliases(
  { context, access }: JudgedAccess,
  tables: readonly DecidedTable[],
): Objection | undefined {
  const { isAggregate = false, isComputed = false } = access.detail ?? {};
  if (context.isEngine || !(isAggregate || isComputed)) return undefined;
  const narrowed = tables.find(
    ({ entry: { grant } }) =>
      grant.columns !== undefined || (isComputed && grant.rowFilter !== undefined),
  );
  return (
    narrowed &&
    unnarrowable(
      `Do not use ${isComputed ? "compute" : "aggregate"} with this database`,
      narrowed.entry,
    )
  );
}

/** Refuses references to filtered tables, since a new table could point at hidden rows. */
function judgeTables(
  { access, element, tally }: JudgedAccess,
  own: readonly DecidedTable[],
  referenced: readonly DecidedTable[],
): Objection | undefined {
  const hidden = own.find(({ entry }) => entry.grant.columns !== undefined);
  if (access.operation === "Preview") tally.limitPreview(element, hidden?.entry.grant.columns);
  const filtered = referenced.find(({ entry }) => entry.grant.rowFilter !== undefined);
  return filtered && unnarrowable(`Omit references to ${filtered.table}`, filtered.entry);
}

function judgeContents(
  operation: Operation,
  { entry }: DecidedTable,
  filter: readonly RowCondition[],
): Objection | undefined {
  switch (operation.name) {
    case "Insert":
      return (
        judgeBinding(operation.fields, filter) ??
        judgeRows(operation.fields.values, filter, entry.grant)
      );
    case "Update":
      return judgeBinding(operation.fields, filter) ?? judgeUpdate(operation.fields, filter);
    default:
      return undefined;
  }
}

function filterTable(
  { snapshot, subject, access: { database }, tally, fields }: JudgedAccess,
  detail: OperationDetail,
  decided: DecidedTable,
  isJoin: boolean,
): Filters | Objection {
  const { table, name, entry } = decided;
  const { rowFilter, requireWhere } = entry.grant;
  // A row filter can be added to an operation with a `where`.
  const isSelective =
    isOperationName(detail.operation) && "where" in definitions[detail.operation].fields;
  const isNarrowable = isSelective || detail.operation === "Insert";
  if (!isNarrowable && (rowFilter ?? requireWhere) !== undefined) {
    return unnarrowable(`Use Insert or Update instead of ${detail.operation}`, entry);
  }
  const isPinned = detail.operation === "Update" || detail.operation === "Delete";
  if (isPinned && requireWhere !== undefined) {
    tally.compareBytes({ database, table, bytewise: requireWhere });
  }
  if (rowFilter === undefined) return noFilters;
  const filter = filterOf(entry.grant, subject, snapshot.users.get(subject.username));
  if ("reason" in filter) return filter;
  if (detail.optional.has(name)) {
    const message = `Join ${table} by INNER, or from the other side: only some of its rows may be read, and an outer join would show the others as missing`;
    return { reason: "join_denied", message };
  }
  const isWritten = detail.operation === "Insert" || detail.operation === "Update";
  const operation = isWritten ? fields(detail) : undefined;
  const objection = operation && judgeContents(operation, decided, filter);
  if (objection !== undefined) return objection;
  const bytewise = filter.map(({ column }) => column);
  tally.compareBytes({ database, table, bytewise, ...(isWritten ? { written: filter } : {}) });
  if (!isSelective) return noFilters;
  const spelling = { table: name, isQualified: isJoin };
  const { terms } = detail;
  const missing = filter.filter((condition) => !isDemanded(condition, terms, spelling));
  const textsOf = (conditions: readonly RowCondition[]) =>
    conditions.map((condition) => conditionText(condition, spelling));
  const filters = textsOf(filter);
  return { filters, additions: missing.length === filter.length ? filters : textsOf(missing) };
}

function judgeNumbers(
  judged: JudgedAccess,
  detail: OperationDetail,
  { table, entry }: DecidedTable,
  nested: readonly NestedTables[],
): Objection | undefined {
  const { access, context, element, tally, fields } = judged;
  const limiters = limitersOf(judged);
  if (limiters.length === 0 && entry.grant.requireWhere === undefined) return undefined;
  const operation = fields(detail);
  const spelling = { table, isQualified: false };
  const { isEngine } = context;
  if (operation?.name === "Update" || operation?.name === "Delete") {
    const objection = judgePins(operation, entry, limiters, spelling, isEngine);
    if (objection !== undefined) return objection;
  }
  const isPreview = access.operation === "Preview";
  const extent = extentOf(detail, operation, isPreview, entry.grant, spelling, isEngine);
  for (const limiter of limiters) {
    const times = includedRows(nested, limiter);
    const selected = extent.selected * times.reduce((most, one) => Math.max(most, one), 1);
    const includes = times.length > 0;
    const { readsSelect } = detail;
    const objection = tally.add(element, { ...extent, selected, includes, readsSelect }, limiter);
    if (objection !== undefined) return objection;
  }
  return undefined;
}

/** The most rows of each included table that the limits bound, for each outer row. */
function includedRows(nested: readonly NestedTables[], { limits, by }: Limiter): number[] {
  const rows = new Map<string, number>();
  for (const { tables, rowsPerRow } of nested) {
    const [one] = tables;
    if (one === undefined || rowsPerRow === undefined) continue;
    if (by.entry !== undefined && one.entry.grant !== limits) continue;
    rows.set(one.table, (rows.get(one.table) ?? 0) + rowsPerRow);
  }
  return [...rows.values()];
}

function judgeRowFilters(
  judged: JudgedAccess,
  detail: OperationDetail,
  tables: readonly DecidedTable[],
): Filters | Objection {
  const filters: string[] = [];
  const additions: string[] = [];
  const seen = new Set<string>();
  const isJoin = !readsOneTable(detail);
  for (const one of tables) {
    if (seen.has(one.name)) continue;
    seen.add(one.name);
    const filtered = filterTable(judged, detail, one, isJoin);
    if ("reason" in filtered) return { entry: one.entry, ...filtered };
    for (const one of filtered.filters) filters.push(one);
    for (const one of filtered.additions) additions.push(one);
  }
  return { filters, additions };
}

function judgeNarrowed(judged: JudgedAccess): Narrowing | Objection {
  const { access, rights } = judged;
  const { detail, tables } = access;
  const kind = judgeKind(judged);
  if (kind !== undefined) return kind;
  const decided = rights.flatMap(({ table, ...right }) =>
    table === undefined ? [] : [{ ...right, table, name: table }],
  );
  const [first] = decided;
  if (first === undefined || detail === undefined) return noFilters;
  if (!isOperationName(detail.operation)) return noFilters;
  const own = named(decided.slice(0, detail.tables.length), detail.names);
  const others = decided.slice(own.length, tables.length);
  const referenced = decided.slice(tables.length);
  const filtered =
    judgeColumns(detail, [...own, ...referenced], own) ??
    judgeTables(judged, own, referenced) ??
    judgeAliases(judged, own) ??
    judgeRowFilters(judged, detail, own);
  if ("reason" in filtered) return filtered;
  const nested = detail.nested.map((one): NestedTables => {
    const { tables, names } = one.detail;
    return { ...one, tables: named(others.splice(0, tables.length), names) };
  });
  const inner =
    judgeNumbers(judged, detail, first, nested) ?? judgeNested(judged, detail, own, nested);
  if ("reason" in inner) return inner;
  const all = [filtered, ...inner];
  const placed = all.map(({ additions }) => additions);
  return { filters: all.flatMap(({ filters }) => filters), additions: placed.flat(), placed };
}

function named(tables: readonly DecidedTable[], names: readonly string[]): DecidedTable[] {
  return tables.map((one, at) => ({ ...one, name: names[at] ?? one.table }));
}

/** Judges nested operations as Selects of their own. */
function judgeNested(
  judged: JudgedAccess,
  detail: OperationDetail,
  own: readonly DecidedTable[],
  nested: readonly NestedTables[],
): Filters[] | Objection {
  const all: Filters[] = [];
  const tablesOf = new Map([[detail, own]]);
  for (const { detail: inner, linked, tables } of nested) {
    tablesOf.set(inner, tables);
    const around = linked === undefined ? [] : (tablesOf.get(linked) ?? []);
    const filtered =
      judgeColumns(inner, [...tables, ...around], tables) ?? judgeRowFilters(judged, inner, tables);
    if ("reason" in filtered) return filtered;
    all.push(filtered);
  }
  return all;
}

/** Tables that a new table refers to and those of nested operations need only SELECT. */
function wantedRights({ operation, permissions, tables, detail }: Access): readonly WantedRight[] {
  if (tables.length === 0) return [{ table: undefined, permissions }];
  const { referenced = [], tables: first = tables } = detail ?? {};
  if (referenced.length === 0 && first.length === tables.length) {
    return tables.map((table) => ({ table, permissions }));
  }
  const reads = isOperationName(operation) && definitions[operation].permissions.includes("SELECT");
  const own = reads ? permissions : permissions.filter((permission) => permission !== "SELECT");
  const read = ["SELECT"] as const;
  return [
    ...first.map((table) => ({ table, permissions: own })),
    ...tables.slice(first.length).map((table) => ({ table, permissions: read })),
    ...referenced.map((table) => ({ table, permissions: read })),
  ];
}

export function approvalsOf(
  database: string,
  { rights, boundaries }: GivenRights,
): readonly ApprovalRule[] {
  const rules: ApprovalRule[] = [];
  const add = (
    { requireApproval, approvers }: Limits,
    used: readonly PermissionClass[],
    by: Pick<ApprovalRule, "entry" | "boundary">,
  ) => {
    if (requireApproval === undefined) return;
    const permissions = used.filter((permission) => requireApproval.includes(permission));
    if (permissions.length === 0) return;
    rules.push({ database, ...by, permissions, ...(approvers === undefined ? {} : { approvers }) });
  };
  for (const { entry, permissions } of rights) add(entry.grant, permissions, { entry: entry.name });
  for (const boundary of boundaries) {
    const used = new Set(rights.flatMap(({ permissions }) => permissions));
    add(boundary, [...used], { boundary: boundaryName(boundary) });
  }
  return rules;
}

/** A Preview changes nothing, so only the approval of what it shows counts. */
function onlyReading({ rights, boundaries }: GivenRights): GivenRights {
  const read = rights.map((right) => ({ ...right, permissions: ["SELECT"] as const }));
  return { rights: read, boundaries };
}

/** The names are part of stored approvals. */
function basisOfRight({ table, permissions, entry: { grant, name, isExpired } }: GivenRight) {
  return { table, permissions, entry: { grant, name, isLapsed: isExpired } };
}

/** An approval is void if this text differs when it is used. */
function basisOf(given: readonly GivenRights[], decisions: readonly Decision[]): string {
  const grounds = given.map(({ rights, boundaries }, at) => [
    { rights: rights.map(basisOfRight), boundaries },
    decisions[at]?.filters ?? [],
  ]);
  return JSON.stringify(grounds, writeDigits);
}

export function decideNarrowedQuery(
  snapshot: Snapshot,
  subject: Subject,
  { accesses }: Query,
  context: DecisionContext,
): QueryDecision {
  const tally = new LimitTally(context.isEngine);
  const decisions: Decision[] = [];
  const approvals: ApprovalRule[] = [];
  const all: GivenRights[] = [];
  const fields = (detail: OperationDetail) =>
    detail.operation === "Select" ? undefined : detail.fields();
  const deny = (decision: Decision): QueryDecision => {
    decisions.push(decision);
    return { allowed: false, reason: decision.reason, decisions, limits: [], approvals: [] };
  };
  for (const [element, access] of accesses.entries()) {
    const given = judgeRights(snapshot, subject, access.database, wantedRights(access), context);
    if ("reason" in given) return deny(given);
    const { rights, boundaries } = given;
    const judging = { snapshot, subject, context, element, tally, fields };
    const judged = { ...judging, access, rights, boundaries };
    const narrowed = judgeNarrowed(judged);
    if ("reason" in narrowed) return deny(denied({ entry: rights[0]?.entry, ...narrowed }));
    const decision = granted(given);
    decisions.push(narrowed.filters.length === 0 ? decision : { ...decision, ...narrowed });
    const isPreview = access.operation === "Preview";
    const used = isPreview ? onlyReading(given) : given;
    for (const one of approvalsOf(access.database, used)) approvals.push(one);
    all.push(given);
  }
  const isPending = approvals.length > 0 && context.isApproved !== true;
  const reason = decisions.length === 0 ? "no_grant" : isPending ? "approval_required" : "allowed";
  return {
    allowed: reason === "allowed",
    reason,
    decisions,
    limits: tally.limits(),
    bytewise: tally.bytewise(),
    approvals,
    ...(approvals.length === 0 ? {} : { basis: basisOf(all, decisions) }),
  };
}
