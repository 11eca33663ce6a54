import t from "tap";
import { isMariaDb } from "../engine/mysql/server.ts";
import type { Answer } from "../kit/gateway.ts";
import { nightly, sampled } from "../kit/nightly.ts";
import { columnsOf } from "../kit/queries.ts";
import {
  type Ask,
  entry,
  tenantFilter as filter,
  type Kind,
  openRecorded,
  outcome,
  overEachSite,
  overSqliteSite,
  select,
  term,
  tickets,
} from "./kit.ts";
import { makeTables } from "./tables.ts";

const byId = { order_by: { column: "id" } };
const count = { fn: "count", as: "n" };

const insert = (...values: object[]) => ({ Insert: { ...tickets, values } });
const update = (set: object, more: object = {}) => ({
  Update: { ...tickets, set, where: null, ...more },
});
/** An Insert, or else an Update, that binds columns of the element before it. */
function bound(columns: Readonly<Record<string, string>>, more?: object) {
  const bind = Object.fromEntries(
    Object.entries(columns).map(([name, column]) => [name, { element: 0, column }]),
  );
  if (more === undefined) return { Insert: { ...tickets, values: [{ id: 8 }], bind } };
  return { Update: { ...tickets, bind, where: null } };
}
overSqliteSite("a row filter limits every kind of change", nightly, async (t, site) => {
  await makeTables(site);
  await site.admin({ Delete: { database: "main", table: "vault", where: null } });
  await site.allow(
    entry("rita", "main", "ReadWrite", `tables = ["tickets", "customers"]\n${filter}`),
  );
  const rita = await site.as("rita", '{ tenant = "acme" }');
  const all = () => site.admin(select("tickets", ["*"], byId));
  const before = (await all()).text;
  t.equal(outcome(await rita(insert({ id: 9, tenant: "other" }))), "403 row_denied");
  const added = { Update: { ...tickets, add: { tenant: 1 }, where: null } };
  t.equal(outcome(await rita(added)), "403 row_denied");
  for (const more of [undefined, { set: {} }]) {
    const Batch = [insert({ id: 9, tenant: "acme" }), bound({ tenant: "tenant" }, more)];
    t.equal(outcome(await rita({ Batch })), "403 batch_member_denied (row_denied)");
  }
  const preview = await rita({ Preview: { Delete: { ...tickets, where: null } } });
  t.match(preview.body, { affected: 2, before: [{ id: 1 }, { id: 2 }], after: [] });
  const others = { Batch: [update({ status: "y" }, { where: term("id", "=", 3), expect: 1 })] };
  t.match((await rita(others)).body, { code: "expectation_failed", affected: 0 });
  t.equal((await all()).text, before, "nothing of it is kept");

  const add = { weight: 10 };
  const mixed = await rita({
    Batch: [
      { Update: { ...tickets, add, where: null, returning: ["id", "weight"] } },
      { Insert: { ...tickets, values: [{ id: 9, tenant: "acme" }], returning: ["tenant"] } },
      { Delete: { ...tickets, where: { not: term("id", "=", 1) }, returning: ["id"] } },
    ],
  });
  t.match(mixed.body.data, [
    {
      data: [
        { id: 1, weight: 11 },
        { id: 2, weight: 12 },
      ],
    },
    { data: [{ tenant: "acme" }] },
    { data: [{ id: 2 }, { id: 9 }] },
  ]);
  const left = (await site.admin(select("tickets", ["id"], byId))).body.data;
  t.strictSame(
    left,
    [1, 3, 4, 5, 6, 7].map((id) => ({ id })),
  );
});

overSqliteSite("no computed name is a row filter's column", nightly, async (t, site, _, sql) => {
  const owned = "create table owned (id integer primary key, tenant varchar(20))";
  await sql("create table bare (id integer primary key, owner varchar(20))", owned);
  await sql("insert into bare values (1, 'acme')", "insert into owned values (1, 'acme')");
  await site.allow(entry("rita", "main", "ReadOnly", filter));
  const rita = await site.as("rita", '{ tenant = "acme" }');
  const compute = [{ as: "tenant", fn: "trim", of: ["owner"] }];
  const bare = { from: "bare", columns: ["id"], compute };
  const include = [
    { ...bare, from: undefined, as: "all", table: "bare", on: "bare.id = owned.id" },
  ];
  for (const query of [
    select("bare", ["id"], { compute }),
    select("bare", ["id"], { compute, where: term("tenant", "=", "acme") }),
    { Select: { database: "main", from: { select: bare, as: "all" }, columns: ["id"] } },
    select("owned", ["id"], { include }),
    select("owned", ["id"], { where: { column: "id", cmp: "IN", select: bare } }),
  ]) {
    t.equal(outcome(await rita(query)), "400 unknown_column", JSON.stringify(query));
  }
});

overEachSite("an error names nothing hidden", async (t, site) => {
  await makeTables(site);
  await site.allow(
    entry(
      "rita",
      "main",
      "ReadWrite",
      'tables = ["tickets", "vaul_*"]\ncolumns = ["id", "status", "salry"]',
    ) +
      entry("olga", "main", "ReadWrite") +
      entry("dan", "main", "DbAdmin") +
      entry("dan", "main", "None", 'tables = ["vault"]'),
  );
  const [rita, olga, dan] = [await site.as("rita"), await site.as("olga"), await site.as("dan")];
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
    if ("Batch" in query) t.match(answer.body.message, /^Batch\[1\]: .* other rows refer to it$/);
  }
  t.match(await rita({ Insert: { ...tickets, values: [{ id: 1, status: "x" }] } }), {
    body: {
      constraint: { kind: "unique" },
      message: /: a value that must be unique exists already$/,
    },
  });
  t.match((await olga(select("vaults", ["id"]))).body.message, /did you mean vault/);
  const dropped = await dan({ DropTable: tickets });
  t.equal(outcome(dropped), "409 constraint_violation");
  t.match(dropped.body.message, /^(?!.*vault).*(?:refers? to|depend on) /);
});

overSqliteSite("bind reads and writes only columns that are allowed", nightly, async (t, site) => {
  await makeTables(site);
  await site.allow(
    entry(
      "rita",
      "main",
      "ReadWrite",
      'tables = ["tickets"]\ncolumns = ["id", "status", "tenant"]\nwritable_columns = ["id", "status"]',
    ),
  );
  const rita = await site.as("rita");
  const batch = (columns: Readonly<Record<string, string>>, more?: object) =>
    rita({ Batch: [insert({ id: 9, status: "s" }), bound(columns, more)] });
  for (const more of [undefined, { set: {} }]) {
    for (const columns of [{ status: "salary" }, { salary: "status" }, { tenant: "status" }]) {
      t.match(outcome(await batch(columns, more)), /^403 batch_member_denied \(column_denied\)$/);
    }
  }
  const denied = (await batch({ status: "salary" })).body;
  t.match(denied, { element: 0 }, "what the earlier element would return is denied there");
  t.equal(outcome(await batch({ status: "status" })), "200");
  const found = await site.admin(select("tickets", ["status"], { where: term("id", "=", 8) }));
  t.strictSame(found.body.data, [{ status: "s" }]);
  await site.allow(
    entry("rita", "main", "ReadWrite", 'tables = ["tickets"]\ncolumns = ["id", "status"]') +
      entry("rita", "main", "ReadWrite", 'tables = ["customers"]\ncolumns = ["id", "tenant"]'),
  );
  const [status, customer] = [term("id", "=", 1), term("id", "=", 3)];
  const customers = { database: "main", table: "customers", where: customer };
  const shown = await rita({
    Preview: {
      Batch: [
        { Update: { ...tickets, set: { status: "x" }, where: status } },
        { Delete: { ...customers, where: { and: [customer, term("tenant", "=", "no")] } } },
        { Update: { ...customers, bind: { tenant: { element: 0, column: "status" } } } },
      ],
    },
  });
  t.strictSame(shown.body.data, [
    { affected: 1, before: [{ id: 1, status: "open" }], after: [{ id: 1, status: "x" }] },
    { affected: 0, before: [], after: [] },
    { affected: 1, before: [{ id: 3, tenant: "other" }], after: [{ id: 3, tenant: "x" }] },
  ]);
});

// Row filters tell values apart by their bytes, whatever the column's own comparison takes for one.

/** Types of a column that take several spellings for one value. */
const loose: Record<Kind["name"], readonly string[]> = {
  SQLite: ["text collate nocase", "text collate rtrim", "any"],
  PostgreSQL: ["citext", "text collate ignoring", "char(8)"],
  MariaDB: [
    "varchar(20) character set utf8mb4 collate utf8mb4_general_ci",
    "char(20) character set utf8mb4 collate utf8mb4_general_ci",
    "varchar(20) character set latin1 collate latin1_swedish_ci",
    "text character set utf8mb4 collate utf8mb4_unicode_ci",
  ],
};

const extensions: Partial<Record<Kind["name"], readonly string[]>> = {
  PostgreSQL: [
    "create extension if not exists citext schema public",
    `create collation ignoring (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`,
  ],
};

/** Spellings of one tenant and of another one, in the order of their ids. */
const tenants = ["acme", "ACME", "acmé", "acme ", "other"];

function filterBy(cmp: string, value: string): string {
  return `row_filter = [{ column = "tenant", cmp = "${cmp}", value = ${value} }]`;
}

function idsOf({ status, text }: Answer): string {
  return status === 200 ? [...text.matchAll(/"id":(\d)/g)].map(([, id]) => id).join(" ") : text;
}

const own = term("tenant", "=", "acme");

/** Queries of every kind, each with what it answers the tenant acme, who has the first row alone. */
async function readEverything(ask: Ask): Promise<Record<string, unknown>> {
  const rowsOf = async (more: object) => idsOf(await ask(select("tickets", ["id"], more)));
  const data = async (query: object) => (await ask(query)).body.data;
  return {
    all: await rowsOf(byId),
    stood: await rowsOf({ where: { and: [own, term("id", ">", 0)] }, ...byId }),
    alone: await rowsOf({ where: own }),
    curious: await rowsOf({ where: { not: term("tenant", "=", "x") }, ...byId }),
    either: await rowsOf({ where: { or: [own, term("tenant", "=", "ACME")] } }),
    after: await rowsOf({ after: [0], ...byId }),
    counted: await data({ Select: { database: "main", from: "tickets", aggregate: [count] } }),
    grouped: await data({
      Select: { database: "main", from: "tickets", group_by: ["weight"], aggregate: [count] },
    }),
    joined: idsOf(
      await ask(
        select("tickets", ["tickets.id"], {
          join: { table: "notes", on: "notes.id = tickets.id", join_type: "INNER" },
        }),
      ),
    ),
    batch: idsOf(await ask({ Batch: [select("tickets", ["id"]), select("tickets", ["id"])] })),
    preview: idsOf(await ask({ Preview: { Delete: { ...tickets, where: null } } })),
  };
}

overEachSite("a row filter matches no other spelling of a value", async (t, site, kind, sql) => {
  await sql(...(extensions[kind.name] ?? []));
  const attributes = '{ tenant = "acme", tenants = ["acme", "none"], blank = "acme " }';
  const readers = { rita: filterBy("=", '"@tenant"'), ivan: filterBy("IN", '"@tenants"') };
  const filters = { ...readers, nora: filterBy("!=", '"@tenant"'), bea: filterBy("=", '"@blank"') };
  for (const user of Object.keys(filters)) await site.tokenOf(user, attributes);
  await site.allow(
    Object.entries(filters)
      .map(([user, filter]) => entry(user, "main", "ReadWrite", filter))
      .join(""),
  );
  const [nora, bea] = [await site.as("nora"), await site.as("bea")];
  for (const [at, type] of loose[kind.name].entries()) {
    await sql(
      "drop table if exists tickets",
      "drop table if exists notes",
      `create table tickets (id integer primary key, tenant ${type}, weight int)`,
      `create table notes (id integer primary key, tenant ${type})`,
    );
    // A `char` keeps no blanks at the end: what it holds is then the tenant's own.
    const isPadded = type.startsWith("char");
    const kept = tenants
      .map((tenant, at) => ({ id: at + 1, tenant }))
      .filter(({ tenant }) => !(isPadded && tenant.endsWith(" ")));
    await site.admin({ Insert: { database: "main", table: "notes", values: kept } });
    // Both kinds of filters, in turn.
    for (const user of sampled(Object.keys(readers).toSpliced(0, at % 2), 2)) {
      const ask = await site.as(user);
      await site.admin({
        Batch: [
          { Delete: { ...tickets, where: null } },
          { Insert: { ...tickets, values: kept.map((row) => ({ ...row, weight: 1 })) } },
        ],
      });
      t.strictSame(
        await readEverything(ask),
        {
          all: "1",
          stood: "1",
          alone: "1",
          curious: "1",
          either: "1",
          after: "1",
          counted: [{ n: 1 }],
          grouped: [{ weight: 1, n: 1 }],
          joined: "1",
          batch: "1 1",
          preview: "1",
        },
        `${type}: ${user}`,
      );
      for (const accept of ["application/x-ndjson", "text/csv"]) {
        const authorization = `Bearer ${await site.tokenOf(user)}`;
        const streamed = await site.gateway.request("/query", {
          method: "POST",
          headers: { "content-type": "application/json", accept, authorization },
          body: JSON.stringify(select("tickets", ["tenant"])),
        });
        t.match(streamed.text.trim(), /^(\{"tenant":"acme *"\}|tenant\r\nacme *)$/, accept);
      }
      const update = { Update: { ...tickets, set: { weight: 2 }, where: null } };
      t.match((await ask(update)).body, { affected: 1 }, `${type}: Update`);
      const remove = { Delete: { ...tickets, where: own, returning: ["id"] } };
      t.match((await ask({ Batch: [update, remove] })).body, {
        data: [/1 row$/, { affected: 1, data: [{ id: 1 }] }],
      });
      const left = await site.admin(select("tickets", ["id", "weight"], byId));
      const others = kept.slice(1).map(({ id }) => ({ id, weight: 1 }));
      t.strictSame(left.body.data, others, `${type}: all else is as it was`);
    }
    t.equal((await site.admin({ Insert: { ...tickets, values: kept.slice(0, 1) } })).status, 200);
    t.notMatch(idsOf(await nora(select("tickets", ["id"], byId))), /1/);
    t.equal(idsOf(await bea(select("tickets", ["id"]))), isPadded ? "" : "4", `${type}: a blank`);
    const insert = { Insert: { ...tickets, values: [{ id: 9, tenant: "acme " }] } };
    // MariaDB's engine refuses what a `char` would not keep.
    const refusal = kind.name === "MariaDB" ? "400 invalid_value" : "403 row_denied";
    t.equal(
      outcome(await bea(insert)),
      isPadded ? refusal : "200",
      `${type}: what is stored counts`,
    );
  }
});

overEachSite("a row is pinned by its bytes", async (t, site, kind, sql) => {
  await sql(...(extensions[kind.name] ?? []));
  const rita = await site.as("rita");
  await site.allow(entry("rita", "main", "ReadWrite", 'require_where = ["tenant"]'));
  for (const type of loose[kind.name]) {
    await sql(
      "drop table if exists tickets",
      `create table tickets (id int primary key, tenant ${type}, weight int)`,
    );
    const values = ["ACME", "acme", "ACMÉ"].map((tenant, id) => ({ id, tenant, weight: 1 }));
    await site.admin({ Insert: { ...tickets, values } });
    const pins = [own, term("tenant", "IN", ["acme", "x"])];
    for (const where of pins) {
      const update = { Update: { ...tickets, add: { weight: 1 }, where, returning: ["id"] } };
      t.match((await rita(update)).body, { affected: 1, data: [{ id: 1 }] }, type);
    }
    t.match((await rita({ Delete: { ...tickets, where: { and: [own] } } })).body, { affected: 1 });
    const left = await site.admin(select("tickets", ["id", "weight"], byId));
    t.strictSame(left.body.data, [
      { id: 0, weight: 1 },
      { id: 2, weight: 1 },
    ]);
  }
});

/** A type, a value that a filter excludes, another spelling of it, and a value that is another one. */
type Spelling = readonly [type: string, excluded: string, respelled: string, other: string];

const spellings: Record<Kind["name"], readonly Spelling[]> = {
  SQLite: [
    ["text collate nocase", "acme", "ACME", "other"],
    ["text collate rtrim", "acme", "acme ", "other"],
    ["integer", "5", "05", "six"],
  ],
  PostgreSQL: [
    [
      "uuid",
      "5f3d3a1c-7a43-4f57-9a3c-0b9c3bd18f3f",
      "5F3D3A1C-7A43-4F57-9A3C-0B9C3BD18F3F",
      "00000000-7a43-4f57-9a3c-0b9c3bd18f3f",
    ],
    ["timestamptz", "2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01", "2026-01-01T13:00:00Z"],
    ["timestamp", "2026-01-01T12:00:00", "2026-01-01 12:00:00.000", "2026-01-01T13:00:00"],
    ["time", "12:00:00", "12:00", "13:00:00"],
    ["date", "2026-01-01", "02026-01-01", "2026-01-02"],
    ["inet", "10.0.0.1", "10.0.0.1/32", "10.0.0.2"],
    ["interval", "1 day", "24 hours", "2 days"],
    ["macaddr", "08:00:2b:01:02:03", "08-00-2B-01-02-03", "08:00:2b:01:02:04"],
    ["citext", "acme", "ACME", "other"],
    ["char(8)", "acme", "acme ", "other"],
    ["text collate ignoring", "acme", "acmé", "other"],
  ],
  MariaDB: [
    ["datetime", "2026-01-01T12:00:00", "2026-01-01T12:00:00.0", "2026-01-01T13:00:00"],
    ["time", "12:00:00", "12:00:00.0", "13:00:00"],
    ["varchar(20) character set utf8mb4 collate utf8mb4_general_ci", "acme", "acmé", "other"],
    ...(isMariaDb ? [["inet6", "::1", "0:0:0:0:0:0:0:1", "::2"] as const] : []),
  ],
};

overEachSite("rows are judged in their stored form", async (t, site, kind, sql) => {
  await sql(...(extensions[kind.name] ?? []));
  const rita = await site.as("rita");
  const rules = spellings[kind.name].map(
    ([, excluded], at) => `tables = ["t${at}"]\n${filterBy("!=", `"${excluded}"`)}`,
  );
  rules.push(`tables = ["bare", "shown"]\n${filterBy("=", '"acme"')}`);
  rules.push('tables = ["levels"]\nrow_filter = [{ column = "level", cmp = ">", value = 5 }]');
  await site.allow(rules.map((rule) => entry("rita", "main", "ReadWrite", rule)).join(""));
  for (const [at, [type, , respelled, other]] of spellings[kind.name].entries()) {
    const place = { database: "main", table: `t${at}` };
    await sql(`create table t${at} (id integer primary key, tenant ${type})`);
    const insert = (id: number, tenant: string) => ({
      Insert: {
        ...place,
        values: [
          { id: id + 100, tenant: other },
          { id, tenant },
        ],
      },
    });
    const set = { Update: { ...place, set: { tenant: respelled }, where: null } };
    t.equal(outcome(await rita(insert(1, other))), "200", `${type}: ${other}`);
    const all = select(place.table, ["*"], byId);
    const before = (await site.admin(all)).text;
    const bad = insert(2, respelled);
    const returning = { Insert: { ...bad.Insert, returning: ["id"] } };
    for (const query of [bad, returning, { Preview: bad }, set, { Preview: set }]) {
      const answer = await rita(query);
      t.equal(outcome(answer), "403 row_denied", `${type}: ${JSON.stringify(query)}`);
      t.match(answer.body.message, /^A row of t\d+ as stored would be outside/);
    }
    const denied = await rita({ Batch: [insert(3, other), set] });
    t.equal(outcome(denied), "403 batch_member_denied (row_denied)", type);
    t.equal(denied.body.element, 1);
    t.equal((await site.admin(all)).text, before, "nothing stays");
  }

  await sql(
    "create table bare (tenant varchar(20), weight int)",
    "create view shown as select tenant, tenant as owner, weight from bare",
    "insert into bare values ('acme', 0), ('other', 0)",
  );
  const update = (set: object, table = "bare") =>
    rita({ Update: { database: "main", table, set, where: null } });
  t.match((await update({ weight: 1 })).body, { affected: 1 }, "a table without a key");
  t.match((await update({ tenant: "acme" })).body, { affected: 1 });
  if (kind.name !== "SQLite") {
    t.match((await update({ weight: 2 }, "shown")).body, { affected: 1 }, "a view");
    t.equal(
      outcome(await update({ owner: "other" }, "shown")),
      "403 row_denied",
      "by another name",
    );
  }

  await sql(
    `create table levels (id integer primary key, level ${kind.name === "SQLite" ? "" : "int"})`,
    "insert into levels (id, level) values (1, 7), (2, 5)",
  );
  if (kind.name === "SQLite") await sql("insert into levels (id, level) values (3, 'high')");
  t.equal(idsOf(await rita(select("levels", ["id"], byId))), "1", "a text is no large number");
});

overEachSite("an error quotes no key of a hidden row", async (t, site, kind, sql) => {
  await sql(
    ...(extensions[kind.name] ?? []),
    `create table tickets (id integer primary key, tenant ${loose[kind.name][0]})`,
    "create table notes (id integer primary key, ticket integer, foreign key (ticket) references tickets(id))",
    "insert into tickets (id, tenant) values (101, 'acme'), (102, 'ACME')",
    "insert into notes (id, ticket) values (1, 102), (2, 101)",
  );
  const rita = await site.as("rita");
  await site.allow(entry("rita", "main", "ReadWrite", filterBy("=", '"acme"')));
  const where = term("id", "IN", [101, 102]);
  const refused = await rita({ Delete: { ...tickets, where } });
  t.equal(outcome(refused), "409 constraint_violation");
  t.notMatch(refused.body.message, "102");
});

overEachSite("a row filter accepts a list as long as a query", async (t, site) => {
  const columns = columnsOf({ id: "int", tenant: "text" });
  await site.admin({ CreateTable: { ...tickets, columns } });
  const names = Array.from({ length: 1000 }, (_, at) => `"Öre-${"x".repeat(40)}-${at}"`);
  const rita = await site.as("rita", `{ tenants = [${names.join(",")}] }`);
  await site.allow(entry("rita", "main", "ReadWrite", filterBy("IN", '"@tenants"')));
  const tenant = String(names[999]).slice(1, -1);
  const row = { id: 1, tenant };
  t.equal(outcome(await rita({ Insert: { ...tickets, values: [row] } })), "200");
  t.match((await rita({ Update: { ...tickets, set: { id: 2 }, where: null } })).body, {
    affected: 1,
  });
  t.strictSame((await rita(select("tickets", ["*"]))).body.data, [{ id: 2, tenant }]);
});

t.test(
  "the message of a missing limit names what the grammar of a foreign upstream has",
  async (t) => {
    const { gateway, allow, tokenOf } = await openRecorded(t);
    const token = await tokenOf("rita");
    await allow(entry("rita", "main", "ReadOnly", "max_rows = 5"));
    for (const limit of [undefined, 6]) {
      const { body } = await gateway.query(select("tickets", ["id"], { limit }), token);
      t.match(body.message, /; continue with offset$|, and continue with offset$/);
    }
  },
);

t.test("a foreign upstream gets the identity and no other header of the gateway", async (t) => {
  const site = await openRecorded(t);
  const rita = await site.tokenOf("rita", '{ tenant = "Öre" }');
  const keys = `${filterBy("=", '"@tenant"')}\nrequire_where = ["id"]`;
  await site.allow(entry("rita", "main", "ReadWrite", keys));
  site.upstream.take();
  const headers = { "x-gatehouse-limits": "[]", x_gatehouse_narrowed: "schema" };
  const query = { Update: { ...tickets, set: { weight: 1 }, where: term("id", "=", 1) } };
  await site.gateway.request("/query", {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${rita}`,
      ...headers,
    },
    body: JSON.stringify(query),
  });
  const sent = site.upstream.take().find(({ method }) => method === "POST");
  const own = Object.keys(sent?.headers ?? {}).filter((name) => /gatehouse/.test(name));
  t.strictSame(own.sort(), ["x-gatehouse-database", "x-gatehouse-role", "x-gatehouse-user"]);
});
