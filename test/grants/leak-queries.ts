import fc from "fast-check";
import {
  columnOf,
  DATABASE,
  number,
  type Table,
  table,
  text,
  value,
  valueFor,
  where,
} from "./leak-conditions.ts";

const joinType = fc.constantFrom("INNER", "INNER", "LEFT", "RIGHT");

/** Tables of a Select, with the joins between them. */
interface Joined {
  readonly of: readonly Table[];
  readonly join?: object;
}

const joined: fc.Arbitrary<Joined> = fc.oneof(
  { weight: 5, arbitrary: table.map((one) => ({ of: [one] })) },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.boolean(), joinType).map(([isTurned, join_type]): Joined => {
      const on = "tickets.customer = customers.id";
      return isTurned
        ? { of: ["customers", "tickets"], join: { table: "tickets", on, join_type } }
        : { of: ["tickets", "customers"], join: { table: "customers", on, join_type } };
    }),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.boolean(), joinType, fc.constantFrom("id", "customer", "salary"))
      .map(([isTurned, join_type, column]): Joined => {
        const on = `tickets.${column} = again.${column}`;
        return isTurned
          ? { of: ["again", "tickets"], join: { table: "tickets", on, join_type } }
          : { of: ["tickets", "again"], join: { table: "tickets", as: "again", on, join_type } };
      }),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(joinType, joinType).map(
      ([first, second]): Joined => ({
        of: ["tickets", "customers", "vault"],
        join: [
          { table: "customers", on: "customers.id = tickets.customer", join_type: first },
          { table: "vault", on: "vault.ticket = tickets.id", join_type: second },
        ],
      }),
    ),
  },
);

function sourceOf([first]: readonly Table[]) {
  return first === "again" ? { table: "tickets", as: first } : first;
}

/** A few computed names, `c1` and on. */
function computeOf(of: readonly Table[]) {
  const item = fc.oneof(
    { weight: 4, arbitrary: columnOf(of) },
    { weight: 1, arbitrary: fc.constantFrom("c1", "c2") },
    { weight: 1, arbitrary: value.map((one) => ({ value: one })) },
  );
  const named = (name: string) => (of.length === 1 ? name : `tickets.${name}`);
  const again = of.includes("again") ? ["again.weight"] : [];
  const numbers = of.includes("tickets") ? [named("id"), named("weight"), ...again] : ["id"];
  const numeric = fc.oneof(
    fc.constantFrom(...numbers),
    number.map((one) => ({ value: one })),
  );
  const rest = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        fn: fc.constantFrom("add", "sub", "mul", "div", "coalesce", "nullif"),
        of: fc.tuple(numeric, numeric),
      }),
    },
    fc.record({ fn: fc.constantFrom("concat", "coalesce", "nullif"), of: fc.tuple(item, item) }),
    fc.record({
      fn: fc.constantFrom("abs", "round", "lower", "upper", "trim", "length"),
      of: fc.tuple(item),
    }),
    fc.tuple(where(of), item, item).map(([when, yes, no]) =>
      // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
      ({ fn: "if", when: when ?? { column: "id", cmp: ">", value: 1 }, then: yes, else: no }),
    ),
  );
  const names = fc
    .array(rest, { minLength: 1, maxLength: 2 })
    .map((all) => all.map((one, index) => ({ as: `c${index + 1}`, ...one })));
  return fc.oneof(
    { weight: 2, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: names },
  );
}

/** An order that tells all rows apart, so that what is cut is cut alike. */
function wholeOrder(of: readonly Table[]) {
  return of.map((one) => ({ column: of.length === 1 ? "id" : `${one}.id` }));
}

const rowsOf = joined.chain(({ of, join }) =>
  fc
    .record(
      {
        columns: fc.array(columnOf(of), { minLength: 1, maxLength: 3 }),
        where: where(of),
        order_by: columnOf(of),
        limit: fc.integer({ min: 0, max: 5 }),
        offset: fc.integer({ min: 0, max: 3 }),
        distinct: fc.boolean(),
        after: fc.boolean(),
        compute: computeOf(of),
        isComputed: fc.boolean(),
      },
      { requiredKeys: ["columns", "limit"] },
    )
    .map(({ order_by: first, after, distinct, columns: plain, isComputed, ...more }) => {
      const { where: filter, compute: names } = more;
      if (isComputed === true && names !== undefined) {
        const computed = { column: "c1", cmp: "!=", value: 0 };
        more.where = filter ? { and: [computed, filter] } : computed;
      }
      const isShown = isComputed === true && more.compute !== undefined;
      const columns = isShown ? [...plain, "c1"] : plain;
      const ends = wholeOrder(of);
      const order = [
        ...(first === undefined ? [] : [{ column: first, direction: "DESC" }]),
        ...ends.filter(({ column }) => column !== first),
      ];
      const isPaged = after === true && distinct !== true && more.offset === undefined;
      return {
        Select: {
          database: DATABASE,
          from: sourceOf(of),
          columns: distinct === true ? [...columns, ...order.map(({ column }) => column)] : columns,
          ...more,
          order_by: order,
          ...(distinct === true ? { distinct } : {}),
          ...(isPaged ? { after: order.map(() => 1) } : {}),
          ...(join === undefined ? {} : { join }),
        },
      };
    }),
);

const summaryOf = joined.chain(({ of, join }) =>
  fc
    .record(
      {
        groups: fc.uniqueArray(columnOf(of), { maxLength: 2 }),
        fn: fc.constantFrom("sum", "min", "max", "avg", "count"),
        column: columnOf(of),
        where: where(of),
        having: fc.record({
          column: fc.oneof(fc.constant("a1"), columnOf(of)),
          cmp: fc.constantFrom(">", "=", "<="),
          value: fc.integer({ min: 0, max: 9 }),
        }),
        isOrdered: fc.boolean(),
        compute: computeOf(of),
      },
      { requiredKeys: ["groups", "fn", "column"] },
    )
    .map(({ groups: plain, fn, column: own, where: filter, having, isOrdered, compute }) => {
      const groups = compute === undefined ? plain : [...plain, "c1"];
      const column = compute === undefined ? own : "c1";
      return { groups, fn, column, filter, having, isOrdered, compute };
    })
    .map(({ groups, fn, column, filter, having, isOrdered, compute }) => ({
      Select: {
        database: DATABASE,
        from: sourceOf(of),
        aggregate: [
          { fn, column, as: "a1" },
          { fn: "count", as: "a2" },
        ],
        ...(groups.length === 0 ? {} : { group_by: groups, limit: 5 }),
        ...(compute === undefined ? {} : { compute }),
        ...(groups.length === 0 && isOrdered !== true
          ? {}
          : { order_by: ["a2", "a1", ...groups].map((name) => ({ column: name })) }),
        ...(filter === undefined ? {} : { where: filter }),
        ...(having === undefined ? {} : { having }),
        ...(join === undefined ? {} : { join }),
      },
    })),
);

/** Cells that are nearly always within what the caller may write. */
const row = fc.record(
  {
    id: fc.integer({ min: 1, max: 30 }),
    tenant: fc.oneof(
      { weight: 9, arbitrary: fc.constant("acme") },
      { weight: 1, arbitrary: value },
    ),
    customer: fc.constantFrom(1, 2, 3, 77, null),
    status: text,
    weight: number,
    salary: number,
  },
  { requiredKeys: ["id", "tenant"] },
);
const customerRow = fc.record({
  id: fc.integer({ min: 1, max: 30 }),
  tenant: fc.constant("acme"),
  name: text,
});

const change = table.chain((one) => {
  const target = { database: DATABASE, table: one };
  const returning = fc.array(columnOf([one]), { minLength: 1, maxLength: 2 });
  const values = fc.array(one === "customers" ? customerRow : row, { minLength: 1, maxLength: 2 });
  const assigned = columnOf([one]).chain((name) =>
    valueFor(name).map((cell) => ({ [name]: cell })),
  );
  const added = columnOf([one]).chain((name) => number.map((cell) => ({ [name]: cell })));
  return fc.oneof(
    fc
      .record({ values, returning }, { requiredKeys: ["values"] })
      .map((fields) => ({ Insert: { ...target, ...fields } })),
    fc
      .record({ set: assigned, where: where([one]), returning }, { requiredKeys: ["set", "where"] })
      .map((fields) => ({ Update: { ...target, ...fields } })),
    fc
      .record({ add: added, where: where([one]), returning }, { requiredKeys: ["add", "where"] })
      .map((fields) => ({ Update: { ...target, ...fields } })),
    fc
      .record({ where: where([one]), returning }, { requiredKeys: ["where"] })
      .map((fields) => ({ Delete: { ...target, ...fields } })),
    fc
      .record({ values, on: columnOf([one]), update: fc.array(columnOf([one]), { maxLength: 1 }) })
      .map(({ on, ...fields }) => ({ Upsert: { ...target, ...fields, on_conflict: [on] } })),
  );
});

const single = fc.oneof(
  { weight: 5, arbitrary: rowsOf },
  { weight: 3, arbitrary: summaryOf },
  { weight: 4, arbitrary: change },
);

/** Two changes, of which the second binds a column of the first. */
const bindingChanges = fc
  .tuple(change, change, columnOf(["tickets"]), columnOf(["tickets"]))
  .map(([first, second, read, written]) => {
    const bare = (name: string) => name.slice(name.indexOf(".") + 1);
    const bind = { [bare(written)]: { element: 0, column: bare(read) } };
    const { Insert, Update } = Object(second);
    if (Insert !== undefined) return [first, { Insert: { ...Insert, bind, expect: 1 } }];
    return Update === undefined ? [first, second] : [first, { Update: { ...Update, bind } }];
  });

export const curiousQuery: fc.Arbitrary<object> = fc.oneof(
  { weight: 12, arbitrary: single },
  { weight: 2, arbitrary: change.map((one) => ({ Preview: one })) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.array(change, { minLength: 1, maxLength: 3 }), fc.nat({ max: 5 }))
      .map(([elements, limit]) => ({ Preview: { Batch: elements, limit } })),
  },
  { weight: 1, arbitrary: bindingChanges.map((elements) => ({ Batch: elements })) },
  { weight: 1, arbitrary: bindingChanges.map((elements) => ({ Preview: { Batch: elements } })) },
  {
    weight: 1,
    arbitrary: fc.array(single, { minLength: 1, maxLength: 3 }).map((elements) => ({
      Batch: elements,
    })),
  },
);
