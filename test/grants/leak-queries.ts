import fc from "fast-check";
import {
  columnOf,
  DATABASE,
  number,
  plainWhere,
  seenColumnOf,
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
      const on = "grouped.customer = fenced.id";
      return isTurned
        ? { of: ["fenced", "grouped"], join: { table: "grouped", on, join_type } }
        : { of: ["grouped", "fenced"], join: { table: "fenced", on, join_type } };
    }),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.boolean(), joinType, fc.constantFrom("id", "customer", "c2"))
      .map(([isTurned, join_type, column]): Joined => {
        const on = `grouped.${column} = again.${column}`;
        return isTurned
          ? { of: ["again", "grouped"], join: { table: "grouped", on, join_type } }
          : { of: ["grouped", "again"], join: { table: "grouped", as: "again", on, join_type } };
      }),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(joinType, joinType).map(
      ([first, second]): Joined => ({
        of: ["grouped", "fenced", "ranked"],
        join: [
          { table: "fenced", on: "fenced.id = grouped.customer", join_type: first },
          { table: "ranked", on: "ranked.ticket = grouped.id", join_type: second },
        ],
      }),
    ),
  },
);

function sourceOf([first]: readonly Table[]) {
  return first === "again" ? { table: "grouped", as: first } : first;
}

/** How often conditions and computed names fit the columns' types. */
interface Habits {
  readonly whereOf: typeof where;
  readonly columnOf: typeof columnOf;
  readonly isPlain: boolean;
}
const wild: Habits = { whereOf: where, columnOf, isPlain: false };
const tame: Habits = { whereOf: plainWhere, columnOf: seenColumnOf, isPlain: true };

/** A few computed names, `x1` and on. */
function computeOf(of: readonly Table[], { whereOf, isPlain }: Habits) {
  const item = fc.oneof(
    { weight: 4, arbitrary: columnOf(of) },
    { weight: 1, arbitrary: fc.constantFrom("x1", "x2") },
    { weight: 1, arbitrary: value.map((one) => ({ value: one })) },
  );
  const named = (name: string) => (of.length === 1 ? name : `grouped.${name}`);
  const again = of.includes("again") ? ["again.weight"] : [];
  const numbers = of.includes("grouped") ? [named("id"), named("weight"), ...again] : ["id"];
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
    ...(isPlain
      ? []
      : [
          fc.record({
            fn: fc.constantFrom("concat", "coalesce", "nullif"),
            of: fc.tuple(item, item),
          }),
          fc.record({
            fn: fc.constantFrom("abs", "round", "lower", "upper", "trim", "length"),
            of: fc.tuple(item),
          }),
        ]),
    fc
      .tuple(whereOf(of), isPlain ? numeric : item, isPlain ? numeric : item)
      .map(([when, yes, no]) =>
        // biome-ignore lint/suspicious/noThenProperty: a field of the grammar
        ({ fn: "if", when: when ?? { column: "id", cmp: ">", value: 1 }, then: yes, else: no }),
      ),
  );
  const names = fc
    .array(rest, { minLength: 1, maxLength: 2 })
    .map((all) => all.map((one, index) => ({ as: `x${index + 1}`, ...one })));
  return fc.oneof(
    { weight: 2, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: names },
  );
}

/** An order that tells all rows apart, so that what is cut is cut alike. */
function wholeOrder(of: readonly Table[]) {
  return of.map((one) => ({ column: of.length === 1 ? "id" : `${one}.id` }));
}

const rowsBy = (habits: Habits) =>
  joined.chain(({ of, join }) =>
    fc
      .record(
        {
          columns: fc.array(habits.columnOf(of), { minLength: 1, maxLength: 3 }),
          where: habits.whereOf(of),
          order_by: habits.columnOf(of),
          limit: fc.integer({ min: 0, max: 5 }),
          offset: fc.integer({ min: 0, max: 3 }),
          distinct: fc.boolean(),
          after: fc.boolean(),
          compute: computeOf(of, habits),
          isComputed: fc.boolean(),
          isEither: fc.boolean(),
        },
        { requiredKeys: ["columns", "limit"] },
      )
      .map(
        ({ order_by: first, after, distinct, columns: plain, isComputed, isEither, ...more }) => {
          const { where: filter, compute: names } = more;
          if (isComputed === true && names !== undefined) {
            const computed = { column: "x1", cmp: isEither === true ? "=" : "!=", value: 0 };
            const both = [computed, filter ?? computed];
            more.where = isEither === true ? { or: both } : { and: both };
          }
          const isShown = isComputed === true && more.compute !== undefined;
          const columns = isShown ? [...plain, "x1"] : plain;
          const ends = wholeOrder(of);
          const order = [
            ...(first === undefined ? [] : [{ column: first, direction: "DESC" }]),
            ...ends.filter(({ column }) => column !== first),
          ];
          const isPaged = after === true && distinct !== true && more.offset === undefined;
          const Select = {
            database: DATABASE,
            from: sourceOf(of),
            columns:
              distinct === true ? [...columns, ...order.map(({ column }) => column)] : columns,
            ...more,
            order_by: order,
            ...(distinct === true ? { distinct } : {}),
            ...(isPaged ? { after: order.map(() => 1) } : {}),
            ...(join === undefined ? {} : { join }),
          };
          return { of, Select };
        },
      ),
  );

const summaryBy = (habits: Habits) =>
  joined.chain(({ of, join }) =>
    fc
      .record(
        {
          groups: fc.uniqueArray(habits.columnOf(of), { maxLength: 2 }),
          fn: fc.constantFrom("sum", "min", "max", "avg", "count"),
          column: habits.columnOf(of),
          where: habits.whereOf(of),
          having: fc.record({
            column: fc.oneof(fc.constant("a1"), habits.columnOf(of)),
            cmp: fc.constantFrom(">", "=", "<="),
            value: fc.integer({ min: 0, max: 9 }),
          }),
          isOrdered: fc.boolean(),
          compute: computeOf(of, habits),
        },
        { requiredKeys: ["groups", "fn", "column"] },
      )
      .map(({ groups: plain, fn, column: own, where: filter, having, isOrdered, compute }) => {
        const groups = compute === undefined ? plain : [...plain, "x1"];
        const column = compute === undefined ? own : "x1";
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
    c2: number,
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
  const values = fc.array(one === "fenced" ? customerRow : row, { minLength: 1, maxLength: 2 });
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
  { weight: 5, arbitrary: rowsBy(wild).map(({ Select }) => ({ Select })) },
  { weight: 3, arbitrary: summaryBy(wild) },
  { weight: 4, arbitrary: change },
);

/** Two changes, of which the second binds a column of the first. */
const bindingChanges = fc
  .tuple(change, change, columnOf(["grouped"]), columnOf(["grouped"]))
  .map(([first, second, read, written]) => {
    const bare = (name: string) => name.slice(name.indexOf(".") + 1);
    const bind = { [bare(written)]: { element: 0, column: bare(read) } };
    const { Insert, Update } = Object(second);
    if (Insert !== undefined) return [first, { Insert: { ...Insert, bind, expect: 1 } }];
    return Update === undefined ? [first, second] : [first, { Update: { ...Update, bind } }];
  });

const oddNames = ["m1", "c2", "weight", "m2_more"];

/** A table whose rows become members of those of the tables around. */
function includeOf(around: readonly Table[], depth: number, name = "inner"): fc.Arbitrary<object> {
  const free = (["fenced", "grouped"] as const).filter((one) => !around.includes(one));
  const usualTable = fc.constantFrom<Table>(...(free.length === 0 ? ["t" as const] : free));
  const included = fc.oneof({ weight: 12, arbitrary: usualTable }, { weight: 1, arbitrary: table });
  return included.chain((own) => {
    const outer = around.find((one) => one !== own && one !== "ranked") ?? "grouped";
    const keyOf = (one: Table) => (one === "grouped" || one === "again" ? "customer" : "id");
    const usual = `${own}.${keyOf(own)} = ${outer}.${keyOf(outer)}`;
    const any = fc
      .tuple(columnOf([own]), columnOf([outer]))
      .map(([inner, column]) => `${own}.${inner} = ${outer}.${column}`);
    const deeper = includeOf([own], depth + 1).map((inner) => [inner]);
    return fc
      .record(
        {
          as: fc.oneof({ weight: 20, arbitrary: fc.constant(name) }, fc.constantFrom(...oddNames)),
          on: fc.oneof({ weight: 4, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: any }),
          columns: fc.array(seenColumnOf([own]), { minLength: 1, maxLength: 2 }),
          where: plainWhere([own]),
          compute: computeOf([own], tame),
          isComputed: fc.boolean(),
          order_by: seenColumnOf([own]),
          limit: fc.integer({ min: 0, max: 3 }),
          one: fc.constant(true),
          ...(depth < 3 ? { include: deeper } : {}),
        },
        { requiredKeys: ["as", "on", "columns", "limit"] },
      )
      .map(({ compute, isComputed, columns, order_by: first, limit, ...more }) => {
        const isShown = isComputed === true && compute !== undefined;
        const last = first === "id" ? [] : [{ column: "id" }];
        return {
          table: own,
          ...more,
          ...(compute === undefined ? {} : { compute }),
          columns: isShown ? [...columns, "x1"] : columns,
          order_by: [
            ...(first === undefined ? [] : [{ column: first, direction: "DESC" }]),
            ...last,
          ],
          ...(more.one === true ? {} : { limit }),
        };
      });
  });
}

const including = rowsBy(tame).chain(({ of, Select }) => {
  const { distinct: _, ...fields } = { distinct: false, ...Select };
  return fc
    .tuple(includeOf(of, 1, "m1"), includeOf(of, 1, "m2"), fc.boolean())
    .map(([first, second, isSole]) => (isSole ? [first] : [first, second]))
    .map((include) => ({ Select: { ...fields, include } }));
});

/** Rows of another Select. Of some, names are asked for that it does not return. */
const derived = fc.oneof(rowsBy(tame), rowsBy(tame), summaryBy(tame)).chain((whole) => {
  const { database, after: _, ...select } = { after: undefined, ...whole.Select };
  const selected = "columns" in select ? select.columns : [...(select.group_by ?? []), "a1", "a2"];
  const own = [...new Set(selected.map((name: string) => name.slice(name.indexOf(".") + 1)))];
  const one = fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom(...own) },
    { weight: 1, arbitrary: fc.constantFrom("c2", "t.weight", "grouped.id", "nothing") },
  );
  const numbers = own.filter((name) => ["id", "customer", "weight", "a2"].includes(name));
  const [first = "id"] = own;
  const link = fc
    .constantFrom(...(numbers.length === 0 ? [first] : numbers))
    .map((name) => `fenced.${numbers.length === 0 ? "name" : "id"} = t.${name}`);
  const filter = fc.oneof(
    {
      weight: 4,
      arbitrary: one.chain((column) =>
        valueFor(column).map((cell) => ({ column, cmp: "!=", value: cell })),
      ),
    },
    {
      weight: 1,
      arbitrary: fc.tuple(one, one).map(([column, other]) => ({ column, cmp: "=", other })),
    },
    { weight: 2, arbitrary: link.map((on) => ({ exists: { table: "fenced", on } })) },
  );
  const number = fc.constantFrom(first, ...numbers);
  const add =
    numbers.length === 0
      ? one.map((name) => [{ as: "x3", fn: "coalesce", of: [name, name] }])
      : fc.tuple(number, number).map((of) => [{ as: "x3", fn: "mul", of }]);
  const include = fc.tuple(link, fc.integer({ min: 0, max: 2 })).map(([on, limit]) => [
    {
      as: "m1",
      table: "fenced",
      on,
      columns: ["id", "name"],
      limit,
      order_by: { column: "id" },
    },
  ]);
  const common = { where: filter, compute: add };
  const rows = fc
    .record(
      {
        ...common,
        columns: fc.array(one, { minLength: 1, maxLength: 3 }),
        limit: fc.integer({ min: 0, max: 5 }),
        include,
      },
      { requiredKeys: ["columns", "limit"] },
    )
    .map(({ columns, ...more }) => ({
      columns: more.compute === undefined ? columns : [...columns, "x3"],
      ...more,
      order_by: own.slice(0, 8).map((column) => ({ column })),
    }));
  const summary = fc
    .record(
      { ...common, fn: fc.constantFrom("min", "max", "sum", "count"), column: one },
      { requiredKeys: ["fn", "column"] },
    )
    .map(({ fn, column, ...more }) => ({ ...more, aggregate: [{ fn, column, as: "b1" }] }));
  return fc
    .oneof({ weight: 3, arbitrary: rows }, { weight: 1, arbitrary: summary })
    .map((fields) => ({ Select: { database, from: { select, as: "t" }, ...fields } }));
});

const nestedRead = fc.oneof(including, derived);

/** Selects that read further tables, alone and beside each other. */
export const curiousNested: fc.Arbitrary<object> = fc.oneof(
  { weight: 9, arbitrary: nestedRead },
  {
    weight: 1,
    arbitrary: fc
      .array(nestedRead, { minLength: 1, maxLength: 2 })
      .map((elements) => ({ Batch: elements })),
  },
);

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
