import { memoizeByObject } from "../base/memoize.ts";
import { quoteName } from "../json/fault.ts";
import type { OperationNode, Position } from "../query/node.ts";
import { FoldedNames } from "./entries.ts";
import type { Grant } from "./grant.ts";
import { Denied, type GivenRight } from "./rights.ts";

/** A table of an operation, with the right to it. `name` is its name there, which `as` may give. */
export interface TableRight extends GivenRight {
  readonly table: string;
  readonly name: string;
  /** The operation that reads or changes it. Undefined for a table that a new one refers to. */
  readonly node: OperationNode | undefined;
}

/** All columns that an entry names, remembered because folding takes longer than judging. */
const columnsNamedBy = memoizeByObject((grant: Grant) => {
  const { columns = [], writableColumns = [], rowFilter = [], requireWhere = [] } = grant;
  const filtered = rowFilter.map(({ column }) => column);
  const names = new FoldedNames();
  for (const name of new Set([...columns, ...writableColumns, ...filtered, ...requireWhere])) {
    names.add(name);
  }
  return names;
});

const writing: ReadonlySet<Position> = new Set(["values", "set", "add", "bind", "update"]);

/** In a join, columns of such a table must be qualified. */
function isPartial({ entry: { grant } }: TableRight): boolean {
  return (grant.columns ?? grant.writableColumns ?? grant.rowFilter) !== undefined;
}

function list(columns: readonly string[]): string {
  return columns.length === 0 ? "none" : columns.map(quoteName).join(", ");
}

function qualifiedNames(column: string, tables: readonly TableRight[]): string {
  const likely = tables.filter(({ entry }) => entry.grant.columns?.includes(column) !== false);
  const places = likely.length === 0 ? tables : likely;
  return places.map(({ name }) => quoteName(`${name}.${column}`)).join(" or ");
}

/**
 * Checks the columns that an operation names.
 *
 * @param own the operation's own tables
 * @param others further tables that qualified columns may be of
 * @throws Denied
 */
export function checkColumns(
  node: OperationNode,
  own: readonly TableRight[],
  others: readonly TableRight[],
): void {
  const isSole = readsOneTable(node);
  for (const [position, columns] of node.columnUses) {
    for (const column of columns) {
      if (column !== "*") checkUse(position, column, own, others, isSole);
      else if (position !== "aggregate") checkStar(own, isSole);
    }
  }
}

/** True if columns need no table's name, since nothing else is read. */
export function readsOneTable({ tables, readsSelect }: OperationNode): boolean {
  return tables.length === 1 && !readsSelect;
}

function checkStar(own: readonly TableRight[], isSole: boolean): void {
  const narrowed = own.filter(({ entry }) => entry.grant.columns !== undefined);
  const [first] = narrowed;
  if (first === undefined) return;
  const allowed = narrowed.flatMap(({ name, entry: { grant } }) =>
    (grant.columns ?? []).map((column) => (isSole ? column : `${name}.${column}`)),
  );
  const message = `Name the columns instead of *: ${list(allowed)}`;
  throw new Denied({ reason: "columns_required", message, entry: first.entry });
}

function checkUse(
  position: Position,
  written: string,
  own: readonly TableRight[],
  others: readonly TableRight[],
  isSole: boolean,
): void {
  const dot = written.indexOf(".");
  if (dot !== -1) {
    const table = written.slice(0, dot);
    for (const one of [...own, ...others]) {
      if (one.name === table) checkColumn(position, written.slice(dot + 1), one);
    }
    return;
  }
  const partial = isSole ? undefined : own.find(isPartial);
  if (partial !== undefined) {
    const message = `Write the column ${quoteName(written)} with its table, as in ${qualifiedNames(written, own)}, since only a part of ${quoteName(partial.table)} may be read`;
    throw new Denied({ reason: "column_unqualified", message, entry: partial.entry });
  }
  for (const one of own) checkColumn(position, written, one);
}

function checkColumn(
  position: Position,
  column: string,
  { table, entry, matching }: TableRight,
): void {
  const written = () => `The column ${quoteName(column)} of ${quoteName(table)}`;
  for (const other of matching) {
    const spelling = columnsNamedBy(other.grant).otherSpelling(column);
    if (spelling === undefined) continue;
    const message = `${written()} differs only by case or form from ${quoteName(spelling)}: use that spelling`;
    throw new Denied({ reason: "name_case_mismatch", message, entry: other });
  }
  const { columns, writableColumns } = entry.grant;
  if (columns?.includes(column) === false) {
    const place = position === "on" ? " in on, which takes only columns of tables" : "";
    const message = `${written()} may not be used${place}; allowed: ${list(columns)}`;
    throw new Denied({ reason: "column_denied", message, entry });
  }
  if (!writing.has(position) || writableColumns?.includes(column) !== false) return;
  const allowed = writableColumns.filter((name) => columns?.includes(name) !== false);
  const message = `${written()} may not be written; allowed: ${list(allowed)}`;
  throw new Denied({ reason: "column_denied", message, entry });
}
