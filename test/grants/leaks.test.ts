/** Databases that differ in what a caller may not see alone answer it alike, byte for byte. */
import { deepStrictEqual, strictEqual } from "node:assert";
import fc from "fast-check";
import type { Test } from "tap";
import type { Answer } from "../kit/gateway.ts";
import { caseCount } from "../kit/nightly.ts";
import { type Ask, entry, type Kind, overEachSite, type Site, type Sql } from "./kit.ts";
import { DATABASE } from "./leak-conditions.ts";
import { curiousNested, curiousQuery } from "./leak-queries.ts";

const databases = ["db-a", "db-b"] as const;
type Database = (typeof databases)[number];

const runs: Record<Kind["name"], number> = {
  SQLite: caseCount(40, 600),
  PostgreSQL: caseCount(12, 150),
  MariaDB: caseCount(12, 150),
};

const id = { name: "id", type: "int", primary_key: true };
const tenant = { name: "tenant", type: "text" };
const definitions = {
  fenced: [id, tenant, { name: "name", type: "text" }, { name: "c1", type: "text" }],
  grouped: [
    id,
    tenant,
    { name: "customer", type: "int" },
    { name: "status", type: "text" },
    { name: "weight", type: "bigint" },
    { name: "c2", type: "bigint" },
    { name: "code", type: "text", nullable: false, default: "c" },
  ],
};

const largest = 9223372036854775807n;

/** The rows that the caller sees are the same; all else is not. */
function rowsOf(database: Database) {
  const isFirst = database === "db-a";
  const [c2, other] = isFirst ? [5, 6] : [largest, 3];
  const [secret, code] = isFirst ? ["open\\", "zz"] : ["zz", "a"];
  const fenced = [
    { id: 1, tenant: "acme", name: "Ann", c1: secret },
    { id: 2, tenant: "acme", name: "Bob", c1: code },
    ...(isFirst
      ? [{ id: 3, tenant: "other", name: "open\\", c1: "x" }]
      : [40, 41, 42].map((at) => ({ id: at, tenant: "ACME", name: "Ann", c1: null }))),
  ];
  const grouped = [
    { id: 1, tenant: "acme", customer: 1, status: "open", weight: 1, c2, code: secret },
    { id: 2, tenant: "acme", customer: 2, status: "done", weight: 2, c2: other, code },
    { id: 3, tenant: "acme", customer: 1, status: "5", weight: null, c2: null, code: "c" },
    { id: 4, tenant: "acme", customer: 9, status: null, weight: 4, c2: 4, code: "d" },
    ...(isFirst
      ? [
          { id: 50, tenant: "other", customer: 1, status: "open\\", weight: largest, c2: 1 },
          { id: 51, tenant: "other", customer: 2, status: "a%", weight: -largest, c2: 1 },
        ]
      : [
          { id: 60, tenant: null, customer: 1, status: "é", weight: 0, c2: largest },
          { id: 61, tenant: "acme ", customer: 2, status: "open", weight: 3, c2: 2 },
          { id: 62, tenant: "acmé", customer: 1, status: "done", weight: largest, c2: 3 },
        ]
    ).map((row) => ({ ...row, code: "h" })),
  ];
  return { fenced, grouped };
}

const visible: Readonly<Record<string, readonly string[]>> = {
  fenced: ["id", "tenant", "name"],
  grouped: ["id", "tenant", "customer", "status", "weight"],
};
/** Copies of the tables with what the caller sees, filtered by hand. */
const COPIES = "db-c";

async function fillCopies({ admin }: Site): Promise<void> {
  await admin({ CreateDatabase: { database: COPIES } });
  for (const [table, rows] of Object.entries(rowsOf("db-a"))) {
    const names = visible[table] ?? [];
    const columns = definitionsOf(table).filter(({ name }) => names.includes(name));
    await admin({ CreateTable: { database: COPIES, table, columns } });
    const seen = rows
      .filter((row) => row.tenant === "acme")
      .map((row) =>
        Object.fromEntries(Object.entries(row).filter(([name]) => names.includes(name))),
      );
    await admin(write({ Insert: { database: COPIES, table, values: seen } }));
  }
}

function definitionsOf(table: string): readonly { readonly name: string }[] {
  return Object.entries(definitions).find(([name]) => name === table)?.[1] ?? [];
}

/** JSON with whole numbers of 64 bits. */
function write(value: object): string {
  return JSON.stringify(value, (_key, one) =>
    typeof one === "bigint" ? JSON.rawJSON(String(one)) : one,
  );
}

async function fill({ admin }: Site, database: Database): Promise<void> {
  const entries = Object.entries(rowsOf(database));
  await admin(
    write({
      Batch: [
        ...entries.map(([table]) => ({ Delete: { database, table, where: null } })),
        ...entries.map(([table, values]) => ({ Insert: { database, table, values } })),
      ],
    }),
  );
}

const filter = 'row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]';
const columns = 'columns = ["id", "tenant", "customer", "status", "weight"]';

/** Ways to hide the same: by table, by pattern and in what is left, with limits and without. */
const policies: Record<string, (database: string) => string> = {
  tables: (database) =>
    entry("rita", database, "ReadOnly", 'tables = ["t"]') +
    entry("rita", database, "ReadWrite", `tables = ["grouped"]\n${columns}\n${filter}`) +
    entry(
      "rita",
      database,
      "ReadWrite",
      `tables = ["fenced"]\ncolumns = ["id", "tenant", "name"]\n${filter}`,
    ),
  patterns: (database) =>
    entry(
      "rita",
      database,
      "ReadWrite",
      `tables = ["grou*"]\n${columns}\n${filter}\nmax_rows = 5\nmax_changes = 2`,
    ) +
    entry("rita", database, "ReadOnly", `${filter}\ncolumns = ["id", "tenant", "name"]`) +
    entry("rita", database, "None", 'tables = ["t*", "ranked"]'),
};

/** The same rights through a group. */
function byGroup(entries: string): string {
  const group = '[[groups]]\nname = "viewers"\nmembers = ["rita"]\n\n';
  return group + entries.replaceAll('username = "rita"', 'group = "viewers"');
}

/** An answer without what differs from one request to the next, rows in an order of their own. */
function gistOf(query: string, { status, text }: Answer): object {
  const body: Record<string, unknown> = JSON.parse(text.replaceAll(/db-[ab]/g, DATABASE));
  delete body.request_id;
  const ordered = (rows: unknown) =>
    Array.isArray(rows) ? rows.map((row) => JSON.stringify(row)).sort() : rows;
  const { data } = body;
  const isBatch = query.startsWith('{"Batch"');
  const found = isBatch && Array.isArray(data) ? data.map(ordered) : ordered(data);
  return { status, ...body, before: ordered(body.before), after: ordered(body.after), data: found };
}

/** Asks both, and holds that they answer alike. True if rows may have changed. */
async function compare(
  ask: Ask,
  query: object,
  seen: Map<string, number>,
  copies?: Ask,
): Promise<boolean> {
  const text = JSON.stringify(query);
  const answers: Answer[] = [];
  for (const database of databases) answers.push(await ask(text.replaceAll(DATABASE, database)));
  const [first, second] = answers.map((answer) => gistOf(text, answer));
  const codes = answers.map(({ status, body }) => String(body.code ?? status));
  for (const code of codes) seen.set(code, (seen.get(code) ?? 0) + 1);
  // The documented exception: a row that is not seen may hold the one value of a key.
  const isChange = /"(?:Insert|Update|Upsert)"/.test(text);
  if (!(isChange && codes.includes("constraint_violation"))) deepStrictEqual(first, second);
  if (copies !== undefined && codes.includes("200")) {
    const copied = await copies(text.replaceAll(DATABASE, COPIES));
    strictEqual(copied.text, answers[0]?.text);
  }
  return !/^\{"Select"/.test(text) && codes.includes("200");
}

/** What makes a column of tenants take several spellings for one. */
const loosening: Partial<Record<Kind["name"], (table: string) => string>> = {
  PostgreSQL: (table) => `alter table ${table} alter tenant type citext`,
  MariaDB: (table) =>
    `alter table ${table.replaceAll('"', "`")} modify tenant varchar(20) collate utf8mb4_general_ci`,
};

/** True if `tenant` does more than being returned. The gateway's callers compare it by bytes. */
function usesTenant(query: object): boolean {
  return /tenant"/.test(JSON.stringify(query).replace(/"columns":\[[^\]]*\]/g, ""));
}

async function hunt(t: Test, site: Site, kind: Kind, sql: Sql): Promise<void> {
  if (kind.name === "PostgreSQL") await sql("create extension if not exists citext schema public");
  for (const database of databases) {
    await site.admin({ CreateDatabase: { database } });
    for (const [table, defined] of Object.entries(definitions)) {
      await site.admin({ CreateTable: { database, table, columns: defined } });
      const loosen = loosening[kind.name]?.(`"${database}".${table}`);
      if (loosen !== undefined) await sql(loosen);
    }
    await fill(site, database);
  }
  await site.admin({
    CreateTable: {
      database: "db-a",
      table: "ranked",
      columns: [id, { name: "ticket", type: "int" }],
    },
  });
  await fillCopies(site);
  for (const table of Object.keys(definitions)) {
    const loosen = loosening[kind.name]?.(`"${COPIES}".${table}`);
    if (loosen !== undefined) await sql(loosen);
  }
  const ask = await site.as("rita", '{ tenant = "acme" }');
  const copies: Ask = (query) => site.gateway.query(query, site.adminToken);
  let answered = 0;
  for (const [name, policy] of Object.entries(policies)) {
    const entries = databases.map(policy).join("");
    await site.allow(policy === policies.patterns ? byGroup(entries) : entries);
    const seen = new Map<string, number>();
    let isDirty = true;
    await fc.assert(
      fc.asyncProperty(curiousQuery, async (query) => {
        if (isDirty) for (const database of databases) await fill(site, database);
        isDirty = true;
        isDirty = await compare(ask, query, seen);
      }),
      { numRuns: runs[kind.name] },
    );
    t.comment(`${name}: ${JSON.stringify(Object.fromEntries(seen))}`);
    for (const database of databases) await fill(site, database);
    const nested = new Map<string, number>();
    await fc.assert(
      fc.asyncProperty(curiousNested, async (query) => {
        const isLoose = kind.name in loosening && usesTenant(query);
        await compare(ask, query, nested, isLoose ? undefined : copies);
      }),
      { numRuns: 2 * runs[kind.name] },
    );
    t.comment(`${name}, nested: ${JSON.stringify(Object.fromEntries(nested))}`);
    answered += (seen.get("200") ?? 0) + (nested.get("200") ?? 0);
  }
  // Of six times as many queries, each on two databases.
  t.ok(answered > runs[kind.name] / 4, `${answered} are answered`);
}

overEachSite("what a caller may not see changes no answer", hunt);
