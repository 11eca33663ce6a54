import { auditOf } from "../kit/gateway.ts";
import {
  entry,
  tenantFilter as filter,
  outcome,
  overEachSite,
  select,
  term,
  tickets,
} from "./kit.ts";
import { fillTables, makeTables } from "./tables.ts";

/** Rows that a filter hides stay hidden, whatever way a query takes, over each database. */

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
  [select("tickets", ["*"], { where: term("id", "=", 3) }), []],
  [
    select("tickets", ["id"], {
      ...byId,
      where: { or: [term("tenant", "!=", "acme"), term("tenant", "=", null)] },
    }),
    [],
  ],
  [
    select("tickets", ["id"], {
      ...byId,
      where: { or: [term("id", ">", 0), term("id", "=", null)] },
    }),
    [{ id: 1 }, { id: 2 }],
  ],
  [select("tickets", ["tickets.id"], { where: term("tickets.tenant", "=", "other") }), []],
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
        having: term("w", ">=", 1),
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
      where: term("tickets.id", ">=", 1),
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

overEachSite("a row filter limits every kind of Select", async (t, site) => {
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

/** What is changed stays within a row filter, and within limits, over each database. */

const changes: readonly (readonly [query: object, outcome: string])[] = [
  [{ Insert: { ...tickets, values: [{ id: 9, tenant: "other" }] } }, "403 row_denied"],
  [{ Insert: { ...tickets, values: [{ id: 9, tenant: "ACME" }] } }, "403 row_denied"],
  [{ Insert: { ...tickets, values: [{ id: 9, tenant: "acme " }] } }, "403 row_denied"],
  [{ Insert: { ...tickets, values: [{ id: 9, tenant: null }] } }, "403 row_denied"],
  [{ Insert: { ...tickets, values: [{ id: 9 }] } }, "403 row_denied"],
  [{ Insert: { ...tickets, values: [{ id: 9, tenant: ["acme"] }] } }, "403 row_denied"],
  [
    {
      Insert: {
        ...tickets,
        values: [
          { id: 8, tenant: "acme" },
          { id: 9, tenant: "other" },
        ],
      },
    },
    "403 row_denied",
  ],
  [{ Insert: { ...tickets, values: [{ id: 9, Tenant: "other" }] } }, "403 name_case_mismatch"],
  [
    { Insert: { ...tickets, values: [{ id: 9, tenant: "acme", tenánt: "other" }] } },
    "403 name_case_mismatch",
  ],
  [{ Update: { ...tickets, set: { tenant: "other" }, where: null } }, "403 row_denied"],
  [{ Update: { ...tickets, set: { tenant: null }, where: null } }, "403 row_denied"],
  [{ Update: { ...tickets, set: { TENANT: "other" }, where: null } }, "403 name_case_mismatch"],
  [{ Update: { ...tickets, set: { "tickets.tenant": "x" }, where: null } }, "400 invalid_column"],
  [{ Update: { ...tickets, add: { tenant: 1 }, where: null } }, "403 row_denied"],
  [
    { Preview: { Update: { ...tickets, set: { tenant: "other" }, where: null } } },
    "403 row_denied",
  ],
  [
    {
      Upsert: {
        ...tickets,
        values: [{ id: 3, tenant: "acme" }],
        on_conflict: ["id"],
        update: ["tenant"],
      },
    },
    "403 not_narrowable",
  ],
  [
    {
      Batch: [
        { Delete: { ...tickets, where: null } },
        { Insert: { ...tickets, values: [{ id: 9 }] } },
      ],
    },
    "403 batch_member_denied (row_denied)",
  ],
  [{ DropTable: tickets }, "403 role_insufficient"],
  [
    {
      CreateTable: {
        database: "main",
        table: "probe",
        columns: [{ name: "a", type: "int", references: "tickets.id" }],
      },
    },
    "403 no_grant",
  ],
];

overEachSite("a row filter limits every kind of change", async (t, site) => {
  await makeTables(site);
  await site.admin({ Delete: { database: "main", table: "vault", where: null } });
  await site.allow(
    entry("rita", "main", "ReadWrite", `tables = ["tickets", "customers"]\n${filter}`),
  );
  const rita = await site.as("rita", '{ tenant = "acme" }');
  const all = () => site.admin(select("tickets", ["*"], byId));
  const before = (await all()).text;
  for (const [query, expected] of changes) {
    t.equal(outcome(await rita(query)), expected, JSON.stringify(query));
  }
  const preview = await rita({ Preview: { Delete: { ...tickets, where: null } } });
  t.match(preview.body, { affected: 2, before: [{ id: 1 }, { id: 2 }], after: [] });
  t.equal((await all()).text, before, "nothing of it is kept");

  const raised = await rita({
    Update: { ...tickets, add: { weight: 10 }, where: null, returning: ["id", "weight"] },
  });
  t.strictSame(raised.body.data, [
    { id: 1, weight: 11 },
    { id: 2, weight: 12 },
  ]);
  const mixed = await rita({
    Batch: [
      { Update: { ...tickets, set: { status: "x", tenant: "acme" }, where: term("id", ">", 0) } },
      { Insert: { ...tickets, values: [{ id: 9, tenant: "acme" }], returning: ["tenant"] } },
      { Delete: { ...tickets, where: { not: term("id", "=", 1) }, returning: ["id"] } },
    ],
  });
  t.equal(mixed.status, 200, mixed.text);
  t.match(mixed.text, /"affected":2,"data":\[\{"id":2\},\{"id":9\}\]/);
  const left = await site.admin(select("tickets", ["id", "status", "weight"], byId));
  t.strictSame(left.body.data, [
    { id: 1, status: "x", weight: 11 },
    { id: 3, status: "open", weight: 3 },
    { id: 4, status: "open", weight: 4 },
    { id: 5, status: "done", weight: 5 },
    { id: 6, status: "open", weight: 6 },
    { id: 7, status: "open", weight: null },
  ]);
});

overEachSite("large numbers, booleans and lists are compared exactly", async (t, site) => {
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "big", type: "bigint" },
    { name: "open", type: "boolean" },
  ];
  const things = { database: "main", table: "things" };
  await site.admin({ CreateTable: { ...things, columns } });
  await site.admin(
    '{"Insert":{"database":"main","table":"things","values":[{"id":1,"big":9007199254740992,"open":true},{"id":2,"big":9007199254740993,"open":false},{"id":3,"big":9007199254740994,"open":true},{"id":4,"big":null,"open":null}]}}',
  );
  const rita = await site.as(
    "rita",
    "{ big = 9007199254740993, bigs = [9007199254740993, 9007199254740994], none = [], yes = true }",
  );
  const rule = async (column: string, cmp: string, value: string) => {
    const text = `row_filter = [{ column = "${column}", cmp = "${cmp}", value = ${value} }]`;
    await site.allow(entry("rita", "main", "ReadWrite", `tables = ["things"]\n${text}`));
    const answer = await rita(select("things", ["id"], byId));
    if (answer.status !== 200) return outcome(answer);
    return [...answer.text.matchAll(/"id":(\d)/g)].map(([, id]) => id).join(" ");
  };
  t.equal(await rule("big", "=", '"@big"'), "2");
  t.equal(await rule("big", "!=", '"@big"'), "1 3", "null is not unequal");
  t.equal(await rule("big", ">", '"@big"'), "3");
  t.equal(await rule("big", "<=", "9007199254740993"), "1 2");
  t.equal(await rule("big", "IN", '"@bigs"'), "2 3");
  t.equal(await rule("big", "IN", '"@none"'), "");
  t.equal(await rule("open", "=", '"@yes"'), "1 3");
  t.equal(await rule("big", "=", '"@bigs"'), "403 attribute_missing");
  t.equal(await rule("big", "IN", '"@big"'), "403 attribute_missing");
  t.equal(await rule("big", "!=", '"@nothing"'), "403 attribute_missing");
  t.equal(await rule("big", ">", '"@yes"'), "403 attribute_missing");
  t.equal(await rule("big", "=", '"@big"'), "2");
  const insert = (big: string) =>
    rita(`{"Insert":{"database":"main","table":"things","values":[{"id":7,"big":${big}}]}}`);
  for (const other of ["9007199254740992", "9007199254740993.0", '"9007199254740993"', "null"]) {
    t.equal(outcome(await insert(other)), "403 row_denied", other);
  }
  t.equal(outcome(await insert("9007199254740993")), "200");
});

overEachSite("limits count changed and returned rows, not existing ones", async (t, site) => {
  await makeTables(site);
  await site.admin({ Delete: { database: "main", table: "vault", where: null } });
  await site.allow(
    entry(
      "rita",
      "main",
      "ReadWrite",
      `tables = ["tickets"]\n${filter}\nmax_changes = 2\nmax_rows = 1`,
    ) + entry("olga", "main", "ReadWrite", 'tables = ["tickets"]\nmax_changes = 2'),
  );
  const rita = await site.as("rita", '{ tenant = "acme" }');
  const olga = await site.as("olga");
  const update = (more: object = {}) => ({
    Update: { ...tickets, set: { status: "x" }, where: null, ...more },
  });
  const denied = await olga(update());
  t.equal(outcome(denied), "409 too_many_changes", "seven are there");
  t.match(await auditOf(site.gateway, denied), {
    ...{ level: "warn", decision: "deny", reason: "too_many_changes", status: 409 },
  });
  t.equal(outcome(await rita(update())), "200", "two of them are Rita's");
  t.equal(outcome(await rita(update({ returning: ["id"] }))), "409 too_many_rows");
  t.equal(outcome(await rita({ Batch: [update(), update()] })), "409 too_many_changes");
  t.equal(
    outcome(await rita({ Preview: { Delete: { ...tickets, where: null } } })),
    "409 too_many_rows",
  );
  t.equal(outcome(await rita(select("tickets", ["id"]))), "403 limit_required");
  t.equal(outcome(await rita(select("tickets", ["id"], { limit: 2 }))), "403 limit_too_high");
  t.equal(
    outcome(
      await rita({
        Batch: [select("tickets", ["id"], { limit: 1 }), select("tickets", ["id"], { limit: 1 })],
      }),
    ),
    "403 batch_member_denied (limit_too_high)",
  );
  const found = await site.admin(select("tickets", ["id"], { where: term("status", "=", "x") }));
  t.strictSame(found.body.data, [{ id: 1 }, { id: 2 }]);
  await fillTables(site.admin);
});

/** What errors of the database say to those who may not see all of the schema. */

const refusedTickets = { database: "main", table: "tickets" };

overEachSite("an error names nothing hidden", async (t, site) => {
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
      select("tickets", ["id"], { where: term("salry", "=", 1) }),
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
          ...refusedTickets,
          values: [{ id: 1, status: "x" }],
          on_conflict: ["status"],
          update: [],
        },
      },
      "400 no_unique_key",
      /salary/,
    ],
    [
      { Batch: [select("tickets", ["id"]), { Delete: { ...refusedTickets, where: null } }] },
      "409 constraint_violation",
      /vault|ticket_|fkey|CONSTRAINT/,
    ],
    [
      { Insert: { ...refusedTickets, values: [{ id: 1 }] } },
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
