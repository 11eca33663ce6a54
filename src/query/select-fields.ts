/** The fields of a Select that say more than which rows of which tables. */

import { andThen, type Rest } from "../json/rest.ts";
import type { BodyReader } from "./body-reader.ts";
import { column, joinColumns, newColumnSchema, readColumnName, selectedColumn } from "./columns.ts";
import { where } from "./conditions.ts";
import {
  eitherOf,
  type Kind,
  named,
  type ObjectOf,
  objectSchema,
  optional,
  required,
} from "./kind.ts";
import { ObjectShape, object } from "./object-shape.ts";
import { MOST_GROUPS, MOST_JOINS, type OperationDraft, type Position } from "./operation-draft.ts";
import { MOST_ORDERS } from "./select-rules.ts";
import { count, flag, list, literal, oneOf, oneOrMany, plainName } from "./values.ts";

/** A kind whose columns stand in this position. */
export function at<Value>(position: Position, kind: Kind<Value>): Kind<Value> {
  return {
    read(reader, draft) {
      draft.enter(position);
      return kind.read(reader, draft);
    },
    schema: kind.schema,
  };
}

/** A kind of which it is noted where its value stands, from its first byte to behind its last. */
export function spanning<Value>(
  kind: Kind<Value>,
  note: (draft: OperationDraft, start: number, end: number) => void,
): Kind<Value> {
  return {
    read(reader, draft) {
      const start = reader.position;
      const rest = kind.read(reader, draft);
      if (rest !== undefined) return andThen(rest, () => note(draft, start, reader.position));
      note(draft, start, reader.position);
      return undefined;
    },
    schema: kind.schema,
  };
}

/** A kind after whose value something is noted of it. */
export function noting<Value>(
  kind: Kind<Value>,
  note: (draft: OperationDraft, start: number) => void,
): Kind<Value> {
  return {
    read(reader, draft) {
      note(draft, reader.position);
      return kind.read(reader, draft);
    },
    schema: kind.schema,
  };
}

/** The `columns` of a Select. */
export const columns: Kind<string[]> = noting(
  at("columns", list(selectedColumn)),
  (draft, start) => {
    draft.columnsStart = start;
  },
);

const joinedTable = plainName((draft: OperationDraft, name) => {
  draft.joined ??= [];
  draft.joined.push(name);
});

const joinFields = {
  table: required(joinedTable),
  on: required(at("on", joinColumns), "table.column = table.column, each of a table named before."),
  join_type: required(oneOf(["INNER", "LEFT", "RIGHT"])),
};

/** The `join` of a Select. */
export const join = oneOrMany(object(joinFields), MOST_JOINS);

const order = object({ column: required(column), direction: optional(oneOf(["ASC", "DESC"])) });

/** The `order_by` of a Select. */
export const orderBy = noting(
  at(
    "order_by",
    oneOrMany(
      noting(order, (draft) => {
        draft.orderCount++;
      }),
      MOST_ORDERS,
    ),
  ),
  (draft, start) => {
    draft.orderStart = start;
  },
);

/** The `group_by` of a Select. */
export const groupBy: Kind<string[]> = at(
  "group_by",
  list(
    {
      read(reader, draft) {
        const start = reader.position;
        column.read(reader, draft);
        const name = reader.reread(start, () => reader.readString().toString());
        draft.summarize().groups.push(name);
        return undefined;
      },
      schema: column.schema,
    },
    { most: MOST_GROUPS },
  ),
);

const functions = ["count", "sum", "min", "max", "avg"] as const;

/** An aggregate while it is read. */
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
  column: optional<string, AggregateDraft>({
    read(reader, draft) {
      draft.hasColumn = true;
      return column.read(reader, draft.operation);
    },
    schema: column.schema,
  }),
  distinct: optional<boolean, AggregateDraft>(
    {
      read(reader, draft) {
        draft.isDistinct = true;
        return flag.read(reader, draft);
      },
      schema: flag.schema,
    },
    "count alone: counts different values.",
  ),
  as: required<string, AggregateDraft>(
    {
      read(reader, { operation }) {
        const { aliases } = operation.summarize();
        aliases.push(readColumnName(reader).toString());
        return undefined;
      },
      schema: newColumnSchema,
    },
    "What the result is called.",
  ),
};
const aggregateShape = new ObjectShape<AggregateDraft>(aggregateFields);

/** An aggregate of a Select, once parsed. */
export type Aggregate = ObjectOf<typeof aggregateFields>;

const oneAggregate: Kind<Aggregate> = {
  read(reader, operation) {
    const start = reader.position;
    const draft = { operation, fn: undefined, hasColumn: false, isDistinct: false };
    const rest = aggregateShape.read(reader, draft);
    if (rest !== undefined) return andThen(rest, () => requireFit(reader, draft, start));
    return requireFit(reader, draft, start);
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

function requireFit(reader: BodyReader, draft: AggregateDraft, start: number): undefined {
  const { fn, hasColumn, isDistinct } = draft;
  if (fn !== "count" && !hasColumn) {
    throw reader.refusal("missing_field", `${fn} needs a column; count alone does without`, start);
  }
  if (!isDistinct || (fn === "count" && hasColumn)) return;
  throw reader.refusal("invalid_value", "distinct goes with count of a column alone", start);
}

/** The `aggregate` of a Select. */
export const aggregates: Kind<Aggregate[]> = noting(
  at("aggregate", list(oneAggregate, { most: MOST_GROUPS })),
  (draft, start) => {
    draft.aggregateStart = start;
  },
);

/** The `having` of a Select: a condition on aliases and grouped columns. */
export const having = noting(at("having", where), (draft) => {
  draft.summarize();
});

/** The `after` of a Select: a row's values of `order_by`. */
export const after = noting(
  list(
    noting(literal, (draft) => {
      draft.afterCount++;
    }),
    { most: MOST_ORDERS },
  ),
  (draft, start) => {
    draft.afterStart = start;
  },
);

/** The `offset` of a Select. */
export const offset = noting(count, (draft) => {
  draft.hasOffset = true;
});

/** `"distinct": true`. */
export const distinct: Kind<boolean> = {
  read(reader, draft): Rest {
    const start = reader.position;
    const rest = flag.read(reader, draft);
    draft.isDistinct = reader.bytes[start] === 0x74;
    return rest;
  },
  schema: flag.schema,
};
