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

/** Reads a select page by page with its cursors. */
export async function* pagesOf(mcp: AnyClient, select: object) {
  let cursor: object | undefined = {};
  while (cursor !== undefined) {
    const { structured = {}, isError, text } = await mcp.call("select", { ...select, ...cursor });
    if (isError) throw new Error(text);
    yield structured;
    cursor = structured.truncated === true ? { after: structured.next_after } : undefined;
  }
}

export async function open(t: Test, rows: number, options: object = {}): Promise<AnyClient> {
  const { endpoint, ask } = await openEmbedded(t, { grants, ...options });
  await ask({ CreateTable: orders });
  const regions = ["eu", "us", null];
  const rowOf = (_: unknown, id: number) => ({ id, region: regions[id % 3], total: id });
  const values = Array.from({ length: rows }, rowOf);
  await ask({ Insert: { ...ofOrders, values } });
  return connectStateless(t, endpoint.url);
}
