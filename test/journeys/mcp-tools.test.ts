import { once } from "node:events";
import { connect, type Socket } from "node:net";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf, startGateway, type TestGateway } from "../kit/gateway.ts";
import { columnsOf } from "../kit/queries.ts";
import { wireRequest } from "../kit/wire.ts";
import { type AnyClient, connectEarlier, connectStateless } from "../mcp/clients.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { callTool, checkDenied, malformed, refusalOf, send } from "./mcp.ts";
import { staffedHome, succeed, tokenOf } from "./staff.ts";

const roles = {
  owner: "Owner",
  dbadmin: "DbAdmin",
  writer: "ReadWrite",
  reader: "ReadOnly",
};

const grants = [
  "root * Owner",
  "stranger elsewhere ReadOnly",
  ...Object.entries(roles).map(([name, role]) => `${name} main ${role}`),
];

const database = "main";

const columns = columnsOf({ id: "int", note: "text" });

async function openTables(t: Test): Promise<{ gateway: TestGateway; root: string }> {
  const gateway = await startGateway(t, { home: await staffedHome(t, grants) });
  const root = await tokenOf(gateway, "root");
  await gateway.query({ CreateDatabase: { database } }, root);
  await gateway.query({ CreateTable: { database, table: "t", columns } }, root);
  return { gateway, root };
}

const kept = await openTables(t);
const { gateway } = kept;

const changing = await openTables(t);

let number = 0;

type Operation = [tool: string, key: string, of: (number: number) => Record<string, unknown>];

const place = { database, table: "t" };
const upsert = { ...place, on_conflict: ["id"], update: [] };
const operations: readonly Operation[] = [
  ["select", "Select", () => ({ database, from: "t", columns: ["*"] })],
  ["insert", "Insert", (id) => ({ ...place, values: [{ id }] })],
  ["update", "Update", (n) => ({ ...place, set: { note: `${n}` }, where: null })],
  ["delete", "Delete", (n) => ({ ...place, where: { column: "id", cmp: "=", value: n - 1 } })],
  ["create_table", "CreateTable", (n) => ({ database, table: `made_${n}`, columns })],
  ["upsert", "Upsert", (id) => ({ ...upsert, values: [{ id }] })],
  ["preview", "Preview", () => ({ Delete: { ...place, where: null } })],
  ["drop_table", "DropTable", (n) => ({ database, table: `spare_${n}` })],
];

const clients = [
  ["a client of 2026-07-28", connectStateless],
  ["a client that begins by a handshake", connectEarlier],
] as const;

async function compare(
  t: Test,
  { gateway, mcp, token }: { gateway: TestGateway; mcp: AnyClient; token: string },
  [tool, key, of]: Operation,
  number: number,
): Promise<void> {
  const query = await gateway.query({ [key]: of(number) }, token);
  const call = await mcp.call(tool, of(number + 1));
  t.equal(call.isError, query.status !== 200, `${key}: ${query.status}`);
  if (query.status === 200) return;
  t.ok(call.text.startsWith(`Denied: ${query.body.message}; whoami lists `), call.text);
  t.ok(call.text.endsWith(` (${query.body.code})`), call.text);
}

t.test("a caller has the same rights with tools as with queries", async (t) => {
  const { gateway, root } = changing;
  for (const name of [...Object.keys(roles), "stranger", "root"]) {
    const token = await tokenOf(gateway, name);
    const mcp = await connectStateless(t, `${gateway.url}/mcp`, token);
    await t.test(`${name} has the same rights with each operation`, async (t) => {
      for (const operation of operations) {
        number += 2;
        for (const spare of [number, number + 1]) {
          const table = `spare_${spare}`;
          await gateway.query({ CreateTable: { database, table, columns } }, root);
        }
        await compare(t, { gateway, mcp, token }, operation, number);
      }
    });
  }
});

for (const [client, connect] of clients) {
  t.test(`${client} gets a list of the tools that its role can use`, async (t) => {
    const reading = [
      "describe_table",
      "list_databases",
      "list_tables",
      "select",
      "batch",
      "count",
      "whoami",
    ];
    const writing = [...reading, "delete", "insert", "preview", "update", "upsert"];
    const everything = [...writing, "create_table", "drop_table"];
    const expected = {
      owner: everything,
      dbadmin: everything,
      root: everything,
      writer: writing,
      reader: reading,
      stranger: reading,
    };
    for (const [name, tools] of Object.entries(expected)) {
      const mcp = await connect(t, `${gateway.url}/mcp`, await tokenOf(gateway, name));
      t.strictSame((await mcp.toolNames()).toSorted(), tools.toSorted(), name);
    }
  });
}

t.test("a caller sees only the schema that its role may read", async (t) => {
  const reader = await connectStateless(t, `${gateway.url}/mcp`, await tokenOf(gateway, "reader"));
  t.strictSame((await reader.call("list_databases", {})).structured, { databases: ["main"] });
  t.strictSame((await reader.call("list_tables", { database })).structured, { tables: ["t"] });
  t.strictSame(await reader.resourceUris(), ["gatehouse:///main/t"]);
  const read = JSON.parse(await reader.read("gatehouse:///main/t"));
  t.match(read, { columns: [{ name: "id" }, {}] });
  const stranger = await connectStateless(
    t,
    `${gateway.url}/mcp`,
    await tokenOf(gateway, "stranger"),
  );
  t.strictSame((await stranger.call("list_databases", {})).structured, { databases: [] });
  const denied =
    "Denied: Insufficient permissions for this operation; whoami lists the databases that you may use (no_grant)";
  t.equal((await stranger.call("list_tables", { database })).text, denied);
  t.equal((await stranger.call("list_tables", { database: "missing" })).text, denied);
  t.strictSame(await stranger.resourceUris(), []);
  await t.rejects(stranger.read("gatehouse:///main/t"), /Insufficient permissions/);
});

t.test("the audit records the caller, the operation and the granting entry", async (t) => {
  const token = await tokenOf(gateway, "reader");
  const { jti: tokenId } = decodePart(token, 1);
  const who = { user: "reader", tokenId, path: "/mcp", method: "POST", status: 200 };
  const select = { database, from: "t", columns: ["*"] };
  t.match(await auditOf(gateway, await callTool(gateway, "select", select, token)), {
    ...who,
    decision: "allow",
    operations: [{ operation: "Select", database, tables: ["t"], role: "ReadOnly", entry: "main" }],
  });
  const insert = { database, table: "t", values: [{ id: 1, note: "a secret" }] };
  const denied = await callTool(gateway, "insert", insert, token);
  t.equal(denied.headers.get("x-gatehouse-decision"), "deny");
  t.match(await auditOf(gateway, denied), {
    ...who,
    decision: "deny",
    reason: "role_insufficient",
    operations: [{ operation: "Insert", database, tables: ["t"] }],
  });
  const describe = { database: "elsewhere", table: "t" };
  t.match(await auditOf(gateway, await callTool(gateway, "describe_table", describe, token)), {
    ...who,
    decision: "deny",
    reason: "no_grant",
    operations: [{ operation: "DescribeTable", database: "elsewhere", tables: ["t"] }],
  });
  const list = statelessCall("tools/list");
  t.match(await auditOf(gateway, await send(gateway, list, token)), { ...who, operations: [] });
  const bad = await send(gateway, { ...list, body: `[${list.body}]` }, token);
  t.match(await auditOf(gateway, bad), { user: "reader", decision: "deny", status: 400 });
  t.notMatch(gateway.service.output, /a secret/);
  t.notMatch(gateway.service.output, token);
});

t.test("every refusal of the embedded server has its reason in header and audit", async (t) => {
  const { gateway, root } = kept;
  const token = await tokenOf(gateway, "reader");
  for (const [reason, request] of Object.entries(malformed)) {
    await checkDenied(t, gateway, await send(gateway, request, token), reason);
  }
  const select = { database, from: "t", columns: ["*"] };
  const refused: [reason: string, name: string, args: object][] = [
    ["unknown_tool", "run_statement", {}],
    ["missing_field", "select", {}],
    ["invalid_value", "select", { ...select, limit: 1.5 }],
    ["invalid_column", "select", { ...select, columns: ["other.id"] }],
    ["role_insufficient", "insert", { database, table: "t", values: [{ id: 1 }] }],
    ["no_grant", "select", { ...select, database: "elsewhere" }],
    ["no_grant", "count", { database: "elsewhere", from: "t" }],
    ["unknown_field", "count", { database, from: "t", columns: ["*"] }],
    ["missing_field", "batch", {}],
    ["batch_member_denied", "batch", { operations: [{ DropTable: { database, table: "t" } }] }],
    ["unknown_field", "whoami", { user: "root" }],
    ["no_grant", "list_tables", { database: "elsewhere" }],
  ];
  for (const [reason, name, args] of refused) {
    const params = { name, arguments: args };
    for (const call of [statelessCall("tools/call", params), handshakeCall("tools/call", params)]) {
      await checkDenied(t, gateway, await send(gateway, call, token), reason);
    }
  }
  const read = statelessCall("resources/read", { uri: "gatehouse:///elsewhere/t" });
  await checkDenied(t, gateway, await send(gateway, read, token), "no_grant");
  const prompts = statelessCall("prompts/list");
  await checkDenied(t, gateway, await send(gateway, prompts, token), "method_not_found");
  const got = await send(gateway, { method: "GET" }, token);
  await checkDenied(t, gateway, got, "method_not_allowed");
  t.match(await auditOf(gateway, got), { status: 405, toolStatus: undefined });

  const served = [initialize, statelessCall("tools/list"), handshakeCall("tools/list")];
  const missing = { name: "select", arguments: { ...select, from: "missing" } };
  for (const call of [...served, statelessCall("tools/call", missing)]) {
    const answer = await send(gateway, call, root);
    t.equal(answer.headers.get("x-gatehouse-decision"), "allow", call.body);
    t.match(await auditOf(gateway, answer), { decision: "allow", reason: undefined });
  }
});

t.test("a token for one database is refused for others by every tool", async (t) => {
  const token = await tokenOf(gateway, "root", "main");
  const select = (name: string) => ({ database: name, from: "t", columns: ["*"] });
  t.equal(refusalOf(await callTool(gateway, "select", select("main"), token)), undefined);
  const answer = await callTool(gateway, "select", select("elsewhere"), token);
  t.equal(refusalOf(answer), "token_database");
  const tables = await callTool(gateway, "list_tables", { database: "elsewhere" }, token);
  t.equal(refusalOf(tables), "token_database");
});

t.test("whoami shows the caller, its rights and its limits", async (t) => {
  const tell = async (token: string) => {
    const mcp = await connectStateless(t, `${gateway.url}/mcp`, token);
    return (await mcp.call("whoami", {})).structured;
  };
  const reader = await tell(await tokenOf(gateway, "reader"));
  t.match(reader, {
    user: "reader",
    token_expires: /^\d{4}-\d\d-\d\dT.*Z$/,
    scopes: ["mcp:tools", "mcp:resources"],
    limits: { rows: 500, result_bytes: 1048576, message_bytes: 1048576, seconds: 30 },
  });
  t.strictSame(reader?.access, [{ database: "main", role: "ReadOnly", rights: ["SELECT"] }]);
  const root = await tell(await tokenOf(gateway, "root", "main"));
  const changing = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"];
  const rights = [...changing, "CREATE DATABASE", "DROP DATABASE"];
  t.strictSame(root?.access, [{ database: "main", role: "Owner", rights }]);
});

t.test("whoami shows the limits of entries and boundaries", async (t) => {
  const more = `
[[acl]]
username = "clerk"
database = "main"
role = "ReadWrite"
tables = ["t", "shop_*"]
writable_columns = ["note"]
row_filter = [{ column = "id", cmp = "<", value = 9007199254740993 }]
max_rows = 5
approvers = ["root"]
require_approval = ["DELETE"]
expires = 2999-01-01T00:00:00Z

${grant("clerk", "main", "ReadOnly", "expires = 2020-01-01T00:00:00Z")}
[[boundaries]]
via = "mcp"
username = "root"
role = "ReadOnly"

[[boundaries]]
via = "mcp"
database = "shop"
max_rows = 7
rate_limit = "60/min"
`;
  const ofGroup =
    '[[groups]]\nname = "desk"\nmembers = ["clerk"]\n\n[[acl]]\ngroup = "desk"\ndatabase = "pool"\nrole = "ReadOnly"\nmax_rows = 3\n';
  const staff = ["root * Owner", "clerk elsewhere ReadOnly"];
  const home = await staffedHome(t, staff, more + ofGroup);
  const gateway = await startGateway(t, { home });
  const accessOf = async (name: string) => {
    const mcp = await connectStateless(t, `${gateway.url}/mcp`, await tokenOf(gateway, name));
    return (await mcp.call("whoami", {})).structured?.access;
  };
  t.strictSame(await accessOf("clerk"), [
    { database: "elsewhere", role: "ReadOnly", rights: ["SELECT"] },
    {
      database: "main",
      role: "ReadWrite",
      tables: ["t", "shop_*"],
      writable_columns: ["note"],
      row_filter: [{ column: "id", cmp: "<", value: "9007199254740993" }],
      max_rows: 5,
      require_approval: ["DELETE"],
      expires: "2999-01-01T00:00:00.000Z",
      rights: ["SELECT", "INSERT", "UPDATE", "DELETE"],
    },
    { database: "main", role: "None", expires: "2020-01-01T00:00:00.000Z", rights: [] },
    { database: "pool", role: "ReadOnly", max_rows: 3, rights: ["SELECT"] },
  ]);
  const root = { database: "*", role: "Owner", rights: ["SELECT"] };
  const boundaries = [
    { boundary: "mcp username=root", role: "ReadOnly" },
    { boundary: "mcp database=shop", max_rows: 7, rate_limit: "60/min" },
  ];
  t.strictSame(await accessOf("root"), [{ ...root, boundaries }]);
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, await tokenOf(gateway, "root"));
  const listed = (await mcp.toolNames()).toSorted();
  const reading = ["batch", "count", "describe_table", "list_databases", "list_tables", "select"];
  t.strictSame(listed, [...reading, "whoami"], "no tool that the boundary makes useless is listed");
});

t.test("a caller with a row limit can read all rows page by page", async (t) => {
  const more = `
${grant("clerk", "main", "ReadOnly", 'tables = ["t"]\nmax_rows = 3')}
`;
  const home = await staffedHome(t, ["root * Owner", "clerk elsewhere ReadOnly"], more);
  const gateway = await startGateway(t, { home });
  const root = await tokenOf(gateway, "root");
  await gateway.query({ CreateTable: { database, table: "t", columns } }, root);
  const values = [1, 2, 3, 4, 5, 6, 7].map((id) => ({ id }));
  await gateway.query({ Insert: { database, table: "t", values } }, root);
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, await tokenOf(gateway, "clerk"));
  const select = { database, from: "t", columns: ["id"], order_by: { column: "id" } };
  for (const limit of [{}, { limit: 3 }]) {
    const ids: unknown[] = [];
    let cursor: object | undefined = {};
    while (cursor !== undefined) {
      const { structured = {} } = await mcp.call("select", { ...select, ...limit, ...cursor });
      for (const { id } of Object(structured.rows ?? [])) ids.push(id);
      cursor = structured.truncated === true ? { after: structured.next_after } : undefined;
    }
    t.strictSame(ids, [1, 2, 3, 4, 5, 6, 7]);
  }
  t.match((await mcp.call("select", { ...select, limit: 2 })).structured, { truncated: true });
  const high = await mcp.call("select", { ...select, limit: 4 });
  t.match(high, { isError: true, text: /lower the limit.*\(limit_too_high\)$/ });
});

const mebibyte = 1024 * 1024;
const config = `[server]
max_buffered_bytes = ${30 * mebibyte}

[mcp]
result_bytes = ${16 * mebibyte}
`;
const select = { database: "main", from: "files", columns: ["*"], order_by: { column: "id" } };

/** Inserts rows of a mebibyte, more than the buffers of a connection hold. */
async function fill(gateway: TestGateway, token: string): Promise<void> {
  const files = { database: "main", table: "files" };
  await gateway.query({ CreateTable: { ...files, columns } }, token);
  for (let id = 0; id < 15; id++) {
    const values = [{ id, note: "x".repeat(mebibyte - 1024) }];
    await succeed(gateway.query({ Insert: { ...files, values } }, token));
  }
}

async function stall(gateway: TestGateway, token: string): Promise<Socket> {
  const { host, port } = new URL(gateway.url);
  const socket = connect(Number(port), "127.0.0.1");
  const { headers, body } = statelessCall("tools/call", { name: "select", arguments: select });
  const fields = { ...headers, Host: host, authorization: `Bearer ${token}` };
  socket.write(wireRequest("POST /mcp", fields, body));
  await once(socket, "readable");
  return socket;
}

t.test("results that a user does not read count against its share of memory", async (t) => {
  const gateway = await startGateway(t, { config });
  const alice = await gateway.addUser("alice", "ReadWrite");
  const owner = await gateway.login();
  await fill(gateway, owner);
  const stalled = await stall(gateway, alice);
  t.teardown(() => stalled.destroy());
  t.equal(refusalOf(await callTool(gateway, "select", select, alice)), "busy", "no second one");
  const few = { ...select, columns: ["id"] };
  t.equal(refusalOf(await callTool(gateway, "select", few, owner)), undefined, "others are served");
  stalled.destroy();
  await eventually("the room is given back", async () => {
    return refusalOf(await callTool(gateway, "select", select, alice)) === undefined;
  });
});
