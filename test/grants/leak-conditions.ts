/** Tables, columns and conditions of a curious caller, most of which a database would know. */
import fc from "fast-check";

/** Stands for the name of the database. */
export const DATABASE = "db-?";

const tables = ["grouped", "fenced", "ranked", "t", "again"] as const;
export type Table = (typeof tables)[number];

const ofTickets = ["id", "tenant", "customer", "status", "weight", "c2", "code"];
const columnsOf: Record<Table, readonly string[]> = {
  grouped: ofTickets,
  // Another name for the same table.
  again: ofTickets,
  fenced: ["id", "tenant", "name", "c1"],
  ranked: ["id", "ticket"],
  t: ["id"],
};

/** Visible names are far more frequent than hidden or missing ones. */
export const table = fc.oneof(
  { weight: 8, arbitrary: fc.constant<Table>("grouped") },
  { weight: 4, arbitrary: fc.constant<Table>("fenced") },
  { weight: 1, arbitrary: fc.constantFrom<Table>("ranked", "t") },
);

const visible: readonly string[] = ["id", "tenant", "customer", "status", "weight", "name"];

export function columnOf(of: readonly Table[]) {
  const names = of.flatMap((one) =>
    columnsOf[one].map((name) => (of.length === 1 ? name : `${one}.${name}`)),
  );
  const isVisible = (name: string) => visible.includes(name.slice(name.indexOf(".") + 1));
  const seen = names.filter(isVisible);
  return fc.oneof(
    { weight: 16, arbitrary: fc.constantFrom(...(seen.length === 0 ? names : seen)) },
    { weight: 2, arbitrary: fc.constantFrom(...names) },
    { weight: 1, arbitrary: fc.constantFrom("nothing", "Tenant", "salaries", "rowid") },
  );
}

/** As `columnOf`, with hidden and missing ones far less often. */
export function seenColumnOf(of: readonly Table[]) {
  const names = of.flatMap((one) =>
    columnsOf[one]
      .filter((name) => visible.includes(name))
      .map((name) => (of.length === 1 ? name : `${one}.${name}`)),
  );
  return fc.oneof(
    { weight: 30, arbitrary: fc.constantFrom(...names) },
    { weight: 1, arbitrary: columnOf(of) },
  );
}

export const number = fc.oneof(
  fc.integer({ min: -1, max: 9 }),
  fc.constantFrom(1.5, -0, 1e300, Number.MAX_SAFE_INTEGER),
);
export const text = fc.constantFrom(
  "acme",
  "other",
  "ACME",
  "open",
  "done",
  "Ann",
  "",
  "a%",
  "%e%",
  "ope_",
  "open\\",
  "5",
  "é",
);
export const value = fc.oneof(number, text, fc.constantFrom(null, true, false));

/** Values fit their column nearly always. */
export function valueFor(column: string) {
  const name = column.slice(column.indexOf(".") + 1);
  const isText = ["tenant", "status", "name", "code", "c1"].includes(name);
  return fc.oneof(
    { weight: 12, arbitrary: isText ? text : number },
    { weight: 1, arbitrary: value },
  );
}

function comparison(of: readonly Table[]) {
  return columnOf(of).chain((column) => {
    const one = valueFor(column);
    return fc.oneof(
      fc.record({
        column: fc.constant(column),
        cmp: fc.constantFrom("=", "!=", "<", "<=", ">", ">="),
        value: one,
      }),
      fc.record({
        column: fc.constant(column),
        cmp: fc.constantFrom("=", "!=", "<", ">="),
        other: columnOf(of),
      }),
      fc.record({
        column: fc.constant(column),
        cmp: fc.constant("LIKE"),
        value: text,
        escape: fc.constantFrom("e", "%"),
      }),
      fc.record({
        column: fc.constant(column),
        cmp: fc.constant("ILIKE"),
        value: text,
        fold: fc.constant("unicode"),
      }),
      fc.record({
        column: fc.constant(column),
        cmp: fc.constantFrom("LIKE", "ILIKE"),
        value: text,
      }),
      fc.record({
        column: fc.constant(column),
        cmp: fc.constantFrom("IN", "NOT IN"),
        value: fc.array(one, { maxLength: 3 }),
      }),
      fc.record({
        column: fc.constant(column),
        cmp: fc.constant("BETWEEN"),
        value: fc.tuple(one, one),
      }),
    );
  });
}

/** An `exists` on the table that the others are related to. */
function related(of: readonly Table[], depth: number): fc.Arbitrary<object> {
  const [outer = "grouped"] = of;
  const other = outer === "fenced" ? "grouped" : "fenced";
  const column = outer === "ranked" || outer === "t" ? "id" : "customer";
  const on = outer === "fenced" ? "grouped.customer = fenced.id" : `fenced.id = ${outer}.${column}`;
  const inner =
    depth === 0
      ? comparison([other])
      : fc.oneof(
          { weight: 4, arbitrary: comparison([other]) },
          { weight: 1, arbitrary: nested([other], depth - 1) },
        );
  return fc
    .option(inner, { nil: undefined })
    .map((where) => ({ exists: { table: other, on, ...(where === undefined ? {} : { where }) } }));
}

/** A Select or `exists` on a table, which contains another at times. */
function nested(of: readonly Table[], depth: number): fc.Arbitrary<object> {
  return table.chain((one) => {
    const inner =
      depth === 0
        ? comparison([one])
        : fc.oneof(
            { weight: 3, arbitrary: comparison([one]) },
            { weight: 1, arbitrary: nested([one], depth - 1) },
          );
    const link = fc
      .tuple(columnOf([one]), fc.constantFrom(...of))
      .chain(([column, outer]) =>
        columnOf([outer]).map((name) => `${one}.${column} = ${outer}.${name}`),
      );
    const any = fc
      .record(
        { table: fc.constant(one), on: link, where: inner },
        { requiredKeys: ["table", "on"] },
      )
      .map((fields) => ({ exists: fields }));
    const exists = fc.oneof(
      { weight: 5, arbitrary: related(of, depth) },
      { weight: 1, arbitrary: any },
    );
    const rows = fc.record(
      {
        columns: fc.tuple(columnOf([one])),
        where: inner,
        limit: fc.integer({ min: 0, max: 3 }),
        distinct: fc.boolean(),
      },
      { requiredKeys: ["columns"] },
    );
    const summary = fc
      .record({ fn: fc.constantFrom("min", "max", "count"), column: columnOf([one]), where: inner })
      .map(({ fn, column, where }) => ({ aggregate: [{ fn, column, as: "a1" }], where }));
    const member = fc
      .record({
        column: columnOf(of),
        cmp: fc.constantFrom("IN", "NOT IN"),
        select: fc
          .oneof({ weight: 3, arbitrary: rows }, { weight: 1, arbitrary: summary })
          .map((select) => ({
            from: one,
            ...select,
            ...("limit" in select ? { order_by: { column: "id" } } : {}),
          })),
      })
      .map(({ select, ...rest }) => {
        // Which rows a limit cuts is only known in an order of distinct values.
        const { distinct, ...plain } = { distinct: undefined, ...select };
        const isCut = "limit" in select;
        return { ...rest, select: distinct === true && !isCut ? { ...plain, distinct } : plain };
      });
    return fc.oneof(exists, member);
  });
}

function condition(of: readonly Table[]): fc.Arbitrary<object> {
  return fc.letrec<{ one: object }>((tie) => ({
    one: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      { weight: 6, arbitrary: comparison(of) },
      { weight: 2, arbitrary: nested(of, 1) },
      fc.record({ and: fc.array(tie("one"), { minLength: 1, maxLength: 3 }) }),
      fc.record({ or: fc.array(tie("one"), { minLength: 1, maxLength: 3 }) }),
      fc.record({ not: tie("one") }),
    ),
  })).one;
}

export function where(of: readonly Table[]) {
  return fc.oneof(
    { weight: 4, arbitrary: condition(of) },
    { weight: 1, arbitrary: fc.constant(null) },
    { weight: 1, arbitrary: fc.constant({ column: "tenant", cmp: "=", value: "acme" }) },
  );
}

/** Conditions that nearly always fit the columns' types. */
export function plainWhere(of: readonly Table[]) {
  const plain = seenColumnOf(of).chain((column) =>
    fc.record({
      column: fc.constant(column),
      cmp: fc.constantFrom("=", "!=", "<", ">="),
      value: valueFor(column),
    }),
  );
  const linked = of.includes("grouped") && of.includes("fenced") ? plain : related(of, 0);
  const either = fc.tuple(plain, plain).map((or) => ({ or }));
  return fc.oneof(
    { weight: 4, arbitrary: plain },
    { weight: 2, arbitrary: linked },
    { weight: 1, arbitrary: either },
    { weight: 1, arbitrary: where(of) },
  );
}
