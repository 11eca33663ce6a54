import { quoteName } from "../json/fault.ts";
import { type Condition, type Term, termsOf } from "../query/conditions.ts";
import type { OperationNode } from "../query/node.ts";
import type { Query } from "../query/query.ts";
import type { AddedConditions } from "../query/splice.ts";
import type { CellValue, Row } from "../query/values.ts";
import { lowest } from "../sums.ts";
import type { AttributeValue, Grant, Literal, RowComparison, RowCondition, User } from "./grant.ts";
import type { Caller } from "./groups.ts";
import type { Decision, Objection } from "./rights.ts";

export const attributeName = "[A-Za-z_][A-Za-z0-9_-]{0,63}";
export const attributeReference = new RegExp(`^@${attributeName}$`);
const wholeName = new RegExp(`^(?!username$)${attributeName}$`);
/** In characters, for filters and attributes. */
const LONGEST_TEXT = 1024;

/** True for a whole number that lost no digits. */
export function isWhole(value: unknown): value is number | bigint {
  return typeof value === "bigint" || Number.isSafeInteger(value);
}

/** True for a value that filters compare with: text, a whole number, true or false. */
export function isLiteral(value: unknown): value is Literal {
  return (
    isWhole(value) ||
    typeof value === "boolean" ||
    (typeof value === "string" && value.length <= LONGEST_TEXT && value.isWellFormed())
  );
}

export function readAttributes(value: unknown): Map<string, AttributeValue> | undefined {
  if (typeof value !== "object" || value === null || value instanceof Date) return undefined;
  const isValue = (one: unknown): one is AttributeValue =>
    isLiteral(one) ||
    (Array.isArray(one) &&
      one.every(isLiteral) &&
      new Set(one.map((each) => (isWhole(each) ? "number" : typeof each))).size <= 1);
  const attributes = new Map<string, AttributeValue>();
  for (const [name, one] of Object.entries(value)) {
    if (!wholeName.test(name) || !isValue(one)) return undefined;
    attributes.set(name, one);
  }
  return attributes;
}

export const attributesForm =
  "names (letters, digits, _ and -; not username) with text, whole numbers, true, false, or lists of one of these";

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
  if (isWhole(one)) return isWhole(other) && BigInt(one) === BigInt(other);
  return one === other;
}

/** The number of values that `where` allows a column. Undefined if it is not pinned. */
export function pinnedValues(
  where: Condition | null | undefined,
  column: string,
  spelling: ColumnSpelling,
): number | undefined {
  const counts = termsOf(where).flatMap(({ column: written, cmp, value }) => {
    const values = cmp === "=" ? [value] : cmp === "IN" && Array.isArray(value) ? value : undefined;
    const isPin =
      isColumn(written, column, spelling) &&
      values?.every((one) => typeof one === "string" || isWhole(one));
    return isPin && values !== undefined ? [values.length] : [];
  });
  return lowest(counts);
}

function isList(value: AttributeValue | undefined): value is readonly Literal[] {
  return Array.isArray(value);
}

function kindOf(cmp: RowComparison): string {
  if (cmp === "IN") return "a list";
  return cmp === "=" || cmp === "!=" ? "a single value" : "a whole number";
}

export function filterOf(
  { rowFilter = [] }: Grant,
  { username, attributes }: Caller,
  record: User | undefined,
): readonly RowCondition[] | Objection {
  const isReference = (one: Literal) => typeof one === "string" && attributeReference.test(one);
  const meaningOf = (one: Literal): AttributeValue | undefined => {
    if (typeof one !== "string" || !one.startsWith("@")) return one;
    if (one.startsWith("@@")) return one.slice(1);
    if (one === "@username") return username;
    return record?.attributes?.get(one.slice(1)) ?? attributes?.get(one.slice(1));
  };
  const filter: RowCondition[] = [];
  for (const { column, cmp, value } of rowFilter) {
    const single = (one: Literal) => {
      const meaning = meaningOf(one);
      return meaning === undefined || isList(meaning) ? [] : [meaning];
    };
    const resolved = isList(value) ? value.flatMap(single) : meaningOf(value);
    const kind = kindOf(cmp);
    const isFit =
      isList(resolved) === (kind === "a list") &&
      (kind !== "a whole number" || isWhole(resolved)) &&
      (!isList(value) || !isList(resolved) || resolved.length === value.length);
    if (resolved === undefined || !isFit) {
      const name = isList(value) ? value.find(isReference) : value;
      const message = `Rows are limited by ${quoteName(column)} ${cmp} ${String(name)}, but ${username} has no such attribute that is ${kind}: an administrator must set it`;
      return { reason: "attribute_missing", message };
    }
    filter.push({ column, cmp, value: resolved });
  }
  return filter;
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

function literalText(value: Literal): string {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

function valueText(value: AttributeValue): string {
  return isList(value) ? `[${value.map(literalText).join(",")}]` : literalText(value);
}

export function conditionText(
  { column, cmp, value }: RowCondition,
  { table, isQualified }: ColumnSpelling,
): string {
  const name = JSON.stringify(isQualified ? `${table}.${column}` : column);
  return `{"column":${name},"cmp":"${cmp}","value":${valueText(value)}}`;
}

function isSameValue(one: AttributeValue, other: CellValue): boolean {
  if (!isList(one)) return areEqual(one, other);
  return (
    Array.isArray(other) &&
    other.length === one.length &&
    one.every((part, at) => areEqual(part, other[at] ?? null))
  );
}

/** True if the terms of a `where` already demand the condition of every row. */
export function isDemanded(
  { column, cmp, value }: RowCondition,
  terms: readonly Term[],
  spelling: ColumnSpelling,
): boolean {
  return terms.some(
    (term) =>
      term.cmp === cmp && isColumn(term.column, column, spelling) && isSameValue(value, term.value),
  );
}

function denied({ column, cmp, value }: RowCondition, problem: string, remedy = ""): Objection {
  const wanted = `${quoteName(column)} ${cmp} ${valueText(value)}${remedy}`;
  return { reason: "row_denied", message: `${problem}: written rows must meet ${wanted}` };
}

export function judgeRows(
  rows: readonly Row[],
  conditions: readonly RowCondition[],
  { columns, writableColumns }: Grant,
): Objection | undefined {
  for (const [index, row] of rows.entries()) {
    for (const condition of conditions) {
      const { column } = condition;
      if (!Object.hasOwn(row, column)) {
        const isClosed = [columns, writableColumns].some(
          (some) => some?.includes(column) === false,
        );
        const why = `, and ${quoteName(column)} may not be written, so this grant allows no Insert; an administrator can change it`;
        const problem = `The row values[${index}] lacks ${quoteName(column)}`;
        return denied(condition, problem, isClosed ? why : "");
      }
      if (isSatisfied(condition, row[column] ?? null)) continue;
      return denied(condition, `The row values[${index}] is not among the writable rows`);
    }
  }
  return undefined;
}

export function judgeUpdate(
  { set = {}, add = {} }: { readonly set?: Row; readonly add?: Row },
  conditions: readonly RowCondition[],
): Objection | undefined {
  for (const condition of conditions) {
    const { column } = condition;
    if (Object.hasOwn(add, column)) {
      return denied(condition, `The column ${quoteName(column)} may not be changed by add`);
    }
    if (Object.hasOwn(set, column) && !isSatisfied(condition, set[column] ?? null)) {
      return denied(condition, `Set ${quoteName(column)} to another value`);
    }
  }
  return undefined;
}

/** A bound value is unknown before the query runs. */
export function judgeBinding(
  { bind = {} }: { readonly bind?: object },
  conditions: readonly RowCondition[],
): Objection | undefined {
  const bound = conditions.find(({ column }) => Object.hasOwn(bind, column));
  return bound && denied(bound, `The column ${quoteName(bound.column)} may not be bound`);
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
  return filterAdditions(query, decisions).flatMap(({ node, conditions }) =>
    conditions.map((condition) => ({ table: isSole ? undefined : tableNames(node)[0], condition })),
  );
}

/** The conditions that row filters add to a query whose accesses were all decided. */
export function filterAdditions(
  { accesses }: Query,
  decisions: readonly Decision[],
): AddedConditions[] {
  return accesses.flatMap(({ node }, at) => {
    const { additions = [], placed = [additions] } = decisions[at] ?? {};
    if (additions.length === 0) return [];
    return [node, ...node.nested].flatMap((one, place) => {
      const conditions = placed[place] ?? [];
      return conditions.length === 0 ? [] : [{ node: one, conditions }];
    });
  });
}
