/** What errors of the database say to those who may not see all of the schema. */
import { entry, outcome, overEachSite, select } from "./kit.ts";
import { makeTables } from "./tables.ts";

const tickets = { database: "main", table: "tickets" };

overEachSite("an error names nothing that is hidden from the caller", async (t, site) => {
  await makeTables(site);
  await site.allow(
    entry(
      "rita",
      "main",
      "ReadWrite",
      'tables = ["tickets", "vaul_*"]\ncolumns = ["id", "status", "salry"]',
    ) + entry("olga", "main", "ReadWrite"),
  );
  const [rita, olga] = [await site.as("rita"), await site.as("olga")];
  const cases: readonly [query: object, outcome: string, hidden: RegExp][] = [
    [select("vaul_t", ["id"]), "404 table_not_found", /did you mean|vault/],
    [select("tickets", ["salry"]), "400 unknown_column", /did you mean|salary/],
    [
      select("tickets", ["id"], { where: { column: "salry", cmp: "=", value: 1 } }),
      "400 unknown_column",
      /did you mean|salary/,
    ],
    [
      { Select: { database: "main", from: "tickets", aggregate: [{ fn: "count", as: "SALARY" }] } },
      "400 duplicate_column",
      /salary/,
    ],
    [
      {
        Upsert: {
          ...tickets,
          values: [{ id: 1, status: "x" }],
          on_conflict: ["status"],
          update: [],
        },
      },
      "400 no_unique_key",
      /salary/,
    ],
    [
      { Batch: [select("tickets", ["id"]), { Delete: { ...tickets, where: null } }] },
      "409 constraint_violation",
      /vault|ticket_|fkey|CONSTRAINT/,
    ],
    [
      { Insert: { ...tickets, values: [{ id: 1 }] } },
      "409 constraint_violation",
      /tickets|PRIMARY/,
    ],
  ];
  for (const [query, expected, hidden] of cases) {
    const answer = await rita(query);
    t.equal(outcome(answer), expected, answer.text);
    t.notMatch(String(answer.body.message), hidden);
    if ("Batch" in query) t.match(answer.body.message, /^Batch\[1\]: /, "it says where");
  }
  t.match((await olga(select("vaults", ["id"]))).body.message, /did you mean vault/);
});
