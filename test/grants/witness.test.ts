/** What reaches an upstream in the name of narrowed callers, byte by byte. */
import t from "tap";
import {
  attributes,
  condition,
  entry,
  tenantFilter as filter,
  openRecorded,
  outcome,
  select,
  tickets,
} from "./kit.ts";

/** Each body, and what goes up of it: `F` stands for the filter. */
const spliced: readonly (readonly [sent: string, up: string])[] = [
  [
    ' {"Select" : {"from":"tickets",\n"columns":["id"] ,"database":"main"} } ',
    ' {"Select" : {"where":F,"from":"tickets",\n"columns":["id"] ,"database":"main"} } ',
  ],
  [
    '{"\\u0053elect":{"d\\u0061tabase":"ma\\u0069n","from":"t\\u0069ckets","columns":["id"],"wh\\u0065re": \tnull }}',
    '{"\\u0053elect":{"d\\u0061tabase":"ma\\u0069n","from":"t\\u0069ckets","columns":["id"],"wh\\u0065re": \tF }}',
  ],
  [
    '{"Select":{"where" : {"column":"n","cmp":"=","value":18446744073709551616.50e-1},"database":"main","from":"tickets","columns":["id"]}}',
    '{"Select":{"where" : {"and":[F,{"column":"n","cmp":"=","value":18446744073709551616.50e-1}]},"database":"main","from":"tickets","columns":["id"]}}',
  ],
  [
    `{"Select":{"where":{"or":[${condition}]},"database":"main","from":"tickets","columns":["id"]}}`,
    `{"Select":{"where":{"and":[F,{"or":[${condition}]}]},"database":"main","from":"tickets","columns":["id"]}}`,
  ],
  [
    `{"Select":{"where":{"not":${condition}},"database":"main","from":"tickets","columns":["id"]}}`,
    `{"Select":{"where":{"and":[F,{"not":${condition}}]},"database":"main","from":"tickets","columns":["id"]}}`,
  ],
  [
    `{"Select":{"where":{"and":[{"and":[${condition}]}]},"database":"main","from":"tickets","columns":["id"]}}`,
    `{"Select":{"where":{"and":[F,{"and":[{"and":[${condition}]}]}]},"database":"main","from":"tickets","columns":["id"]}}`,
  ],
  [
    '{"Batch":[{"Update":{"database":"main","table":"tickets","set":{"where":{"where":null}},"where":null}},{"Delete":{"where":{"column":"id","cmp":"IN","value":[1,-0]},"database":"main","table":"tickets"}},{"Insert":{"database":"main","table":"tickets","values":[{"tenant":"acme"}]}}]}',
    '{"Batch":[{"Update":{"database":"main","table":"tickets","set":{"where":{"where":null}},"where":F}},{"Delete":{"where":{"and":[F,{"column":"id","cmp":"IN","value":[1,-0]}]},"database":"main","table":"tickets"}},{"Insert":{"database":"main","table":"tickets","values":[{"tenant":"acme"}]}}]}',
  ],
];

/** Bodies to which nothing is added, since the filter stands in them. */
const untouched: readonly string[] = [
  condition,
  '{"value":"\\u0061cme","column":"ten\\u0061nt" , "cmp":"="}',
  '{"column":"tickets.tenant","cmp":"=","value":"acme"}',
  `{"and":[{"column":"n","cmp":"=","value":1e0},${condition}]}`,
].map(
  (where) => `{"Select":{"database":"main","from":"tickets","columns":["id"],"where":${where}}}`,
);

/** Terms that are not the filter, however alike. */
const alike: readonly string[] = [
  '{"column":"tenant","cmp":"=","value":"ACME"}',
  '{"column":"tenant","cmp":"=","value":"acme "}',
  '{"column":"tenant","cmp":"IN","value":["acme"]}',
  '{"column":"tenant","cmp":"LIKE","value":"acme"}',
  '{"column":"tenant","cmp":"!=","value":"acme"}',
  '{"column":"tenant","cmp":"=","value":["acme"]}',
];

t.test("filters stand between the client's own bytes, and nothing else changes", async (t) => {
  const site = await openRecorded(t);
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${filter}`));
  const rita = await site.as("rita", attributes);
  for (const [sent, up] of spliced) {
    const answer = await rita(sent);
    t.equal(answer.headers.get("x-gatehouse-narrowed"), "rows", answer.text);
    t.strictSame(site.bodies(), [up.replaceAll("F", condition)]);
  }
  for (const sent of untouched) {
    t.equal((await rita(sent)).headers.get("x-gatehouse-narrowed"), null);
    t.strictSame(site.bodies(), [sent]);
  }
  for (const where of alike) {
    const sent = `{"Select":{"database":"main","from":"tickets","columns":["id"],"where":${where}}}`;
    await rita(sent);
    t.strictSame(site.bodies(), [sent.replace(where, `{"and":[${condition},${where}]}`)]);
  }
  const quoted = 'row_filter = [{ column = "tenant", cmp = "=", value = "@quoted" }]';
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${quoted}`));
  await rita(select("tickets", ["id"]));
  const [body = ""] = site.bodies();
  t.equal(JSON.parse(body).Select.where.value, 'a"\\é😀\n', "what an attribute holds stays text");
});

t.test("a spliced query obeys depth and size as any body", async (t) => {
  const site = await openRecorded(t, { config: "[server]\nmax_body_bytes = 4096\n" });
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${filter}`));
  const rita = await site.as("rita", attributes);
  const nested = (depth: number) => {
    const where = `${'{"not":'.repeat(depth)}{"column":"id","cmp":"=","value":1}${"}".repeat(depth)}`;
    return `{"Select":{"database":"main","from":"tickets","columns":["id"],"where":${where}}}`;
  };
  let deepest = 61;
  t.equal(outcome(await rita(nested(deepest + 1))), "400 nesting_too_deep");
  while (deepest > 50 && (await rita(nested(deepest))).status !== 200) deepest--;
  t.equal(deepest, 59, "the two levels of the filter count");
  site.bodies();
  const long = (bytes: number) => {
    const query = (text: string) =>
      JSON.stringify(select("tickets", ["id"], { where: { column: "id", cmp: "=", value: text } }));
    return query("x".repeat(bytes - query("").length));
  };
  const added = `{"and":[${condition},]}`.length;
  t.equal(outcome(await rita(long(4096 - added))), "200");
  t.equal(site.bodies()[0]?.length, 4096);
  t.equal(outcome(await rita(long(4096 - added + 1))), "413 body_too_large");
  t.strictSame(site.bodies(), []);
});

t.test("filters go up in the form that the upstream expects", async (t) => {
  const site = await openRecorded(t, { config: 'query_form = "op"\n' });
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${filter}`));
  const rita = await site.as("rita", attributes);
  t.equal(outcome(await rita(select("tickets", ["id"]))), "200");
  t.strictSame(JSON.parse(site.bodies()[0] ?? ""), {
    op: "select",
    where: JSON.parse(condition),
    database: "main",
    from: "tickets",
    columns: ["id"],
  });
});

t.test("what cannot be kept within rows and columns does not go up", async (t) => {
  const config = [
    '[query]\nlevel = "full"\nextra_fields = ["hint"]\noperations = { Truncate = "DELETE" }',
    ...["SELECT", "authenticated"].map(
      (access) =>
        `[[routes]]\npath = "/db/:database/${access}"\nmethods = ["GET"]\naccess = "${access}"`,
    ),
  ].join("\n");
  const site = await openRecorded(t, { config });
  await site.allow(
    entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${filter}`) +
      entry("rita", "main", "ReadWrite") +
      entry("rita", "shop", "ReadWrite") +
      entry(
        "olga",
        "main",
        "ReadWrite",
        'tables = ["tickets"]\ncolumns = ["id", "tenant"]\nmax_changes = 2',
      ),
  );
  const rita = await site.as("rita", attributes);
  const olga = await site.as("olga");
  const denied: readonly (readonly [ask: typeof rita, query: object])[] = [
    [rita, { Truncate: { database: "main", table: "tickets" } }],
    [rita, { Truncate: { database: "main", table: "other" } }],
    [rita, { Truncate: { database: "main", table: "other", hint: 1 } }],
    [rita, select("other", ["id"], { hint: "no_filter" })],
    [rita, { Preview: { Delete: { ...tickets, where: null } } }],
    [rita, { Preview: { Delete: { database: "main", table: "other", where: null } } }],
    [
      rita,
      {
        Upsert: {
          ...tickets,
          values: [{ id: 1, tenant: "acme" }],
          on_conflict: ["id"],
          update: [],
        },
      },
    ],
    [
      olga,
      { Select: { database: "main", from: "tickets", aggregate: [{ fn: "count", as: "salary" }] } },
    ],
  ];
  for (const [ask, query] of denied) {
    t.equal(outcome(await ask(query)), "403 not_narrowable", JSON.stringify(query));
  }
  const where = { column: "id", cmp: "=", value: 1 };
  t.equal(outcome(await olga({ Delete: { ...tickets, where } })), "403 where_required");
  t.equal(
    outcome(
      await rita({
        Batch: [select("other", ["id"]), select("other", ["id"], { hint: 1 })],
      }),
    ),
    "403 batch_member_denied (not_narrowable)",
  );
  const token = await site.tokenOf("rita");
  const headers = { authorization: `Bearer ${token}` };
  for (const access of ["SELECT", "authenticated"]) {
    const route = await site.gateway.request(`/db/main/${access}`, { headers });
    t.equal(outcome(route), "403 not_narrowable", access);
  }
  t.strictSame(
    site.upstream.take().filter(({ method, url }) => method === "POST" || url.startsWith("/db/")),
    [],
    "nothing of it",
  );
  for (const access of ["SELECT", "authenticated"]) {
    t.equal((await site.gateway.request(`/db/shop/${access}`, { headers })).status, 200, access);
  }
  t.equal(outcome(await rita({ Truncate: { database: "shop", table: "other", hint: 1 } })), "200");
});
