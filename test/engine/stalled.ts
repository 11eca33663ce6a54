import { once } from "node:events";
import { type ClientRequest, request } from "node:http";
import { type Answer, createTable, insert, target } from "./kit.ts";

/** Two tables whose join has 1.6 thousand million rows, and no index that helps. */
export async function fillForJoin(ask: (body: object) => Promise<Answer>): Promise<void> {
  const rows = Array.from({ length: 40_000 }, (_, id) => ({ key: id, id, k: 1 }));
  for (const table of ["a", "b"]) {
    await ask(createTable(table, { key: "int", id: "int", k: "int" }));
    await ask(insert(table, rows));
  }
}

/** A Select that keeps the database busy for minutes before its first row. */
export const endlessSelect = {
  Select: {
    database: "main",
    from: "a",
    columns: ["a.id"],
    join: { table: "b", on: "a.k = b.k", join_type: "INNER" },
    order_by: { column: "b.id" },
    limit: 1,
  },
};

/** Sends a query whose answer is not waited for; resolves when it is on its way. */
export async function send(address: string, body: object): Promise<ClientRequest> {
  const headers = { "content-type": "application/json" };
  const outgoing = request({
    ...target(address),
    method: "POST",
    path: "/query",
    headers,
    agent: false,
  });
  outgoing.on("error", () => {});
  outgoing.end(JSON.stringify(body));
  await once(outgoing, "finish");
  return outgoing;
}
