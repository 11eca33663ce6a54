/** One call of each tool, for a model that learns by examples. */
import type { Level } from "../../query/kind.ts";

type Arguments = Readonly<Record<string, unknown>>;

const orders = { database: "main", table: "orders" };
const ofOrder = { column: "id", cmp: "=", value: 7 };

const examples: Readonly<Record<string, Arguments>> = {
  list_databases: {},
  list_tables: { database: "main" },
  describe_table: orders,
  whoami: {},
  select: {
    database: "main",
    from: "orders",
    group_by: ["country"],
    aggregate: [
      { fn: "count", as: "n" },
      { fn: "sum", column: "total", as: "revenue" },
    ],
    where: { column: "day", cmp: ">=", value: "2026-01-01" },
    order_by: [{ column: "revenue", direction: "DESC" }],
  },
  count: {
    database: "main",
    from: "orders",
    where: { column: "paid", cmp: "=", value: false },
  },
  insert: { ...orders, values: [{ customer_id: 3, total: 12.5 }], returning: ["id"] },
  update: { ...orders, set: { paid: true }, where: ofOrder },
  delete: { ...orders, where: ofOrder },
  upsert: {
    database: "main",
    table: "stock",
    values: [{ sku: "a1", left: 5 }],
    on_conflict: ["sku"],
    update: ["left"],
  },
  preview: { Delete: { ...orders, where: ofOrder } },
  batch: {
    operations: [
      { Update: { ...orders, set: { paid: true }, where: ofOrder } },
      { Insert: { database: "main", table: "payments", values: [{ order_id: 7 }] } },
    ],
  },
  create_table: {
    database: "main",
    table: "notes",
    columns: [
      { name: "id", type: "serial", primary_key: true },
      { name: "text", type: "text" },
    ],
  },
  drop_table: { database: "main", table: "notes" },
};

/** The same where only the core of the grammar is there. */
const coreExamples: Readonly<Record<string, Arguments>> = {
  ...examples,
  select: {
    database: "main",
    from: "orders",
    columns: ["id", "total"],
    where: { column: "day", cmp: ">=", value: "2026-01-01" },
    order_by: { column: "total", direction: "DESC" },
    limit: 10,
  },
  insert: { ...orders, values: [{ id: 7, total: 12.5 }] },
};

/** A call of the tool that this level of the grammar takes. */
export function exampleOf(tool: string, level: Level): Arguments {
  return (level === "core" ? coreExamples : examples)[tool] ?? {};
}
