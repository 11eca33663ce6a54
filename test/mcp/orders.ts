import type { Test } from "tap";
import { type AnyClient, connectStateless } from "./clients.ts";
import { openEmbedded } from "./kit.ts";

export const grants = { alice: { main: "Owner" } } as const;

export const ofOrders = { database: "main", table: "orders" };

export const fromOrders = { database: "main", from: "orders" };

const orders = {
  ...ofOrders,
  columns: [
    { name: "id", type: "bigint", primary_key: true },
    { name: "region", type: "text" },
    { name: "total", type: "numeric(10,2)" },
    { name: "count", type: "int" },
  ],
};

export async function open(t: Test, rows: number, options: object = {}): Promise<AnyClient> {
  const { endpoint, ask } = await openEmbedded(t, { grants, ...options });
  await ask({ CreateTable: orders });
  const regions = ["eu", "us", null];
  const values = Array.from({ length: rows }, (_, id) => ({
    id,
    region: regions[id % 3],
    total: id,
  }));
  await ask({ Insert: { ...ofOrders, values } });
  return connectStateless(t, endpoint.url);
}
