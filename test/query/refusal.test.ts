import t from "tap";
import { quoteName } from "../../src/core/json/fault.ts";
import { createGrammar, type Grammar } from "../../src/core/query/grammar.ts";
import { queryRefusals } from "../../src/core/query/refusal.ts";
import { refusalOf, select, term } from "./kit.ts";

const target = { database: "main", table: "users" };

t.test("every code is snake_case and has a sentence", async (t) => {
  for (const [code, sentence] of Object.entries(queryRefusals)) {
    t.match(code, /^[a-z]+[a-z0-9]*(_[a-z0-9]+)*$/);
    t.match(sentence, /^[A-Z].*\.$/);
  }
});

t.test("a name from the body is shown escaped and cut", async (t) => {
  t.equal(quoteName('a"\n'), '"a\\"\\n"');
  t.equal(quoteName("\u202e\u0085\u2028é"), '"\\u202e\\u0085\\u2028é"');
  t.equal(quoteName("x".repeat(64)), `"${"x".repeat(64)}"`);
  t.equal(quoteName("😀".repeat(65)), `"${"😀".repeat(64)}"...`);
  const { message } = refusalOf({ [`evil\u001b[31m${"x".repeat(10_000)}`]: 1 });
  t.match(message, "evil\\u001b[31mxxx");
  t.ok(message.length < 500);
});

t.test("a misspelled word is followed by a suggestion", async (t) => {
  const meant = (body: unknown) => /\(did you mean (\S+)\?\)$/.exec(refusalOf(body).message)?.[1];
  const where = (cmp: string) => ({ column: "id", cmp, value: "x" });
  t.equal(meant({ Slect: {} }), "Select");
  t.equal(meant({ select: {} }), "Select");
  t.equal(meant({ Batch: [{ Isnert: {} }] }), "Insert");
  t.equal(meant({ Delete: { ...target, were: null } }), "where");
  t.equal(meant({ Select: { database: "main", form: "users" } }), "from");
  t.equal(meant({ Delete: { ...target, where: where("like") } }), "LIKE");
  t.equal(meant({ Frobnicate: {} }), undefined);
});

t.test("an operator of another language is followed by a suggestion", async (t) => {
  const meant = (cmp: string) => {
    const where = { column: "id", cmp, value: "x" };
    const { message } = refusalOf({ Delete: { database: "main", table: "users", where } });
    return /\(did you mean (.+)\?\)$/.exec(message)?.[1];
  };
  for (const cmp of ["==", "===", "eq"]) t.equal(meant(cmp), "=", cmp);
  for (const cmp of ["<>", "≠", "!==", "ne"]) t.equal(meant(cmp), "!=", cmp);
  for (const cmp of ["≥", "=>", "gte"]) t.equal(meant(cmp), ">=", cmp);
  for (const cmp of ["≤", "=<", "lte"]) t.equal(meant(cmp), "<=", cmp);
  for (const cmp of ["not in", "Not_In", " NOT  IN", "nin"]) t.equal(meant(cmp), "NOT IN", cmp);
  for (const cmp of ["between", "BETWEN"]) t.equal(meant(cmp), "BETWEEN", cmp);
  t.equal(meant("NOT LIKE"), "LIKE under not");
  t.equal(meant("is null"), "= with the value null");
  t.equal(meant("starts_with"), "LIKE with % in the value");
  for (const cmp of ["!", "<<", ">>", "=!", "~", "NLIKE", "constructor"]) {
    t.equal(meant(cmp), undefined, cmp);
  }
});

t.test("a field of another language is followed by a suggestion", async (t) => {
  const meant = (body: unknown) => /\(did you mean (\S+)\?\)$/.exec(refusalOf(body).message)?.[1];
  t.equal(meant({ Delete: { ...target, where: { column: "id", op: "=" } } }), "cmp");
  t.equal(meant({ Select: { database: "main", table: "users" } }), "from");
  t.equal(meant({ Insert: { database: "main", from: "users" } }), "table");
  const columns = [{ name: "id", type: "int", primary: true }];
  t.equal(meant({ CreateTable: { ...target, columns } }), "primary_key");
  const select = (fields: object) => ({ Select: { database: "main", from: "users", ...fields } });
  const aggregate = (fields: object) => select({ aggregate: [fields] });
  const cases: [found: object, word: string][] = [
    [{ Merge: {} }, "Upsert"],
    [{ Batch: [{ Remove: {} }] }, "Delete"],
    [select({ filter: null }), "where"],
    [select({ sort: {} }), "order_by"],
    [select({ order_by: { column: "id", order: "DESC" } }), "direction"],
    [select({ order_by: { column: "id", direction: "descending" } }), "DESC"],
    [select({ skip: 1 }), "offset"],
    [select({ where: { AND: [] } }), "and"],
    [select({ where: { field: "id" } }), "column"],
    [aggregate({ func: "sum" }), "fn"],
    [aggregate({ fn: "mean" }), "avg"],
    [aggregate({ fn: "SUM" }), "sum"],
    [aggregate({ fn: "sum", alias: "n" }), "as"],
    [select({ join: { table: "b", on: "users.a = b.a", join_type: "LEFT OUTER" } }), "LEFT"],
    [{ Insert: { ...target, rows: [] } }, "values"],
    [{ Update: { ...target, values: {} } }, "set"],
    [{ Update: { ...target, inc: {} } }, "add"],
    [{ Upsert: { ...target, conflict: [] } }, "on_conflict"],
    [{ Preview: { Updat: {} } }, "Update"],
  ];
  for (const [found, word] of cases) t.equal(meant(found), word, JSON.stringify(found));
  t.match(refusalOf({ Count: {} }).message, /\(did you mean Select with aggregate\?\)$/);
});

t.test("the core names words of the full grammar as such", async (t) => {
  const core = createGrammar({ extraFields: [], operations: {}, level: "core" });
  const where = term("name", "ILIKE", "a%");
  const bodies = [
    { Upsert: {} },
    { Preview: {} },
    { Update: { ...target, add: {} } },
    { Delete: { ...target, where } },
    { CreateTable: { ...target, columns: [{ name: "id", type: "int", default: 1 }] } },
    select({ order_by: [{ column: "id" }] }),
    select({ join: [{ table: "b", on: "users.a = b.a", join_type: "LEFT" }] }),
  ];
  const hint = /it is in the full grammar \(\[query\] level = "full"\)$/;
  for (const body of bodies) t.match(refusalOf(body, core).message, hint);
});

t.test("a missing field is named with all required ones", async (t) => {
  const core = createGrammar({ extraFields: [], operations: {}, level: "core" });
  const messageOf = (body: unknown, grammar?: Grammar) =>
    refusalOf(body, grammar).message.replace(/^.*?: /, "");
  t.equal(
    messageOf({ Delete: target }),
    'the field "where" is missing; required: database, table, where',
  );
  t.equal(
    messageOf({ Select: { database: "main", from: "users" } }),
    'the field "columns" is missing; required: database, from, columns; columns may be omitted only with aggregate',
  );
  t.equal(
    messageOf({ Select: { database: "main", from: "users" } }, core),
    'the field "columns" is missing; required: database, from, columns',
  );
  t.equal(
    messageOf({ Update: { ...target, set: { a: 1 }, where: { column: "a", value: 1 } } }),
    'the field "cmp" is missing; required: column, cmp; or only one of and, or, not, exists',
  );
});

t.test("the refusal of a contradictory Select says what is allowed", async (t) => {
  const messageOf = (fields: object) => refusalOf(select(fields)).message;
  const order_by = { column: "id" };
  t.match(messageOf({ after: [1] }), /after needs order_by, and one value for each/);
  t.match(messageOf({ order_by, after: [1, 2] }), "after has 2 values and order_by 1 column;");
  const aggregate = [{ fn: "sum", column: "total", as: "revenue" }];
  const summary = { columns: ["region"], group_by: ["region"], aggregate };
  const having = term("revenu", ">", 1);
  const counts = { columns: undefined, aggregate: [{ fn: "count", column: "*", as: "n" }] };
  t.match(messageOf(counts), /; to count rows, leave column out$/);
  const own = term("id", "=", 1);
  const onlyField = /; or must be the only field: put the others into it, or both into and$/;
  for (const where of [{ ...own, or: [own] }, { and: [{ ...own, or: [] }] }]) {
    t.match(messageOf({ where }), onlyField);
  }
  t.match(messageOf({ ...summary, having }), /"region", "revenue" \(did you mean revenue\?\)$/);
  t.match(messageOf({ ...summary, order_by: { column: "regoin" } }), /\(did you mean region\?\)$/);
  t.match(messageOf({ ...summary, order_by: { column: "other" } }), /"region", "revenue"$/);
});

t.test("the refusal of an inexact join shows the exact form", async (t) => {
  for (const on of ["users.id=orders.id", "users.id  =  orders.id", "id = orders.id"]) {
    const join = { table: "orders", on, join_type: "INNER" };
    const form = /table\.column = table\.column, with one space on either side of the =/;
    t.match(refusalOf(select({ join })).message, form);
  }
});

t.test("the refusal of an operation in a Batch lists the allowed ones", async (t) => {
  t.match(
    refusalOf({ Batch: [{ CreateDatabase: { database: "main" } }] }).message,
    "allowed: Select, Insert, Update, Delete, Upsert, CreateTable, DropTable",
  );
});
