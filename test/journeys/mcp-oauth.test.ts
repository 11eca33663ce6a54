import {
  Client,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { UnauthorizedError as EarlierUnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t, { type Test } from "tap";
import type { TestGateway } from "../kit/gateway.ts";
import { statelessCall } from "../mcp/messages.ts";
import { launch, openCallback } from "../oauth/chromium.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { postForm } from "../oauth/kit.ts";
import { Notebook } from "../oauth/notebook.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { letIn, openWithTables } from "./mcp-app.ts";
import { passwordOf, soon, succeed, tokenOf } from "./staff.ts";

const list = statelessCall("tools/list");
const selectIn = (database: string) => ({ database, from: "t", columns: ["*"] });
const insert = { database: "main", table: "t", values: [{ id: 1 }] };

/** A transport of the official client that finds its own way in. */
function transportTo(gateway: TestGateway, authProvider: Notebook) {
  return new StreamableHTTPClientTransport(new URL(`${gateway.url}/mcp`), { authProvider });
}

async function connect(t: Test, gateway: TestGateway, notebook: Notebook): Promise<Client> {
  const client = new Client({ name: "notebook", version: "1.0.0" });
  await client.connect(transportTo(gateway, notebook));
  t.teardown(() => client.close());
  return client;
}

const readingMain = { database: "main", reach: "Only read" } as const;

function accessTokenOf(notebook: Notebook): string {
  return notebook.tokens()?.access_token ?? "";
}

t.test("an app finds its way in, and does what it was allowed", async (t) => {
  const gateway = await openWithTables(t);
  const notebook = new Notebook(await openCallback(t));
  const knocking = transportTo(gateway, notebook);
  const first = new Client({ name: "notebook", version: "1.0.0" });
  await t.rejects(first.connect(knocking), UnauthorizedError, "it has to ask its user");
  t.match(notebook.sentTo?.href, `${gateway.url}/oauth/authorize?`);
  t.ok(notebook.clientInformation()?.client_id, "it has registered");
  await knocking.finishAuth(await letIn(await launch(t), notebook, readingMain));
  const client = await connect(t, gateway, notebook);

  const { tools } = await client.listTools();
  const reading = [
    ...["batch", "count", "describe_table", "list_databases", "list_tables", "select", "whoami"],
  ];
  t.strictSame(tools.map(({ name }) => name).toSorted(), reading);
  const databases = await client.callTool({ name: "list_databases", arguments: {} });
  t.strictSame(databases.structuredContent, { databases: ["main"] });
  const rows = await client.callTool({ name: "select", arguments: selectIn("main") });
  t.strictSame(rows.structuredContent, { rows: [], truncated: false });
  const token = accessTokenOf(notebook);
  const archive = await callTool(gateway, "select", selectIn("archive"), token);
  t.equal(refusalOf(archive), "token_database");
  t.equal(refusalOf(await callTool(gateway, "insert", insert, token)), "token_read_only");

  const tokens = notebook.tokens();
  if (tokens !== undefined) notebook.saveTokens({ ...tokens, access_token: "gone.stale.bad" });
  const again = await client.callTool({ name: "select", arguments: selectIn("main") });
  t.notOk(again.isError, "it refreshes by itself");
  const refreshed = accessTokenOf(notebook);
  t.not(refreshed, token);
  t.equal(refusalOf(await callTool(gateway, "insert", insert, refreshed)), "token_read_only");

  const fields = {
    token: notebook.tokens()?.refresh_token ?? "",
    client_id: notebook.clientInformation()?.client_id ?? "",
  };
  t.equal((await postForm(`${gateway.url}/oauth/revoke`, fields)).status, 200);
  t.equal(refusalOf(await send(gateway, list, refreshed)), "token_revoked");
  notebook.sentTo = undefined;
  const call = client.callTool({ name: "select", arguments: selectIn("main") });
  await t.rejects(call, UnauthorizedError);
  t.ok(notebook.sentTo, "it has to ask its user again");
  t.notMatch(gateway.service.output, refreshed, "no token is in the log");
});

t.test("an app on the earlier library finds its way in", async (t) => {
  const gateway = await openWithTables(t);
  const notebook = new Notebook(await openCallback(t));
  const endpoint = new URL(`${gateway.url}/mcp`);
  const knocking = new EarlierTransport(endpoint, { authProvider: notebook });
  const first = new EarlierClient({ name: "notebook", version: "1.0.0" });
  const refusal: unknown = await first.connect(knocking).catch((error: unknown) => error);
  t.ok(refusal instanceof EarlierUnauthorizedError, "it has to ask its user");
  t.match(notebook.sentTo?.href, `${gateway.url}/oauth/authorize?`);
  t.equal(notebook.sentTo?.searchParams.get("resource"), endpoint.href, "it has discovered");
  t.ok(notebook.clientInformation()?.client_id, "it has registered");
  const answer = await letIn(await launch(t), notebook, readingMain);
  await knocking.finishAuth(answer.get("code") ?? "");
  const client = new EarlierClient({ name: "notebook", version: "1.0.0" });
  await client.connect(new EarlierTransport(endpoint, { authProvider: notebook }));
  t.teardown(() => client.close());

  const rows = await client.callTool({ name: "select", arguments: selectIn("main") });
  t.strictSame(rows.structuredContent, { rows: [], truncated: false });
  const archive = await client.callTool({ name: "select", arguments: selectIn("archive") });
  t.match(archive, { isError: true, content: [{ text: /\(token_database\)$/ }] });

  const tokens = notebook.tokens();
  if (tokens !== undefined) notebook.saveTokens({ ...tokens, access_token: "gone.stale.bad" });
  notebook.sentTo = undefined;
  const again = await client.callTool({ name: "select", arguments: selectIn("main") });
  t.strictSame(again.structuredContent, { rows: [], truncated: false }, "it refreshes by itself");
  t.equal(notebook.sentTo, undefined, "its user is not asked again");
  const refreshed = accessTokenOf(notebook);
  t.not(refreshed, "gone.stale.bad");
  t.not(refreshed, tokens?.access_token);
  t.equal(refusalOf(await callTool(gateway, "insert", insert, refreshed)), "token_read_only");
  t.notMatch(gateway.service.output, refreshed, "no token is in the log");
});

t.test("what a user has allowed ends with its password", async (t) => {
  const gateway = await openWithTables(t);
  const password = passwordOf("alice");
  const { accessToken, refreshToken, clientId } = await obtainTokens(gateway, { password });
  t.equal(refusalOf(await callTool(gateway, "insert", insert, accessToken)), undefined);
  const change = { old_password: password, new_password: "an entirely new one" };
  const login = await tokenOf(gateway, "alice");
  await succeed(gateway.send("PUT", "/api/users/alice/password", change, login));
  t.equal(refusalOf(await send(gateway, list, accessToken)), "token_revoked");
  const refresh = await postForm(`${gateway.url}/oauth/token`, {
    grant_type: "refresh_token",
    client_id: clientId,
    refresh_token: refreshToken,
    resource: `${gateway.url}/mcp`,
  });
  t.match(refresh, { status: 400, body: { error: "invalid_grant" } });
});

t.test("what a user has allowed never reaches beyond its roles", async (t) => {
  const gateway = await openWithTables(t);
  const { accessToken } = await obtainTokens(gateway, { password: passwordOf("alice") });
  const call = () => callTool(gateway, "insert", insert, accessToken);
  t.equal(refusalOf(await call()), undefined);
  const drop = await callTool(gateway, "drop_table", { database: "main", table: "t" }, accessToken);
  t.equal(refusalOf(drop), "role_insufficient");
  await gateway.edit((text) => text.replace('"ReadWrite"', '"ReadOnly"'));
  await soon(t, "a demotion", async () => refusalOf(await call()) === "role_insufficient");
});
