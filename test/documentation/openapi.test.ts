import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import fc from "fast-check";
import t, { type Test } from "tap";
import { parse } from "yaml";
import * as z from "zod";
import { openApiText, pathOf } from "../../generate/openapi/document.ts";
import { examplesOf, readGuide } from "../../generate/query-cases.ts";
import { routeTable } from "../../src/app/routes.ts";
import { refusals } from "../../src/core/base/refusal.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import { batchKey } from "../../src/core/query/grammar.ts";
import { operationNames } from "../../src/core/query/operations.ts";
import { queryRefusals } from "../../src/core/query/refusal.ts";
import { openGatewaySetup } from "../gateway/kit.ts";
import { noClients, Workplace } from "../journeys/installed-clients.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, startGateway, type TestGateway } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { words } from "../kit/words.ts";
import { query as arbitraryQuery } from "../query/arbitrary.ts";

const text = readFileSync(path.join(import.meta.dirname, "../../docs/openapi.yaml"), "utf8");

const schema = z.record(z.string(), z.unknown());
const media = z.strictObject({ schema });
const content = z.strictObject({
  "application/json": media,
  "application/x-ndjson": media.optional(),
  "text/csv": media.optional(),
});
const response = z.strictObject({ description: z.string().min(1), content: content.optional() });
const parameter = z.strictObject({
  name: z.string(),
  in: z.literal("path"),
  required: z.literal(true),
  schema,
});
const asked = z.strictObject({
  name: z.string(),
  in: z.enum(["query", "header"]),
  schema,
  description: z.string().optional(),
});
const operation = z.strictObject({
  operationId: z.string().regex(/^[a-z][A-Za-z]+$/),
  summary: z.string().min(1),
  parameters: z.array(asked).optional(),
  security: z.array(z.record(z.string(), z.array(z.string()))).optional(),
  requestBody: z.strictObject({ required: z.boolean(), content }).optional(),
  responses: z
    .record(z.string().regex(/^(?:[1-5]\d\d|default)$/), response)
    .refine((responses) => Object.keys(responses).length > 0),
});
const methods = ["get", "put", "post", "delete", "options", "patch"] as const;
const optional = operation.optional();
const pathItem = z.strictObject({
  parameters: z.array(parameter).optional(),
  get: optional,
  put: optional,
  post: optional,
  delete: optional,
  options: optional,
  patch: optional,
});

/** The subset of OpenAPI 3.1 (sections 4.8.1 to 4.8.30) that the document uses. */
const shape = z.strictObject({
  openapi: z.literal("3.1.0"),
  jsonSchemaDialect: z.literal("https://json-schema.org/draft/2020-12/schema"),
  info: z.strictObject({ title: z.string(), version: z.string(), description: z.string() }),
  servers: z.array(z.strictObject({ url: z.url(), description: z.string() })),
  security: z.array(z.record(z.string(), z.array(z.string()))),
  paths: z.record(z.string().startsWith("/"), pathItem),
  components: z.strictObject({
    securitySchemes: z.strictObject({
      bearer: z.strictObject({
        type: z.literal("http"),
        scheme: z.literal("bearer"),
        bearerFormat: z.string(),
      }),
    }),
    schemas: z.record(z.string().regex(/^[A-Za-z0-9._-]+$/), schema),
  }),
});

const document: unknown = parse(text);

const ajv = new Ajv2020({ strict: false, allErrors: true });
ajv.addSchema(z.record(z.string(), z.unknown()).parse(document), "openapi");

function schemaAt(...steps: readonly string[]): ValidateFunction | undefined {
  const found = steps.reduce<unknown>(
    (at, step) => z.record(z.string(), z.unknown()).safeParse(at).data?.[step],
    document,
  );
  if (found === undefined) return undefined;
  const pointer = steps.map((step) => step.replaceAll("~", "~0").replaceAll("/", "~1"));
  return ajv.compile({ $ref: `openapi#/${pointer.map(encodeURIComponent).join("/")}` });
}

function answerSchema(route: string, status: number | "default") {
  const [method = "", pattern = ""] = route.split(" ");
  const place = ["paths", pattern, method.toLowerCase(), "responses", String(status)];
  return schemaAt(...place, "content", "application/json", "schema");
}

function bodySchema(route: string): ValidateFunction | undefined {
  const [method = "", pattern = ""] = route.split(" ");
  const place = ["paths", pattern, method.toLowerCase(), "requestBody"];
  return schemaAt(...place, "content", "application/json", "schema");
}

interface Sent {
  readonly at?: string;
  readonly body?: unknown;
  readonly token?: string | undefined;
  readonly type?: string;
}

type Case = readonly [route: string, expected: number | string, sent?: Sent];

/** Error codes that depend only on the body, so its schema must refuse the body too. */
const badBodies: ReadonlySet<unknown> = new Set(
  words(`
  invalid_body invalid_entry invalid_username invalid_database invalid_role invalid_email
  password_too_short unknown_field missing_field several_operations unknown_operation invalid_name
  invalid_column batch_size wrong_type not_an_object no_operation not_in_batch invalid_type
  invalid_value
`),
);

async function check(
  t: Test,
  gateway: TestGateway,
  [route, expected, { at, body, token, type = "application/json" } = {}]: Case,
): Promise<void> {
  const [method = "", path = ""] = route.split(" ");
  const answer = await gateway.request(at ?? path, {
    method,
    headers: {
      ...(body === undefined ? {} : { "content-type": type }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const what = `${route}: ${expected}`;
  const found = typeof expected === "number" ? answer.status : answer.body.code;
  t.equal(found, expected, `${what} (${answer.text.slice(0, 200)})`);
  const schema = answerSchema(route, answer.status);
  const isAsSaid = schema?.(answer.body) ?? false;
  t.ok(isAsSaid, `${what} is as the document says (${JSON.stringify(schema?.errors)})`);
  const takes = bodySchema(route);
  if (takes === undefined || body === undefined) return;
  if (typeof expected === "number") t.ok(takes(body), `${what} takes ${JSON.stringify(body)}`);
  if (badBodies.has(expected))
    t.notOk(takes(body), `${what} is refused by the schema too: ${JSON.stringify(body)}`);
}

const { gateway, upstream } = await openGatewaySetup(t);
const token = await gateway.login();
const bob = await gateway.addUser("bob", "ReadOnly");

t.test("the document is as the code has it: `npm run docs` was run", (t) => {
  t.equal(text, openApiText());
  t.end();
});

t.test("the document is OpenAPI 3.1 with usable schemas", (t) => {
  const { paths, components } = shape.parse(document);
  for (const name of Object.keys(components.schemas)) {
    t.ok(schemaAt("components", "schemas", name), name);
  }
  for (const [path, item] of Object.entries(paths)) {
    const named = path.match(/(?<=\{)\w+(?=\})/g) ?? [];
    t.strictSame(
      (item.parameters ?? []).map(({ name }) => name),
      named,
      path,
    );
    for (const method of methods) {
      const operation = item[method];
      if (operation === undefined) continue;
      const route = `${method} ${path}`;
      if (operation.requestBody) t.ok(bodySchema(route), `${route} takes a body`);
      for (const [status, { content }] of Object.entries(operation.responses)) {
        const code = status === "default" ? status : Number(status);
        if (content) t.ok(answerSchema(route, code), `${route} answers ${status}`);
      }
    }
  }
  t.end();
});

t.test("the document has every route of the gateway's own, and no other", (t) => {
  const { paths } = shape.parse(document);
  const documented = Object.entries(paths).flatMap(([path, item]) =>
    Object.keys(item)
      .filter((key) => key !== "parameters")
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  const served = routeTable(configurationSchema.parse({})).flatMap(({ pattern, methods }) =>
    Array.from(methods.keys(), (method) => `${method} ${pathOf(pattern)}`),
  );
  t.strictSame(documented.sort(), served.sort());
  const ids = text.match(/(?<=operationId: ").*(?=")/g) ?? [];
  t.equal(new Set(ids).size, served.length, "each has an id of its own");
  t.end();
});

const elsewhere: ReadonlySet<string> = new Set(
  words(`
  not_found method_not_allowed path_not_canonical unknown_parameter insufficient_scope
  expectation_unknown
  token_read_only name_too_wide unknown_member handle_not_found sign_in_refused sign_in_expired key_not_found version_conflict
`),
);

t.test("the document has every error code at one route at least", (t) => {
  const codes = [...Object.keys(refusals), ...Object.keys(queryRefusals)];
  const wrong = codes.filter((code) => text.includes(`"${code}"`) === elsewhere.has(code));
  t.same(wrong, []);
  t.end();
});

const answered = new Set<string>();

async function checkAll(t: Test, cases: readonly Case[], shared: Sent = {}): Promise<void> {
  for (const [route, expected, sent] of cases) {
    await check(t, gateway, [route, expected, { token, ...shared, ...sent }]);
    if (typeof expected === "number") answered.add(route);
  }
}

t.test("login and token routes match the OpenAPI document", async (t) => {
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
  await checkAll(t, [["POST /logout", 200, other]]);
  await checkAll(t, [["POST /logout", "token_revoked", other]]);
});

t.test("user routes match the OpenAPI document", async (t) => {
  const carol = { username: "carol", password: "long enough", role: "ReadOnly" };
  const refused = (change: object): Sent => ({ body: { ...carol, ...change } });
  await checkAll(t, [
    ["POST /api/users", "invalid_username", refused({ username: "a b" })],
    ["POST /api/users", "invalid_role", refused({ role: "owner" })],
    ["POST /api/users", "invalid_email", refused({ email: "" })],
    ["POST /api/users", "invalid_database", refused({ database: "a..b" })],
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
      [`GET ${one}/access`, 200, { at: "/api/users/carol/access?effective=true" }],
      [`GET ${one}/access`, "role_insufficient", { at: "/api/users/carol/access", token: bob }],
      [`GET ${one}/access`, "user_not_found", { at: "/api/users/nobody/access" }],
      [`GET ${one}/access`, "invalid_group", { at: "/api/users/carol/access?groups=x" }],
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

t.test("password and revocation routes match the OpenAPI document", async (t) => {
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

t.test("schema routes match the OpenAPI document", async (t) => {
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

t.test("grant routes match the OpenAPI document", async (t) => {
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
      [`DELETE ${grant}`, "invalid_database", { at: "/api/access/bob/a.b." }],
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
      [`PUT ${inTable}`, "invalid_table", { at: "/api/access/bob/side/.b", body: whole }],
      [`DELETE ${inTable}`, 200],
      [`DELETE ${inTable}`, "grant_not_found"],
      [`DELETE ${inTable}`, "invalid_table", { at: "/api/access/bob/side/*" }],
      [`PUT ${grant}`, 200, { at: "/api/access/bob/main", body: whole }],
    ],
    { at: "/api/access/bob/side/customer_*" },
  );
});

t.test("group routes match the OpenAPI document", async (t) => {
  const group = "/api/groups/{group}";
  const grant = `${group}/access/{database}`;
  const inTable = `${grant}/{table_or_pattern}`;
  const body = { role: "ReadOnly" };
  const members = ["bob", "staff:Zo\u00eb"];
  const at = "/api/groups/analysts/access/side";
  await checkAll(
    t,
    [
      [`PUT ${group}`, 200, { body: { members } }],
      [`PUT ${group}`, "invalid_body", { body: {} }],
      [`PUT ${group}`, "invalid_username", { body: { members: ["a!"] } }],
      [`PUT ${group}`, "user_not_found", { body: { members: ["ghost"] } }],
      [`PUT ${group}`, "role_insufficient", { body: { members }, token: bob }],
      [`PUT ${grant}`, 200, { at, body }],
      [`PUT ${inTable}`, 200, { at: `${at}/t_*`, body }],
      ["GET /api/groups", 200, { at: "/api/groups" }],
      ["GET /api/groups", "role_insufficient", { at: "/api/groups", token: bob }],
      ["GET /api/access", 200, { at: "/api/access" }],
      [`DELETE ${inTable}`, 200, { at: `${at}/t_*` }],
      [`DELETE ${grant}`, 200, { at }],
      [`DELETE ${grant}`, "grant_not_found", { at }],
      [`DELETE ${group}`, 200],
      [`DELETE ${group}`, "group_not_found"],
      [`DELETE ${group}`, "invalid_group", { at: "/api/groups/a:b" }],
    ],
    { at: "/api/groups/analysts" },
  );
});

t.test("approval routes match the OpenAPI document", async (t) => {
  const entry = { role: "ReadWrite", require_approval: ["DELETE"] };
  const body = { Delete: { database: "held", table: "t", where: null } };
  await checkAll(t, [
    ["PUT /api/access/{username}/{database}", 200, { at: "/api/access/bob/held", body: entry }],
    ["POST /query", "approval_required", { body, token: bob }],
    ["POST /query", 202, { body, token: bob }],
  ]);
  t.equal(upstream.take().length, 0);
});

t.test("issued tokens match the OpenAPI document", async (t) => {
  const flags = ["token", "issue", "bob", "--opaque", "--name", "ci"];
  const token = (await runWarm(gateway.home, flags)).stdout.trim();
  const { stdout } = await runWarm(gateway.home, ["token", "list", "--json"]);
  const at = `/api/tokens/${JSON.parse(stdout).tokens[0].id}`;
  await checkAll(t, [
    ["GET /api/me", 200, { token }],
    ["GET /api/tokens", 200, { token }],
    ["DELETE /api/tokens/{id}", 200, { at }],
    ["DELETE /api/tokens/{id}", "token_not_found", { at }],
  ]);
});

t.test("public routes match the OpenAPI document", async (t) => {
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

t.test("every documented success was tested", async (t) => {
  const { paths } = shape.parse(document);
  const successes = Object.entries(paths).flatMap(([path, item]) =>
    methods
      .filter((method) => Object.keys(item[method]?.responses ?? {}).some((s) => s.startsWith("2")))
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  t.strictSame([...answered].sort(), successes.sort());
});

t.test("the readiness failure matches the OpenAPI document", async (t) => {
  upstream.server.close();
  upstream.server.closeAllConnections();
  await eventually("it is seen", async () => (await gateway.request("/readyz")).status === 503);
  await check(t, gateway, ["GET /readyz", "upstream_unreachable"]);
});

t.test("the OpenAPI document refuses every query that the gateway refuses", async (t) => {
  const { gateway, upstream } = await openGatewaySetup(t);
  const token = await gateway.login();
  const bob = await gateway.addUser("bob", "ReadOnly");
  const place = { database: "main", table: "t" };
  const drop = { DropTable: place };
  const where = (condition: unknown) => ({ Delete: { ...place, where: condition } });
  const bad: [string, unknown][] = [
    ["not_an_object", []],
    ["no_operation", {}],
    ["unknown_operation", { Truncate: place }],
    ["several_operations", { DropTable: place, op: "select" }],
    ["missing_field", { DropTable: { database: "main" } }],
    ["missing_field", { Delete: place }],
    ["unknown_field", { DropTable: { ...place, hint: 1 } }],
    ["invalid_name", { DropTable: { ...place, table: "a.b" } }],
    ["wrong_type", { DropTable: { ...place, table: 7 } }],
    ["batch_size", { Batch: [] }],
    ["not_in_batch", { Batch: [{ CreateDatabase: { database: "x" } }] }],
    ["invalid_type", { CreateTable: { ...place, columns: [{ name: "a", type: "int(" }] } }],
    ["invalid_column", where({ column: "a'b", cmp: "=", value: 1 })],
    ["invalid_value", where({ column: "a", cmp: "~", value: 1 })],
    ["invalid_value", { Insert: { ...place, values: [] } }],
  ];
  const cases: [code: string, sent: Sent][] = [
    ...bad.map(([code, body]): [string, Sent] => [code, { body, token }]),
    ["role_insufficient", { body: drop, token: bob }],
    ["batch_member_denied", { body: { Batch: [drop] }, token: bob }],
    ["unauthenticated", { body: drop, token: undefined }],
  ];
  for (const [code, sent] of cases) await check(t, gateway, ["POST /query", code, sent]);
  t.equal(upstream.take().length, 0);
});

t.test("every answer of the engine matches the OpenAPI document", async (t) => {
  const gateway = await startGateway(t);
  const token = await gateway.login();
  const table = { database: "main", table: "customers" };
  const refused = [
    { Insert: { ...table, values: [{ id: 1 }] } },
    { Select: { database: "main", from: "customers", columns: ["nothing"] } },
    { DropTable: { database: "main", table: "nothing" } },
  ].map((query) => JSON.stringify(query));
  const statuses = new Set<number>();
  const asked = new Set<string>();
  for (const body of [...examplesOf(readGuide()).map((example) => example.body), ...refused]) {
    const answer = await gateway.query(body, token);
    const holds = answerSchema("POST /query", answer.status);
    t.ok(holds?.(answer.body), `${body}: ${answer.text}: ${JSON.stringify(holds?.errors)}`);
    statuses.add(answer.status);
    if (answer.status !== 200) continue;
    const [, operation = ""] = /^\s*\{\s*"(\w+)"/.exec(body) ?? [];
    const isOwn = schemaAt("components", "schemas", "Answers", "properties", operation);
    t.ok(isOwn?.(answer.body), `${body}: ${answer.text} is the answer to ${operation}`);
    asked.add(operation);
  }
  t.strictSame([...statuses].sort(), [200, 400, 404, 409]);
  t.strictSame([...asked].sort(), [...operationNames, batchKey].sort());
});

t.test("every query of the grammar matches the OpenAPI document", async (t) => {
  const isQuery = schemaAt("components", "schemas", "Query");
  fc.assert(fc.property(arbitraryQuery, (query) => isQuery?.(query) === true));
  t.pass();
});

const root = path.join(import.meta.dirname, "../..");
const readme = readFileSync(path.join(root, "README.md"), "utf8");
const examples = examplesOf(readGuide());
const place = '"database": "main", "table": "users"';

const right = [
  ...Array.from(readme.matchAll(/^query '(.*)'$/gm), ([, query = ""]) => query),
  ...examples
    .filter(({ answer }) => answer.replace(/\s/g, "").startsWith('{"status":"success"'))
    .map(({ body }) => body),
  `{"Insert": {${place}, "values": [{"a": {"b": [1, null, "x"]}, "c": null, "d": true}]}}`,
];

const wrong = [
  '{"Select": {"from": 5}}',
  '{"Select": {"database": "main", "from": 5, "columns": ["*"]}}',
  '{"Select": {"database": "main", "from": "users", "colums": ["*"]}}',
  '{"Select": {"database": "main", "from": "users", "columns": ["*"], "where": {"column": "a", "cmp": "~", "value": 1}}}',
  `{"Insert": {${place}, "values": {"id": 1}}}`,
  `{"Update": {${place}, "set": {"id": 1}}}`,
  `{"Update": {${place}, "add": {"id": true}, "where": null}}`,
  '{"Truncate": {"table": "users"}}',
  "{}",
];

const use = `
type Done = paths["/query"]["post"]["responses"][200]["content"]["application/json"];
function namesIn(answer: Done): unknown[] {
  if (!("data" in answer) || answer.data === undefined) return [];
  return answer.data.flatMap((row) => (typeof row === "object" && "name" in row ? [row.name] : []));
}
const ids: string[] = Object.values<operations["postQuery"]>({}).map(({ requestBody }) => Object.keys(requestBody.content)[0] ?? "");
// @ts-expect-error no message at all
const nothing: components["schemas"]["McpMessage"] = {};
`;

t.test(
  "generated types accept the documented queries and refuse wrong ones",
  { skip: noClients },
  async (t) => {
    t.ok(right.length > 30, `${right.length} queries are shown`);
    const workplace = new Workplace(t);
    const programs = path.join(workplace.directory, "node_modules/.bin");
    const types = path.join(workplace.directory, "openapi.d.ts");
    await workplace.run(path.join(programs, "openapi-typescript"), [
      path.join(root, "docs/openapi.yaml"),
      "--output",
      types,
    ]);
    t.notMatch(readFileSync(types, "utf8"), /\| unknown\b(?!\[\])/, "no type takes whatever comes");
    const lines = [
      'import type { components, operations, paths } from "./openapi.d.ts";',
      'type Query = components["schemas"]["Query"];',
      ...right.map((query, at) => `export const right${at}: Query = ${query};`),
      ...wrong.flatMap((query, at) => [
        "// @ts-expect-error",
        `export const wrong${at}: Query = ${query};`,
      ]),
      'type Answers = components["schemas"]["Answers"];',
      ...examples
        .filter(({ answer }) => answer.replace(/\s/g, "").startsWith('{"status":"success"'))
        .flatMap(({ body, answer }, at) => [
          `export const answer${at}: Done = ${answer};`,
          `export const own${at}: Answers[keyof (typeof asked${at}) & keyof Answers] = ${answer};`,
          `declare const asked${at}: { ${/\w+/.exec(body)?.[0]}: unknown };`,
        ]),
      use,
    ];
    const program = path.join(workplace.directory, "program.ts");
    writeFileSync(program, lines.join("\n"));
    const settings = "--strict --noEmit --exactOptionalPropertyTypes --module nodenext";
    const flags = `${settings} --allowImportingTsExtensions --skipLibCheck ${program}`.split(" ");
    const found = await workplace.run(path.join(programs, "tsc"), flags).catch(String);
    t.equal(found, "", "the program has the types that it should");
  },
);
