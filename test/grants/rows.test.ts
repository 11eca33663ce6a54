/** Rows that a filter hides stay hidden, whatever way a query takes, over each database. */
import { entry, tenantFilter as filter, outcome, overEachSite, select } from "./kit.ts";
import { makeTables } from "./tables.ts";

const join = (join_type: string, table = "customers") => ({
  table,
  on: "tickets.customer = customers.id",
  join_type,
});
const byId = { order_by: { column: "id" } };
const count = { fn: "count", as: "n" };

/** What Rita, of the tenant acme, asks, and the rows that she is answered. */
const reads: readonly (readonly [query: object, rows: readonly object[]])[] = [
  [select("tickets", ["id"], byId), [{ id: 1 }, { id: 2 }]],
  [select("tickets", ["id"], { ...byId, where: null }), [{ id: 1 }, { id: 2 }]],
  [select("tickets", ["*"], { where: { column: "id", cmp: "=", value: 3 } }), []],
  [
    select("tickets", ["id"], {
      ...byId,
      where: {
        or: [
          { column: "tenant", cmp: "!=", value: "acme" },
          { column: "tenant", cmp: "=", value: null },
        ],
      },
    }),
    [],
  ],
  [
    select("tickets", ["id"], {
      ...byId,
      where: {
        or: [
          { column: "id", cmp: ">", value: 0 },
          { column: "id", cmp: "=", value: null },
        ],
      },
    }),
    [{ id: 1 }, { id: 2 }],
  ],
  [
    select("tickets", ["tickets.id"], {
      where: { column: "tickets.tenant", cmp: "=", value: "other" },
    }),
    [],
  ],
  [select("tickets", ["id"], { ...byId, after: [1] }), [{ id: 2 }]],
  [select("tickets", ["id"], { ...byId, offset: 1, limit: 5 }), [{ id: 2 }]],
  [select("tickets", ["tenant"], { distinct: true }), [{ tenant: "acme" }]],
  [{ Select: { database: "main", from: "tickets", aggregate: [count] } }, [{ n: 2 }]],
  [
    {
      Select: {
        database: "main",
        from: "tickets",
        aggregate: [
          { fn: "max", column: "salary", as: "most" },
          { ...count, column: "tenant", distinct: true },
        ],
      },
    },
    [{ most: 20, n: 1 }],
  ],
  [
    {
      Select: {
        database: "main",
        from: "tickets",
        group_by: ["status"],
        aggregate: [{ fn: "sum", column: "weight", as: "w" }],
        having: { column: "w", cmp: ">=", value: 1 },
        order_by: { column: "w" },
      },
    },
    [
      { status: "open", w: 1 },
      { status: "done", w: 2 },
    ],
  ],
  [
    select("tickets", ["tickets.id", "customers.name"], { join: join("INNER") }),
    [{ id: 1, name: "Ann" }],
  ],
  [
    select("customers", ["customers.id"], {
      join: join("INNER", "tickets"),
      where: { column: "tickets.id", cmp: ">=", value: 1 },
    }),
    [{ id: 1 }],
  ],
  [
    select("tickets", ["tickets.id"], {
      join: [join("INNER"), { table: "vault", on: "vault.ticket = tickets.id", join_type: "LEFT" }],
    }),
    [{ id: 1 }],
  ],
];

overEachSite("a row filter holds in every kind of Select", async (t, site) => {
  await makeTables(site);
  await site.allow(
    entry("rita", "main", "ReadWrite", `tables = ["tickets", "customers"]\n${filter}`) +
      entry("rita", "main", "ReadOnly", 'tables = ["vault"]'),
  );
  const rita = await site.as("rita", '{ tenant = "acme" }');
  for (const [query, rows] of reads) {
    const answer = await rita(query);
    t.strictSame(answer.body.data, rows, `${JSON.stringify(query)} ${answer.text}`);
    t.equal(answer.headers.get("x-gatehouse-narrowed"), "rows");
  }
  const joins: readonly (readonly [string, object])[] = [
    ["LEFT", join("LEFT")],
    ["RIGHT", join("RIGHT")],
    [
      "a chain",
      [join("INNER"), { table: "vault", on: "vault.ticket = tickets.id", join_type: "RIGHT" }],
    ],
  ];
  for (const [name, joined] of joins) {
    const outer = await rita(select("tickets", ["tickets.id"], { join: joined }));
    t.equal(outcome(outer), "403 join_denied", name);
    t.match(outer.body.message, /^Join \w+ by INNER/);
  }
});
