import t from "tap";
import { refusalOf, select, verdict } from "./kit.ts";

const equal = { column: "age", cmp: "=", value: 1 };
const whereText = (where: string) =>
  `{"Delete":{"database":"main","table":"users","where":${where}}}`;
const where = (condition: unknown) => verdict(whereText(JSON.stringify(condition)));

t.test("null is no condition, and only a Select may leave it out", async (t) => {
  const target = { database: "main", table: "users" };
  t.equal(where(null), "accepted");
  t.equal(verdict(select()), "accepted");
  t.equal(verdict(select({ where: null })), "accepted");
  t.equal(verdict({ Delete: target }), "missing_field");
  t.equal(verdict({ Update: { ...target, set: { a: 1 } } }), "missing_field");
});

t.test("every comparison of the grammar is accepted and no other", async (t) => {
  for (const cmp of ["=", "!=", ">", "<", ">=", "<="]) {
    t.equal(where({ column: "age", cmp, value: null }), "accepted", cmp);
  }
  for (const cmp of ["", "==", "<>", "like", "IS", "NOT IN", "= ", "=;"]) {
    t.equal(where({ column: "age", cmp, value: 1 }), "invalid_value", cmp);
  }
  t.equal(where({ column: "age", cmp: null, value: 1 }), "wrong_type");
});

t.test("LIKE, IN and BETWEEN are given values that fit, in any order of keys", async (t) => {
  const fitting = { LIKE: ["a%"], IN: [[], [1], [1, "a"]], BETWEEN: [[1, 2]] };
  const unfitting = {
    LIKE: [1, null, ["a"], {}],
    IN: [1, "a", null, { "0": 1 }],
    BETWEEN: [1, "ab", [], [1], [1, 2, 3], { a: 1, b: 2 }],
  };
  for (const [cmp, values] of Object.entries(fitting)) {
    for (const value of values) t.equal(where({ value, cmp, column: "a" }), "accepted", cmp);
  }
  for (const [cmp, values] of Object.entries(unfitting)) {
    for (const value of values) {
      t.equal(where({ column: "a", cmp, value }), "invalid_value", cmp);
      t.equal(where({ value, cmp, column: "a" }), "invalid_value", cmp);
    }
  }
});

t.test("a comparison has its three fields and no others", async (t) => {
  t.equal(where({ column: "a", cmp: "=" }), "missing_field");
  t.equal(where({ column: "a", value: 1 }), "missing_field");
  t.equal(where({ cmp: "=", value: 1 }), "missing_field");
  t.equal(where({}), "missing_field");
  t.equal(where({ ...equal, escape: "!" }), "unknown_field");
  t.equal(where({ ...equal, and: [equal] }), "unknown_field");
  t.equal(verdict(whereText('{"column":"a","cmp":"=","value":1,"value":2}')), "duplicate_key");
  t.equal(verdict(whereText('{"column":"a","cmp":"=","value":{"a":1,"a":2}}')), "accepted");
});

t.test("conditions are combined by exactly one of and, or, not", async (t) => {
  t.equal(where({ and: [equal, { or: [equal, { not: { and: [equal] } }] }] }), "accepted");
  t.equal(verdict(whereText(`{"\\u0061nd":[${JSON.stringify(equal)}]}`)), "accepted");
  t.equal(where({ and: [equal], or: [equal] }), "unknown_field");
  t.equal(where({ not: equal, column: "a" }), "unknown_field");
  t.equal(where({ xor: [equal] }), "unknown_field");
  t.equal(verdict(whereText('{"not":{"and":[{"not":{}}]}}')), "missing_field");
  const text = JSON.stringify(equal);
  t.equal(verdict(whereText(`{"not":${text},"not":${text}}`)), "duplicate_key");
});

t.test("a combination holds at least one condition, each an object", async (t) => {
  for (const key of ["and", "or"]) {
    t.equal(where({ [key]: [] }), "invalid_value");
    t.equal(where({ [key]: equal }), "wrong_type");
    t.equal(where({ [key]: null }), "wrong_type");
    t.equal(where({ [key]: [equal, null] }), "wrong_type");
    t.equal(where({ [key]: ["1=1"] }), "wrong_type");
  }
  t.equal(where({ not: null }), "wrong_type");
  t.equal(where({ not: [equal] }), "wrong_type");
  t.equal(where("1=1"), "wrong_type");
  t.equal(where([equal]), "wrong_type");
  t.equal(where(false), "wrong_type");
});

t.test("conditions side by side do not add to the depth", async (t) => {
  t.equal(where({ or: Array.from({ length: 200 }, () => ({ not: equal })) }), "accepted");
});

t.test("a condition's column is a column or a column of the operation's table", async (t) => {
  t.equal(where({ ...equal, column: "users.age" }), "accepted");
  for (const column of ["*", "", "other.age", "users.*", "a.b.c", "a`"]) {
    t.equal(where({ ...equal, column }), "invalid_column", column);
  }
  t.equal(where({ ...equal, column: 1 }), "wrong_type");
});

t.test("a refused value is not echoed", async (t) => {
  const body = select({ where: { column: "a", cmp: "BETWEEN", value: ["hunter2"] } });
  const { message, location } = refusalOf(body);
  t.equal(location.path, "Select.where");
  t.notMatch(message, "hunter2");
});
