import { counted, didYouMean } from "../base/suggestion.ts";
import { keysOf, type Parsed } from "../json/exact.ts";
import { quoteName } from "../json/fault.ts";
import { Word } from "../json/tape.ts";
import { conditionKinds, nestedAs } from "./conditions.ts";
import {
  at,
  checked,
  eitherOf,
  extra,
  type Fields,
  type Kind,
  type MakeSchema,
  named,
  object,
  objectSchema,
  optional,
  required,
} from "./kind.ts";
import { findTaken, withoutTable } from "./names.ts";
import { DEFAULT_INCLUDED, MOST_INCLUDES, MOST_JOINS, type OperationNode } from "./node.ts";
import type { QueryRefusalCode } from "./refusal.ts";
import type { QueryTape } from "./tape.ts";
import type {
  Aggregate,
  Compute,
  Condition,
  FunctionName,
  Include,
  InnerSelect,
  Item,
  Join,
  Select,
  Source,
  Unit,
} from "./tree.ts";
import {
  column,
  count,
  flag,
  joinColumns,
  joinedTables,
  list,
  literal,
  MOST_GROUPS,
  newName,
  oneOf,
  oneOrMany,
  plainName,
  selectedColumn,
  tableName,
} from "./values.ts";

const MOST_COMPUTED = 32;
const MOST_ITEMS = 8;
const MOST_DIGITS = 12;

const truncUnits = ["year", "quarter", "month", "week", "day", "hour", "minute"] as const;
const partUnits = [...truncUnits, "weekday"] as const;
const diffUnits = ["day", "hour", "minute", "second"] as const;
const units = [...partUnits, "second"] as const;

interface FunctionRule {
  /** The fewest and most items of `of`. Undefined if there is no `of`. */
  readonly of?: readonly [least: number, most: number];
  readonly unit?: readonly Unit[];
  readonly needs: readonly FieldName[];
  readonly takes?: readonly FieldName[];
}

type FieldName = "of" | "unit" | "digits" | "path" | "when" | "then" | "else";

const one = { of: [1, 1], needs: ["of"] } as const;
const two = { of: [2, 2], needs: ["of"] } as const;
const several = { of: [2, MOST_ITEMS], needs: ["of"] } as const;

/** What each function takes. Functions with the same rule share a schema. */
const functionRules = {
  add: several,
  mul: several,
  concat: several,
  coalesce: several,
  sub: two,
  div: two,
  nullif: two,
  abs: one,
  lower: one,
  upper: one,
  trim: one,
  length: one,
  round: { ...one, takes: ["digits"] },
  trunc: { of: [1, 1], needs: ["of", "unit"], unit: truncUnits },
  part: { of: [1, 1], needs: ["of", "unit"], unit: partUnits },
  diff: { of: [2, 2], needs: ["of", "unit"], unit: diffUnits },
  json: { of: [1, 1], needs: ["of", "path"] },
  if: { needs: ["when", "then", "else"] },
} as const satisfies Record<FunctionName, FunctionRule>;

const functions = keysOf(functionRules);

function functionRule(fn: FunctionName): FunctionRule {
  return functionRules[fn];
}

const literalItem = object({ value: required(literal) });

const item: Kind<Item> = {
  parse(tape, token, node) {
    const kind = tape.kind(token);
    if (kind === "an object") return literalItem.parse(tape, token, node);
    if (kind === "a string") return column.parse(tape, token, node);
    const problem = `a column name or a literal such as {"value": 2} is expected, ${kind} was found`;
    throw tape.refusal("wrong_type", problem, token);
  },
  schema: named("Item", (reference) => ({
    oneOf: [column.schema(reference), literalItem.schema(reference)],
  })),
};

/** Any text, unlike the name of a column. */
export const anyText: Kind<string> = {
  parse: (tape, token) => tape.text(token),
  schema: () => ({ type: "string" }),
};

const pathStep: Kind<string | number> = {
  parse: (tape, token, node) =>
    (tape.kind(token) === "a number" ? count : anyText).parse(tape, token, node),
  schema: (reference) => ({ oneOf: [anyText.schema(reference), count.schema(reference)] }),
};

const digits: Kind<number> = {
  parse: count.parse,
  schema: () => ({ type: "integer", minimum: 0, maximum: MOST_DIGITS }),
};

const dependent = ["of", "unit", "digits", "path", "when", "then", "else"] as const;
const digitsWord = new Word("digits");

function computeKind(condition: Kind<Condition>): Kind<Compute> {
  const fields = {
    as: required(newName),
    fn: required(oneOf(functions)),
    of: optional(list(item, { most: MOST_ITEMS })),
    unit: optional(oneOf(units)),
    digits: optional(digits),
    path: optional(list(pathStep, { most: MOST_ITEMS })),
    when: optional(condition),
    // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
    then: optional(item),
    else: optional(item),
  };

  const shape = object(fields);

  /** One schema for the functions that share a rule. */
  function schemasOf() {
    const groups = Map.groupBy(functions, (fn) => JSON.stringify(functionRules[fn]));
    return Array.from(groups.values(), (names): Fields => {
      const { of, unit, needs, takes = [] } = functionRule(names[0] ?? "add");
      const own = [...needs, ...takes].map((name) => {
        return [name, { ...fields[name], required: needs.includes(name) }] as const;
      });
      const [least, most] = of ?? [];
      const items = { type: "array", minItems: least, maxItems: most };
      return {
        as: fields.as,
        fn: required(oneOf(names)),
        ...Object.fromEntries(own),
        ...(of && {
          of: required({ ...fields.of, schema: (to) => ({ ...items, items: item.schema(to) }) }),
        }),
        ...(unit && { unit: required(oneOf(unit)) }),
      };
    });
  }

  const compute: Kind<Compute> = {
    parse(tape, token, node) {
      const parsed = shape.parse(tape, token, node);
      requireArguments(parsed, tape, token);
      node.computed.push(parsed.as);
      return parsed;
    },
    schema: named("Compute", (reference) => ({
      oneOf: schemasOf().map((group) => objectSchema(group)(reference)),
    })),
  };

  return compute;
}

function requireArguments(parsed: Compute, tape: QueryTape, token: number): void {
  const { fn, of: items = [], unit, digits = 0 } = parsed;
  const { of: [least, most] = [0, 0], unit: allowed, needs, takes = [] } = functionRule(fn);
  const missing = needs.find((name) => parsed[name] === undefined);
  if (missing !== undefined) {
    throw tape.missing(missing, `${fn} needs ${needs.join(", ")}`, token);
  }
  const refuse = (problem: string, offset?: number) =>
    tape.refusal("invalid_value", problem, token, offset);
  const other = dependent.find(
    (name) => parsed[name] !== undefined && !needs.includes(name) && !takes.includes(name),
  );
  if (other !== undefined) {
    throw refuse(`${other} is not allowed with ${fn}; allowed: ${[...needs, ...takes].join(", ")}`);
  }
  if (items.length < least || items.length > most) {
    const wanted = least === most ? `${least}` : `${least} to ${most}`;
    throw refuse(`${fn} takes ${wanted} items in of, ${items.length} were found`);
  }
  if (allowed !== undefined && unit !== undefined && !allowed.includes(unit)) {
    throw refuse(`${fn} has no unit ${unit}; allowed: ${allowed.join(", ")}`);
  }
  if (digits <= MOST_DIGITS) return;
  const place = tape.start(tape.member(token, digitsWord) ?? token);
  throw refuse(`digits may be at most ${MOST_DIGITS}`, place);
}

const MOST_ORDERS = 8;

export const given = (name: string) => ({ required: [name] });
const isDistinct = { ...given("distinct"), properties: { distinct: { const: true } } };

/** The part of `requireSelect` that a schema can express. */
export const selectRules: MakeSchema = ({ level }) =>
  level === "core"
    ? eitherOf([given("columns")])
    : {
        ...eitherOf([given("columns"), given("aggregate")]),
        dependentRequired: { group_by: ["aggregate"], having: ["aggregate"], after: ["order_by"] },
        dependentSchemas: {
          include: { not: { anyOf: [given("aggregate"), isDistinct] } },
          after: { not: { anyOf: [given("offset"), given("aggregate"), isDistinct] } },
        },
      };

/** The fields of a Select, an included table or a Select within another operation. */
type SelectFields = Partial<Select>;

type Refuse = (code: QueryRefusalCode, problem: string, field?: string) => Error;

/** Refuses a Select at one of its fields. */
function refusing(tape: QueryTape, token: number): Refuse {
  return (code, problem, field) => {
    const place = field === undefined ? token : (tape.member(token, new Word(field)) ?? token);
    return tape.refusal(code, problem, token, tape.start(place));
  };
}

function asList<Value>(one: Value | readonly Value[] | undefined): readonly Value[] {
  if (one === undefined) return [];
  return isList(one) ? one : [one];
}

function isList<Value>(one: Value | readonly Value[]): one is readonly Value[] {
  return Array.isArray(one);
}

/**
 * Checks the rules between the fields of a Select.
 *
 * @throws QueryRefused `missing_field`, `invalid_value`, `invalid_column` or `duplicate_column`
 */
export function requireSelect(
  select: SelectFields,
  node: OperationNode,
  token: number,
  tape: QueryTape,
): void {
  const { columns, aggregate, group_by, having, include, limit } = select;
  const refuse = refusing(tape, token);
  node.aliases = aggregate?.map(({ as }) => as) ?? [];
  node.isAggregate = aggregate !== undefined;
  const isSingle = aggregate !== undefined && group_by === undefined;
  node.mostRows = isSingle ? Math.min(1, limit ?? 1) : limit;
  requireNames(asList(select.join), node, refuse);
  if (select.compute !== undefined) requireComputed(select, node, refuse);
  if (select.after !== undefined) requireAfter(select, select.after.length, refuse);
  if (include !== undefined) {
    requireIncludes(select, include, refuse);
    requireProduct(node, limit, refuse);
  }
  if (aggregate !== undefined) {
    requireAggregates(select, node, refuse);
    return;
  }
  if (group_by !== undefined || having !== undefined) {
    const problem =
      'group_by and having need aggregate, which is missing; "distinct": true returns each row once';
    throw refuse("missing_field", problem);
  }
  if (columns !== undefined) return;
  const unless = tape.isFull ? "; columns may be omitted only with aggregate" : "";
  const database = node.outer === undefined ? "database, " : "";
  throw tape.missing("columns", `required: ${database}from, columns${unless}`, token);
}

/**
 * With `as`, the names of tables must differ. With several joins, each `on` needs a column of its
 * own table and one of an earlier table. With one, it needs columns of both.
 */
function requireNames(joins: readonly Join[], node: OperationNode, refuse: Refuse): void {
  if (!node.hasAliases && joins.length === 0) return;
  const { names } = node;
  const taken = node.hasAliases ? findTaken(names) : undefined;
  if (taken !== undefined) {
    const problem = `the name ${quoteName(taken)} is taken by another table of the Select; each table needs its own "as"`;
    throw refuse("invalid_value", problem);
  }
  const isSole = joins.length === 1;
  for (const [index, { on }] of joins.entries()) {
    const sides: readonly string[] = joinedTables(on) ?? [];
    const own = names[index + 1] ?? "";
    const before = names.slice(0, index + 1);
    const fits = isSole
      ? new Set(sides).size === new Set(names).size
      : sides.includes(own) && sides.some((side) => before.includes(side));
    if (fits) continue;
    const allowed = before.map(quoteName).join(" or ");
    const problem = `join${isSole ? "" : `[${index}]`}.on must compare a column of ${quoteName(own)} with one of ${allowed}`;
    throw refuse("invalid_value", problem);
  }
}

function requireAfter(
  { order_by, offset, distinct = false, aggregate }: SelectFields,
  count: number,
  refuse: Refuse,
): void {
  const orders = asList(order_by);
  if (order_by === undefined) {
    const problem = "after needs order_by, and one value for each of its columns";
    throw refuse("invalid_value", problem, "after");
  }
  if (orders.length !== count) {
    const problem = `after has ${counted(count, "value")} and order_by ${counted(orders.length, "column")}; each column needs one value`;
    throw refuse("invalid_value", problem, "after");
  }
  const others = { offset: offset !== undefined, distinct, aggregate: aggregate !== undefined };
  const [other] = Object.entries(others).find(([, isGiven]) => isGiven) ?? [];
  if (other === undefined) return;
  throw refuse("invalid_value", `after cannot be combined with ${other}`, "after");
}

function requireComputed(
  { after, order_by }: SelectFields,
  { computed, aliases }: OperationNode,
  refuse: Refuse,
): void {
  const taken = findTaken([...computed, ...aliases]);
  if (taken !== undefined) {
    const problem = `the name ${quoteName(taken)} is taken by another "as" of compute or aggregate; each must be unique`;
    throw refuse("duplicate_column", problem, "compute");
  }
  if (after === undefined) return;
  const ordered = asList(order_by).find((order) => computed.includes(order.column));
  if (ordered === undefined) return;
  const problem = `after cannot follow the computed name ${quoteName(ordered.column)}; order by columns`;
  throw refuse("invalid_value", problem, "after");
}

function requireIncludes(
  { distinct, aggregate, columns = [], compute = [] }: SelectFields,
  include: readonly Include[],
  refuse: Refuse,
): void {
  if (distinct === true || aggregate !== undefined) {
    const other = distinct === true ? "distinct" : "aggregate";
    const problem = `include cannot be combined with ${other}; put ${other} into from, as {"select": ..., "as": ...}`;
    throw refuse("invalid_value", problem, "include");
  }
  const members = include.flatMap(({ as }) => [as, `${as}_more`]);
  const others = [...columns.map(withoutTable), ...compute.map(({ as }) => as)];
  const taken = findTaken(members, others);
  if (taken === undefined) return;
  const owner = findTaken([taken], others) ? "a column or computed name" : "another include";
  const problem = `the name ${quoteName(taken)} is taken by ${owner}; include adds "as" and "as" with _more, and nothing else may have these names`;
  throw refuse("duplicate_column", problem, "include");
}

const MOST_INCLUDED_ROWS = 1_000_000;

/** Requires that the limits along each path of includes multiply to a bounded number of rows. */
function requireProduct({ nested }: OperationNode, limit = 1, refuse: Refuse): void {
  const most = limit * nested.reduce((rows, one) => Math.max(rows, one.rowsPerRow), 0);
  if (most <= MOST_INCLUDED_ROWS) return;
  const problem = `the limits multiply to ${most} included rows, with ${DEFAULT_INCLUDED} for each include without one; at most ${MOST_INCLUDED_ROWS} are allowed: lower limit`;
  throw refuse("invalid_value", problem, "include");
}

function requireAggregates(
  { columns, group_by: groups = [], order_by }: SelectFields,
  { aliases, uses }: OperationNode,
  refuse: Refuse,
): void {
  const grouped = groups.map(withoutTable);
  const taken = findTaken(aliases, grouped);
  if (taken !== undefined) {
    const owner = findTaken([taken], grouped) ? "a column of group_by" : 'another "as"';
    const problem = `the name ${quoteName(taken)} is taken by ${owner}; each "as" must be unique`;
    throw refuse("duplicate_column", problem, "aggregate");
  }
  const isEqual =
    columns === undefined ||
    (columns.length === groups.length && columns.every((name, at) => name === groups[at]));
  if (!isEqual) {
    const problem = `with aggregate, columns must equal group_by or be omitted; group_by is ${quoted(groups)}`;
    throw refuse("invalid_value", problem, "columns");
  }
  const allowed = new Set([...groups, ...aliases]);
  const conditions = uses.flatMap((use) => (use.position === "having" ? [use.column] : []));
  const orders = asList(order_by).map((order) => order.column);
  for (const name of [...conditions, ...orders]) {
    if (allowed.has(name)) continue;
    const problem = `${quoteName(name)} is neither an alias of aggregate nor a column of group_by; allowed: ${quoted([...allowed])}${didYouMean(name, allowed)}`;
    throw refuse("invalid_column", problem, "aggregate");
  }
}

function quoted(names: readonly string[]): string {
  return names.length === 0 ? "empty" : names.map(quoteName).join(", ");
}

const { condition, where, whereField } = conditionKinds(() => nestedSelect);
const compute = computeKind(condition);
const columns = at("columns", list(selectedColumn));
const computes = at("compute", list(compute, { most: MOST_COMPUTED }));

const joinFields = {
  table: required(plainName),
  as: extra(plainName, "Another name for the table; needed to join a table with itself."),
  on: required(at("on", joinColumns), "table.column = table.column, of tables named before."),
  join_type: required(oneOf(["INNER", "LEFT", "RIGHT"])),
};

const join = checked(oneOrMany(object(joinFields), MOST_JOINS), (joins, node) => {
  node.joins = asList<Join>(joins).map(({ table, as, join_type: type }) => {
    if (as !== undefined) node.hasAliases = true;
    return { table, name: as ?? table, type };
  });
});

const alias = required(plainName, "Name of these rows in this Select.");
const sourceTable = { table: required(plainName, "Table to read."), as: alias };
const sourceSelect = {
  select: required(
    nestedAs("from", () => innerSelect),
    "Select whose rows are read, without database, after and include.",
  ),
  as: alias,
};
const renamed = checked(
  object({ table: optional(plainName), select: optional(sourceSelect.select), as: alias }),
  ({ table, select, as }, node, token, tape) => {
    node.source = { table, name: as };
    node.hasAliases = true;
    if ((table === undefined) !== (select === undefined)) return;
    const problem = "from as an object needs as, and either table or select";
    throw tape.refusal(select === undefined ? "missing_field" : "invalid_value", problem, token);
  },
);

/** The name of a table, or in the full grammar a table or Select with another name. */
const source: Kind<Source> = {
  parse(tape, token, node) {
    const isRenamed = tape.isFull && tape.kind(token) === "an object";
    const parsed: Parsed = (isRenamed ? renamed : tableName).parse(tape, token, node);
    return parsed;
  },
  schema: (reference) =>
    reference.level === "full"
      ? {
          oneOf: [
            tableName.schema(reference),
            ...[sourceTable, sourceSelect].map((fields) => objectSchema(fields)(reference)),
          ],
        }
      : tableName.schema(reference),
};

const orderFields = { column: required(column), direction: optional(oneOf(["ASC", "DESC"])) };
const orderBy = at("order_by", oneOrMany(object(orderFields), MOST_ORDERS));
const groupBy = at("group_by", list(column, { most: MOST_GROUPS }));

const aggregateFields = {
  fn: required(oneOf(["count", "sum", "min", "max", "avg"])),
  column: optional(column),
  distinct: optional(flag, "Only for count: counts distinct values."),
  as: required(newName, "Name of the result."),
};

const oneAggregate: Kind<Aggregate> = {
  parse: checked(object(aggregateFields), ({ fn, column, distinct }, _node, token, tape) => {
    if (fn !== "count" && column === undefined) {
      const problem = `${fn} needs a column; only count works without one`;
      throw tape.refusal("missing_field", problem, token);
    }
    if (distinct === undefined || (fn === "count" && column !== undefined)) return;
    const problem = "distinct is allowed only with count of a column";
    throw tape.refusal("invalid_value", problem, token);
  }).parse,
  schema: named("Aggregate", (reference) => ({
    ...objectSchema(aggregateFields)(reference),
    ...eitherOf([
      { properties: { fn: { const: "count" } } },
      { required: ["column"], not: { required: ["distinct"] } },
    ]),
    dependentRequired: { distinct: ["column"] },
  })),
};

const aggregates = at("aggregate", list(oneAggregate, { most: MOST_GROUPS }));
const having = at("having", where);
const after = list(literal, { most: MOST_ORDERS });

export const database = required(
  checked(plainName, (name, node) => {
    node.database = name;
  }),
  "Name of the database.",
);
export const table = required(tableName, "Name of the table.");
const includes = list(
  nestedAs("include", () => include),
  { most: MOST_INCLUDES },
);

const includeFields = {
  as: required(newName, "Name of the member that each row gets."),
  table: required(tableName),
  on: required(at("on", joinColumns), "table.column = table.column, one of them of this table."),
  columns: required(columns),
  where: optional(whereField, "Condition for these rows; it never changes the outer rows."),
  compute: optional(computes),
  order_by: optional(orderBy),
  limit: optional(count, `Rows for each outer row, ${DEFAULT_INCLUDED} if absent.`),
  one: optional(flag, "The first row as an object, or null, in place of a list."),
  include: optional(includes),
};

const include: Kind<Include> = checked<Include>(
  {
    parse: object(includeFields).parse,
    schema: named("Include", (reference) => ({
      ...objectSchema(includeFields)(reference),
      not: { required: ["limit", "one"], properties: { one: { const: true } } },
    })),
  },
  (fields, node, token, tape) => {
    const { limit, one = false, compute, include } = fields;
    const refuse = refusing(tape, token);
    if (one && limit !== undefined) {
      const problem = "limit is not allowed with one, which is the first row by order_by";
      throw refuse("invalid_value", problem, "limit");
    }
    node.mostRows = one ? 1 : (limit ?? DEFAULT_INCLUDED);
    if (compute !== undefined) requireComputed(fields, node, refuse);
    if (include !== undefined) requireIncludes(fields, include, refuse);
  },
);

export const selectFields = {
  database,
  from: required(source, "Table to read."),
  columns: optional(columns, 'Columns to read; ["*"] for all.'),
  compute: extra(
    computes,
    "Names for values computed of columns, usable as columns. unit is for trunc, part (weekday 1 is Monday) and diff (first minus second), digits for round, path for json, and when, then and else for if.",
  ),
  where: optional(whereField, "Condition for the rows; all rows if absent."),
  join: optional(join),
  group_by: extra(groupBy, "Columns to group by; each combination of values is one row."),
  aggregate: extra(aggregates, "Aggregates over the rows of each group."),
  having: extra(having, "Condition for the groups, on aliases and columns of group_by."),
  distinct: extra(flag, "Return each row once."),
  order_by: optional(orderBy),
  after: extra(after, "The last row's values of order_by; the page starts after that row."),
  limit: optional(count, "Maximum number of rows."),
  offset: optional(count, "Number of rows to skip."),
  include: extra(
    includes,
    "Rows of other tables in each row, as a list, or with one as an object: as, table, on (table.column = table.column), columns, where, compute, order_by, limit (100 if absent), one, include.",
  ),
};

const { database: _, after: __, include: ___, ...sharedFields } = selectFields;
const innerSelect: Kind<InnerSelect> = {
  parse: checked(object(sharedFields), requireSelect).parse,
  schema: named("InnerSelect", (reference) => ({
    ...objectSchema(sharedFields)(reference),
    ...selectRules(reference),
  })),
};
const nestedFields = {
  ...sharedFields,
  columns: optional(at("columns", list(column, { most: 1 })), "The column to compare with."),
};
const nestedShape = object(nestedFields);

/** The part of `requireOneColumn` that a schema can express. */
const nestedRules: MakeSchema = (reference) => ({
  ...selectRules(reference),
  not: {
    anyOf: [
      { properties: { group_by: { minItems: 2 } }, ...given("group_by") },
      { properties: { aggregate: { minItems: 2 } }, ...given("aggregate"), not: given("group_by") },
    ],
  },
  allOf: [eitherOf([given("columns"), given("aggregate")])],
});

/** Requires one column: with `group_by`, the grouped one. */
function requireOneColumn(
  select: InnerSelect,
  node: OperationNode,
  token: number,
  tape: QueryTape,
): void {
  requireSelect(select, node, token, tape);
  const { aggregate, group_by: groups = [] } = select;
  if (aggregate === undefined || (groups.length === 0 ? aggregate : groups).length === 1) return;
  const problem = "a select in a condition needs one column: one aggregate, or one of group_by";
  throw tape.refusal("invalid_value", problem, token);
}

const nestedSelect: Kind<InnerSelect> = {
  parse: checked(nestedShape, requireOneColumn).parse,
  schema: named("NestedSelect", (reference) => ({
    ...nestedShape.schema(reference),
    ...nestedRules(reference),
  })),
};

export { whereField };
