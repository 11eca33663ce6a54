/** What reaches the upstream, and what its callers see, under entries that say more than a role. */
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { type Answer, auditOf, startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

/** Rita's entries, as an operator writes them in the place of the one she has. */
async function narrowed(t: Test, entries: string, upstreamUrl?: string, config = "") {
  const gateway = await startGateway(t, {
    config,
    ...(upstreamUrl === undefined ? {} : { upstream: upstreamUrl }),
  });
  const token = await gateway.addUser("rita", "ReadWrite");
  const version = async () => {
    const answer = await gateway.request("/readyz", { headers: { connection: "close" } });
    return answer.body.access_version;
  };
  const before = await version();
  await gateway.edit((text) =>
    text
      .replace(/\[\[acl\]\]\nusername = "rita"\n[^[]*/, entries)
      .replace(
        /username = "rita"\n/,
        'username = "rita"\nattributes = { tenant = "acme", regions = ["eu", "us"] }\n',
      ),
  );
  // Of several processes, each has to see it.
  await eventually("the edit is in force", async () => {
    const versions = await Promise.all(Array.from({ length: 16 }, version));
    return !versions.includes(before);
  });
  return { gateway, token, ask: (query: object | string) => gateway.query(query, token) };
}

const entry = (more: string, role = "ReadWrite") =>
  `[[acl]]\nusername = "rita"\ndatabase = "main"\nrole = "${role}"\n${more}\n`;
const tenant = 'row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]';
const select = (more: object) => ({
  Select: { database: "main", from: "tickets", columns: ["id"], ...more },
});

async function recorded(t: Test) {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  return upstream;
}

/** The bodies that reached the upstream, health checks aside. */
function bodies(upstream: RecordingUpstream): string[] {
  return upstream
    .take()
    .filter(({ method }) => method === "POST")
    .map(({ body }) => body.toString());
}

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

for (const workers of [1, 2]) {
  t.test(
    `a rate limit holds over ${workers} processes, and counts a Batch as its elements`,
    async (t) => {
      const upstream = await recorded(t);
      const boundary = '[[boundaries]]\nvia = "query"\nusername = "rita"\nrate_limit = "4/hour"\n';
      const { ask, gateway } = await narrowed(
        t,
        `${entry("")}${boundary}`,
        upstream.url,
        `[server]\nworkers = ${workers}\n`,
      );
      const one = select({});
      const batch = await ask({ Batch: [one, one] });
      t.equal(batch.status, 200);
      const counted = async (answer: Answer) => (await auditOf(gateway, answer)).rates;
      const rate = { boundary: "query username=rita", limit: "4/hour" };
      t.strictSame(await counted(batch), [{ ...rate, counted: 2 }]);
      const denied = await ask({ Select: { database: "other", from: "t", columns: ["*"] } });
      t.equal(denied.status, 403);
      t.strictSame(await counted(denied), [{ ...rate, counted: 3 }], "a denied one counts too");
      t.equal((await ask(one)).status, 200);
      const limited = await ask(one);
      t.equal(limited.status, 429);
      t.equal(limited.body.code, "rate_limited");
      t.ok(Number(limited.headers.get("retry-after")) > 3000, "until the window ends");
      t.match(await auditOf(gateway, limited), {
        reason: "rate_limited",
        rates: [{ ...rate, counted: 5 }],
      });
      const others = await gateway.query(one, await gateway.login());
      t.equal(others.status, 200, "another user goes on");
      t.equal(await counted(others), undefined);
    },
  );
}

t.test("a boundary holds for what comes by its way alone", async (t) => {
  const upstream = await recorded(t);
  const boundary = '[[boundaries]]\nvia = "mcp"\nrole = "ReadOnly"\n';
  const { ask, gateway, token } = await narrowed(t, `${entry("")}${boundary}`, upstream.url);
  const insert = { Insert: { database: "main", table: "tickets", values: [{ id: 1 }] } };
  t.equal((await ask(insert)).status, 200);
  const call = {
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "insert", arguments: insert.Insert },
  };
  const answer = await gateway.request("/mcp", {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2025-06-18",
    },
    body: JSON.stringify(call),
  });
  t.match(answer.text, "role_insufficient");
  t.equal(bodies(upstream).length, 1);
});

t.test("an open stream is cut when the entry that opened it expires", async (t) => {
  const upstream = await recorded(t);
  upstream.answer = (_request, response) => {
    response.writeHead(200, { "content-type": "text/plain" });
    response.write("begun");
  };
  const route = '[[routes]]\npath = "/db/:database/tail"\nmethods = ["GET"]\naccess = "SELECT"\n';
  const expires = new Date(Date.now() + 8000);
  const { gateway, token } = await narrowed(
    t,
    entry(`expires = ${expires.toISOString()}`),
    upstream.url,
    route,
  );
  const get = () =>
    fetch(`${gateway.url}/db/main/tail`, { headers: { authorization: `Bearer ${token}` } });
  const open = await get();
  t.equal(open.status, 200);
  await t.rejects(open.text(), "no end, but a cut");
  t.ok(Date.now() >= expires.getTime(), "not before its time");
  const after = await get();
  t.equal(after.status, 403);
  t.match(await after.json(), { code: "grant_expired" });
});
