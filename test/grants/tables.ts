/** Tables that grants are tried on: visible and hidden columns of each type, keys and references. */
import type { Site } from "./kit.ts";

const id = { name: "id", type: "int", primary_key: true };
const tenant = { name: "tenant", type: "text" };

const definitions = {
  customers: [id, tenant, { name: "name", type: "text" }, { name: "secret_note", type: "text" }],
  tickets: [
    id,
    tenant,
    { name: "customer", type: "int", references: "customers.id" },
    { name: "status", type: "text" },
    { name: "weight", type: "bigint" },
    { name: "salary", type: "int", unique: true },
    { name: "code", type: "text", nullable: false, default: "c" },
  ],
  vault: [id, { name: "ticket", type: "int", references: "tickets.id" }],
};

export async function makeTables({ admin }: Site): Promise<void> {
  for (const [table, columns] of Object.entries(definitions)) {
    await admin({ CreateTable: { database: "main", table, columns } });
  }
  await fillTables(admin);
}

/** Puts the same rows into them again, whatever there is. */
async function fillTables(admin: Site["admin"]): Promise<void> {
  const inMain = (table: string) => ({ database: "main", table });
  await admin({
    Batch: [
      ...["vault", "tickets", "customers"].map((table) => ({
        Delete: { ...inMain(table), where: null },
      })),
      {
        Insert: {
          ...inMain("customers"),
          values: [
            { id: 1, tenant: "acme", name: "Ann", secret_note: "n1" },
            { id: 2, tenant: "acme", name: "Bob", secret_note: "n2" },
            { id: 3, tenant: "other", name: "Cyd", secret_note: "n3" },
          ],
        },
      },
      {
        Insert: {
          ...inMain("tickets"),
          values: [
            { id: 1, tenant: "acme", customer: 1, status: "open", weight: 1, salary: 10 },
            { id: 2, tenant: "acme", customer: 3, status: "done", weight: 2, salary: 20 },
            { id: 3, tenant: "other", customer: 1, status: "open", weight: 3, salary: 30 },
            { id: 4, tenant: "ACME", customer: 2, status: "open", weight: 4, salary: 40 },
            { id: 5, tenant: "acmé", customer: 2, status: "done", weight: 5, salary: 50 },
            { id: 6, tenant: "acme ", customer: 2, status: "open", weight: 6, salary: 60 },
            { id: 7, tenant: null, customer: null, status: "open", weight: null, salary: null },
          ],
        },
      },
      { Insert: { ...inMain("vault"), values: [{ id: 1, ticket: 1 }] } },
    ],
  });
}
