import t from "tap";
import { decodePart } from "../identity/forge.ts";
import { auditOf, startGateway } from "../kit/gateway.ts";
import { connectStateless } from "../mcp/clients.ts";
import { handshakeCall, initialize, statelessCall } from "../mcp/messages.ts";
import { callTool, checkDenied, malformed, refusalOf, send, textOf } from "./mcp.ts";
import { columns, database, open } from "./mcp-tables.ts";
import { textOf as fileOf, putInForce, soon, staffedHome, tokenOf } from "./staff.ts";

const kept = await open(t);

t.test("the audit says who called what, and by which right", async (t) => {
  const { gateway } = kept;
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

t.test("whatever the embedded server refuses is said to be denied, and why", async (t) => {
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
  await checkDenied(
    t,
    gateway,
    await send(gateway, { method: "GET" }, token),
    "method_not_allowed",
  );

  const served = [initialize, statelessCall("tools/list"), handshakeCall("tools/list")];
  const missing = { name: "select", arguments: { ...select, from: "missing" } };
  for (const call of [...served, statelessCall("tools/call", missing)]) {
    const answer = await send(gateway, call, root);
    t.equal(answer.headers.get("x-gatehouse-decision"), "allow", call.body);
    t.match(await auditOf(gateway, answer), { decision: "allow", reason: undefined });
  }
});

t.test("a demotion in the file holds for the next call", async (t) => {
  const { gateway } = await open(t);
  const token = await tokenOf(gateway, "writer");
  const call = (id: number) =>
    callTool(gateway, "insert", { database, table: "t", values: [{ id }] }, token);
  t.equal(refusalOf(await call(1)), undefined);
  await gateway.edit((text) => text.replace('"ReadWrite"', '"ReadOnly"'));
  let id = 2;
  await soon(t, "denied", async () => refusalOf(await call(id++)) === "role_insufficient");
  t.match(textOf(await call(id)), /^Denied: Insufficient permissions for this operation; whoami/);
  await putInForce(
    gateway,
    fileOf(gateway).replace(/(username = "writer"\ndatabase = "main"\nrole = )"\w+"/, '$1"Owner"'),
  );
  t.equal(refusalOf(await call(id)), undefined, "a promotion too");
});

t.test("a token for one database opens no other by any tool", async (t) => {
  const { gateway } = kept;
  const token = await tokenOf(gateway, "root", "main");
  const select = (name: string) => ({ database: name, from: "t", columns: ["*"] });
  t.equal(refusalOf(await callTool(gateway, "select", select("main"), token)), undefined);
  const answer = await callTool(gateway, "select", select("elsewhere"), token);
  t.equal(refusalOf(answer), "token_database");
  const tables = await callTool(gateway, "list_tables", { database: "elsewhere" }, token);
  t.equal(refusalOf(tables), "token_database");
});

t.test("a caller is told who it is, what it may do, and how much at a time", async (t) => {
  const { gateway } = kept;
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

t.test("entries that say more than a role are told with what they say", async (t) => {
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

[[acl]]
username = "clerk"
database = "main"
role = "ReadOnly"
expires = 2020-01-01T00:00:00Z

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
  const home = await staffedHome(t, ["root * Owner", "clerk elsewhere ReadOnly"], more);
  const gateway = await startGateway(t, { home });
  const accessOf = async (name: string) => {
    const mcp = await connectStateless(t, `${gateway.url}/mcp`, await tokenOf(gateway, name));
    return (await mcp.call("whoami", {})).structured?.access;
  };
  t.strictSame(await accessOf("clerk"), [
    { database: "elsewhere", role: "ReadOnly", rights: ["SELECT"] },
    {
      ...{ database: "main", role: "ReadWrite", tables: ["t", "shop_*"] },
      writable_columns: ["note"],
      row_filter: [{ column: "id", cmp: "<", value: "9007199254740993" }],
      ...{ max_rows: 5, require_approval: ["DELETE"], expires: "2999-01-01T00:00:00.000Z" },
      rights: ["SELECT", "INSERT", "UPDATE", "DELETE"],
    },
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

t.test("a caller whose answers are limited in rows pages on within that", async (t) => {
  const more = `
[[acl]]
username = "clerk"
database = "main"
role = "ReadOnly"
tables = ["t"]
max_rows = 3
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
