/** Which columns an operation may name, in which position. */

import { quoteName } from "../json/fault.ts";
import type { OperationDetail } from "../query/operation-detail.ts";
import type { Position } from "../query/operation-draft.ts";
import { type DecidingEntry, fittingEntries } from "./deciding-entry.ts";
import type { Objection } from "./decision.ts";
import type { Grant } from "./grant.ts";
import { FoldedNames } from "./name-folding.ts";
import type { UserGrants } from "./user-grants.ts";

/** A table of an operation, with the entry that decides on it. */
export interface DecidedTable {
  readonly table: string;
  readonly entry: DecidingEntry;
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
  const folded = new FoldedNames((name) => all.has(name));
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
export function isPartial({ columns, writableColumns, rowFilter }: Grant): boolean {
  return columns !== undefined || writableColumns !== undefined || rowFilter !== undefined;
}

/** A column as an operation names it. */
interface NamedColumn {
  readonly position: Position;
  /** Undefined for one that is written without a table. */
  readonly table: string | undefined;
  readonly column: string;
}

function* columnsOf({ uses }: OperationDetail): Generator<NamedColumn, undefined> {
  for (const [position, names] of uses) {
    for (const name of names) {
      const dot = name.indexOf(".");
      yield {
        position,
        table: dot === -1 ? undefined : name.slice(0, dot),
        column: name.slice(dot + 1),
      };
    }
  }
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
  { position, column }: NamedColumn,
  { table, entry }: DecidedTable,
  fitting: readonly DecidingEntry[],
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

/**
 * What is wrong with the columns that an operation names, if anything is.
 *
 * @param tables the operation's own, then those that a new table refers to
 * @param own how many of them are the operation's own
 */
export function judgeColumns(
  grants: UserGrants,
  database: string,
  detail: OperationDetail,
  tables: readonly DecidedTable[],
  own: number,
  now: number,
): Objection | undefined {
  const operated = tables.slice(0, own);
  const fitting = new Map(
    tables.map((one) => [one, [...fittingEntries(grants, database, one.table, now)]]),
  );
  const partial = own > 1 ? operated.find(({ entry }) => isPartial(entry.grant)) : undefined;
  for (const named of columnsOf(detail)) {
    const { table, column, position } = named;
    if (column === "*" && table === undefined) {
      const objection = position === "aggregate" ? undefined : judgeStar(operated);
      if (objection !== undefined) return objection;
      continue;
    }
    if (table === undefined && partial !== undefined) {
      const written = quoteName(`${partial.table}.${column}`);
      const message = `Write the column ${quoteName(column)} with its table, as in ${written}, since not all of ${quoteName(partial.table)} may be read`;
      return { reason: "column_unqualified", message, entry: partial.entry };
    }
    const meant = table === undefined ? operated : tables.filter((one) => one.table === table);
    for (const decided of meant) {
      const objection = judgeColumn(named, decided, fitting.get(decided) ?? []);
      if (objection !== undefined) return objection;
    }
  }
  return undefined;
}
