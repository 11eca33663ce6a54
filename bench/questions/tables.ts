/** The tables of the shop, and the queries that fill them. */
import type { Shop } from "./shop.ts";

export const database = "shop";

const id = { name: "id", type: "serial", primary_key: true };

function column(name: string, type: string, more: object = {}): object {
  return { name, type, nullable: false, ...more };
}

const customerId = column("customer_id", "bigint", { references: "customers.id" });
const productId = column("product_id", "bigint", { references: "products.id" });
const orderId = column("order_id", "bigint", { references: "orders.id" });
const key = { primary_key: true };

/** The columns of each table, which follows the tables that it refers to. */
const tables = new Map<keyof Shop, readonly object[]>([
  [
    "customers",
    [
      id,
      column("name", "text"),
      column("email", "text", { unique: true }),
      column("country", "text"),
      { name: "city", type: "text" },
      column("vip", "bool", { default: false }),
      column("joined", "date"),
      { name: "referred_by", type: "bigint", references: "customers.id" },
    ],
  ],
  [
    "products",
    [
      id,
      column("sku", "text", { unique: true }),
      column("name", "text"),
      column("category", "text"),
      column("price_cents", "bigint"),
      column("discontinued", "bool", { default: false }),
      column("details", "json"),
    ],
  ],
  [
    "orders",
    [
      id,
      customerId,
      column("day", "date"),
      column("placed", "timestamp"),
      column("due", "timestamp"),
      { name: "shipped", type: "timestamp" },
      column("status", "text"),
      column("country", "text"),
      { name: "coupon", type: "text" },
      column("total_cents", "bigint"),
    ],
  ],
  [
    "order_lines",
    [
      column("order_id", "bigint", { ...key, references: "orders.id" }),
      column("line", "int", key),
      productId,
      column("quantity", "int"),
      column("unit_cents", "bigint"),
      { name: "discount_cents", type: "bigint" },
      column("cents", "bigint"),
    ],
  ],
  [
    "reviews",
    [
      id,
      productId,
      customerId,
      column("stars", "int"),
      { name: "text", type: "text" },
      column("day", "date"),
    ],
  ],
  [
    "stock",
    [
      column("product_id", "bigint", { ...key, references: "products.id" }),
      column("north", "int"),
      column("south", "int"),
    ],
  ],
  [
    "coupons",
    [column("code", "text", key), column("percent", "int"), column("uses", "int", { default: 0 })],
  ],
  ["carts", [id, customerId, productId, column("quantity", "int", { default: 1 })]],
  ["returns", [id, orderId, { name: "reason", type: "text" }]],
  [
    "return_lines",
    [
      column("return_id", "bigint", { ...key, references: "returns.id" }),
      column("line", "int", key),
      column("quantity", "int"),
    ],
  ],
]);

/** Rows per Insert: a few hundred KiB. */
const ROWS_AT_ONCE = 5000;

/** Creates and fills the shop, and returns its number of rows. @throws Error if a query fails */
export async function fill(shop: Shop, query: (body: object) => Promise<void>): Promise<number> {
  await query({ CreateDatabase: { database } });
  let count = 0;
  for (const [table, columns] of tables) {
    await query({ CreateTable: { database, table, columns } });
    const rows: readonly object[] = shop[table];
    for (let at = 0; at < rows.length; at += ROWS_AT_ONCE) {
      const values = rows.slice(at, at + ROWS_AT_ONCE);
      await query({ Insert: { database, table, values } });
    }
    count += rows.length;
  }
  return count;
}
