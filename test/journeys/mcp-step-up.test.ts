import {
  auth,
  Client,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import {
  UnauthorizedError as EarlierUnauthorizedError,
  auth as earlierAuth,
} from "@modelcontextprotocol/sdk/client/auth.js";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t from "tap";
import { statelessCall } from "../mcp/messages.ts";
import { launch, openCallback } from "../oauth/chromium.ts";
import { Notebook } from "../oauth/notebook.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { letIn, openWithTables } from "./mcp-app.ts";

const select = { name: "select", arguments: { database: "main", from: "t", columns: ["*"] } };
const both = ["mcp:resources", "mcp:tools"];
const toResources = { reach: "Only read" } as const;
const toTools = {
  reach: "Only read",
  sees: ["Use tools in your name, such as running queries"],
} as const;
const clientInfo = { name: "notebook", version: "1.0.0" };

function scopesOf(text: string | null | undefined): string[] {
  return (text ?? "")
    .split(" ")
    .filter((scope) => scope.startsWith("mcp:"))
    .toSorted();
}

t.test("an app that may read resources asks for tools too", async (t) => {
  const gateway = await openWithTables(t);
  const browser = await launch(t);
  const notebook = new Notebook(await openCallback(t));
  const serverUrl = `${gateway.url}/mcp`;
  const transport = () =>
    new StreamableHTTPClientTransport(new URL(serverUrl), { authProvider: notebook });
  t.equal(await auth(notebook, { serverUrl, scope: "mcp:resources" }), "REDIRECT");
  await transport().finishAuth(await letIn(browser, notebook, toResources));
  const narrow = notebook.tokens();
  t.strictSame(scopesOf(narrow?.scope), ["mcp:resources"]);

  const refused = await callTool(gateway, "select", select.arguments, narrow?.access_token);
  t.equal(refused.status, 403);
  const challenge = refused.headers.get("www-authenticate") ?? "";
  t.match(challenge, 'error="insufficient_scope"');
  t.match(challenge, `resource_metadata="${gateway.url}/.well-known/oauth-protected-resource/mcp"`);
  t.strictSame(scopesOf(/scope="([^"]*)"/.exec(challenge)?.[1]), both, "nothing is left out");

  const stepping = transport();
  const client = new Client(clientInfo);
  await client.connect(stepping);
  t.ok(await client.listResources());
  await t.rejects(client.callTool(select), UnauthorizedError, "it has to ask its user");
  t.strictSame(scopesOf(notebook.sentTo?.searchParams.get("scope")), both);
  await stepping.finishAuth(await letIn(browser, notebook, toTools));
  await client.close();

  const wider = new Client(clientInfo);
  await wider.connect(transport());
  t.teardown(() => wider.close());
  const rows = { rows: [], truncated: false };
  t.strictSame((await wider.callTool(select)).structuredContent, rows);
  t.ok(await wider.listResources(), "what it had it has still");
  t.equal(
    refusalOf(await send(gateway, statelessCall("tools/list"), narrow?.access_token)),
    "insufficient_scope",
  );
});

t.test("so does an app on the earlier library", async (t) => {
  const gateway = await openWithTables(t);
  const browser = await launch(t);
  // With a refresh token that library would only refresh, which never widens anything.
  const notebook = new Notebook(await openCallback(t), { grantTypes: ["authorization_code"] });
  const serverUrl = `${gateway.url}/mcp`;
  const transport = () => new EarlierTransport(new URL(serverUrl), { authProvider: notebook });
  t.equal(await earlierAuth(notebook, { serverUrl, scope: "mcp:resources" }), "REDIRECT");
  const first = await letIn(browser, notebook, toResources);
  await transport().finishAuth(first.get("code") ?? "");
  t.strictSame(scopesOf(notebook.tokens()?.scope), ["mcp:resources"]);
  t.equal(notebook.tokens()?.refresh_token, undefined);

  const stepping = transport();
  const client = new EarlierClient(clientInfo);
  await client.connect(stepping);
  t.ok(await client.listResources());
  const refusal: unknown = await client.callTool(select).catch((error: unknown) => error);
  t.ok(refusal instanceof EarlierUnauthorizedError, "it has to ask its user");
  t.strictSame(scopesOf(notebook.sentTo?.searchParams.get("scope")), both);
  const second = await letIn(browser, notebook, toTools);
  await stepping.finishAuth(second.get("code") ?? "");
  await client.close();

  const wider = new EarlierClient(clientInfo);
  await wider.connect(transport());
  t.teardown(() => wider.close());
  const rows = { rows: [], truncated: false };
  t.strictSame((await wider.callTool(select)).structuredContent, rows);
  t.ok(await wider.listResources(), "what it had it has still");
});
