import { sql } from "kysely";
import { foldCase } from "../../core/query/names.ts";
import type { CellValue, Comparison, Condition } from "../../core/query/tree.ts";
import { withCase } from "../letters.ts";
import { EngineRefusal } from "../refusal.ts";
import { type Fragment, listSql, requireSendable, tooComplex } from "./fragment.ts";
import {
  type Column,
  type ColumnReference,
  columnSql,
  columnsOf,
  type Family,
  type Nesting,
  type PresentValue,
  type Resolve,
  type Scope,
  type Table,
} from "./scope.ts";
import { comparedValue } from "./values.ts";

export type Leaf = Comparison | Extract<Condition, { exists: object }>;
type ValueComparison = Extract<Comparison, { value: CellValue }>;

const orderings = {
  "=": sql`=`,
  "!=": sql`<>`,
  ">": sql`>`,
  "<": sql`<`,
  ">=": sql`>=`,
  "<=": sql`<=`,
};

export function whereSql(
  scope: Scope,
  condition: Condition | null | undefined,
  resolve = columnsOf(scope),
): Fragment {
  if (condition === null || condition === undefined) return sql``;
  return sql` where ${guardedSql(resolve, condition, scope)}`;
}

/** The terms of which every row must meet each. */
function termsIn(where: Condition): readonly Condition[] {
  return "and" in where ? where.and.flatMap(termsIn) : [where];
}

/** Separates the terms that may fail for some values: they compute, or compare after a cast. */
export function splitTerms(resolve: Resolve, where: Condition, scope: Scope) {
  const terms = Map.groupBy(termsIn(where), (term) =>
    findLeaves(term).some((leaf) => mayFail(resolve, leaf, scope)),
  );
  return { safe: terms.get(false) ?? [], failing: terms.get(true) ?? [] };
}

function mayFail(resolve: Resolve, leaf: Leaf, scope: Scope): boolean {
  if ("exists" in leaf) return linkMayFail(nestingIn(scope).link(scope, leaf.exists));
  const { column, expression } = resolve(leaf.column);
  if (expression !== undefined) return true;
  const { castFails = false, compared } = column.kind;
  if ("value" in leaf) return castFails && compared !== undefined;
  if ("select" in leaf) {
    return castFails && comparisonMayFail(column, nestingIn(scope).select(leaf.select).column);
  }
  const other = resolve(leaf.other);
  return other.expression !== undefined || comparisonMayFail(column, other.column);
}

/** True if the columns are compared after a cast that fails for some values. */
export function comparisonMayFail({ kind: one }: Column, { kind: other }: Column): boolean {
  const areCast = (one.compared ?? other.compared) !== undefined || one.family !== other.family;
  return areCast && (one.castFails === true || other.castFails === true);
}

export function linkMayFail([left, right]: readonly [ColumnReference, ColumnReference]): boolean {
  return comparisonMayFail(left.column, right.column);
}

/** The terms that compare columns of one table with values and never fail. */
export function termsAbout(
  { name }: Pick<Table, "name">,
  resolve: Resolve,
  where: Condition | null | undefined,
  scope: Scope,
): Condition[] {
  const isAbout = (leaf: Leaf) => "value" in leaf && resolve(leaf.column).table.name === name;
  const { safe } = splitTerms(resolve, where ?? { and: [] }, scope);
  return safe.filter((term) => findLeaves(term).every(isAbout));
}

/**
 * A term that fails for the values of a row that a row filter hides would reveal that row. Servers
 * may evaluate the terms of an `and` in any order, but not those of a `case`.
 */
export function guardedSql(resolve: Resolve, where: Condition, scope: Scope): Fragment {
  const { safe, failing } = splitTerms(resolve, where, scope);
  if (safe.length === 0 || failing.length === 0) return conditionSql(resolve, where, scope);
  const [first, then] = [safe, failing].map((and) => conditionSql(resolve, { and }, scope));
  // As a value instead of a condition, SQLite would evaluate both sides of an `or`.
  const met = sql`case when ${then} then true else false end`;
  const guard = sql`case when ${first} then ${met} else false end`;
  // For indexes. Selects are not repeated, since those within them would be at each level.
  const isSimple = (leaf: Leaf) => !("exists" in leaf || "select" in leaf);
  const and = safe.filter((term) => findLeaves(term).every(isSimple));
  return and.length === 0 ? guard : sql`${conditionSql(resolve, { and }, scope)} and ${guard}`;
}

export function conditionSql(resolve: Resolve, condition: Condition, scope: Scope): Fragment {
  if ("and" in condition) return joined(resolve, condition.and, scope, sql`and`, sql`true`);
  if ("or" in condition) return joined(resolve, condition.or, scope, sql`or`, sql`false`);
  if ("not" in condition) {
    const { not } = condition;
    if (!("select" in not)) return sql`not (${conditionSql(resolve, not, scope)})`;
    return conditionSql(resolve, { ...not, cmp: not.cmp === "IN" ? "NOT IN" : "IN" }, scope);
  }
  if ("exists" in condition) return nestingIn(scope).exists(scope, condition.exists);
  const reference = resolve(condition.column);
  if ("other" in condition)
    return columnComparisonSql(reference, condition.cmp, resolve(condition.other));
  if ("select" in condition) return memberSql(reference, condition, nestingIn(scope));
  return comparisonSql(reference, condition);
}

/**
 * Refuses what no statement can carry before it is built, which would take minutes. Rows are sent in
 * parts.
 *
 * @throws EngineRefusal `query_too_complex`
 */
export function requireShortLists(fields: object): void {
  requireSendable(countListed(fields));
}

function countListed(part: object): number {
  let count = 0;
  for (const [key, member] of Object.entries(part)) {
    if (typeof member !== "object" || member === null) continue;
    const isOfCells = key === "value" || key === "values" || key === "set" || key === "add";
    if (!isOfCells) count += countListed(member);
    else if ("cmp" in part && Array.isArray(member)) {
      if (part.cmp === "IN" || part.cmp === "NOT IN") count += member.length;
    }
  }
  return count;
}

/** The conditions that `and`, `or` and `not` combine. */
export function findLeaves(condition: Condition | null | undefined): Leaf[] {
  if (condition === null || condition === undefined) return [];
  if ("and" in condition) return condition.and.flatMap(findLeaves);
  if ("or" in condition) return condition.or.flatMap(findLeaves);
  return "not" in condition ? findLeaves(condition.not) : [condition];
}

function nestingIn([table]: Scope): Nesting {
  if (table?.nesting !== undefined) return table.nesting;
  throw new Error("A condition contains tables that were not read");
}

/** Columns of one family are compared as they are, so that an index serves them. */
function memberSql(
  reference: ColumnReference,
  { cmp, select }: Extract<Condition, { select: object }>,
  nesting: Nesting,
): Fragment {
  const { column, statement, excludes } = nesting.select(select, reference.column);
  const one = reference.column;
  const family = commonFamily(one, column);
  if (family === undefined && one.type !== column.type) throw notComparable(one, cmp, column);
  const common = isAlike(one, column) ? undefined : family;
  const isLong = [one, column].every(({ kind }) => kind.digest !== undefined);
  const side = (of: Column, value: Fragment) =>
    (isLong ? of.kind.digest?.(value) : undefined) ?? sideSql(of, value, common);
  const left = side(one, columnSql(reference));
  const right = (value: Fragment) => side(column, value);
  if (cmp === "IN") return sql`${left} in (${statement(right)})`;
  // A database could convert hidden values in a join, and fail where it cannot.
  const joined = common === undefined ? excludes(left, right) : undefined;
  return joined ?? sql`${left} not in (${statement(right)})`;
}

/** The columns of an `on` as they are compared by `=`. */
export function linkSides(
  one: Column,
  other: Column,
): (column: Column, value: Fragment) => Fragment {
  const families = [one.kind.family, other.kind.family];
  const isOpen = families.includes(undefined) || families.includes("any");
  const family = commonFamily(one, other);
  if (family === undefined && !isOpen) throw notComparable(one, "=", other);
  const common = isOpen || isAlike(one, other) ? undefined : family;
  return (column, value) => sideSql(column, value, common);
}

/** A UUID of PostgreSQL is a text, but not beside other texts. */
export function isAlike({ kind: one }: Column, { kind: other }: Column): boolean {
  const { family, exact, collation, meets } = one;
  const isSame = family === other.family && exact === other.exact && family !== "json";
  const [first, second] = [collation, other.collation];
  return isSame && (first === second || !first || !second || meets?.(second) === true);
}

/** Nests the operands as a balanced tree: a long chain exceeds a database's depth limit. */
function joined(
  resolve: Resolve,
  conditions: readonly Condition[],
  scope: Scope,
  operator: Fragment,
  empty: Fragment,
): Fragment {
  const [first, second] = conditions;
  if (first === undefined) return empty;
  if (second === undefined) return conditionSql(resolve, first, scope);
  const middle = conditions.length >> 1;
  const left = joined(resolve, conditions.slice(0, middle), scope, operator, empty);
  const right = joined(resolve, conditions.slice(middle), scope, operator, empty);
  return sql`(${left} ${operator} ${right})`;
}

export type NumberFamily = "integer" | "decimal" | "double";

export function isNumber(family: Family | undefined): family is NumberFamily {
  return family === "integer" || family === "decimal" || family === "double";
}

const moments = new Set<Family | undefined>(["date", "instant"]);

/** Undefined if the columns cannot be compared with each other. */
function commonFamily(one: Column, other: Column): Family | undefined {
  const families = [one.kind.family, other.kind.family];
  const [first, second] = families;
  if (first === second) return first;
  if (families.includes("any")) return "any";
  if (families.every(isNumber)) {
    return families.includes("double") ? "double" : "decimal";
  }
  return families.every((family) => moments.has(family)) ? "instant" : undefined;
}

function columnComparisonSql(one: ColumnReference, cmp: string, other: ColumnReference): Fragment {
  const family = commonFamily(one.column, other.column);
  const isOrdered = cmp !== "=" && cmp !== "!=";
  // A type that the engine does not know equals itself.
  const isUnknown = family === undefined && one.column.type === other.column.type;
  const isAllowed = isOrdered ? family !== undefined && family !== "json" : family || isUnknown;
  if (!isOrdering(cmp) || !isAllowed) throw notComparable(one.column, cmp, other.column);
  const [left, right] = [one, other].map((side) => sideSql(side.column, columnSql(side), family));
  return sql`${left} ${orderings[cmp]} ${right}`;
}

function sideSql({ kind }: Column, value: Fragment, family: Family | undefined): Fragment {
  return (family === undefined ? kind.compared?.(value) : kind.asFamily?.(value, family)) ?? value;
}

function notComparable(one: Column, cmp: string, other: Column): EngineRefusal {
  const sides = `Column "${one.name}" (${one.type}) cannot be compared with "${other.name}" (${other.type}) by ${cmp}`;
  const allowed = "two columns of numbers, of texts, or of dates and times";
  const equal = "by = and != also two columns of one type";
  return new EngineRefusal("invalid_value", `${sides}; allowed: ${allowed}, and ${equal}`);
}

function comparisonSql(reference: ColumnReference, comparison: ValueComparison): Fragment {
  const { column, expression } = reference;
  const isEquality = comparison.cmp === "=" || comparison.cmp === "!=";
  if (expression !== undefined && column.kind.family === "json" && !isEquality) {
    const problem = `Column "${column.name}" (${column.type}): JSON values are compared only by = and !=`;
    throw new EngineRefusal("invalid_value", problem);
  }
  const own = ownComparisonSql(reference, comparison);
  const exact = exactComparisonSql(reference, comparison);
  return exact === undefined ? own : sql`(${own} and ${exact})`;
}

/** Compares by bytes, in addition to the column's own comparison, which an index serves. */
function exactComparisonSql(
  reference: ColumnReference,
  { cmp, value }: ValueComparison,
): Fragment | undefined {
  const { table, column } = reference;
  const { exact } = column.kind;
  if (exact === undefined || table.bytewise?.includes(column.name) !== true) return undefined;
  const exactValue = (one: PresentValue) => exact.value(comparedValue(column, one), one);
  if (cmp === "IN") {
    const values = asList(value);
    const present = values.filter((one) => one !== null);
    if (present.length === 0) return undefined;
    const left = exact.column(columnSql(reference), false);
    const among = sql`${left} in ${listSql(present.map(exactValue))}`;
    return present.length === values.length
      ? among
      : sql`(${among} or ${columnSql(reference)} is null)`;
  }
  if (!isOrdering(cmp) || value === null) return undefined;
  const isOrdered = cmp !== "=" && cmp !== "!=";
  if (isOrdered && typeof value !== "number" && typeof value !== "bigint") return undefined;
  const left = exact.column(columnSql(reference), isOrdered);
  return sql`${left} ${orderings[cmp]} ${exactValue(value)}`;
}

function isOrdering(cmp: string): cmp is keyof typeof orderings {
  return cmp in orderings;
}

function ownComparisonSql(reference: ColumnReference, comparison: ValueComparison): Fragment {
  const { cmp, value } = comparison;
  const { column } = reference;
  const name = columnSql(reference);
  const left = column.kind.compared?.(name) ?? name;
  const isNull = () => column.kind.isNull?.(left) ?? sql`${left} is null`;
  const formsOf = (one: CellValue): readonly unknown[] =>
    (one === null ? undefined : column.kind.forms?.(one)) ?? [comparedValue(column, one)];
  switch (cmp) {
    case "IN": {
      const values = asList(value);
      const present = values.filter((one) => one !== null);
      const among =
        present.length === 0 ? sql`false` : amongSql(left, present.flatMap(formsOf), true);
      // A null in the list matches nulls, as `=` with null does.
      return present.length === values.length ? among : sql`(${among} or ${isNull()})`;
    }
    case "NOT IN": {
      const values = asList(value);
      // Null is never outside a list, except the empty one.
      return values.length === 0 ? sql`true` : amongSql(left, values.flatMap(formsOf), false);
    }
    case "BETWEEN": {
      const [low, high] = asList(value).map((one) => comparedValue(column, one));
      return sql`${left} between ${low} and ${high}`;
    }
    case "LIKE":
    case "ILIKE":
      return likeSql(reference, comparison);
    case "=":
    case "!=": {
      const isEqual = cmp === "=";
      if (value === null) return isEqual ? isNull() : sql`${left} is not null`;
      const forms = formsOf(value);
      if (forms.length !== 1) return amongSql(left, forms, isEqual);
      return sql`${left} ${orderings[cmp]} ${forms[0]}`;
    }
    default:
      return sql`${left} ${orderings[cmp]} ${comparedValue(column, value)}`;
  }
}

/** Null is neither in a list nor outside it, even if the list is empty. */
function amongSql(left: Fragment, values: readonly unknown[], isAmong: boolean): Fragment {
  if (values.length === 0) {
    return isAmong ? sql`(${left} is null and null)` : sql`(${left} is not null or null)`;
  }
  return sql`${left} ${isAmong ? sql`in` : sql`not in`} ${listSql(values)}`;
}

function likeSql(
  reference: ColumnReference,
  { cmp, value, escape: escapes, fold }: ValueComparison,
): Fragment {
  const column = columnSql(reference);
  const pattern = literalsEscaped(String(value), escapes);
  if (pattern === undefined) {
    const problem = `Column "${reference.column.name}": the pattern of ${cmp} ends with its escape character; write it twice to match it`;
    throw new EngineRefusal("invalid_value", problem);
  }
  const plain = (text: Fragment, wanted: string) => sql`${text} like ${wanted}`;
  const { like = plain } = reference.column.kind;
  if (cmp === "LIKE") return like(column, pattern, undefined);
  return fold === undefined
    ? like(column, foldCase(pattern), "ascii")
    : like(column, withCase(pattern, "lower"), fold);
}

/** SQLite takes no longer patterns. */
const LONGEST_ESCAPED = 50_000;

/** The pattern with `\\` as its escape character. Undefined if nothing follows the last escape. */
function literalsEscaped(pattern: string, escapes: string | undefined): string | undefined {
  if (escapes === undefined) return pattern.replaceAll("\\", "\\\\");
  if (pattern.length > LONGEST_ESCAPED) {
    throw tooComplex(`more than ${LONGEST_ESCAPED} characters in a pattern with an escape`);
  }
  let escaped = "";
  let isLiteral = false;
  for (const character of pattern) {
    if (!isLiteral && character === escapes) {
      isLiteral = true;
      continue;
    }
    const isSpecial = character === "\\" || (isLiteral && /[%_]/.test(character));
    escaped += isSpecial ? `\\${character}` : character;
    isLiteral = false;
  }
  return isLiteral ? undefined : escaped;
}

/** The parser has checked that it is one. */
function asList(value: CellValue): CellValue[] {
  return Array.isArray(value) ? value : [value];
}
