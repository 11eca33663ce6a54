import type { Test } from "tap";
import { type Answer, insert, selectAll } from "./kit.ts";
import type { FreshEngine } from "./over-each.ts";

export type Ask = (body: object | string) => Promise<Answer>;

export const stock = { database: "main", table: "stock" };

const definition = {
  CreateTable: {
    ...stock,
    columns: [
      { name: "id", type: "serial", primary_key: true },
      { name: "name", type: "text" },
      { name: "count", type: "bigint" },
      { name: "price", type: "decimal(10,2)" },
    ],
  },
};

/** An engine with the rows 1 to 3 in `stock`. */
export async function withStock(t: Test, freshEngine: FreshEngine): Promise<Ask> {
  const { ask } = await freshEngine(t);
  t.match(await ask(definition), { status: 200 });
  const values = [
    { name: "nail", count: 10, price: 0.1 },
    { name: "bolt", count: 20, price: 0.25 },
    { name: "nut", count: null, price: null },
  ];
  t.match(await ask(insert("stock", values)), { status: 200 });
  return ask;
}

/** The rows of `stock` by their ids. */
export async function rowsIn(ask: Ask): Promise<unknown> {
  return (await ask(selectAll("stock", { order_by: { column: "id" } }))).body.data;
}
