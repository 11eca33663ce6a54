/** A model is kept within its user's grants and the boundaries around it, by every way of `/mcp`. */
import t from "tap";
import { callTool, refusalOf, send, textOf } from "../journeys/mcp.ts";
import { auditOf } from "../kit/gateway.ts";
import { columnsOf } from "../kit/queries.ts";
import { statelessCall } from "../mcp/messages.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { entry, openSite, outcome, select, term } from "./kit.ts";
import { makeTables } from "./tables.ts";

const filter = 'row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]';
const columns = 'columns = ["id", "tenant", "status", "weight"]';
const tickets = { database: "main", table: "tickets" };
const rows = { database: "main", from: "tickets" };
const one = term("id", "=", 1);

const site = await openSite(t);
await site.admin({ CreateDatabase: { database: "main" } }).catch(() => undefined);
await makeTables(site);
const loginToken = await site.tokenOf("rita", '{ tenant = "acme" }');
const granted =
  entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${columns}\n${filter}\nmax_rows = 5`) +
  entry("rita", "shop", "ReadWrite");
await site.allow(granted);
const call = (tool: string, args: Record<string, unknown>, token = loginToken) =>
  callTool(site.gateway, tool, args, token);

t.test("tools return the same rows and columns as queries", async (t) => {
  const found = await call("select", { ...rows, columns: ["id"], order_by: { column: "id" } });
  t.match(found.body, { result: { structuredContent: { rows: [{ id: 1 }, { id: 2 }] } } });
  const counted = await call("count", rows);
  t.match(textOf(counted), /\b2\b/);
  const preview = await call("preview", {
    Update: { ...tickets, set: { status: "x" }, where: null },
  });
  t.match(preview.body, { result: { structuredContent: { affected: 2 } } });
  t.notMatch(preview.text, /salary|customer|code/);
  const denied: readonly (readonly [tool: string, args: Record<string, unknown>, code: string])[] =
    [
      ["select", { ...rows, columns: ["id"], order_by: { column: "salary" } }, "column_denied"],
      ["insert", { ...tickets, values: [{ id: 9, tenant: "other" }] }, "row_denied"],
      [
        "upsert",
        { ...tickets, values: [{ id: 9, tenant: "acme" }], on_conflict: ["id"], update: [] },
        "not_narrowable",
      ],
      ["count", { ...rows, group_by: ["salary"] }, "column_denied"],
      ["count", { ...rows, having: term("salary", ">", 1) }, "invalid_column"],
      ["describe_table", { database: "main", table: "vault" }, "no_grant"],
      ["describe_table", { database: "main", tables: ["tickets", "vault"] }, "no_grant"],
      ["describe_table", { database: "main", table: "nowhere" }, "no_grant"],
      ["describe_table", { database: "main", table: "Tickets" }, "name_case_mismatch"],
    ];
  for (const [tool, args, code] of denied) {
    t.equal(refusalOf(await call(tool, args)), code, `${tool} ${JSON.stringify(args)}`);
  }
});

t.test("a denied table points to list_tables", async (t) => {
  const vault = { database: "main", table: "vault" };
  const select = { database: "main", from: "vault", columns: ["id"] };
  const calls: [tool: string, args: Record<string, unknown>, code: string][] = [
    ["select", { ...select, limit: 1 }, "no_grant"],
    ["delete", { ...vault, where: one }, "no_grant"],
    ["describe_table", vault, "no_grant"],
    ["batch", { operations: [{ Select: { ...select, limit: 1 } }] }, "batch_member_denied"],
  ];
  for (const [tool, args, code] of calls) {
    t.equal(
      textOf(await call(tool, args)),
      `Denied: There is no grant for main.vault; list_tables lists the tables that you may use (${code})`,
    );
  }
  const elsewhere = await call("describe_table", { database: "elsewhere", table: "vault" });
  t.match(textOf(elsewhere), "whoami lists the databases that you may use (no_grant)");
});

t.test("whoami lists the entries that decide now", async (t) => {
  const [past, later] = [-60_000, 60_000].map(
    (ms) => `expires = ${new Date(Date.now() + ms).toISOString()}`,
  );
  await site.allow(
    [
      entry("rita", "*", "Owner"),
      entry("rita", "main", "ReadWrite"),
      entry("rita", "main", "None", later),
      entry("rita", "main", "ReadOnly", 'tables = ["customers", "tickets"]'),
      entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${later}`),
      entry("rita", "shop", "ReadWrite", past),
      entry("rita", "shop", "ReadOnly", 'tables = ["orders"]'),
    ].join(""),
  );
  t.teardown(() => site.allow(granted));
  const { body } = await call("whoami", {});
  const access = Object(body).result?.structuredContent?.access;
  const rows = [access].flat().map(({ database, tables, role, rights }) => {
    return [database, tables, role, rights.length];
  });
  t.strictSame(rows, [
    ["*", undefined, "Owner", 8],
    ["main", ["customers"], "ReadOnly", 1],
    ["main", ["tickets"], "ReadWrite", 4],
    ["main", undefined, "None", 0],
    ["shop", ["orders"], "ReadOnly", 1],
    ["shop", undefined, "None", 0],
  ]);
});

t.test("a result says if row filters narrowed it", async (t) => {
  const narrowed = "only rows where tenant = acme";
  const read = { ...rows, columns: ["id"] };
  const update = { ...tickets, set: { status: "open" }, where: one };
  const calls: [tool: string, args: Record<string, unknown>][] = [
    ["select", read],
    ["count", rows],
    ["count", { ...rows, group_by: ["status"] }],
    ["update", update],
    ["update", { ...update, returning: ["id"] }],
    ["preview", { Update: update }],
    ["batch", { operations: [{ Select: { ...read, limit: 1 } }, { Update: update }] }],
  ];
  for (const [tool, args] of calls) {
    const answer = await call(tool, args);
    t.match(answer.body, { result: { structuredContent: { narrowed } } }, tool);
    t.match(textOf(answer), `"narrowed":"${narrowed}"`, tool);
  }
  const own = await call("select", { ...read, where: term("tenant", "=", "acme") });
  t.notMatch(own.text, "narrowed", "the caller has said it itself");
});

t.test("if a query reads several tables, a result names those of the row filters", async (t) => {
  await site.allow(
    granted + entry("rita", "main", "ReadOnly", `tables = ["customers"]\n${filter}`),
  );
  t.teardown(() => site.allow(granted));
  const exists = (name = "tickets") => ({
    exists: { table: "customers", on: `customers.id = ${name}.id` },
  });
  const tenant = term("tenant", "=", "acme");
  const members = { from: "tickets", columns: ["id"] };
  const customers = { database: "main", from: "customers" };
  const both = "only rows where tickets.tenant = acme and customers.tenant = acme";
  const calls: [tool: string, args: Record<string, unknown>, narrowed: string][] = [
    ["count", { ...rows, where: exists() }, both],
    [
      "count",
      { ...rows, where: { and: [tenant, exists()] } },
      "only rows where customers.tenant = acme",
    ],
    [
      "count",
      { ...customers, where: { column: "id", cmp: "NOT IN", select: members } },
      "only rows where customers.tenant = acme and tickets.tenant = acme",
    ],
    [
      "select",
      {
        ...rows,
        columns: ["id"],
        limit: 1,
        include: [
          { as: "buyers", table: "customers", on: "customers.id = tickets.id", columns: ["id"] },
        ],
      },
      both,
    ],
    ["count", { ...customers, from: { select: members, as: "t" }, where: exists("t") }, both],
    [
      "batch",
      { operations: [select("tickets", ["id"], { limit: 1 }), select("customers", ["id"])] },
      both,
    ],
  ];
  for (const [tool, args, narrowed] of calls) {
    const answer = await call(tool, args);
    t.match(answer.body, { result: { structuredContent: { narrowed } } }, JSON.stringify(args));
  }
});

t.test("without a limit, a select with include asks for what every grant allows", async (t) => {
  const outer = entry("rita", "main", "ReadOnly", 'tables = ["customers"]\nmax_rows = 50');
  t.teardown(() => site.allow(granted));
  const boundary = '\n[[boundaries]]\nvia = "mcp"\nmax_rows = 3\n';
  const include = (fields: object) => ({
    as: "m",
    table: "tickets",
    on: "tickets.id = customers.id",
    columns: ["id"],
    ...fields,
  });
  const read = { database: "main", from: "customers", columns: ["id"], order_by: { column: "id" } };
  for (const [more, limit, expected] of [
    ["", 2, [1, 2]],
    ["", 5, [1]],
    [boundary, 1, [1, 2, 3]],
    [boundary, 2, [1]],
  ] as const) {
    await site.allow(granted + outer + more);
    const answer = await call("select", { ...read, include: [include({ limit })] });
    const rows = expected.map((id) => ({ id }));
    const structuredContent = { rows };
    t.match(answer.body, { result: { structuredContent } }, `${limit}${more} ${answer.text}`);
  }
  const denied = await call("select", { ...read, include: [include({})] });
  t.match(textOf(denied), /lower the limits, also of include.*\(limit_too_high\)/);
});

t.test("a page says how to continue, and the audit has only the query", async (t) => {
  const ordered = { ...rows, columns: ["id"], order_by: { column: "id" }, limit: 1 };
  const answer = await call("select", ordered);
  t.match(answer.body, { result: { structuredContent: { truncated: true, next_after: [1] } } });
  t.match(await auditOf(site.gateway, answer), {
    operations: { length: 1, 0: { operation: "Select" } },
    rows: 1,
  });
});

t.test("tools and resources show only granted tables and columns", async (t) => {
  t.match((await call("list_tables", { database: "main" })).body, {
    result: { structuredContent: { tables: ["tickets"] } },
  });
  const described = textOf(await call("describe_table", tickets));
  t.match(described, "weight");
  const several = { database: "main", tables: ["tickets"] };
  const together = textOf(await call("describe_table", several));
  t.match(together, "weight");
  const list = await send(site.gateway, statelessCall("resources/list"), loginToken);
  t.match(list.text, "gatehouse:///main/tickets");
  const uri = "gatehouse:///main/tickets";
  const read = await send(site.gateway, statelessCall("resources/read", { uri }), loginToken);
  t.match(read.text, "weight");
  const databases = textOf(await call("list_databases", {}));
  for (const text of [described, together, list.text, read.text, databases]) {
    t.notMatch(text, /salary|code|vault|customers|rows/);
  }
  const hidden = statelessCall("resources/read", { uri: "gatehouse:///main/vault" });
  t.equal(refusalOf(await send(site.gateway, hidden, loginToken)), "no_grant");
});

t.test("an app's token can only narrow the grants", async (t) => {
  const login = { username: "rita", password: "rita password" };
  const read = await obtainTokens(site.gateway, { ...login, reach: "read" });
  const full = await obtainTokens(site.gateway, { ...login, database: "shop" });
  const update = { ...tickets, set: { status: "x" }, where: one };
  t.equal((await call("select", { ...rows, columns: ["id"] }, read.accessToken)).status, 200);
  t.not(refusalOf(await call("update", update, read.accessToken)), undefined, "it reads alone");
  t.equal(
    refusalOf(await call("select", { ...rows, columns: ["id"] }, full.accessToken)),
    "token_database",
  );
  t.equal(
    refusalOf(await call("select", { ...rows, columns: ["salary"] }, read.accessToken)),
    "column_denied",
  );

  const boundary = `[[boundaries]]\nvia = "mcp"\nclient = "${read.clientId}"\nrole = "None"\n`;
  await site.allow(granted + boundary);
  t.equal(
    refusalOf(await call("select", { ...rows, columns: ["id"] }, read.accessToken)),
    "role_insufficient",
  );
  t.equal(
    refusalOf(await call("select", { ...rows, columns: ["id"] })),
    undefined,
    "no other client",
  );
  const asked = await site.gateway.query(select("tickets", ["id"], { limit: 1 }), loginToken);
  t.equal(outcome(asked), "200", "nor the user elsewhere");
  const lapsed = `tables = ["tickets"]\nexpires = 2020-01-01T00:00:00Z`;
  await site.allow(entry("rita", "main", "ReadWrite", lapsed));
  t.equal(refusalOf(await call("select", { ...rows, columns: ["id"] })), "grant_expired");
});

t.test("a caller from whom columns are hidden learns only the kind of a constraint", async (t) => {
  const { gateway, adminToken: token } = site;
  const place = { database: "main", table: "people" };
  const columns = columnsOf({ id: "int", secret_code: { type: "int", unique: true } });
  await gateway.query({ CreateTable: { ...place, columns } }, token);
  const paul = await gateway.addUser("paul", "ReadWrite");
  const insert = (id: number, bearer: string) =>
    gateway.query({ Insert: { ...place, values: [{ id, secret_code: id }] } }, bearer);
  t.equal((await insert(1, token)).status, 200);
  t.match((await insert(1, paul)).body, {
    code: "constraint_violation",
    constraint: { kind: "unique", table: "people", columns: ["id"] },
  });
  const entry = { role: "ReadWrite", columns: ["id"] };
  await gateway.send("PUT", "/api/access/paul/main/people", entry, token);
  const own = await gateway.query({ Insert: { ...place, values: [{ id: 1 }] } }, paul);
  t.strictSame(own.body.constraint, { kind: "unique" });
  t.notMatch(own.text, /secret_code|people/);
});

t.test("a caller narrowed by a group's entry learns only the kind, also over MCP", async (t) => {
  const { gateway, adminToken: token } = site;
  const place = { database: "main", table: "crew" };
  const columns = columnsOf({
    id: "int",
    secret_code: { type: "int", nullable: true, unique: true },
  });
  await gateway.query({ CreateTable: { ...place, columns } }, token);
  const gina = await gateway.addUser("gina", "ReadOnly", "elsewhere");
  await gateway.send("PUT", "/api/groups/team", { members: ["gina"] }, token);
  const insert = { Insert: { ...place, values: [{ id: 1 }] } };
  t.equal((await gateway.query(insert, token)).status, 200);
  const batch = { Batch: [{ Insert: { ...place, values: [{ id: 2 }] } }, insert] };
  const row_filter = [{ column: "id", cmp: "<", value: 9 }];
  for (const limits of [{}, { columns: ["id"] }, { row_filter }]) {
    const entry = { role: "ReadWrite", ...limits };
    const path = "/api/groups/team/access/main";
    t.equal((await gateway.send("PUT", path, entry, token)).status, 200);
    const isWhole = Object.keys(limits).length === 0;
    const whole = { kind: "unique", table: "crew", columns: ["id"] };
    for (const query of [insert, batch]) {
      const { body, text } = await gateway.query(query, gina);
      t.strictSame(body.constraint, isWhole ? whole : { kind: "unique" }, text);
    }
    const tool = textOf(await callTool(gateway, "batch", { operations: batch.Batch }, gina));
    t.match(tool, /constraint_violation\)$/);
    t.equal(/crew/.test(tool), isWhole, tool);
  }
});
