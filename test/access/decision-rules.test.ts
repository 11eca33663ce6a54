import t from "tap";
import {
  type AttributeValue,
  type Boundary,
  type Grant,
  readHolder,
  userHolder,
} from "../../src/core/access/grant.ts";
import { decideQuery, decideWholeDatabase, seeTable } from "../../src/core/access/policy.ts";
import type { DecisionContext } from "../../src/core/access/rights.ts";
import { addedTexts, pinnedValues } from "../../src/core/access/row-filter.ts";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { now, snapshotOf, username } from "./decision-worlds.ts";

/** Grants and queries for tests of the decision by examples. */

const grammar = createGrammar({ extraFields: [], operations: {}, level: "full" });
const subject = { username, tokenDatabase: "*" };

interface Rules {
  readonly grants?: readonly Partial<Grant>[];
  readonly boundaries?: readonly Boundary[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
}

function snapshotBy({ grants = [{}], boundaries = [], attributes = {} }: Rules) {
  const place = { holder: readHolder(username), database: "main", role: "ReadWrite" } as const;
  return snapshotOf({
    grants: grants.map((grant) => ({ ...place, ...grant })),
    boundaries,
    attributes,
  });
}

function decideOn(rules: Rules, body: unknown, context: Partial<DecisionContext> = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const query = parseQuery(Buffer.from(text), grammar);
  const how = { via: "query", now, isEngine: true, ...context } as const;
  return decideQuery(snapshotBy(rules), subject, query, how);
}

function codeOf(rules: Rules, body: unknown, context?: Partial<DecisionContext>): string {
  return decideOn(rules, body, context).reason;
}

const place = { database: "main", table: "tickets" };

function select(fields: object = {}) {
  return { Select: { database: "main", from: "tickets", columns: ["id"], ...fields } };
}
function insert(...values: object[]) {
  return { Insert: { ...place, values } };
}
function update(fields: object) {
  return { Update: { ...place, where: null, ...fields } };
}
function where(column: string, cmp: string, value: unknown) {
  return { where: { column, cmp, value } };
}
function inner(fields: object = {}) {
  const join = { table: "orders", on: "tickets.id = orders.id", join_type: "INNER" };
  return select({ columns: ["tickets.id"], join, ...fields });
}

/** Examples of rules on names, columns and rows. */

t.test("a name in another case or Unicode form than the entry's is denied", async (t) => {
  const grants = [{ columns: ["id", "städte", "straße", "file"] }];
  const spaced = ["id ", "ID\u00a0"];
  for (const name of ["Id", "sta\u0308dte", "STÄDTE", "STRASSE", "ﬁle", "fi\u200ble", ...spaced]) {
    t.equal(codeOf({ grants }, select({ columns: [name] })), "name_case_mismatch", name);
  }
  t.equal(codeOf({ grants }, select({ columns: ["staedte"] })), "column_denied");
  t.equal(codeOf({ grants }, select({ columns: ["städte", "straße"] })), "allowed");
  const filtered = [{ rowFilter: [{ column: "tenant", cmp: "=", value: "a" } as const] }];
  for (const other of ["Tenant", "tenant "]) {
    const row = { [other]: "b", tenant: "a" };
    t.equal(codeOf({ grants: filtered }, insert(row)), "name_case_mismatch", other);
    const change = update({ set: { [other]: "b" } });
    t.equal(codeOf({ grants: filtered }, change), "name_case_mismatch", other);
  }
});

t.test("numbers are compared to the last digit, and only as whole numbers", async (t) => {
  const grants = [{ rowFilter: [{ column: "n", cmp: "=", value: 9007199254740993n } as const] }];
  const row = (value: string) =>
    `{"Insert":{"database":"main","table":"tickets","values":[{"n":${value}}]}}`;
  t.equal(codeOf({ grants }, row("9007199254740993")), "allowed");
  const others = ["9007199254740992", "9007199254740994", "9007199254740993.0", "null"];
  for (const other of [...others, '"9007199254740993"']) {
    t.equal(codeOf({ grants }, row(other)), "row_denied", other);
  }
  const { decisions } = decideOn({ grants }, select());
  t.strictSame(addedTexts(decisions[0]?.filters), [
    '{"column":"n","cmp":"=","value":9007199254740993}',
  ]);
  const far = "99999999999999999999";
  const allowed = [
    ["<", "9", `-${far}`],
    ["<=", "9", "10", `-${far}`],
    [">", "11", far],
    [">=", "10", "11", far],
    ["!=", "9", "11", far, `-${far}`],
  ] as const;
  for (const [cmp, ...values] of allowed) {
    const bounded = [{ rowFilter: [{ column: "n", cmp, value: 10 } as const] }];
    for (const value of ["9", "10", "11", far, `-${far}`, "9.5", "10.5", "true", "null"]) {
      const expected = values.some((one) => one === value) ? "allowed" : "row_denied";
      t.equal(codeOf({ grants: bounded }, row(value)), expected, `${value} under ${cmp}`);
    }
  }
});

t.test("a filter is added unless the where already has it at the top", async (t) => {
  const grants = [{ rowFilter: [{ column: "tenant", cmp: "=", value: "@tenant" } as const] }];
  const attributes = { tenant: "acme" };
  const additionsFor = (body: unknown) =>
    addedTexts(decideOn({ grants, attributes }, body).decisions[0]?.filters);
  const filter = '{"column":"tenant","cmp":"=","value":"acme"}';
  const stands = { column: "tenant", cmp: "=", value: "acme" };
  const other = { column: "id", cmp: "=", value: 1 };
  t.strictSame(additionsFor(select()), [filter]);
  t.strictSame(additionsFor(select({ where: stands })), []);
  t.strictSame(additionsFor(select({ where: { ...stands, column: "tickets.tenant" } })), []);
  t.strictSame(additionsFor(select({ where: { and: [other, stands] } })), []);
  const elsewhere = [{ or: [stands, other] }, { and: [{ and: [stands] }] }, { not: stands }];
  for (const where of [other, ...elsewhere]) {
    t.strictSame(additionsFor(select({ where })), [filter], JSON.stringify(where));
  }
  const inJoin = (table: string) => filter.replace('"tenant"', `"${table}.tenant"`);
  t.strictSame(additionsFor(inner()), [inJoin("tickets"), inJoin("orders")]);
  t.strictSame(additionsFor(insert({ tenant: "acme" })), [], "a row that fits needs none");
});

t.test("a refused column is answered with those that may be used", async (t) => {
  const grants = [{ columns: ["id", "status"], writableColumns: ["status", "salary"] }];
  const set = { status: "x" };
  t.equal(codeOf({ grants }, update({ set, returning: ["*"] })), "columns_required");
  t.equal(codeOf({ grants }, update({ set: { id: 1 } })), "column_denied");
  const many = Array(3000).fill(["id", "status"]).flat();
  t.equal(codeOf({ grants }, select({ columns: [...many, "salary"] })), "column_denied");
  const { decisions } = decideOn({ grants }, select({ columns: ["*"] }));
  t.match(decisions[0]?.message, /"id", "status"/);
  const { limits } = decideOn({ grants }, { Preview: update({ set }) });
  t.match(limits, [{ elements: [0], columns: ["id", "status"] }], "a Preview shows no others");
});

t.test("a refusal says if only an administrator can help", async (t) => {
  const rowFilter = [{ column: "tenant", cmp: "=", value: "acme" } as const];
  const said = (grants: readonly Partial<Grant>[], body: object) =>
    decideOn({ grants }, body).decisions[0]?.message;
  const plain = 'The row values[0] lacks "tenant": written rows must meet "tenant" = "acme"';
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
  t.match(said(hidden, joined), /as in "orders\.name", since only a part of "tickets" may be read/);
  const include = { as: "o", table: "orders", on: "orders.id = tickets.twice", columns: ["id"] };
  const compute = [{ as: "twice", fn: "mul", of: ["id", { value: 2 }] }];
  const byComputed = select({ columns: ["id"], compute, include: [include] });
  t.match(said(hidden, byComputed), /"twice" of "tickets" .* in on, which takes only columns/);
  const limited = derived({ limit: 5 });
  t.match(said([{ maxRows: 10 }], limited), /to the outer Select; a limit in from does not count/);
});

/** Rules on numbers of rows, approvals and whole databases, by examples. */

t.test("the numbers of rows that the engine counts are those that an entry limits", async (t) => {
  const changes = [insert({ id: 1 }), update({ set: { id: 1 }, returning: ["id"] })];
  const limitsOf = (grants: readonly Partial<Grant>[], ...Batch: object[]) =>
    decideOn({ grants }, { Batch }).limits;
  const numbers = { maxRows: 10, maxChanges: 2 };
  t.strictSame(limitsOf([numbers], ...changes, select({ limit: 4 })), [
    { elements: [0, 1], changes: 2 },
    { elements: [1], rows: 6 },
  ]);
  const exists = { table: "orders", on: "orders.id = tickets.id" };
  const reading = update({ set: { id: 1 }, where: { exists } });
  const counted = [{ elements: [0], changes: 2 }];
  t.strictSame(
    limitsOf([{}, { tables: ["orders"], maxChanges: 2 }], reading),
    [],
    "it is only read",
  );
  t.strictSame(limitsOf([{}, { tables: ["tickets"], maxChanges: 2 }], reading), counted);
  t.strictSame(limitsOf([{ maxChanges: 2 }], reading), counted, "one entry for both");
});

function derived(inner: object, more: object = {}) {
  return select({
    from: { select: { from: "orders", columns: ["id"], ...inner }, as: "t" },
    ...more,
  });
}

t.test("any number of terms may pin a column", async (t) => {
  const and = Array.from({ length: 190_000 }, (_, value) => {
    return { column: "a", cmp: "=", value } as const;
  });
  const spelling = { table: "tickets", isQualified: false };
  t.equal(pinnedValues({ and: [...and, { column: "a", cmp: "IN", value: [] }] }, "a", spelling), 0);
});

t.test("without the engine, pinned columns multiply, each by its narrowest pin", async (t) => {
  const grants = [{ maxChanges: 3, requireWhere: ["a", "b"] }];
  const judge = (and: object[]) =>
    codeOf({ grants }, update({ set: { id: 1 }, where: { and } }), { isEngine: false });
  const pin = (column: string, ...value: unknown[]) => ({ column, cmp: "IN", value });
  t.equal(judge([pin("a", 1), pin("b", "x", "y", "z")]), "allowed");
  t.equal(judge([pin("a", 1, 2), pin("b", "x", "y")]), "where_required");
  t.equal(judge([pin("a", 1, 2, 3, 4), pin("b", "x"), pin("a", 1)]), "allowed");
  t.equal(judge([pin("a", [1]), pin("b", "x")]), "where_required", "a list pins nothing");
});

t.test("entries and boundaries require approval of the whole query", async (t) => {
  const grants: Partial<Grant>[] = [
    {},
    { tables: ["tickets"], requireApproval: ["DELETE"], approvers: [userHolder("dave")] },
  ];
  const boundaries: Boundary[] = [{ via: "mcp", requireApproval: ["INSERT", "DELETE"] }];
  const body = { Batch: [select(), { Delete: { ...place, ...where("id", "=", 1) } }] };
  const asked = decideOn({ grants, boundaries }, body, { via: "mcp" });
  t.strictSame([asked.allowed, asked.reason], [false, "approval_required"]);
  const common = { database: "main", permissions: ["DELETE"] };
  t.strictSame(asked.approvals, [
    { entry: "main.tickets", ...common, approvers: ["dave"] },
    { boundary: "mcp", ...common },
  ]);
  t.ok(decideOn({ grants, boundaries }, body, { via: "mcp", isApproved: true }).allowed);
  t.ok(decideOn({ grants, boundaries }, select(), { via: "mcp" }).allowed);
});

t.test("a new table refers to no table of which only some rows may be read", async (t) => {
  const columns = [{ name: "a", type: "int", references: "tickets.id" }];
  const create = { CreateTable: { database: "main", table: "probe", columns } };
  const open = { role: "DbAdmin" } as const;
  const tickets = { tables: ["tickets"], role: "ReadOnly" } as const;
  const rowFilter = [{ column: "tenant", cmp: "=", value: "acme" }] as const;
  t.equal(codeOf({ grants: [open, tickets] }, create), "allowed");
  t.equal(codeOf({ grants: [open, { ...tickets, rowFilter }] }, create), "not_narrowable");
});

t.test("access to a whole database is denied to narrowed callers", async (t) => {
  const origin = { via: "mcp", client: "agent" } as const;
  const ask = (rules: Rules) =>
    decideWholeDatabase(snapshotBy(rules), subject, "SELECT", "main", origin).reason;
  t.equal(ask({}), "allowed");
  t.equal(ask({ grants: [{}, { tables: ["a"] }] }), "not_narrowable");
  t.equal(ask({ grants: [{ database: "*" }, { tables: ["a"] }] }), "not_narrowable");
  t.equal(ask({ grants: [{}, { database: "*", tables: ["a"] }] }), "allowed", "it does not apply");
  t.equal(ask({ grants: [{ maxRows: 1 }] }), "not_narrowable");
  t.equal(ask({ grants: [{ requireApproval: ["SELECT"] }] }), "not_narrowable");
  t.equal(ask({ grants: [{ requireApproval: ["DELETE"] }] }), "allowed");
  t.equal(ask({ boundaries: [{ via: "mcp", role: "None" }] }), "role_insufficient");
  t.equal(ask({ boundaries: [{ via: "mcp", client: "other", role: "None" }] }), "allowed");
  t.equal(ask({ boundaries: [{ via: "mcp", client: "agent", maxRows: 1 }] }), "not_narrowable");
});

t.test("only the entry's columns of a table are visible", async (t) => {
  const grants = [
    {},
    { tables: ["tickets"], columns: ["id"] },
    { tables: ["salaries"], role: "None" as const },
  ];
  const see = (table: string) =>
    seeTable(snapshotBy({ grants }), subject, "main", table, { via: "query" });
  const seen = see("tickets");
  t.ok(typeof seen === "object" && seen.sees("id") && !seen.sees("secret"));
  t.equal(see("salaries"), "role_insufficient");
  t.equal(see("Salaries"), "name_case_mismatch");
});
