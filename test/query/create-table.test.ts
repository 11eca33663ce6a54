import t from "tap";
import { refusalOf, verdict } from "./kit.ts";

const create = (...columns: unknown[]) => ({
  CreateTable: { database: "main", table: "users", columns },
});
const id = { name: "id", type: "int" };

t.test("a table has at least one column", async (t) => {
  t.equal(verdict(create(id)), "accepted");
  t.equal(verdict(create()), "invalid_value");
  t.equal(
    verdict({ CreateTable: { database: "main", table: "users", columns: {} } }),
    "wrong_type",
  );
  t.equal(verdict({ CreateTable: { database: "main", table: "users" } }), "missing_field");
});

t.test("a column has a name and a type, and may say more", async (t) => {
  t.equal(verdict(create({ ...id, primary_key: true, unique: false, nullable: true })), "accepted");
  t.equal(verdict(create({ name: "id" })), "missing_field");
  t.equal(verdict(create({ type: "int" })), "missing_field");
  t.equal(verdict(create({ ...id, comment: 1 })), "unknown_field");
  t.equal(verdict(create("id")), "wrong_type");
  for (const key of ["primary_key", "unique", "nullable"]) {
    for (const wrong of [null, 1, "true", []]) {
      t.equal(verdict(create({ ...id, [key]: wrong })), "wrong_type", key);
    }
  }
});

t.test("a type is a word, with a length or a precision if wanted", async (t) => {
  const good = [
    "int",
    "VARCHAR(255)",
    "numeric(10,2)",
    "int8",
    "a_b",
    `a${"x".repeat(62)}`,
    "n(999999999)",
  ];
  for (const type of good) t.equal(verdict(create({ ...id, type })), "accepted", type);
  const bad = [
    "",
    "8int",
    "_int",
    "int unsigned",
    "int)",
    "int()",
    "int(1",
    "int(a)",
    "int(-1)",
    "int(1,)",
    "int(1, 2)",
    "int(1,2,3)",
    "int (1)",
    "n(1000000000)",
    `a${"x".repeat(63)}`,
    "int; DROP TABLE users",
    "int\n",
    "größe",
  ];
  for (const type of bad) t.equal(verdict(create({ ...id, type })), "invalid_type", type);
  t.equal(verdict(create({ ...id, type: 1 })), "wrong_type");
});

t.test("a column's name is bare", async (t) => {
  for (const name of ["*", "users.id", "", "a'b", "x".repeat(129)]) {
    t.equal(verdict(create({ ...id, name })), "invalid_column", name);
  }
});

t.test("two columns of one name are refused", async (t) => {
  t.equal(verdict(create(id, { name: "name", type: "text" })), "accepted");
  const { code, location } = refusalOf(create(id, { name: "name", type: "text" }, id));
  t.equal(code, "invalid_column");
  t.equal(location.path, "CreateTable.columns[2].name");
});
