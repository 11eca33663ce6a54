import { writeDigits } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { requiredTerms, termText } from "../query/conditions.ts";
import type { BytewiseColumns, RowCondition } from "../query/limits.ts";
import type { OperationNode } from "../query/node.ts";
import { definitions, isOperationName } from "../query/operations.ts";
import type { Access, Query } from "../query/query.ts";
import type { CellValue, Condition, Operation, Row, Term } from "../query/tree.ts";
import { readsOneTable, type TableRight } from "./column-checks.ts";
import type { DecidingEntry } from "./entries.ts";
import {
  type AttributeValue,
  attributeReference,
  groupOf,
  isWhole,
  type Literal,
  lowest,
  readHolder,
  type Subject,
} from "./grant.ts";
import type { Caller } from "./groups.ts";
import {
  type Decision,
  Denied,
  filterAdditions,
  type Objection,
  type TableFilter,
  unnarrowable,
} from "./rights.ts";
import { isExternalUsername } from "./roles.ts";
import type { Snapshot } from "./snapshot.ts";

export interface ColumnSpelling {
  readonly table: string;
  /** True in a join, where only a qualified column belongs to a table. */
  readonly isQualified: boolean;
}

function isColumn(
  written: string,
  column: string,
  { table, isQualified }: ColumnSpelling,
): boolean {
  return written === `${table}.${column}` || (!isQualified && written === column);
}

/** Compares JSON type and characters. Whole numbers are compared by value. */
function areEqual(one: Literal, other: CellValue): boolean {
  if (one === other) return true;
  const isLarge = typeof one === "bigint" || typeof other === "bigint";
  return isLarge && isWhole(one) && isWhole(other) && BigInt(one) === BigInt(other);
}

/** The number of values that `where` allows a column. Undefined if it is not pinned. */
export function pinnedValues(
  where: Condition | null | undefined,
  column: string,
  spelling: ColumnSpelling,
): number | undefined {
  const counts = requiredTerms(where).flatMap(({ column: written, cmp, value }) => {
    const isIn = cmp === "IN" && Array.isArray(value);
    if ((cmp !== "=" && !isIn) || !isColumn(written, column, spelling)) return [];
    const values = isIn ? value : [value];
    const isPin = values.every((one) => typeof one === "string" || isWhole(one));
    return isPin ? [values.length] : [];
  });
  return lowest(counts);
}

function isList(value: AttributeValue | undefined): value is readonly Literal[] {
  return Array.isArray(value);
}

function neededKind(cmp: RowCondition["cmp"]): string {
  if (cmp === "IN") return "a list";
  return cmp === "=" || cmp === "!=" ? "a single value" : "a whole number";
}

/** The row filter of an entry with the caller's attributes, or which one is missing. */
function resolveRowFilter(
  snapshot: Snapshot,
  { username, attributes }: Caller,
  entry: DecidingEntry,
): readonly RowCondition[] | Objection {
  const { rowFilter = [] } = entry.grant;
  const record = snapshot.users.get(username);
  const isReference = (one: Literal) => typeof one === "string" && attributeReference.test(one);
  const resolve = (one: Literal): AttributeValue | undefined => {
    if (typeof one !== "string" || !one.startsWith("@")) return one;
    if (one.startsWith("@@")) return one.slice(1);
    if (one === "@username") return username;
    return record?.attributes?.get(one.slice(1)) ?? attributes?.get(one.slice(1));
  };
  const filter: RowCondition[] = [];
  for (const { column, cmp, value } of rowFilter) {
    const single = (one: Literal) => {
      const meaning = resolve(one);
      return meaning === undefined || isList(meaning) ? [] : [meaning];
    };
    const resolved = isList(value) ? value.flatMap(single) : resolve(value);
    const kind = neededKind(cmp);
    const isFit =
      isList(resolved) === (kind === "a list") &&
      (kind !== "a whole number" || isWhole(resolved)) &&
      (!isList(value) || !isList(resolved) || resolved.length === value.length);
    if (resolved === undefined || !isFit) {
      const name = isList(value) ? value.find(isReference) : value;
      const message = `Rows are limited by ${quoteName(column)} ${cmp} ${String(name)}, but ${username} has no such attribute that is ${kind}: an administrator must set it`;
      return { reason: "attribute_missing", message, entry };
    }
    filter.push({ column, cmp, value: resolved });
  }
  return filter;
}

/**
 * Why the filter leaves the caller no row. Attributes of external users are in their tokens, and
 * those of groups are their members'.
 */
export function missingAttribute(
  snapshot: Snapshot,
  caller: Caller,
  entry: DecidingEntry,
): Objection | undefined {
  const { username, attributes } = caller;
  const isGroup = groupOf(readHolder(username)) !== undefined;
  if (isGroup || (isExternalUsername(username) && attributes === undefined)) return undefined;
  const filter = resolveRowFilter(snapshot, caller, entry);
  return "reason" in filter ? filter : undefined;
}

/** True if a cell meets the condition under any comparison rules of the database. */
function isSatisfied({ cmp, value }: RowCondition, cell: CellValue): boolean {
  if (isList(value)) return cmp === "IN" && value.some((one) => areEqual(one, cell));
  if (cmp === "=") return areEqual(value, cell);
  if (cmp === "!=") {
    const isComparable = isWhole(value) ? isWhole(cell) : typeof cell === typeof value;
    return isComparable && !areEqual(value, cell);
  }
  if (!isWhole(value) || !isWhole(cell)) return false;
  const [held, bound] = [BigInt(cell), BigInt(value)];
  if (cmp === ">") return held > bound;
  if (cmp === ">=") return held >= bound;
  if (cmp === "<") return held < bound;
  return cmp === "<=" && held <= bound;
}

function isSameValue(one: AttributeValue, other: CellValue): boolean {
  if (!isList(one)) return areEqual(one, other);
  return (
    Array.isArray(other) &&
    other.length === one.length &&
    one.every((part, at) => areEqual(part, other[at] ?? null))
  );
}

/** True if a `where` already demands the condition of every row. */
function isDemanded(
  { column, cmp, value }: RowCondition,
  where: Condition | null | undefined,
  spelling: ColumnSpelling,
): boolean {
  return requiredTerms(where).some(
    (term) =>
      term.cmp === cmp && isColumn(term.column, column, spelling) && isSameValue(value, term.value),
  );
}

function rowDenied(
  entry: DecidingEntry,
  { column, cmp, value }: RowCondition,
  problem: string,
  remedy = "",
): Denied {
  const text = JSON.stringify(value, writeDigits);
  const message = `${problem}: written rows must meet ${quoteName(column)} ${cmp} ${text}${remedy}`;
  return new Denied({ reason: "row_denied", message, entry });
}

function checkRows(
  rows: readonly Row[],
  conditions: readonly RowCondition[],
  entry: DecidingEntry,
): void {
  const { columns, writableColumns } = entry.grant;
  for (const [index, row] of rows.entries()) {
    for (const condition of conditions) {
      const { column } = condition;
      if (!Object.hasOwn(row, column)) {
        const isClosed = [columns, writableColumns].some(
          (some) => some?.includes(column) === false,
        );
        const why = `, and ${quoteName(column)} may not be written, so this grant allows no Insert; an administrator can change it`;
        const problem = `The row values[${index}] lacks ${quoteName(column)}`;
        throw rowDenied(entry, condition, problem, isClosed ? why : "");
      }
      if (isSatisfied(condition, row[column] ?? null)) continue;
      throw rowDenied(entry, condition, `The row values[${index}] is not among the writable rows`);
    }
  }
}

/** Checks the rows that an Insert adds, or the values that an Update sets. @throws Denied */
function checkContents(
  { name, fields }: Operation<"Insert" | "Update">,
  conditions: readonly RowCondition[],
  entry: DecidingEntry,
): void {
  const { bind = {} } = fields;
  // A bound value is unknown before the query runs.
  const bound = conditions.find(({ column }) => Object.hasOwn(bind, column));
  if (bound !== undefined) {
    throw rowDenied(entry, bound, `The column ${quoteName(bound.column)} may not be bound`);
  }
  if (name === "Insert") {
    checkRows(fields.values, conditions, entry);
    return;
  }
  const { set = {}, add = {} } = fields;
  for (const condition of conditions) {
    const { column } = condition;
    if (Object.hasOwn(add, column)) {
      throw rowDenied(
        entry,
        condition,
        `The column ${quoteName(column)} may not be changed by add`,
      );
    }
    if (Object.hasOwn(set, column) && !isSatisfied(condition, set[column] ?? null)) {
      throw rowDenied(entry, condition, `Set ${quoteName(column)} to another value`);
    }
  }
}

/** The row filters of entries with the caller's attributes, made once for all elements. */
export type RowFilters = Map<DecidingEntry, readonly RowCondition[]>;

export interface FilteredAccess {
  readonly snapshot: Snapshot;
  readonly subject: Subject;
  readonly access: Access;
  /** Gets the columns that the engine compares by bytes. */
  readonly totals: { compareBytes(columns: BytewiseColumns): void };
  readonly rowFilters: RowFilters;
  readonly operation: Operation | undefined;
}

/** The filters of the tables of an operation, or of one nested in it. @throws Denied */
export function filterRows(
  filtered: FilteredAccess,
  node: OperationNode,
  tables: readonly TableRight[],
): TableFilter[] {
  const filters: TableFilter[] = [];
  const seen = new Set<string>();
  for (const table of tables) {
    if (seen.has(table.name)) continue;
    seen.add(table.name);
    const filter = filterTable(filtered, node, table);
    if (filter !== undefined) filters.push(filter);
  }
  return filters;
}

function filterTable(
  { snapshot, subject, access: { database }, totals, rowFilters, operation }: FilteredAccess,
  node: OperationNode,
  { table, name, entry }: TableRight,
): TableFilter | undefined {
  const { rowFilter, requireWhere } = entry.grant;
  // A row filter can be added to an operation with a `where`.
  const isSelective =
    isOperationName(node.operation) && "where" in definitions[node.operation].fields;
  if (!isSelective && node.operation !== "Insert" && (rowFilter ?? requireWhere) !== undefined) {
    throw new Denied(unnarrowable(`Use Insert or Update instead of ${node.operation}`, entry));
  }
  const isPinned = node.operation === "Update" || node.operation === "Delete";
  if (isPinned && requireWhere !== undefined) {
    totals.compareBytes({ database, table, bytewise: requireWhere });
  }
  if (rowFilter === undefined) return undefined;
  let filter = rowFilters.get(entry);
  if (filter === undefined) {
    const resolved = resolveRowFilter(snapshot, subject, entry);
    if ("reason" in resolved) throw new Denied(resolved);
    filter = resolved;
    rowFilters.set(entry, filter);
  }
  if (node.optional.has(name)) {
    const message = `Join ${table} by INNER, or from the other side: only some of its rows may be read, and an outer join would show the others as missing`;
    throw new Denied({ reason: "join_denied", message, entry });
  }
  const isWritten = operation?.name === "Insert" || operation?.name === "Update";
  const writes = isWritten && node.outer === undefined;
  if (writes) checkContents(operation, filter, entry);
  const bytewise = filter.map(({ column }) => column);
  totals.compareBytes({ database, table, bytewise, ...(writes ? { written: filter } : {}) });
  if (!isSelective) return undefined;
  // Unqualified, it would be the name of a computed value if the table lacks the column.
  const isComputed = bytewise.some((column) => node.computed.includes(column));
  const spelling = { table: name, isQualified: isComputed || !readsOneTable(node) };
  const toTerm = ({ column, cmp, value }: RowCondition): Term => ({
    column: spelling.isQualified ? `${name}.${column}` : column,
    cmp,
    value: isList(value) ? [...value] : value,
  });
  const conditions = filter.map(toTerm);
  const added = conditions.filter((_, at) => {
    const condition = filter[at];
    return condition !== undefined && !isDemanded(condition, node.condition, spelling);
  });
  return { node, conditions, added };
}

/** The names by which columns refer to the node's tables, without a Select as `from`. */
export function tableNames({ readsSelect, names }: OperationNode): readonly string[] {
  return readsSelect ? names.slice(1) : names;
}

export interface AddedFilter {
  /** The table, unless the query has only one. */
  readonly table: string | undefined;
  /** As JSON. */
  readonly condition: string;
}

export function addedFilters(query: Query, decisions: readonly Decision[]): AddedFilter[] {
  const isSole = new Set(query.accesses.flatMap(({ tables }) => tables)).size === 1;
  return filterAdditions(decisions).flatMap(({ node, conditions }) =>
    conditions.map((condition) => ({
      table: isSole ? undefined : tableNames(node)[0],
      condition: termText(condition),
    })),
  );
}

/** The conditions that filters add, as JSON. */
export function addedTexts(filters: readonly TableFilter[] = []): string[] {
  return filters.flatMap(({ added }) => added.map(termText));
}
