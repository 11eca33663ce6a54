/** Rules on names, columns and rows, by examples: who asks what, and what comes of it. */
import t from "tap";
import type { Grant } from "../../src/access/grant.ts";
import { codeOf, decideOn, inner, insert, place, select, update, where } from "./decision-kit.ts";

t.test("a name in another case or Unicode form than an entry's is denied", async (t) => {
  const grants = [{ columns: ["id", "städte", "straße", "file"] }];
  for (const name of [
    "ID",
    "Id",
    "staedte",
    "sta\u0308dte",
    "STÄDTE",
    "STRASSE",
    "ﬁle",
    "fi\u200ble",
  ]) {
    const expected = name === "staedte" ? "column_denied" : "name_case_mismatch";
    t.equal(codeOf({ grants }, select({ columns: [name] })), expected, name);
  }
  t.equal(codeOf({ grants }, select({ columns: ["städte", "straße"] })), "allowed");
  const filtered = [{ rowFilter: [{ column: "tenant", cmp: "=", value: "a" } as const] }];
  t.equal(codeOf({ grants: filtered }, insert({ Tenant: "b", tenant: "a" })), "name_case_mismatch");
});

t.test("numbers are compared to the last digit, and only as whole numbers", async (t) => {
  const grants = [{ rowFilter: [{ column: "n", cmp: "=", value: 9007199254740993n } as const] }];
  const row = (value: string) =>
    `{"Insert":{"database":"main","table":"tickets","values":[{"n":${value}}]}}`;
  t.equal(codeOf({ grants }, row("9007199254740993")), "allowed");
  for (const other of [
    "9007199254740992",
    "9007199254740994",
    "9007199254740993.0",
    '"9007199254740993"',
    "null",
  ]) {
    t.equal(codeOf({ grants }, row(other)), "row_denied", other);
  }
  const { decisions } = decideOn({ grants }, select());
  t.strictSame(decisions[0]?.additions, ['{"column":"n","cmp":"=","value":9007199254740993}']);
  const below = [{ rowFilter: [{ column: "n", cmp: "<", value: 10 } as const] }];
  for (const [value, expected] of [
    ["9", "allowed"],
    ["-99999999999999999999", "allowed"],
    ["10", "row_denied"],
    ["9.5", "row_denied"],
    ["true", "row_denied"],
  ]) {
    t.equal(codeOf({ grants: below }, row(value ?? "")), expected, String(value));
  }
});

t.test("a filter is added but where it stands at the top already", async (t) => {
  const grants = [{ rowFilter: [{ column: "tenant", cmp: "=", value: "@tenant" } as const] }];
  const attributes = { tenant: "acme" };
  const additionsFor = (body: unknown) =>
    decideOn({ grants, attributes }, body).decisions[0]?.additions;
  const filter = '{"column":"tenant","cmp":"=","value":"acme"}';
  const stands = { column: "tenant", cmp: "=", value: "acme" };
  const other = { column: "id", cmp: "=", value: 1 };
  t.strictSame(additionsFor(select()), [filter]);
  t.strictSame(additionsFor(select({ where: stands })), []);
  t.strictSame(additionsFor(select({ where: { ...stands, column: "tickets.tenant" } })), []);
  t.strictSame(additionsFor(select({ where: { and: [other, stands] } })), []);
  for (const where of [
    other,
    { or: [stands, other] },
    { and: [{ and: [stands] }] },
    { not: stands },
  ]) {
    t.strictSame(additionsFor(select({ where })), [filter], JSON.stringify(where));
  }
  const inJoin = (table: string) => filter.replace('"tenant"', `"${table}.tenant"`);
  t.strictSame(additionsFor(inner()), [inJoin("tickets"), inJoin("orders")]);
  t.strictSame(additionsFor(insert({ tenant: "acme" })), undefined, "a row that fits needs none");
});

t.test("what an attribute stands for is of its kind, or is missing", async (t) => {
  const by = (cmp: "=" | "!=" | "<" | "IN", value: string | string[]) => ({
    grants: [{ rowFilter: [{ column: "c", cmp, value }] }],
    attributes: { one: "a", many: ["a", "b"], level: 3, none: [] },
  });
  const filterBy = (cmp: "=" | "!=" | "<" | "IN", value: string | string[]) =>
    decideOn(by(cmp, value), select()).decisions[0]?.filters?.[0];
  t.match(filterBy("=", "@one"), '"value":"a"');
  t.match(filterBy("=", "@username"), '"value":"rita"');
  t.match(filterBy("=", "@@one"), '"value":"@one"');
  t.match(filterBy("IN", "@many"), '"value":["a","b"]');
  t.match(filterBy("IN", "@none"), '"value":[]');
  t.match(filterBy("IN", ["@one", "@@one"]), '"value":["a","@one"]');
  t.match(filterBy("<", "@level"), '"value":3');
  for (const [cmp, value] of [
    ["=", "@nobody"],
    ["!=", "@nobody"],
    ["=", "@many"],
    ["IN", "@one"],
    ["<", "@one"],
  ] as const) {
    t.equal(codeOf(by(cmp, value), select()), "attribute_missing", `${cmp} ${value}`);
  }
});

t.test("an update stays within its rows", async (t) => {
  const grants = [{ rowFilter: [{ column: "tenant", cmp: "!=", value: "x" } as const] }];
  t.equal(codeOf({ grants }, update({ set: { tenant: "y", id: 1 } })), "allowed");
  for (const fields of [
    { set: { tenant: "x" } },
    { set: { tenant: null } },
    { set: { tenant: 1 } },
    { add: { tenant: 1 } },
  ]) {
    t.equal(codeOf({ grants }, update(fields)), "row_denied", JSON.stringify(fields));
  }
});

t.test("only the columns of an entry are named, and only some of them written", async (t) => {
  const grants = [{ columns: ["id", "status"], writableColumns: ["status", "salary"] }];
  const cases: [object, string][] = [
    [select({ columns: ["*"] }), "columns_required"],
    [select(where("salary", ">", 1)), "column_denied"],
    [select({ order_by: { column: "salary" } }), "column_denied"],
    [
      {
        Select: {
          database: "main",
          from: "tickets",
          aggregate: [{ fn: "max", column: "salary", as: "m" }],
        },
      },
      "column_denied",
    ],
    [
      {
        Select: {
          database: "main",
          from: "tickets",
          aggregate: [{ fn: "max", column: "id", as: "salary" }],
        },
      },
      "allowed",
    ],
    [update({ set: { status: "x" }, returning: ["salary"] }), "column_denied"],
    [update({ set: { status: "x" }, returning: ["*"] }), "columns_required"],
    [update({ set: { id: 1 } }), "column_denied"],
    [update({ set: { status: "x" } }), "allowed"],
    [insert({ salary: 1 }), "column_denied"],
    [
      { Upsert: { ...place, values: [{ status: "x" }], on_conflict: ["salary"], update: [] } },
      "column_denied",
    ],
    [
      { Upsert: { ...place, values: [{ status: "x" }], on_conflict: ["id"], update: ["id"] } },
      "column_denied",
    ],
    [{ Preview: update({ set: { status: "x" } }) }, "allowed"],
    [
      select({ columns: [...Array(3000).fill(["id", "status"]).flat(), "salary"] }),
      "column_denied",
    ],
  ];
  for (const [body, expected] of cases)
    t.equal(codeOf({ grants }, body), expected, JSON.stringify(body));
  const { decisions } = decideOn({ grants }, select({ columns: ["*"] }));
  t.match(decisions[0]?.message, /"id", "status"/, "and it says which");
  const { limits } = decideOn({ grants }, { Preview: update({ set: { status: "x" } }) });
  t.match(limits, [{ elements: [0], columns: ["id", "status"] }], "a Preview shows no others");
});

t.test("joins are qualified where a table is narrowed, and outer ones hide no rows", async (t) => {
  const rowFilter = [{ column: "tenant", cmp: "=", value: "a" } as const];
  const grants = [{}, { tables: ["orders"], rowFilter }];
  const join = { table: "orders", on: "tickets.id = orders.id" };
  t.equal(codeOf({ grants }, inner({ columns: ["id"] })), "column_unqualified");
  t.equal(codeOf({ grants }, inner()), "allowed");
  t.equal(codeOf({ grants }, inner({ join: { ...join, join_type: "LEFT" } })), "join_denied");
  t.equal(codeOf({ grants }, inner({ join: { ...join, join_type: "RIGHT" } })), "allowed");
  const reversed = {
    columns: ["orders.id"],
    from: "orders",
    join: { ...join, table: "tickets", join_type: "RIGHT" },
  };
  t.equal(codeOf({ grants }, select(reversed)), "join_denied");
});

t.test("what cannot be mended by writing it otherwise is said to be so", async (t) => {
  const rowFilter = [{ column: "tenant", cmp: "=", value: "acme" } as const];
  const said = (grants: readonly Partial<Grant>[], body: object) =>
    decideOn({ grants }, body).decisions[0]?.message;
  const plain =
    'The row values[0] leaves out "tenant": what is written must fulfil "tenant" = "acme"';
  t.equal(said([{ rowFilter }], insert({ id: 1 })), plain);
  for (const columns of [{ columns: ["id"] }, { writableColumns: ["id"] }]) {
    t.equal(
      said([{ rowFilter, ...columns }], insert({ id: 1 })),
      `${plain}, and "tenant" may not be written, so this grant allows no Insert; an administrator can change it`,
    );
  }
  const joined = inner({ columns: ["name"] });
  t.match(
    said([{}, { tables: ["orders"], rowFilter }], joined),
    /"tickets\.name" or "orders\.name",/,
  );
  const hidden = [{ tables: ["tickets"], columns: ["id"] }, { tables: ["orders"] }];
  t.match(said(hidden, joined), /as in "orders\.name", since not all of "tickets" may be read/);
});
