import t from "tap";
import { eventually } from "../kit/eventually.ts";
import {
  attributes,
  condition,
  entry,
  tenantFilter as filter,
  openRecorded,
  outcome,
  select,
  term,
  tickets,
} from "./kit.ts";

/** Bodies as sent and as forwarded, where `F` is the filter. */
const ofTickets = '"database":"main","from":"tickets","columns":["id"]';
const whereOf = (where: string) => `{"Select":{"where":${where},${ofTickets}}}`;
const spliced: readonly (readonly [sent: string, forwarded: string])[] = [
  [
    ' {"Select" : {"from":"tickets",\n"columns":["id"] ,"database":"main"} } ',
    ' {"Select" : {"where":F,"from":"tickets",\n"columns":["id"] ,"database":"main"} } ',
  ],
  [
    '{"Select":{"database":"ma\\u0069n","from":"t\\u0069ckets","columns":["id"],"where": \tnull }}',
    '{"Select":{"database":"ma\\u0069n","from":"t\\u0069ckets","columns":["id"],"where": \tF }}',
  ],
  [
    '{"Batch":[{"Update":{"database":"main","table":"tickets","set":{"where":{"where":null}},"where":null}},{"Delete":{"where":{"column":"id","cmp":"IN","value":[1,-0]},"database":"main","table":"tickets"}},{"Insert":{"database":"main","table":"tickets","values":[{"tenant":"acme"}]}}]}',
    '{"Batch":[{"Update":{"database":"main","table":"tickets","set":{"where":{"where":null}},"where":F}},{"Delete":{"where":{"and":[F,{"column":"id","cmp":"IN","value":[1,-0]}]},"database":"main","table":"tickets"}},{"Insert":{"database":"main","table":"tickets","values":[{"tenant":"acme"}]}}]}',
  ],
];

function summary(fields: object) {
  return { Select: { database: "main", from: "tickets", ...fields } };
}

const plainSite = await openRecorded(t);

t.test("filters are added between the client's bytes, which stay unchanged", async (t) => {
  const site = plainSite;
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${filter}`));
  const rita = await site.as("rita", attributes);
  for (const [sent, forwarded] of spliced) {
    const answer = await rita(sent);
    t.equal(answer.headers.get("x-gatehouse-narrowed"), "rows", answer.text);
    t.strictSame(site.bodies(), [forwarded.replaceAll("F", condition)]);
  }
  const untouched = whereOf(`{"and":[{"column":"n","cmp":"=","value":1e0},${condition}]}`);
  t.equal((await rita(untouched)).headers.get("x-gatehouse-narrowed"), null);
  t.strictSame(site.bodies(), [untouched], "a body that contains the filter already");
  const quoted = 'row_filter = [{ column = "tenant", cmp = "=", value = "@quoted" }]';
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${quoted}`));
  await rita(select("tickets", ["id"]));
  const [body = ""] = site.bodies();
  t.equal(JSON.parse(body).Select.where.value, 'a"\\é😀\n', "an attribute stays text");
});

t.test("nothing that a parser may read without its filter or columns is forwarded", async (t) => {
  const site = plainSite;
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${filter}`));
  const rita = await site.as("rita", attributes);
  const tables = '"database":"main","table":"tickets"';
  const bodies = {
    "400 escaped_key": [
      `{"Select":{${ofTickets},"wh\\u0065re":null}}`,
      `{"Delete":{${tables},"where":{"\\u006eot":{"column":"id","cmp":"=","value":1}}}}`,
      `{"Insert":{${tables},"values":[{"t\\u0065nant":"acme"}]}}`,
    ],
    "400 invalid_column": [
      `{"Update":{${tables},"set":{"$serde_json::private::RawValue":"{\\"tenant\\":\\"other\\"}"},"where":null}}`,
    ],
  };
  for (const [expected, sent] of Object.entries(bodies)) {
    for (const body of sent) t.equal(outcome(await rita(body)), expected, body);
  }
  t.strictSame(site.bodies(), []);
  await site.allow(entry("rita", "main", "ReadWrite", ""));
  for (const body of bodies["400 escaped_key"]) t.equal((await rita(body)).status, 200, body);
  t.strictSame(site.bodies(), bodies["400 escaped_key"], "a role alone adds nothing");
});

t.test("a filtered query must not exceed depth and size", async (t) => {
  const site = await openRecorded(t, { config: "[server]\nmax_body_bytes = 4096\n" });
  await site.allow(entry("rita", "main", "ReadWrite", `tables = ["tickets"]\n${filter}`));
  const rita = await site.as("rita", attributes);
  const nested = (depth: number) => {
    const where = `${'{"not":'.repeat(depth)}{"column":"id","cmp":"=","value":1}${"}".repeat(depth)}`;
    return whereOf(where);
  };
  let deepest = 61;
  t.equal(outcome(await rita(nested(deepest + 1))), "400 nesting_too_deep");
  while (deepest > 50 && (await rita(nested(deepest))).status !== 200) deepest--;
  t.equal(deepest, 59, "the two levels of the filter count");
  const refused = await rita(nested(deepest + 1));
  t.match(Object(refused.body).message, /row filters; each takes 2 levels/);
  site.bodies();
  const long = (bytes: number) => {
    const query = (text: string) =>
      JSON.stringify(select("tickets", ["id"], { where: term("id", "=", text) }));
    return query("x".repeat(bytes - query("").length));
  };
  const added = `{"and":[${condition},]}`.length;
  t.equal(outcome(await rita(long(4096 - added))), "200");
  t.equal(site.bodies()[0]?.length, 4096);
  t.equal(outcome(await rita(long(4096 - added + 1))), "413 body_too_large");
  t.strictSame(site.bodies(), []);
});

t.test("queries that cannot be limited to rows and columns are not forwarded", async (t) => {
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
    [rita, { Truncate: { database: "main", table: "other" } }],
    [rita, select("other", ["id"], { hint: "no_filter" })],
    [rita, { Preview: { Delete: { ...tickets, where: null } } }],
    [olga, summary({ aggregate: [{ fn: "count", as: "salary" }] })],
  ];
  for (const [ask, query] of denied) {
    t.equal(outcome(await ask(query)), "403 not_narrowable", JSON.stringify(query));
  }
  const where = term("id", "=", 1);
  t.equal(outcome(await olga({ Delete: { ...tickets, where } })), "403 where_required");
  const token = await site.tokenOf("rita");
  for (const access of ["SELECT", "authenticated"]) {
    const route = await site.gateway.get(`/db/main/${access}`, token);
    t.equal(outcome(route), "403 not_narrowable", access);
  }
  t.strictSame(
    site.upstream.take().filter(({ method, url }) => method === "POST" || url.startsWith("/db/")),
    [],
    "nothing is forwarded",
  );
  for (const access of ["SELECT", "authenticated"]) {
    t.equal((await site.gateway.get(`/db/shop/${access}`, token)).status, 200, access);
  }
  t.equal(outcome(await rita({ Truncate: { database: "shop", table: "other", hint: 1 } })), "200");
});

t.test("tokens narrow further, and entries expire in time", async (t) => {
  const site = plainSite;
  await site.clear();
  const allowUntil = async (end: number) => {
    const expires = `expires = ${new Date(end).toISOString()}`;
    await site.allow(
      entry("rita", "main", "ReadWrite", filter) +
        entry("rita", "shop", "ReadOnly") +
        entry("olga", "main", "ReadOnly") +
        entry("olga", "main", "ReadWrite", expires) +
        entry("olga", "shop", "ReadWrite", `tables = ["orders"]\n${expires}`),
    );
    return end;
  };
  const rita = await site.as("rita", attributes);
  const olga = await site.as("olga");
  const insert = { Insert: { ...tickets, values: [{ id: 1 }] } };
  const inShop = { Select: { database: "shop", from: "orders", columns: ["id"] } };
  let end = await allowUntil(Date.now() + 1000);
  const asked = async () => [outcome(await olga(insert)), outcome(await olga(inShop))];
  let before = await asked();
  // On a busy machine, the entries may expire before the queries.
  for (let seconds = 2; before.join() !== "200,200" && seconds < 100; seconds *= 2) {
    end = await allowUntil(Date.now() + seconds * 1000);
    before = await asked();
  }
  t.strictSame(before, ["200", "200"]);
  const narrow = await site.gateway.login("rita", "rita password", "main");
  t.equal(outcome(await rita(inShop)), "200");
  t.equal(outcome(await site.gateway.query(inShop, narrow)), "403 token_database");
  site.bodies();
  t.equal(outcome(await site.gateway.query(select("tickets", ["id"]), narrow)), "200");
  t.match(site.bodies()[0], condition, "the filter holds for every token");
  await eventually("the entries have expired", () => Date.now() > end);
  t.equal(outcome(await olga(insert)), "403 role_insufficient", "the permanent entry decides");
  t.equal(outcome(await olga(inShop)), "403 grant_expired", "there is no permanent entry");
});
