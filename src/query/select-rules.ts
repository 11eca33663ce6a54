/** What the fields of a Select have to agree on. */

import { counted } from "../counted.ts";
import { quoteName } from "../json/fault.ts";
import { didYouMean } from "../suggestion.ts";
import type { BodyReader } from "./body-reader.ts";
import { eitherOf, type MakeSchema } from "./kind.ts";
import type { OperationDraft } from "./operation-draft.ts";
import type { QueryRefused } from "./refusal.ts";

/** Columns that a Select orders by at the most. */
export const MOST_ORDERS = 8;

const given = (name: string) => ({ required: [name] });
const isDistinct = { ...given("distinct"), properties: { distinct: { const: true } } };

/** What of `judgeSelect` a schema can say. */
export const selectRules: MakeSchema = ({ level }) =>
  level === "core"
    ? eitherOf([given("columns")])
    : {
        ...eitherOf([given("columns"), given("aggregate")]),
        dependentRequired: { group_by: ["aggregate"], having: ["aggregate"], after: ["order_by"] },
        dependentSchemas: {
          after: { not: { anyOf: [given("offset"), given("aggregate"), isDistinct] } },
        },
      };

/**
 * Judges a Select whose fields are all read.
 *
 * @throws QueryRefused `missing_field`, `invalid_value`, `invalid_column` or `duplicate_column`
 */
export function judgeSelect(draft: OperationDraft, reader: BodyReader, start: number): void {
  const refuse = (problem: string, offset = start): QueryRefused =>
    reader.refusal("invalid_value", problem, offset);
  judgeJoins(draft, refuse);
  if (draft.afterStart > 0) judgeAfter(draft, refuse);
  if (draft.aggregateStart > 0) {
    judgeAggregates(draft, reader);
    return;
  }
  if (draft.summary !== undefined) {
    const problem =
      'group_by and having go with aggregate, which is left out; "distinct": true gives each row once';
    throw reader.refusal("missing_field", problem, start);
  }
  if (draft.columnsStart > 0) return;
  const unless = reader.isFull ? "; columns is left out only beside aggregate" : "";
  const problem = `the field "columns" is left out; required: database, from, columns${unless}`;
  throw reader.refusal("missing_field", problem, start);
}

/** Of several joins, each `on` has a column of its own table and one of a table named before. */
function judgeJoins(
  { table = "", joined, ons }: OperationDraft,
  refuse: (problem: string) => QueryRefused,
): void {
  if (joined === undefined || joined.length === 1) return;
  for (const [index, sides] of (ons ?? []).entries()) {
    const own = joined[index] ?? "";
    const before = [table, ...joined.slice(0, index)];
    const fits = sides.includes(own) && sides.some((side) => before.includes(side));
    if (fits) continue;
    const allowed = before.map(quoteName).join(" or ");
    throw refuse(`join[${index}].on takes a column of ${quoteName(own)} and one of ${allowed}`);
  }
}

function judgeAfter(
  { afterStart, afterCount, orderCount, hasOffset, isDistinct, aggregateStart }: OperationDraft,
  refuse: (problem: string, offset: number) => QueryRefused,
): void {
  if (orderCount === 0) {
    throw refuse("after needs order_by: it has a value for each of its columns", afterStart);
  }
  if (orderCount !== afterCount) {
    const problem = `after has ${counted(afterCount, "value")} and order_by ${counted(orderCount, "column")}; each column needs its value`;
    throw refuse(problem, afterStart);
  }
  const other = [
    hasOffset ? "offset" : "",
    isDistinct ? "distinct" : "",
    aggregateStart > 0 ? "aggregate" : "",
  ].find((name) => name !== "");
  if (other !== undefined) throw refuse(`after cannot be together with ${other}`, afterStart);
}

function judgeAggregates(draft: OperationDraft, reader: BodyReader): void {
  const { groups, aliases, conditions } = draft.summarize();
  requireDistinctAliases(draft, reader);
  if (draft.columnsStart > 0) {
    const columns = namesAt(reader, draft.columnsStart, groups.length);
    const equal =
      columns.length === groups.length && columns.every((name, at) => name === groups[at]);
    if (!equal) {
      const problem = `beside aggregate, columns equals group_by or is left out; group_by is ${quoted(groups)}`;
      throw reader.refusal("invalid_value", problem, draft.columnsStart);
    }
  }
  const allowed = new Set([...groups, ...aliases]);
  const orders = draft.orderStart > 0 ? ordersAt(reader, draft.orderStart) : [];
  for (const name of [...conditions, ...orders]) {
    if (allowed.has(name)) continue;
    const problem = `${quoteName(name)} is neither an alias of aggregate nor a column of group_by; allowed: ${quoted([...allowed])}${didYouMean(name, allowed)}`;
    throw reader.refusal("invalid_column", problem, draft.aggregateStart);
  }
}

/** An alias names one result, and no column of a group, in whatever case. */
function requireDistinctAliases(draft: OperationDraft, reader: BodyReader): void {
  const { groups, aliases } = draft.summarize();
  const taken = new Set(groups.map((name) => name.slice(name.indexOf(".") + 1).toLowerCase()));
  for (const alias of aliases) {
    const folded = alias.toLowerCase();
    if (taken.has(folded)) {
      const problem = `the name ${quoteName(alias)} is taken; each "as" is unique, and no column`;
      throw reader.refusal("duplicate_column", problem, draft.aggregateStart);
    }
    taken.add(folded);
  }
}

function quoted(names: readonly string[]): string {
  return names.length === 0 ? "empty" : names.map(quoteName).join(", ");
}

/** Strings of the array at an offset, which was read before; some more than `most` if it has more. */
function namesAt(reader: BodyReader, offset: number, most: number): string[] {
  return reader.reread(offset, () => {
    const names: string[] = [];
    for (let more = reader.openArray(); more; more = reader.nextElement()) {
      names.push(reader.readString().toString());
      if (names.length > most) break;
    }
    return names;
  });
}

/** The columns of the `order_by` at an offset, which was read before. */
function ordersAt(reader: BodyReader, offset: number): string[] {
  return reader.reread(offset, () => {
    const names: string[] = [];
    const isList = reader.kind() === "an array";
    if (isList) reader.openArray();
    do {
      for (let more = reader.openObject(); more; more = reader.nextMember()) {
        const isColumn = reader.readKey().toString() === "column";
        if (isColumn) names.push(reader.readString().toString());
        else reader.skipValue();
      }
    } while (isList && reader.nextElement());
    return names;
  });
}
