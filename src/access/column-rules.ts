/** Which columns an operation may name, in which position. */

import { quoteName } from "../json/fault.ts";
import type { OperationDetail } from "../query/operation-detail.ts";
import type { Position } from "../query/operation-draft.ts";
import type { DecidingEntry } from "./deciding-entry.ts";
import type { Objection } from "./decision.ts";
import type { Grant } from "./grant.ts";
import { FoldedNames } from "./table-patterns.ts";

/** A table of an operation, with the entry that decides on it, and all that fit it. */
export interface DecidedTable {
  readonly table: string;
  readonly entry: DecidingEntry;
  readonly fitting: readonly DecidingEntry[];
}

/** The columns that an entry names. */
interface NamedColumns {
  readonly readable: ReadonlySet<string> | undefined;
  readonly writable: ReadonlySet<string> | undefined;
  readonly folded: FoldedNames;
}

const known = new WeakMap<Grant, NamedColumns>();

function columnsNamedBy(grant: Grant): NamedColumns {
  const remembered = known.get(grant);
  if (remembered !== undefined) return remembered;
  const { columns, writableColumns, rowFilter = [], requireWhere = [] } = grant;
  const filtered = rowFilter.map(({ column }) => column);
  const all = new Set([
    ...(columns ?? []),
    ...(writableColumns ?? []),
    ...filtered,
    ...requireWhere,
  ]);
  const folded = new FoldedNames(all);
  for (const name of all) folded.add(name);
  const named = {
    readable: columns && new Set(columns),
    writable: writableColumns && new Set(writableColumns),
    folded,
  };
  known.set(grant, named);
  return named;
}

/** Positions in which a column is written to. */
const writing: ReadonlySet<Position> = new Set(["values", "set", "add", "update"]);

/** True for a table of which not all columns or rows are the caller's: it is named with its columns. */
function isPartial({ entry: { grant } }: DecidedTable): boolean {
  const { columns, writableColumns, rowFilter } = grant;
  return columns !== undefined || writableColumns !== undefined || rowFilter !== undefined;
}

function list(columns: readonly string[] = []): string {
  return columns.length === 0 ? "none" : columns.map(quoteName).join(", ");
}

function judgeStar(tables: readonly DecidedTable[]): Objection | undefined {
  const narrowed = tables.filter(({ entry }) => entry.grant.columns !== undefined);
  const allowed = narrowed.flatMap(({ table, entry: { grant } }) =>
    (grant.columns ?? []).map((column) => (tables.length === 1 ? column : `${table}.${column}`)),
  );
  const message = `Name the columns instead of *: ${list(allowed)}`;
  return narrowed[0] && { reason: "columns_required", message, entry: narrowed[0].entry };
}

function judgeColumn(
  position: Position,
  column: string,
  { table, entry, fitting }: DecidedTable,
): Objection | undefined {
  const written = () => `The column ${quoteName(column)} of ${quoteName(table)}`;
  for (const other of fitting) {
    const spelling = columnsNamedBy(other.grant).folded.otherSpelling(column);
    if (spelling === undefined) continue;
    const message = `${written()} differs by case or form alone from ${quoteName(spelling)}: write it so`;
    return { reason: "name_case_mismatch", message, entry: other };
  }
  const { readable, writable } = columnsNamedBy(entry.grant);
  if (readable?.has(column) === false) {
    const message = `${written()} may not be named; allowed: ${list(entry.grant.columns)}`;
    return { reason: "column_denied", message, entry };
  }
  if (!writing.has(position) || writable?.has(column) !== false) return undefined;
  const allowed = entry.grant.writableColumns?.filter((name) => readable?.has(name) !== false);
  const message = `${written()} may not be written; allowed: ${list(allowed)}`;
  return { reason: "column_denied", message, entry };
}

/** A column with each of the tables that it may be of, as far as the entries tell. */
function waysToWrite(column: string, tables: readonly DecidedTable[]): string {
  const likely = tables.filter(
    ({ entry }) => columnsNamedBy(entry.grant).readable?.has(column) !== false,
  );
  const places = likely.length === 0 ? tables : likely;
  return places.map(({ table }) => quoteName(`${table}.${column}`)).join(" or ");
}

/** What is wrong with one column, as it is written in an operation, if anything is. */
function judgeUse(
  position: Position,
  written: string,
  tables: readonly DecidedTable[],
  own: readonly DecidedTable[],
): Objection | undefined {
  if (written === "*") return position === "aggregate" ? undefined : judgeStar(own);
  const dot = written.indexOf(".");
  const partial = dot === -1 && own.length > 1 ? own.find(isPartial) : undefined;
  if (partial !== undefined) {
    const message = `Write the column ${quoteName(written)} with its table, as in ${waysToWrite(written, own)}, since not all of ${quoteName(partial.table)} may be read`;
    return { reason: "column_unqualified", message, entry: partial.entry };
  }
  const column = written.slice(dot + 1);
  const table = dot === -1 ? undefined : written.slice(0, dot);
  for (const one of table === undefined ? own : tables) {
    if (table !== undefined && one.table !== table) continue;
    const objection = judgeColumn(position, column, one);
    if (objection !== undefined) return objection;
  }
  return undefined;
}

/**
 * What is wrong with the columns that an operation names, if anything is.
 *
 * @param tables the operation's own, then those that a new table refers to
 * @param count how many of them are the operation's own
 */
export function judgeColumns(
  { uses }: OperationDetail,
  tables: readonly DecidedTable[],
  count: number,
): Objection | undefined {
  const own = tables.length === count ? tables : tables.slice(0, count);
  for (const [position, columns] of uses) {
    for (const column of columns) {
      const objection = judgeUse(position, column, tables, own);
      if (objection !== undefined) return objection;
    }
  }
  return undefined;
}
