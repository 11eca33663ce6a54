/**
 * Records what users see of a gateway: status, headers and body of about 500 requests (queries,
 * administration, MCP, OAuth, console), the output of commands, and the audit. Times, ports, tokens and ids
 * are masked, so two recordings of the same behavior are equal. To compare an earlier checkout with this one:
 *
 * `node bench/session.ts --root ../before > before.txt; node bench/session.ts > after.txt; diff before.txt after.txt`
 */

import path from "node:path";
import { parseArgs } from "node:util";
import { ask, ConsoleClient } from "../test/console/kit.ts";
import { freePort } from "../test/kit/free-port.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome } from "../test/kit/gateway.ts";
import { projectRoot, runCommand } from "../test/kit/process.ts";

const { values: flags } = parseArgs({
  options: { root: { type: "string", default: projectRoot } },
});
const root = path.resolve(flags.root);
const closing: (() => unknown)[] = [];
const owner = { teardown: (close: () => unknown) => void closing.push(close) };

const home = temporaryHome(owner);
const consoleUrl = `http://127.0.0.1:${await freePort()}`;
const config = `[mcp]\nenabled = true\n[console]\nlisten = "${consoleUrl.slice(7)}"\n`;
const gateway = await startGateway(owner, { home, config, root });
const { url } = gateway;

const masks: readonly (readonly [RegExp, string])[] = [
  [/127\.0\.0\.1(:|%3A)\d{4,5}/g, "HOST"],
  [/eyJ[\w-]+\.[\w-]+\.[\w-]+/g, "TOKEN"],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "TIME"],
  [/\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?|\d\d:\d\d:\d\d UTC/g, "TIME"],
  [/expires=[^;]+GMT/g, "expires=TIME"],
  [/\b\d+ seconds?\b|\b\d+ms/g, "SECONDS"],
  [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "UUID"],
  [/\b[0-9a-f]{32,64}\b|\b[0-9a-f]{12}\b|\b[\w-]{43}\b/g, "ID"],
  [/\b[\w-]{21,22}\b(?=")/g, "ID"],
  [/"(client_id_issued_at|iat|exp|expires_in|ms|bytes|upstreamMs)":[\d.]+/g, '"$1":N'],
  [/"(id|approval|version|etag)":"[\w-]{10,}"/g, '"$1":"ID"'],
  [/ class="long"/g, ""],
  // Revocations within the same second have the same effect.
  [/revocations \(\d\)/g, "revocations (N)"],
];

function masked(text: string): string {
  const placed = text.replaceAll(home, "HOME").replaceAll(root, "ROOT");
  return masks.reduce((left, [pattern, mask]) => left.replace(pattern, mask), placed);
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** Prints a response without its framing, which depends on timing. */
function record(title: string, answer: { status: number; headers: Headers; text: string }): void {
  const { date, "content-length": _, "transfer-encoding": __, ...headers } = answer.headers;
  const { "set-cookie": cookies, "x-request-id": ___, ...plain } = headers;
  const lines = Object.entries(plain).map(([name, value]) => `${name}: ${value}`);
  const names = [cookies ?? []].flat().map((line) => `set-cookie: ${line.replace(/=[^;]+/, "=")}`);
  const body = answer.text.replaceAll("><", ">\n<").replace(/name="csrf" value="[^"]+"/g, "");
  console.log(masked([`## ${title}`, answer.status, ...lines.sort(), ...names, body].join("\n")));
}

const json = { "content-type": "application/json" };

async function send(method: string, path: string, body = "", headers = {}): Promise<string> {
  const answer = await ask(`${url}${path}`, { method, headers, body });
  record(`${method} ${path} ${body.slice(0, 200)}`, answer);
  return answer.text;
}

async function login(username: string, password: string): Promise<string> {
  const answer = await send("POST", "/login", JSON.stringify({ username, password }), json);
  return String(JSON.parse(answer).token);
}

const bearing = (token: string) => ({ ...json, authorization: `Bearer ${token}` });

async function api(token: string, method: string, path: string, content?: unknown) {
  const body = typeof content === "string" ? content : JSON.stringify(content);
  await send(method, path, body, bearing(token));
}

for (const path of ["/", "/healthz", "/readyz", "/nope", "/query", "/openapi.json", "/api/users"]) {
  await send("GET", path);
}
for (const path of ["/healthz", "/logout", "/query"]) await send("POST", path);
const wellKnown = ["oauth-protected-resource/mcp", "oauth-authorization-server", "jwks.json"];
for (const name of wellKnown) await send("GET", `/.well-known/${name}`);
await send("OPTIONS", "/query");
for (const body of ["{", '{"username":"admin","password":"x"}', '{"username":"a","zz":1}']) {
  await send("POST", "/login", body, json);
}

let admin = await login("admin", ADMIN_PASSWORD);
const user = { password: "abcdefgh", role: "ReadOnly", database: "main" };
const users = [
  { ...user, username: "rita", role: "ReadWrite" },
  { ...user, username: "ron" },
  { ...user, username: "ron" },
  { ...user, username: "x y" },
  { ...user, username: "short", password: "a" },
  { ...user, username: "mail", email: "x\u0001" },
  { ...user, username: "role", role: "Nope" },
  { ...user, username: "more", zz: 1 },
];
for (const each of users) await api(admin, "POST", "/api/users", each);
const rita = await login("rita", user.password);
const ron = await login("ron", user.password);
const views = [
  "users",
  "users?limit=1",
  "users?limit=0",
  "users/rita",
  "users/none",
  "access",
  "keys",
];
for (const view of [...views, "access/rita", "access/rita/main", "account", "approvals", "audit"]) {
  for (const token of [admin, ron]) await api(token, "GET", `/api/${view}`);
}

const at = { database: "main", table: "t" };
const from = { database: "main", from: "t" };
const pin = (id: number) => ({ where: { column: "id", cmp: "=", value: id } });
const byId = { order_by: [{ column: "id", direction: "ASC" }] };
const columns = [
  { name: "id", type: "int", primary_key: true },
  ...["name text", "n numeric(10,2)", "tenant text", "at timestamp"].map((words) => {
    const [name, type] = words.split(" ");
    return { name, type };
  }),
];
const reference = { name: "t_id", type: "int", references: { table: "t", column: "id" } };
const rows = '{"id":1,"name":"a","n":1.50,"tenant":"x"},{"id":9007199254740993,"name":"b"}';
const joined = { join: { table: "o", on: "t.id = o.t_id", join_type: "LEFT" } };
const queries = [
  { CreateTable: { ...at, columns } },
  { CreateTable: { ...at, columns } },
  { CreateTable: { ...at, table: "o", columns: [columns[0], reference] } },
  `{"Insert":{"database":"main","table":"t","values":[${rows}]}}`,
  { Insert: { ...at, values: [{ id: 1 }] } },
  { Insert: { ...at, values: [{ zz: 1 }] } },
  { Insert: { ...at, table: "o", values: [{ id: 1, t_id: 99 }] } },
  { Insert: { ...at, values: [{ id: 4, name: "d", tenant: "x" }], returning: ["id", "name"] } },
  { Upsert: { ...at, values: [{ id: 4, name: "dd" }], on_conflict: ["id"], update: ["name"] } },
  { Select: { ...from, columns: ["*"], ...byId } },
  { Select: { ...from, columns: ["id"], ...pin(1), limit: 1 } },
  { Select: { ...from, columns: ["id"], ...byId, after: [1], limit: 2 } },
  { Select: { ...from, columns: ["t.id", "o.id"], ...joined } },
  { Select: { ...from, group_by: ["tenant"], aggregate: [{ fn: "sum", column: "n", as: "s" }] } },
  ...["nope", "MAIN"].map((database) => ({ Select: { ...from, database, columns: ["*"] } })),
  ...[["nope"], []].map((named) => ({ Select: { ...from, columns: named } })),
  ...[{ limit: -1 }, { zz: 1 }, { from: "nope" }].map((odd) => {
    return { Select: { ...from, columns: ["id"], ...odd } };
  }),
  { Update: { ...at, set: { name: "z" }, ...pin(1) } },
  { Update: { ...at, add: { n: 1 }, ...pin(1), returning: ["n"] } },
  { Update: { ...at, set: {} } },
  { Preview: { Delete: { ...at, ...pin(1) } } },
  { Delete: { ...at, ...pin(4) } },
  { Delete: at },
  { Batch: [{ Select: { ...from, columns: ["id"] } }, { Insert: { ...at, values: [{ id: 5 }] } }] },
  {
    Batch: [{ Insert: { ...at, values: [{ id: 6 }] } }, { Insert: { ...at, values: [{ id: 5 }] } }],
  },
  ...["CreateDatabase", "CreateDatabase", "DropDatabase"].map((name) => {
    return { [name]: { database: "shop" } };
  }),
  { DropDatabase: { database: "main" } },
  "",
  "{",
  "{}",
  "[]",
  "null",
  '{"Selekt":{}}',
  '{"Batch":[]}',
  "[".repeat(100),
  '{"Select":{"database":"main","database":"x","from":"t","columns":["*"]}}',
  "\ufeff{}",
];
for (const token of [admin, ron, "x.y.z"]) {
  for (const query of queries) await api(token, "POST", "/query", query);
}
const selection = JSON.stringify(queries[9]);
for (const accept of ["text/csv", "application/x-ndjson", "text/xml"]) {
  await send("POST", "/query", selection, { ...bearing(admin), accept });
}
await send("POST", "/query", selection, { ...bearing(admin), "content-type": "text/plain" });
await send("POST", "/query", selection, { ...bearing(admin), "content-encoding": "gzip" });
for (const path of ["/schema", "/schema/main", "/schema/main/t", "/schema/none"]) {
  for (const token of [admin, ron]) await api(token, "GET", path);
}

const narrowings = [
  {},
  { columns: ["id", "name"] },
  { row_filter: [{ column: "tenant", cmp: "=", value: "x" }] },
  { max_limit: 2 },
  { max_changes: 1 },
  { require_where: ["id"] },
  { expires: "2020-01-01" },
  { role: "Nope" },
  { zz: 1 },
];
for (const narrowing of narrowings) {
  const entry = { role: "ReadWrite", ...narrowing };
  for (const path of ["main", "main/t"]) await api(admin, "PUT", `/api/access/ron/${path}`, entry);
  for (const query of queries.slice(9, 29)) await api(ron, "POST", "/query", query);
  await api(admin, "PATCH", "/api/access/ron/main", { role: "ReadOnly" });
  await api(admin, "DELETE", "/api/access/ron/main/t");
  await api(admin, "PUT", "/api/access/ron/main", { role: "ReadOnly" });
}
const changes: readonly (readonly [method: string, path: string, body?: unknown])[] = [
  ["PATCH", "users/ron", { email: "a@b.c" }],
  ["PATCH", "users/ron", {}],
  ["PATCH", "users/ron", { disabled: true }],
  ["PATCH", "users/ron", { disabled: false }],
  ["PUT", "users/ron/password", { password: "new password" }],
  ["DELETE", "users/ron/tokens", {}],
  ["DELETE", "users/admin"],
  ["DELETE", "access/admin/*"],
  ["PUT", "access/rita/MAIN", { role: "ReadOnly" }],
  ["PUT", "access/none/main", { role: "ReadOnly" }],
  ["POST", "keys/rotate", {}],
];
for (const [method, path, body] of changes) await api(admin, method, `/api/${path}`, body);
admin = await login("admin", ADMIN_PASSWORD);

const streamed = { accept: "application/json, text/event-stream" };
const revision = { ...streamed, "mcp-protocol-version": "2025-06-18" };
async function mcp(token: string, method: string, params: object): Promise<void> {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  await send("POST", "/mcp", body, { ...bearing(token), ...revision });
}
const select = { ...from, columns: ["*"] };
const calls: readonly (readonly [name: string, args: unknown])[] = [
  ["whoami", {}],
  ["list_databases", {}],
  ["list_tables", { database: "main" }],
  ["describe_table", at],
  ["describe_table", { ...at, table: "zz" }],
  ["select", select],
  ["select", { ...select, columns: ["zz"] }],
  ["select", { database: "main" }],
  ["select", 5],
  ["insert", { ...at, values: [{ id: 50 }], returning: ["id"] }],
  ["insert", { ...at, values: [{ id: 50 }] }],
  ["update", { ...at, set: { name: "q" }, ...pin(50) }],
  ["preview", { Delete: { ...at, ...pin(50) } }],
  ["delete", { ...at, ...pin(50) }],
  ["batch", { operations: [{ Select: { ...from, columns: ["id"] } }] }],
  ["create_database", { database: "mm" }],
  ["drop_database", { database: "mm" }],
  ["nope", {}],
];
await send("POST", "/mcp", "{}", { ...json, ...streamed });
for (const token of [admin, rita]) {
  const client = { capabilities: {}, clientInfo: { name: "c", version: "1" } };
  await mcp(token, "initialize", { protocolVersion: "2025-06-18", ...client });
  for (const method of ["tools/list", "resources/list", "ping", "nope"])
    await mcp(token, method, {});
  for (const [name, args] of calls) await mcp(token, "tools/call", { name, arguments: args });
}
const twice = '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}';
for (const body of ["", "[]", '{"jsonrpc":"1.0"}', twice]) {
  await send("POST", "/mcp", body, { ...bearing(admin), ...revision });
}

const registered = JSON.parse(
  await send("POST", "/oauth/register", '{"redirect_uris":["http://127.0.0.1:9/cb"]}', json),
);
for (const body of ["{}", "{", '{"redirect_uris":["http://evil.example/cb"]}']) {
  await send("POST", "/oauth/register", body, json);
}
const client = `client_id=${registered.client_id}`;
const challenge = `code_challenge=${"a".repeat(43)}&code_challenge_method=S256`;
const asking = `${client}&response_type=code&redirect_uri=http://127.0.0.1:9/cb`;
for (const search of [client, asking, `${asking}&${challenge}&resource=${url}/mcp`]) {
  await send("GET", `/oauth/authorize?${search}`);
}
const form = { "content-type": "application/x-www-form-urlencoded" };
for (const body of ["grant_type=password", `grant_type=refresh_token&${client}&refresh_token=x`]) {
  await send("POST", "/oauth/token", body, form);
}
await send("POST", "/oauth/revoke", `token=x&${client}`, form);

const visitor = new ConsoleClient(consoleUrl);
async function get(path: string): Promise<string> {
  const answer = await visitor.get(path);
  record(`console ${path}`, answer);
  return answer.text;
}
async function post(path: string, fields: Record<string, string>): Promise<void> {
  record(`console ${path} ${JSON.stringify(fields)}`, await visitor.post(path, fields));
}
for (const path of ["/", "/sign-in", "/style.css", "/nope"]) await get(path);
await post("/sign-in", { username: "admin", password: "wrong", next: "/" });
await visitor.signIn();
const checked = "/access/check?user=rita&operation=Select&database=main&table=t";
const pages = new Set(["/", "/overview", "/access/new", "/access/entry?user=rita", checked]);
for (const search of ["user=rita", "since=zz", "decision=deny"]) pages.add(`/audit?${search}`);
for (const path of pages) {
  const text = await get(path);
  for (const [, link = ""] of text.matchAll(/href="(\/[^"#]*)"/g)) {
    const isOfTime = /after=|before=|request=|\d{10}/.test(link);
    if (!isOfTime && pages.size < 90) pages.add(link.replaceAll("&amp;", "&"));
  }
}
const forms: readonly (readonly [path: string, fields: Record<string, string>])[] = [
  ["/access/new", { username: "con1", role: "ReadOnly", database: "main" }],
  ["/access/new", { username: "con 1" }],
  ["/access/act", { user: "con1", action: "disable" }],
  ["/access/act", {}],
  ["/access/entry", { user: "con1", database: "main", role: "ReadWrite" }],
  ["/access/entry", { user: "rita", database: "main", role: "ReadOnly", columns: "id name" }],
  ["/access/entry", { user: "rita", database: "main", role: "Nope" }],
  ["/access/end", { user: "rita", database: "main" }],
  ["/access/end", {}],
  ["/sessions/end", { id: "x" }],
  ["/sessions/end-all", {}],
];
for (const [path, fields] of forms) await post(path, fields);
await visitor.signIn("rita", user.password);
for (const path of ["/", "/access", "/audit", "/sessions", "/state"]) await get(path);

const commands = `user list,user list --json,user add cli --no-password,user add cli --no-password,access list,
access list --json,access grant cli main ReadOnly,access grant cli main Nope,access show cli,access who main,
access check cli Select main,access explain cli main,access lint,access history,access revoke cli main,
user disable cli,user remove cli,user zz,token list,token issue rita,key list,audit --limit 3,config check,
config show,approvals list,upstream zz,nope,--version,--help`;
for (const command of commands.split(/,\s*/)) {
  const { code, stdout, stderr } = await runCommand(home, command.split(" "), { root });
  console.log(masked(`## gatehouse ${command}\n${stdout}${stderr}[exit ${code}]`));
}
await gateway.service.stop();
const audited = gateway.service.log.filter(({ audit }) => audit === true);
for (const { time, requestId, ...line } of audited) console.log(masked(JSON.stringify(line)));
for (const close of closing.reverse()) await close();
