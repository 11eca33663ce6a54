import t from "tap";
import { refusalOf, scanBody, select, verdict } from "./kit.ts";

const join = { table: "orders", on: "users.id = orders.user_id", join_type: "INNER" };

t.test("columns are *, columns, or columns of the operation's tables", async (t) => {
  for (const column of ["*", "id", "users.id", "users.größe", "first name"]) {
    t.equal(verdict(select({ columns: [column] })), "accepted", column);
  }
  for (const column of [
    "",
    "users.",
    ".id",
    "users.*",
    "users.a.b",
    "orders.id",
    "main.users.id",
    "a'b",
    "Users.id",
  ]) {
    t.equal(verdict(select({ columns: ["id", column] })), "invalid_column", column);
  }
  t.equal(verdict(select({ columns: [] })), "invalid_value");
  t.equal(verdict(select({ columns: "*" })), "wrong_type");
  t.equal(verdict(select({ columns: [1] })), "wrong_type");
  t.equal(verdict(select({ columns: null })), "wrong_type");
});

t.test("a join adds its table, wherever in the body it stands", async (t) => {
  const columns = ["orders.total", "users.id"];
  t.strictSame(scanBody(select({ columns, join })).accesses[0]?.tables, ["users", "orders"]);
  const { Select } = select({ columns });
  t.strictSame(scanBody({ Select: { join, ...Select } }).accesses[0]?.tables, ["users", "orders"]);
});

t.test("a join has its three fields and no others", async (t) => {
  t.equal(verdict(select({ join: null })), "wrong_type");
  t.equal(verdict(select({ join: [join] })), "accepted");
  t.equal(verdict(select({ join: "orders" })), "wrong_type");
  t.equal(verdict(select({ join: { ...join, alias: "o" } })), "unknown_field");
  t.equal(verdict(select({ join: { table: "orders", on: join.on } })), "missing_field");
  t.equal(verdict(select({ join: { ...join, table: "other.orders" } })), "invalid_name");
  for (const type of ["INNER", "LEFT", "RIGHT"]) {
    t.equal(verdict(select({ join: { ...join, join_type: type } })), "accepted", type);
  }
  for (const type of ["inner", "CROSS", "INNER "]) {
    t.equal(verdict(select({ join: { ...join, join_type: type } })), "invalid_value", type);
  }
});

t.test("on is exactly table.column = table.column, both of this Select", async (t) => {
  const refused = [
    "",
    "users.id",
    "users.id=orders.id",
    "users.id  = orders.id",
    "users.id =  orders.id",
    " users.id = orders.id",
    "users.id = orders.id ",
    "users.id\t=\torders.id",
    "users.id = id",
    "id = orders.id",
    "users.id = orders.id = users.id",
    "users.a=b = orders.id",
    "users.a b = orders.id",
    "users.* = orders.id",
    "users.id = orders.id OR 1=1",
    "users.id = other.id",
    "other.id = orders.id",
    "users.id > orders.id",
  ];
  for (const on of refused)
    t.equal(verdict(select({ join: { ...join, on } })), "invalid_column", on);
  t.equal(verdict(select({ join: { ...join, on: "orders.user_id = users.id" } })), "accepted");
});

t.test("order_by is one column and a direction", async (t) => {
  t.equal(verdict(select({ order_by: { column: "name" } })), "accepted");
  t.equal(verdict(select({ order_by: { column: "users.name", direction: "DESC" } })), "accepted");
  t.equal(verdict(select({ order_by: { column: "*" } })), "invalid_column");
  t.equal(verdict(select({ order_by: { column: "orders.id" } })), "invalid_column");
  t.equal(verdict(select({ order_by: { column: "name", direction: "desc" } })), "invalid_value");
  t.equal(verdict(select({ order_by: { column: "name", direction: null } })), "wrong_type");
  t.equal(verdict(select({ order_by: { direction: "ASC" } })), "missing_field");
  t.equal(verdict(select({ order_by: { column: "name", nulls: "LAST" } })), "unknown_field");
  t.equal(verdict(select({ order_by: null })), "wrong_type");
  t.equal(verdict(select({ order_by: "name" })), "wrong_type");
});

t.test("limit and offset are non-negative integers written in digits", async (t) => {
  const body = (field: string, value: string) =>
    JSON.stringify(select({ [field]: 0 })).replace(/0\}\}$/, `${value}}}`);
  for (const field of ["limit", "offset"]) {
    for (const value of ["0", "10", "9007199254740991"]) {
      t.equal(verdict(body(field, value)), "accepted", value);
    }
    for (const value of ["-1", "-0", "1.0", "1e2", "9007199254740992", "1".repeat(400)]) {
      t.equal(verdict(body(field, value)), "invalid_value", value);
    }
    for (const value of ["null", '"10"', "[10]", "true"]) {
      t.equal(verdict(body(field, value)), "wrong_type", value);
    }
  }
});

t.test("a foreign table is named with the place where the body names it", async (t) => {
  const where = {
    and: [
      { column: "id", cmp: "=", value: 1 },
      { column: "x.id", cmp: "=", value: 1 },
    ],
  };
  const { location, message } = refusalOf(select({ where, join }));
  t.equal(location.path, "Select.where.and[1].column");
  t.match(message, /"x".*"users" and "orders"/);
});

t.test("a foreign table among many good and bad ones is found", async (t) => {
  const columns = ["a.id", "users.id", "b.id", "orders.id", "c.id"];
  t.equal(verdict(select({ columns, join })), "invalid_column");
  t.equal(verdict(select({ columns: columns.slice(0, 2) })), "invalid_column");
});
