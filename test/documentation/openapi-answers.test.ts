import t, { type Test } from "tap";
import { openSetting } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { type Case, check, type Sent } from "./openapi-answers.ts";
import { document, methods, shape } from "./openapi-kit.ts";

const { gateway, upstream } = await openSetting(t);
const token = await gateway.login();
const bob = await gateway.addUser("bob", "ReadOnly");
const answered = new Set<string>();

/** Cases of a route under a path of its own, sent by the administrator unless they say else. */
async function checkAll(t: Test, cases: readonly Case[], shared: Sent = {}): Promise<void> {
  for (const [route, expected, sent] of cases) {
    await check(t, gateway, [route, expected, { token, ...shared, ...sent }]);
    if (typeof expected === "number") answered.add(route);
  }
}

t.test("a login and its token are as the document says", async (t) => {
  const good = { username: "admin", password: ADMIN_PASSWORD };
  const type = "text/plain";
  const cases: Case[] = [
    ["POST /login", 200, { body: { ...good, database: "*" } }],
    ["POST /login", "credentials_invalid", { body: { ...good, password: "wrong" } }],
    ["POST /login", "invalid_body", { body: { username: "admin" } }],
    ["POST /login", "invalid_body", { body: { ...good, role: "Owner" } }],
    ["POST /login", "invalid_database", { body: { ...good, database: "a b" } }],
    ["POST /login", "unsupported_media_type", { body: good, type }],
    ["POST /login", "body_too_large", { body: { ...good, password: "x".repeat(20_000) } }],
    ["GET /api/me", 200],
    ["GET /api/me", 200, { token: bob }],
    ["GET /api/me", "unauthenticated", { token: undefined }],
    ["GET /api/me", "token_invalid", { token: "x" }],
  ];
  await checkAll(t, cases);
  const other = { token: await gateway.login() };
  await checkAll(
    t,
    [
      ["POST /logout", 200],
      ["POST /logout", "token_revoked"],
    ],
    other,
  );
});

t.test("users are listed, made, changed and removed as the document says", async (t) => {
  const carol = { username: "carol", password: "long enough", role: "ReadOnly" };
  const refused = (change: object): Sent => ({ body: { ...carol, ...change } });
  await checkAll(t, [
    ["POST /api/users", "invalid_username", refused({ username: "a b" })],
    ["POST /api/users", "invalid_role", refused({ role: "owner" })],
    ["POST /api/users", "invalid_email", refused({ email: "" })],
    ["POST /api/users", "invalid_database", refused({ database: "a.b" })],
    ["POST /api/users", "password_too_short", refused({ password: "short" })],
    ["POST /api/users", "password_too_long", refused({ password: "x".repeat(1025) })],
    ["POST /api/users", "invalid_body", refused({ admin: true })],
    ["POST /api/users", "role_insufficient", { ...refused({}), token: bob }],
    ["POST /api/users", "database_case_conflict", refused({ database: "MAIN" })],
    ["POST /api/users", 201, refused({ email: "carol@example.com", database: "main" })],
    ["POST /api/users", "user_exists", refused({})],
    ["GET /api/users", 200],
    ["GET /api/users", 200, { at: "/api/users?limit=1" }],
    ["GET /api/users", "invalid_page", { at: "/api/users?limit=0" }],
    ["GET /api/users", "role_insufficient", { token: bob }],
  ]);
  const one = "/api/users/{username}";
  await checkAll(
    t,
    [
      [`PATCH ${one}`, 200, { body: { email: null, disabled: false } }],
      [`PATCH ${one}`, "invalid_body", { body: {} }],
      [`PATCH ${one}`, "invalid_body", { body: { disabled: 1 } }],
      [`DELETE ${one}`, "role_insufficient", { token: bob }],
      [`DELETE ${one}`, 200],
      [`DELETE ${one}`, "user_not_found"],
    ],
    { at: "/api/users/carol" },
  );
  const disabled = { body: { disabled: true } };
  await checkAll(t, [
    [`PATCH ${one}`, "user_not_found", { at: "/api/users/nobody", ...disabled }],
    [`PATCH ${one}`, "last_administrator", { at: "/api/users/admin", ...disabled }],
    [`DELETE ${one}`, "last_administrator", { at: "/api/users/admin" }],
    [`DELETE ${one}`, "invalid_username", { at: "/api/users/a%20b" }],
  ]);
});

t.test("passwords and tokens end as the document says", async (t) => {
  const own = await gateway.addUser("dan", "ReadOnly");
  const body = { old_password: "dan password", new_password: "battery staple" };
  const one = "/api/users/{username}";
  await checkAll(
    t,
    [
      [`PUT ${one}/password`, "password_too_short", { body: { new_password: "x" } }],
      [`PUT ${one}/password`, "invalid_body", { body: { old_password: "x" } }],
      [`PUT ${one}/password`, "role_insufficient", { body, token: bob }],
      [`PUT ${one}/password`, 200, { body, token: own }],
      [`PUT ${one}/password`, "token_revoked", { body, token: own }],
      [`PUT ${one}/password`, "credentials_invalid", { body }],
    ],
    { at: "/api/users/dan/password" },
  );
  await checkAll(t, [
    [`DELETE ${one}/tokens`, 200, { at: "/api/users/dan/tokens" }],
    [`DELETE ${one}/tokens`, "user_not_found", { at: "/api/users/nobody/tokens" }],
  ]);
});

t.test("schemas are told as the document says", async (t) => {
  const { answer } = upstream;
  const found = {
    "/schema": { databases: ["main"] },
    "/schema/main": { tables: ["t"] },
    "/schema/main/t": { columns: [{ name: "a", type: "int", primary_key: true, nullable: false }] },
  };
  upstream.answer = ({ url }, response) => {
    const [, data] = Object.entries(found).find(([path]) => path === url) ?? [];
    response.writeHead(data === undefined ? 404 : 200).end(JSON.stringify({ data }));
  };
  t.teardown(() => {
    upstream.answer = answer;
    upstream.take();
  });
  await checkAll(t, [["GET /schema", 200]]);
  const database = "/schema/{database}";
  await checkAll(t, [
    [`GET ${database}`, 200, { at: "/schema/main" }],
    [`GET ${database}`, "invalid_database", { at: "/schema/*" }],
    [`GET ${database}`, "schema_not_found", { at: "/schema/nowhere" }],
    [`GET ${database}/{table}`, 200, { at: "/schema/main/t" }],
    [`GET ${database}/{table}`, "schema_not_found", { at: "/schema/main/nothing" }],
  ]);
});

t.test("grants are given and taken as the document says", async (t) => {
  const grant = "/api/access/{username}/{database}";
  const body = { role: "ReadWrite" };
  const nobody = { at: "/api/access/nobody/main", body };
  await checkAll(
    t,
    [
      ["GET /api/access", 200, { at: "/api/access" }],
      ["GET /api/access", "role_insufficient", { at: "/api/access", token: bob }],
      [`PUT ${grant}`, 200, { body }],
      [`PUT ${grant}`, "invalid_role", { body: { role: "Root" } }],
      [`PUT ${grant}`, "invalid_body", { body: {} }],
      [`PUT ${grant}`, "user_not_found", nobody],
      [`PUT ${grant}`, "role_insufficient", { body, token: bob }],
      [`DELETE ${grant}`, 200],
      [`DELETE ${grant}`, "grant_not_found"],
      [`DELETE ${grant}`, "last_administrator", { at: "/api/access/admin/*" }],
      [`DELETE ${grant}`, "invalid_database", { at: "/api/access/bob/a.b" }],
    ],
    { at: "/api/access/bob/side" },
  );
  const limits = { max_rows: 5, max_changes: 1, expires: "2126-12-24T18:00:00+01:00" };
  const columns = { columns: ["id", "tenant"], writable_columns: ["id"], require_where: ["id"] };
  const filters = [
    { column: "tenant", cmp: "=", value: "@tenant" },
    { column: "id", cmp: "IN", value: [1, 2] },
  ];
  const whole = { role: "ReadWrite", ...limits, ...columns, row_filter: filters };
  const inTable = `${grant}/{table_or_pattern}`;
  await checkAll(
    t,
    [
      [
        `PUT ${inTable}`,
        200,
        { body: { ...whole, require_approval: ["DELETE"], approvers: ["bob"] } },
      ],
      ["GET /api/access", 200, { at: "/api/access" }],
      ["GET /api/users", 200, { at: "/api/users" }],
      ["GET /api/me", 200, { at: "/api/me", token: bob }],
      [`PUT ${inTable}`, "entry_narrowed", { body: { role: "ReadOnly" } }],
      [`PUT ${inTable}`, "invalid_role", { body: { role: "Root" } }],
      [`PUT ${inTable}`, "invalid_body", { body: { ...whole, tables: ["t"] } }],
      [`PUT ${inTable}`, "invalid_entry", { body: { ...whole, max_rows: 0 } }],
      [`PUT ${inTable}`, "invalid_entry", { body: { ...whole, row_filter: [] } }],
      [`PUT ${inTable}`, "invalid_table", { at: "/api/access/bob/side/a.b", body: whole }],
      [`DELETE ${inTable}`, 200],
      [`DELETE ${inTable}`, "grant_not_found"],
      [`DELETE ${inTable}`, "invalid_table", { at: "/api/access/bob/side/*" }],
      [`PUT ${grant}`, 200, { at: "/api/access/bob/main", body: whole }],
    ],
    { at: "/api/access/bob/side/customer_*" },
  );
});

t.test("what waits for an approval is answered as the document says", async (t) => {
  const entry = { role: "ReadWrite", require_approval: ["DELETE"] };
  const body = { Delete: { database: "held", table: "t", where: null } };
  await checkAll(t, [
    ["PUT /api/access/{username}/{database}", 200, { at: "/api/access/bob/held", body: entry }],
    ["POST /query", "approval_required", { body, token: bob }],
    ["POST /query", 202, { body, token: bob }],
  ]);
  t.equal(upstream.take().length, 0);
});

t.test("what anybody may ask is answered as the document says", async (t) => {
  const known = ".well-known/oauth-protected-resource";
  const paths = ["healthz", "readyz", ".well-known/jwks.json", known, `${known}/mcp`];
  const server = ["oauth-authorization-server", "openid-configuration"].flatMap((name) => [
    `.well-known/${name}`,
    `.well-known/${name}/mcp`,
  ]);
  const cases = [...paths, ...server].map((path): Case => [`GET /${path}`, 200]);
  await checkAll(t, cases, { token: undefined });
  await checkAll(t, [["POST /mcp", "unauthenticated", { token: undefined, body: {} }]]);
});

t.test("each success of the document was seen", async (t) => {
  const { paths } = shape.parse(document);
  const successes = Object.entries(paths).flatMap(([path, item]) =>
    methods
      .filter((method) => Object.keys(item[method]?.responses ?? {}).some((s) => s.startsWith("2")))
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  t.strictSame([...answered].sort(), successes.sort());
});

t.test("without its database the gateway is not ready, in the document's words", async (t) => {
  upstream.server.close();
  upstream.server.closeAllConnections();
  await eventually("it is seen", async () => (await gateway.request("/readyz")).status === 503);
  await check(t, gateway, ["GET /readyz", "upstream_unreachable"]);
});
