import { quoteName } from "../json/fault.ts";
import { andThen } from "../json/reader.ts";
import { counted, didYouMean } from "../suggestion.ts";
import type { BodyReader } from "./body-reader.ts";
import { type Compute, compute, MOST_COMPUTED } from "./compute.ts";
import { type Condition, nestedAs, nesting, where } from "./conditions.ts";
import {
  at,
  eitherOf,
  extra,
  inside,
  type Kind,
  type MakeSchema,
  named,
  type ObjectOf,
  objectSchema,
  optional,
  required,
  whenRead,
} from "./kind.ts";
import { findTaken } from "./names.ts";
import { ObjectShape, object } from "./object-shape.ts";
import {
  DEFAULT_INCLUDED,
  MOST_GROUPS,
  MOST_INCLUDES,
  MOST_JOINS,
  type OperationDraft,
} from "./operation-draft.ts";
import type { InnerSelect } from "./operation-types.ts";
import {
  column,
  count,
  flag,
  joinColumns,
  list,
  literal,
  newName,
  oneOf,
  oneOrMany,
  plainName,
  readCount,
  selectedColumn,
} from "./values.ts";

const MOST_ORDERS = 8;

export const given = (name: string) => ({ required: [name] });
const isDistinct = { ...given("distinct"), properties: { distinct: { const: true } } };

/** The part of `judgeSelect` that a schema can express. */
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

/** @throws QueryRefused `missing_field`, `invalid_value`, `invalid_column` or `duplicate_column` */
export function judgeSelect(draft: OperationDraft, reader: BodyReader, start: number): void {
  judgeTables(draft, reader, start);
  if (draft.computed !== undefined) judgeComputed(draft, reader, draft.computed);
  if (draft.afterStart > 0) judgeAfter(draft, reader);
  if (draft.includes !== undefined) {
    judgeIncludes(draft, reader, draft.includes);
    judgeProduct(draft, reader);
  }
  if (draft.aggregateStart > 0) {
    judgeAggregates(draft, reader);
    return;
  }
  if (draft.summary !== undefined) {
    const problem =
      'group_by and having need aggregate, which is missing; "distinct": true returns each row once';
    throw reader.refusal("missing_field", problem, start);
  }
  if (draft.columnsStart > 0) return;
  const unless = reader.isFull ? "; columns may be omitted only with aggregate" : "";
  const database = draft.outer === undefined ? "database, " : "";
  const problem = `the field "columns" is missing; required: ${database}from, columns${unless}`;
  throw reader.refusal("missing_field", problem, start);
}

/**
 * With `as`, the names of tables must differ. With several joins, each `on` needs a column of its
 * own table and one of an earlier table. With one, it needs columns of both.
 */
function judgeTables(draft: OperationDraft, reader: BodyReader, start: number): void {
  if (!draft.hasAliases && draft.joined === undefined) return;
  const { hasAliases, joined = [], names, ons = [] } = draft;
  const taken = hasAliases ? findTaken(names) : undefined;
  if (taken !== undefined) {
    const problem = `the name ${quoteName(taken)} is taken by another table of the Select; each table needs its own "as"`;
    throw reader.refusal("invalid_value", problem, start);
  }
  const isSole = joined.length === 1;
  for (const [index, sides] of ons.entries()) {
    const own = names[index + 1] ?? "";
    const before = names.slice(0, index + 1);
    const fits = isSole
      ? new Set(sides).size === new Set(names).size
      : sides.includes(own) && sides.some((side) => before.includes(side));
    if (fits) continue;
    const allowed = before.map(quoteName).join(" or ");
    const problem = `join${isSole ? "" : `[${index}]`}.on must compare a column of ${quoteName(own)} with one of ${allowed}`;
    throw reader.refusal("invalid_value", problem, start);
  }
}

function judgeAfter(
  { afterStart, afterCount, orders, hasOffset, isDistinct, aggregateStart }: OperationDraft,
  reader: BodyReader,
): void {
  const refuse = (problem: string) => reader.refusal("invalid_value", problem, afterStart);
  if (orders === undefined) {
    throw refuse("after needs order_by, and one value for each of its columns");
  }
  if (orders.length !== afterCount) {
    const problem = `after has ${counted(afterCount, "value")} and order_by ${counted(orders.length, "column")}; each column needs one value`;
    throw refuse(problem);
  }
  const others = { offset: hasOffset, distinct: isDistinct, aggregate: aggregateStart > 0 };
  const [other] = Object.entries(others).find(([, isGiven]) => isGiven) ?? [];
  if (other !== undefined) throw refuse(`after cannot be combined with ${other}`);
}

function judgeComputed(
  draft: OperationDraft,
  reader: BodyReader,
  computed: readonly string[],
): void {
  const taken = findTaken([...computed, ...(draft.summary?.aliases ?? [])]);
  if (taken !== undefined) {
    const problem = `the name ${quoteName(taken)} is taken by another "as" of compute or aggregate; each must be unique`;
    throw reader.refusal("duplicate_column", problem, draft.computeStart);
  }
  if (draft.afterStart === 0) return;
  const ordered = ordersOf(draft).find((name) => computed.includes(name));
  if (ordered === undefined) return;
  const problem = `after cannot follow the computed name ${quoteName(ordered)}; order by columns`;
  throw reader.refusal("invalid_value", problem, draft.afterStart);
}

function judgeIncludes(
  draft: OperationDraft,
  reader: BodyReader,
  includes: readonly OperationDraft[],
): void {
  const { isDistinct, aggregateStart, includeStart, columnsStart, computed = [] } = draft;
  if (isDistinct || aggregateStart > 0) {
    const other = isDistinct ? "distinct" : "aggregate";
    const problem = `include cannot be combined with ${other}; put ${other} into from, as {"select": ..., "as": ...}`;
    throw reader.refusal("invalid_value", problem, includeStart);
  }
  const selected = columnsStart === 0 ? [] : namesAt(reader, columnsStart);
  const members = includes.flatMap(({ member }) => [member, `${member}_more`]);
  const others = [...selected.map(withoutTable), ...computed];
  const taken = findTaken(members, others);
  if (taken === undefined) return;
  const owner = findTaken([taken], others) ? "a column or computed name" : "another include";
  const problem = `the name ${quoteName(taken)} is taken by ${owner}; include adds "as" and "as" with _more, and nothing else may have these names`;
  throw reader.refusal("duplicate_column", problem, includeStart);
}

function withoutTable(column: string): string {
  return column.slice(column.indexOf(".") + 1);
}

const MOST_INCLUDED_ROWS = 1_000_000;

/** Requires that the limits along each path of includes multiply to a bounded number of rows. */
function judgeProduct(
  { nested = [], limit = 1, includeStart }: OperationDraft,
  reader: BodyReader,
): void {
  const most = limit * nested.reduce((rows, one) => Math.max(rows, one.rowsPerRow), 0);
  if (most <= MOST_INCLUDED_ROWS) return;
  const problem = `the limits multiply to ${most} included rows, with ${DEFAULT_INCLUDED} for each include without one; at most ${MOST_INCLUDED_ROWS} are allowed: lower limit`;
  throw reader.refusal("invalid_value", problem, includeStart);
}

function judgeAggregates(draft: OperationDraft, reader: BodyReader): void {
  const { groups, aliases, conditions } = draft.summarize();
  const columns = groups.map(withoutTable);
  const taken = findTaken(aliases, columns);
  if (taken !== undefined) {
    const owner = findTaken([taken], columns) ? "a column of group_by" : 'another "as"';
    const problem = `the name ${quoteName(taken)} is taken by ${owner}; each "as" must be unique`;
    throw reader.refusal("duplicate_column", problem, draft.aggregateStart);
  }
  if (draft.columnsStart > 0) {
    const selected = namesAt(reader, draft.columnsStart, groups.length);
    const equal =
      selected.length === groups.length && selected.every((name, at) => name === groups[at]);
    if (!equal) {
      const problem = `with aggregate, columns must equal group_by or be omitted; group_by is ${quoted(groups)}`;
      throw reader.refusal("invalid_value", problem, draft.columnsStart);
    }
  }
  const allowed = new Set([...groups, ...aliases]);
  for (const name of [...conditions, ...ordersOf(draft)]) {
    if (allowed.has(name)) continue;
    const problem = `${quoteName(name)} is neither an alias of aggregate nor a column of group_by; allowed: ${quoted([...allowed])}${didYouMean(name, allowed)}`;
    throw reader.refusal("invalid_column", problem, draft.aggregateStart);
  }
}

function quoted(names: readonly string[]): string {
  return names.length === 0 ? "empty" : names.map(quoteName).join(", ");
}

/** The strings of an array that was read before, and slightly more than `most` if it has more. */
function namesAt(reader: BodyReader, offset: number, most = Number.POSITIVE_INFINITY): string[] {
  return reader.reread(offset, () => {
    const names: string[] = [];
    for (let more = reader.openArray(); more; more = reader.nextElement()) {
      names.push(reader.readString().toString());
      if (names.length > most) break;
    }
    return names;
  });
}

function ordersOf({ orders = [] }: OperationDraft): string[] {
  return orders.map(String);
}

function columnsOf(kind: Kind<string[]>): Kind<string[]> {
  return whenRead(at("columns", kind), (draft, _, start) => {
    draft.columnsStart = start;
  });
}

const columns = columnsOf(list(selectedColumn));

const computes: Kind<Compute[]> = whenRead(
  at("compute", list(compute, { most: MOST_COMPUTED })),
  (draft, _, start) => {
    draft.computeStart = start;
  },
);

const tableName = plainName((draft: OperationDraft, name) => {
  draft.table = name;
});

const joinedTable = plainName((draft: OperationDraft, name) => {
  draft.joined ??= [];
  draft.joined.push(name);
});

const joinedAlias = plainName((draft: OperationDraft, name) => {
  draft.joinedAlias = name;
  draft.hasAliases = true;
});

const joinFields = {
  table: required(joinedTable),
  as: extra(joinedAlias, "Another name for the table; needed to join a table with itself."),
  on: required(at("on", joinColumns), "table.column = table.column, of tables named before."),
  join_type: required(
    oneOf(["INNER", "LEFT", "RIGHT"], (draft: OperationDraft, type) => {
      draft.joinTypes ??= [];
      draft.joinTypes.push(type);
    }),
  ),
};

const join = oneOrMany(
  whenRead(object(joinFields), (draft) => {
    draft.joinedNames ??= [];
    draft.joinedNames.push(draft.joinedAlias ?? draft.joined?.at(-1) ?? "");
    draft.joinedAlias = undefined;
  }),
  MOST_JOINS,
);

const alias = required(
  plainName((draft: OperationDraft, name) => {
    draft.alias = name;
    draft.hasAliases = true;
  }),
  "Name of these rows in this Select.",
);
const sourceTable = { table: required(tableName, "Table to read."), as: alias };
const sourceSelect = {
  select: required(
    nestedAs("from", () => innerSelect),
    "Select whose rows are read, without database, after and include.",
  ),
  as: alias,
};
const renamed = whenRead(
  object({ table: optional(tableName), select: optional(sourceSelect.select), as: alias }),
  (draft, reader, start) => {
    if (draft.readsSelect !== (draft.table !== undefined)) return;
    const problem = "from as an object needs as, and either table or select";
    throw reader.refusal(draft.readsSelect ? "invalid_value" : "missing_field", problem, start);
  },
);

type Source =
  | string
  | { readonly table: string; readonly as: string }
  | { readonly select: InnerSelect; readonly as: string };

/** The name of a table, or in the full grammar a table or Select with another name. */
const source: Kind<Source> = {
  read(reader, draft) {
    const isRenamed = reader.isFull && reader.kind() === "an object";
    return isRenamed ? renamed.read(reader, draft) : tableName.read(reader, draft);
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

const functions = ["count", "sum", "min", "max", "avg"] as const;

interface AggregateDraft {
  readonly operation: OperationDraft;
  fn: (typeof functions)[number] | undefined;
  hasColumn: boolean;
  isDistinct: boolean;
}

const aggregateFields = {
  fn: required(
    oneOf(functions, (draft: AggregateDraft, word) => {
      draft.fn = word;
    }),
  ),
  column: optional(
    whenRead(inside(column), (draft: AggregateDraft) => {
      draft.hasColumn = true;
    }),
  ),
  distinct: optional(
    whenRead(flag, (draft: AggregateDraft) => {
      draft.isDistinct = true;
    }),
    "Only for count: counts distinct values.",
  ),
  as: required(
    newName(({ operation }: AggregateDraft, name) => operation.summarize().aliases.push(name)),
    "Name of the result.",
  ),
};
const aggregateShape = new ObjectShape<AggregateDraft>(aggregateFields);

export type Aggregate = ObjectOf<typeof aggregateFields>;

const oneAggregate: Kind<Aggregate> = {
  read(reader, operation) {
    const start = reader.position;
    const draft = { operation, fn: undefined, hasColumn: false, isDistinct: false };
    return andThen(aggregateShape.read(reader, draft), () => requireFit(reader, draft, start));
  },
  schema: named("Aggregate", (reference) => ({
    ...objectSchema(aggregateFields)(reference),
    ...eitherOf([
      { properties: { fn: { const: "count" } } },
      { required: ["column"], not: { required: ["distinct"] } },
    ]),
    dependentRequired: { distinct: ["column"] },
  })),
};

function requireFit(reader: BodyReader, draft: AggregateDraft, start: number): void {
  const { fn, hasColumn, isDistinct } = draft;
  if (fn !== "count" && !hasColumn) {
    throw reader.refusal(
      "missing_field",
      `${fn} needs a column; only count works without one`,
      start,
    );
  }
  if (!isDistinct || (fn === "count" && hasColumn)) return;
  throw reader.refusal("invalid_value", "distinct is allowed only with count of a column", start);
}

const aggregates: Kind<Aggregate[]> = whenRead(
  at("aggregate", list(oneAggregate, { most: MOST_GROUPS })),
  (draft, _, start) => {
    draft.aggregateStart = start;
  },
);

const having = whenRead(at("having", where), (draft) => {
  draft.summarize();
});

const after = whenRead(
  list(
    whenRead(literal, (draft: OperationDraft) => {
      draft.afterCount++;
    }),
    { most: MOST_ORDERS },
  ),
  (draft, _, start) => {
    draft.afterStart = start;
  },
);

const offset = whenRead(count, (draft: OperationDraft) => {
  draft.hasOffset = true;
});

function flagged(note: (draft: OperationDraft, isTrue: boolean) => void): Kind<boolean> {
  return {
    read(reader, draft) {
      const isTrue = reader.bytes[reader.position] === 0x74;
      note(draft, isTrue);
      return flag.read(reader, draft);
    },
    schema: flag.schema,
  };
}

const distinct = flagged((draft, isTrue) => {
  draft.isDistinct = isTrue;
});
const one = flagged((draft, isTrue) => {
  draft.isOne = isTrue;
});

const memberName = newName((draft: OperationDraft, name) => {
  draft.member = name;
});

const databaseName = plainName((draft: OperationDraft, name) => {
  draft.database = name;
});
export const database = required(databaseName, "Name of the database.");
export const table = required(tableName, "Name of the table.");
export const whereField = whenRead(at("where", where), (draft, reader, start) => {
  draft.whereStart = start;
  draft.whereEnd = reader.position;
});

/** A table whose rows are a member of each row of a Select. */
export interface Include {
  readonly as: string;
  readonly table: string;
  /** `table.column = table.column`, one of them of the included table. */
  readonly on: string;
  readonly columns: string[];
  readonly where?: Condition | null;
  readonly compute?: Compute[];
  readonly order_by?: ObjectOf<typeof orderFields> | ObjectOf<typeof orderFields>[];
  readonly limit?: number;
  readonly one?: boolean;
  readonly include?: Include[];
}

const limit: Kind<number> = {
  read(reader, draft) {
    draft.limitStart = reader.position;
    draft.limit = readCount(reader);
    return undefined;
  },
  schema: count.schema,
};

const includes: Kind<Include[]> = whenRead(
  {
    read: (reader, draft) => includeList.read(reader, draft),
    schema: (reference) => includeList.schema(reference),
  },
  (draft, _, start) => {
    draft.includeStart = start;
  },
);

const includeFields = {
  as: required(memberName, "Name of the member that each row gets."),
  table: required(tableName),
  on: required(at("on", joinColumns), "table.column = table.column, one of them of this table."),
  columns: required(columns),
  where: optional(whereField, "Condition for these rows; it never changes the outer rows."),
  compute: optional(computes),
  order_by: optional(orderBy),
  limit: optional(limit, `Rows for each outer row, ${DEFAULT_INCLUDED} if absent.`),
  one: optional(one, "The first row as an object, or null, in place of a list."),
  include: optional(includes),
};

const include = whenRead<Include, OperationDraft>(
  {
    ...object(includeFields),
    schema: named("Include", (reference) => ({
      ...objectSchema(includeFields)(reference),
      not: { required: ["limit", "one"], properties: { one: { const: true } } },
    })),
  },
  judgeInclude,
);
const includeList = list(
  nestedAs("include", () => include),
  { most: MOST_INCLUDES },
);

function judgeInclude(draft: OperationDraft, reader: BodyReader): void {
  const { limit, limitStart, isOne } = draft;
  if (isOne && limit !== undefined) {
    const problem = "limit is not allowed with one, which is the first row by order_by";
    throw reader.refusal("invalid_value", problem, limitStart);
  }
  if (draft.computed !== undefined) judgeComputed(draft, reader, draft.computed);
  if (draft.includes !== undefined) judgeIncludes(draft, reader, draft.includes);
}

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
  distinct: extra(distinct, "Return each row once."),
  order_by: optional(orderBy),
  after: extra(after, "The last row's values of order_by; the page starts after that row."),
  limit: optional(limit, "Maximum number of rows."),
  offset: optional(offset, "Number of rows to skip."),
  include: extra(
    includes,
    "Rows of other tables in each row, as a list, or with one as an object: as, table, on (table.column = table.column), columns, where, compute, order_by, limit (100 if absent), one, include.",
  ),
};

const { database: _, after: __, include: ___, ...sharedFields } = selectFields;
const innerSelect: Kind<InnerSelect> = {
  read: whenRead(object(sharedFields), judgeSelect).read,
  schema: named("InnerSelect", (reference) => ({
    ...objectSchema(sharedFields)(reference),
    ...selectRules(reference),
  })),
};
const nestedFields = {
  ...sharedFields,
  columns: optional(columnsOf(list(column, { most: 1 })), "The column to compare with."),
};
const nestedSelect = object(nestedFields);

/** The part of `judgeNested` that a schema can express. */
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
function judgeNested(draft: OperationDraft, reader: BodyReader, start: number): void {
  judgeSelect(draft, reader, start);
  if (draft.aggregateStart === 0) return;
  const { groups, aliases } = draft.summarize();
  if ((groups.length === 0 ? aliases : groups).length === 1) return;
  const problem = "a select in a condition needs one column: one aggregate, or one of group_by";
  throw reader.refusal("invalid_value", problem, start);
}

nesting.select = {
  read: whenRead(nestedSelect, judgeNested).read,
  schema: named("NestedSelect", (reference) => ({
    ...nestedSelect.schema(reference),
    ...nestedRules(reference),
  })),
};
nesting.exists = object({
  table: required(tableName),
  on: required(at("on", joinColumns), "table.column = table.column, one of them around exists."),
  where: optional(whereField, "On columns of this table."),
});
