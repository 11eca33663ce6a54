/** The tables of the shop, and the queries that fill them. */
import type { Shop } from "./shop.ts";

export const database = "shop";

const id = { name: "id", type: "serial", primary_key: true };

function column(name: string, type: string, more: object = {}): object {
  return { name, type, nullable: false, ...more };
}

const customerId = column("customer_id", "bigint", { references: "customers.id" });
const productId = column("product_id", "bigint", { references: "products.id" });
const key = { primary_key: true };

/** The columns of each table. A table follows those that it refers to. */
const tables: Readonly<Record<string, readonly object[]>> = {
  customers: [
    ...[id, column("name", "text"), column("email", "text", { unique: true })],
    ...[column("country", "text"), { name: "city", type: "text" }],
    ...[column("vip", "bool", { default: false }), column("joined", "date")],
  ],
  products: [
    ...[id, column("sku", "text", { unique: true }), column("name", "text")],
    ...[column("category", "text"), column("price_cents", "bigint")],
    column("discontinued", "bool", { default: false }),
  ],
  orders: [
    ...[id, customerId, column("day", "date"), column("status", "text"), column("country", "text")],
    ...[{ name: "coupon", type: "text" }, column("total_cents", "bigint")],
  ],
  order_lines: [
    column("order_id", "bigint", { ...key, references: "orders.id" }),
    ...[column("line", "int", key), productId, column("quantity", "int")],
    column("cents", "bigint"),
  ],
  reviews: [
    ...[id, productId, customerId, column("stars", "int"), { name: "text", type: "text" }],
    column("day", "date"),
  ],
  stock: [
    column("product_id", "bigint", { ...key, references: "products.id" }),
    ...[column("north", "int"), column("south", "int")],
  ],
  coupons: [
    column("code", "text", key),
    column("percent", "int"),
    column("uses", "int", { default: 0 }),
  ],
  carts: [id, customerId, productId, column("quantity", "int", { default: 1 })],
};

function rowsOf(shop: Shop): Readonly<Record<string, Iterable<object>>> {
  return {
    customers: shop.customers(),
    products: shop.products(),
    orders: shop.orders(),
    order_lines: shop.orderLines(),
    reviews: shop.reviews(),
    stock: shop.stock(),
    coupons: shop.coupons(),
    carts: shop.carts(),
  };
}

/** Rows per Insert: a few hundred KiB. */
const ROWS_AT_ONCE = 5000;

/** Creates and fills the shop, and returns its number of rows. @throws Error if a query fails */
export async function fill(shop: Shop, query: (body: object) => Promise<void>): Promise<number> {
  await query({ CreateDatabase: { database } });
  let count = 0;
  const rows = rowsOf(shop);
  for (const [table, columns] of Object.entries(tables)) {
    await query({ CreateTable: { database, table, columns } });
    let values: object[] = [];
    const flush = async () => {
      if (values.length > 0) await query({ Insert: { database, table, values } });
      count += values.length;
      values = [];
    };
    for (const row of rows[table] ?? []) {
      if (values.push(row) === ROWS_AT_ONCE) await flush();
    }
    await flush();
  }
  return count;
}
