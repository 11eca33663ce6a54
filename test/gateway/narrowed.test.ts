/** What reaches the upstream, and what its callers see, under entries that say more than a role. */
import t from "tap";
import { bodies, entry, narrowed, recorded, select, tenant } from "./narrowed.ts";

t.test("row filters go up with the client's own bytes, and the client is told", async (t) => {
  const upstream = await recorded(t);
  const { ask } = await narrowed(t, entry(`tables = ["tickets"]\n${tenant}`), upstream.url);
  const sent =
    '{ "Select": {"database":"main","from":"tickets","columns":["id"],"where":{"column":"n","cmp":"=","value":12345678901234567890}} }';
  const answer = await ask(sent);
  t.equal(answer.status, 200, answer.text);
  t.equal(answer.headers.get("x-gatehouse-narrowed"), "rows");
  t.equal(
    bodies(upstream)[0],
    '{ "Select": {"database":"main","from":"tickets","columns":["id"],"where":{"and":[{"column":"tenant","cmp":"=","value":"acme"},{"column":"n","cmp":"=","value":12345678901234567890}]}} }',
  );
  const already = JSON.stringify(select({ where: { column: "tenant", cmp: "=", value: "acme" } }));
  const untouched = await ask(already);
  t.equal(untouched.headers.get("x-gatehouse-narrowed"), null);
  t.strictSame(bodies(upstream), [already]);
});

t.test("what may not go up does not, and the refusal says the remedy", async (t) => {
  const upstream = await recorded(t);
  const { ask } = await narrowed(
    t,
    entry(
      'tables = ["tickets"]\ncolumns = ["id", "tenant", "status"]\nwritable_columns = ["status"]\nmax_rows = 5\nmax_changes = 2',
    ) + entry("", "None"),
    upstream.url,
  );
  const refused = async (query: object) => {
    const { status, body } = await ask(query);
    return `${status} ${body.code}: ${body.message}`;
  };
  t.match(
    await refused(select({ columns: ["*"], limit: 1 })),
    /^403 columns_required: .*"id", "tenant", "status"/,
  );
  t.match(
    await refused(select({ where: { column: "salary", cmp: ">", value: 1 }, limit: 1 })),
    /^403 column_denied: .*salary/,
  );
  t.match(await refused(select({})), /^403 limit_required: /);
  t.match(await refused(select({ limit: 6 })), /^403 limit_too_high: .*5/);
  t.match(
    await refused({ Select: { database: "main", from: "Tickets", columns: ["id"] } }),
    /^403 name_case_mismatch/,
  );
  t.match(
    await refused({ Select: { database: "main", from: "other", columns: ["id"] } }),
    /^403 role_insufficient/,
  );
  const values = [1, 2, 3].map((id) => ({ status: `s${id}` }));
  t.match(
    await refused({ Insert: { database: "main", table: "tickets", values } }),
    /^403 too_many_changes/,
  );
  t.match(
    await refused({ Update: { database: "main", table: "tickets", set: { id: 1 }, where: null } }),
    /^403 column_denied: .*id/,
  );
  const { status, body } = await ask({
    Batch: [select({ limit: 1 }), select({ columns: ["salary"], limit: 1 })],
  });
  t.equal(status, 403);
  t.match(body, { code: "batch_member_denied", element: 1, reason: "column_denied" });
  t.strictSame(bodies(upstream), []);
});

t.test("the embedded engine takes back what touches too many rows", async (t) => {
  const { ask, gateway } = await narrowed(
    t,
    entry(`tables = ["tickets"]\nmax_changes = 2\n${tenant}`),
  );
  const admin = await gateway.login();
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "tenant", type: "text" },
    { name: "status", type: "text" },
  ];
  await gateway.query({ CreateTable: { database: "main", table: "tickets", columns } }, admin);
  const rows = [1, 2, 3, 4].map((id) => ({
    id,
    tenant: id < 4 ? "acme" : "other",
    status: "open",
  }));
  await gateway.query({ Insert: { database: "main", table: "tickets", values: rows } }, admin);
  const update = (where: object | null) => ({
    Update: {
      database: "main",
      table: "tickets",
      set: { status: "done" },
      where,
      returning: ["id"],
    },
  });
  const many = await ask(update(null));
  t.equal(many.status, 409, many.text);
  t.equal(many.body.code, "too_many_changes");
  const two = await ask(update({ column: "id", cmp: ">", value: 1 }));
  t.strictSame(two.body.data, [{ id: 2 }, { id: 3 }], "never the row of another tenant");
  t.equal(two.headers.get("x-gatehouse-narrowed"), "rows");
  const left = await gateway.query(
    select({ columns: ["id", "status"], order_by: { column: "id" } }),
    admin,
  );
  t.strictSame(left.body.data, [
    { id: 1, status: "open" },
    { id: 2, status: "done" },
    { id: 3, status: "done" },
    { id: 4, status: "open" },
  ]);
});

t.test("lists of schema show what the caller's entries let it see", async (t) => {
  const { gateway, token } = await narrowed(
    t,
    entry('tables = ["tickets"]\ncolumns = ["id", "tenant"]'),
  );
  const admin = await gateway.login();
  const columns = [
    { name: "id", type: "int", primary_key: true },
    { name: "tenant", type: "text" },
    { name: "salary", type: "int" },
  ];
  for (const table of ["tickets", "secrets"]) {
    await gateway.query({ CreateTable: { database: "main", table, columns } }, admin);
  }
  const get = (path: string) =>
    gateway.request(path, { headers: { authorization: `Bearer ${token}` } });
  t.strictSame((await get("/schema")).body.data, { databases: ["main"] });
  t.strictSame((await get("/schema/main")).body.data, { tables: ["tickets"] });
  const shown = await get("/schema/main/tickets");
  t.notMatch(shown.text, "salary");
  t.match(shown.text, "tenant");
  const hidden = await get("/schema/main/secrets");
  const absent = await get("/schema/main/nowhere");
  t.strictSame([hidden.status, hidden.body.code], [absent.status, absent.body.code]);
  t.equal(hidden.status, 403);
});

t.test("a route cannot be narrowed, so a narrowed caller does not use it", async (t) => {
  const upstream = await recorded(t);
  const route = '[[routes]]\npath = "/db/:database/stats"\nmethods = ["GET"]\naccess = "SELECT"\n';
  const { gateway, token } = await narrowed(t, entry("max_rows = 5"), upstream.url, route);
  const answer = await gateway.request("/db/main/stats", {
    headers: { authorization: `Bearer ${token}` },
  });
  t.equal(answer.status, 403);
  t.equal(answer.body.code, "not_narrowable");
  t.match(answer.body.message, /^Use queries instead: this reaches all of main/);
  t.notOk(upstream.take().some(({ url }) => url.startsWith("/db")));
});
