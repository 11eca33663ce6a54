import { sql } from "kysely";
import tap from "tap";
import type { Column, ColumnKind } from "../../src/engine/sql/scope.ts";
import { planSelect, type SelectDialect } from "../../src/engine/sql/select.ts";
import type { Select } from "../../src/query/operation-types.ts";

const kind: ColumnKind = { store: (value) => value, compare: (value) => value };
const columns = new Map<string, Column>([["id", { name: "id", type: "int", kind }]]);
const query: Select = { database: "main", from: "users", columns: ["id"] };
const dialect: SelectDialect<ColumnKind> = {
  aggregates: {
    count: kind,
    double: kind,
    sum: (expression) => ({ expression, kind }),
    average: (sum) => sum,
    extreme: (_fn, column) => column,
  },
  comparesRows: true,
  order: (column) => column,
  limit: () => sql``,
};

tap.test("a Select makes no class of its own, which would outlive it", async (t) => {
  const plan = () => planSelect("main", [{ name: "users", columns }], query, dialect);
  const [one, other] = [plan(), plan()].map(({ statements }) => statements(() => 0));
  t.equal(Object.getPrototypeOf(one), Object.getPrototypeOf(other));
});
