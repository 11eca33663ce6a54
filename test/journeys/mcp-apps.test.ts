import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Stream } from "node:stream";
import {
  auth,
  Client,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { UnauthorizedError as EarlierUnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t, { type Test } from "tap";
import * as z from "zod";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { startGateway, TestGateway, temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { launch, openCallback, openSite } from "../oauth/chromium.ts";
import { type DocumentHost, openDocumentHost } from "../oauth/document-host.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { authorizeUrl, postForm, REDIRECT } from "../oauth/kit.ts";
import { Notebook } from "../oauth/notebook.ts";
import { clientProgram, fillUsers, noClients, Workplace } from "./installed-clients.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { passwordOf, soon, staffedHome, succeed, tokenOf } from "./staff.ts";
import { servedBy } from "./supervised.ts";

const grants = ["root * Owner", "alice main ReadWrite", "alice archive ReadOnly"];
const columns = [{ name: "id", type: "int", primary_key: true }];
const clientInfo = { name: "notebook", version: "1.0.0" };
const list = statelessCall("tools/list");
const selectIn = (database: string) => ({ database, from: "t", columns: ["*"] });
const insert = { database: "main", table: "t", values: [{ id: 1 }] };
const noRows = { rows: [], truncated: false };

async function openTrusting({ cert }: DocumentHost, named: readonly string[]) {
  const authority = path.join(temporaryHome(t), "authority.pem");
  writeFileSync(authority, cert);
  const gateway = await startGateway(t, {
    home: await staffedHome(t, grants),
    config: `[mcp]\nprivate_client_hosts = ${JSON.stringify(named)}\n`,
    env: { NODE_EXTRA_CA_CERTS: authority },
  });
  const root = await tokenOf(gateway, "root");
  for (const database of ["main", "archive"]) {
    await gateway.query({ CreateDatabase: { database } }, root);
    await gateway.query({ CreateTable: { database, table: "t", columns } }, root);
  }
  return gateway;
}

const host = await openDocumentHost(t);
const shared = await openTrusting(host, [host.host]);
const browser = await launch(t);

async function openNotebook(t: Test, { url, served }: DocumentHost): Promise<Notebook> {
  const clientMetadataUrl = `${url}/notebook.json`;
  const notebook = new Notebook(await openCallback(t), { clientMetadataUrl });
  const document = { client_id: clientMetadataUrl, ...notebook.clientMetadata };
  served.set("/notebook.json", { document });
  return notebook;
}

interface App {
  connect(): Promise<void>;
  finishAuth(answer: URLSearchParams): Promise<void>;
  callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<object>;
  listTools(): Promise<{ tools: { name: string }[] }>;
  listResources(): Promise<object>;
}

interface Library {
  readonly name: string;
  readonly make: (t: Test, gateway: TestGateway, authProvider: Notebook) => App;
  readonly Unauthorized: typeof UnauthorizedError | typeof EarlierUnauthorizedError;
}

const client2: Library = {
  name: "client 2",
  make(t, { url }, authProvider) {
    const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { authProvider });
    const client = new Client(clientInfo);
    t.teardown(() => client.close());
    return {
      connect: () => client.connect(transport),
      finishAuth: (answer) => transport.finishAuth(answer),
      callTool: (call) => client.callTool(call),
      listTools: () => client.listTools(),
      listResources: () => client.listResources(),
    };
  },
  Unauthorized: UnauthorizedError,
};

const sdk1: Library = {
  name: "sdk 1",
  make(t, { url }, authProvider) {
    const transport = new EarlierTransport(new URL(`${url}/mcp`), { authProvider });
    const client = new EarlierClient(clientInfo);
    t.teardown(() => client.close());
    return {
      connect: () => client.connect(transport),
      finishAuth: (answer) => transport.finishAuth(answer.get("code") ?? ""),
      callTool: (call) => client.callTool(call),
      listTools: () => client.listTools(),
      listResources: () => client.listResources(),
    };
  },
  Unauthorized: EarlierUnauthorizedError,
};

async function letIn(
  { redirectUrl, sentTo }: Notebook,
  { database = "*", sees = [] }: { database?: string; sees?: readonly string[] } = {},
): Promise<URLSearchParams> {
  const context = await browser.newContext();
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  await page.goto(sentTo?.href ?? "");
  await page.getByLabel("Username").fill("alice");
  await page.getByLabel("Password").fill(passwordOf("alice"));
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Let Notebook use your databases?" }).waitFor();
  for (const text of sees) await page.getByText(text, { exact: true }).waitFor();
  await page.getByLabel("Which databases?").selectOption(database);
  await page.getByLabel("Only read").check();
  await page.getByRole("button", { name: "Allow" }).click();
  await page.waitForURL(`${redirectUrl}?**`);
  const { searchParams } = new URL(page.url());
  await context.close();
  return searchParams;
}

/** Checks that an app has to ask its user; errors of the earlier library have no name. */
async function isUnauthorized(t: Test, asked: Promise<unknown>, kind: Library["Unauthorized"]) {
  t.ok((await asked.catch((error: unknown) => error)) instanceof kind, "it has to ask its user");
}

function spoilToken(notebook: Notebook): void {
  const tokens = notebook.tokens();
  if (tokens !== undefined) notebook.saveTokens({ ...tokens, access_token: "gone.stale.bad" });
}

for (const [{ name, make, Unauthorized }, way] of [
  [client2, "a registration"],
  [client2, "a document"],
  [sdk1, "a registration"],
] as const) {
  t.test(`${name}: an app with ${way} logs in and stays within its scope`, async (t) => {
    const reached = host.reached();
    const notebook =
      way === "a document" ? await openNotebook(t, host) : new Notebook(await openCallback(t));
    const knocking = make(t, shared, notebook);
    await isUnauthorized(t, knocking.connect(), Unauthorized);
    t.match(notebook.sentTo?.href, `${shared.url}/oauth/authorize?`);
    t.equal(notebook.sentTo?.searchParams.get("resource"), `${shared.url}/mcp`);
    const clientId = notebook.clientInformation()?.client_id;
    const sees = notebook.clientMetadataUrl === undefined ? [] : [host.host];
    if (way === "a document") t.equal(clientId, notebook.clientMetadataUrl);
    else t.ok(clientId, "it has registered");
    await knocking.finishAuth(await letIn(notebook, { database: "main", sees }));
    const app = make(t, shared, notebook);
    await app.connect();

    const { tools } = await app.listTools();
    const reading = ["batch", "count", "describe_table", "list_databases", "list_tables"];
    t.strictSame(tools.map(({ name }) => name).toSorted(), [...reading, "select", "whoami"]);
    const databases = await app.callTool({ name: "list_databases", arguments: {} });
    t.match(databases, { structuredContent: { databases: ["main"] } });
    const select = (database = "main") =>
      app.callTool({ name: "select", arguments: selectIn(database) });
    t.match(await select(), { structuredContent: noRows });
    const archive = await select("archive");
    t.match(archive, { isError: true, content: [{ text: /\(token_database\)$/ }] });
    const token = notebook.tokens()?.access_token ?? "";
    t.equal(refusalOf(await callTool(shared, "insert", insert, token)), "token_read_only");

    spoilToken(notebook);
    notebook.sentTo = undefined;
    t.match(await select(), { structuredContent: noRows }, "it refreshes by itself");
    t.equal(notebook.sentTo, undefined, "its user is not asked again");
    const { access_token: refreshed = "", refresh_token = "" } = notebook.tokens() ?? {};
    t.notOk([token, "gone.stale.bad"].includes(refreshed));
    t.equal(refusalOf(await callTool(shared, "insert", insert, refreshed)), "token_read_only");
    const fields = { token: refresh_token, client_id: clientId ?? "" };
    t.equal((await postForm(`${shared.url}/oauth/revoke`, fields)).status, 200);
    t.equal(refusalOf(await send(shared, list, refreshed)), "token_revoked");
    await isUnauthorized(t, select(), Unauthorized);
    t.ok(notebook.sentTo, "it has to ask its user again");
    t.notMatch(shared.service.output, refreshed, "no token is in the log");
    if (way === "a document") t.ok(host.reached() <= reached + 1, "it was fetched once");
  });
}

t.test("an app may reach a local gateway as localhost", async (t) => {
  const url = shared.url.replace("127.0.0.1", "localhost");
  const notebook = new Notebook(await openCallback(t));
  const named = new TestGateway(shared.home, shared.service, url);
  const knocking = client2.make(t, named, notebook);
  await isUnauthorized(t, knocking.connect(), client2.Unauthorized);
  t.equal(notebook.sentTo?.searchParams.get("resource"), `${url}/mcp`);
  await knocking.finishAuth(await letIn(notebook));
  const app = client2.make(t, named, notebook);
  await app.connect();
  t.ok((await app.listTools()).tools.length > 0);
  spoilToken(notebook);
  t.ok((await app.listTools()).tools.length > 0, "it refreshes");
});

t.test("a page of any origin finds the authorization server", async (t) => {
  const page = await browser.newPage();
  await page.goto(await openSite(t, "An inspector."));
  const script = `(async (url) => {
    const headers = { "MCP-Protocol-Version": "2025-11-25" };
    const read = async (path) => (await fetch(url + path, { headers })).json();
    const { authorization_servers: [server] } = await read("/.well-known/oauth-protected-resource/mcp");
    const found = await read("/.well-known/oauth-authorization-server");
    return [server, found.issuer];
  })("${shared.url}")`;
  t.strictSame(await page.evaluate(script), [shared.url, shared.url]);
  await page.close();
});

function scopesOf(text: string | null | undefined): string[] {
  return (text ?? "")
    .split(" ")
    .filter((scope) => scope.startsWith("mcp:"))
    .toSorted();
}

t.test("an app with the resources scope can request the tools scope too", async (t) => {
  const both = ["mcp:resources", "mcp:tools"];
  const select = { name: "select", arguments: selectIn("main") };
  const notebook = new Notebook(await openCallback(t));
  const serverUrl = `${shared.url}/mcp`;
  t.equal(await auth(notebook, { serverUrl, scope: "mcp:resources" }), "REDIRECT");
  await client2.make(t, shared, notebook).finishAuth(await letIn(notebook));
  const narrow = notebook.tokens();
  t.strictSame(scopesOf(narrow?.scope), ["mcp:resources"]);

  const refused = await callTool(shared, "select", select.arguments, narrow?.access_token);
  t.equal(refused.status, 403);
  const challenge = refused.headers.get("www-authenticate") ?? "";
  t.match(challenge, 'error="insufficient_scope"');
  t.strictSame(scopesOf(/scope="([^"]*)"/.exec(challenge)?.[1]), both, "nothing is left out");

  const stepping = client2.make(t, shared, notebook);
  await stepping.connect();
  t.ok(await stepping.listResources());
  await isUnauthorized(t, stepping.callTool(select), client2.Unauthorized);
  t.strictSame(scopesOf(notebook.sentTo?.searchParams.get("scope")), both);
  const sees = ["Use tools in your name, such as running queries"];
  await stepping.finishAuth(await letIn(notebook, { sees }));
  const wider = client2.make(t, shared, notebook);
  await wider.connect();
  t.match(await wider.callTool(select), { structuredContent: noRows });
  t.ok(await wider.listResources(), "what it had it has still");
  const still = await send(shared, list, narrow?.access_token);
  t.equal(refusalOf(still), "insufficient_scope");
});

for (const workers of [1, 3]) {
  const options = workers === 1 ? {} : nightly;
  t.test(`parallel calls can each refresh, with ${workers} workers`, options, async (t) => {
    const [AT_ONCE, ROUNDS] = [8, 3];
    const home = await staffedHome(t, grants);
    const gateway = workers === 1 ? shared : await startGateway(t, { home, ...servedBy(workers) });
    const logged = gateway.service.output.length;
    const refreshed = /"grant_type":"refresh_token"[^\n]*"outcome":"allowed"/g;
    const refreshes = () => gateway.service.output.match(refreshed)?.length ?? 0;
    for (const { name, make } of [client2, sdk1]) {
      const { accessToken, ...held } = await obtainTokens(gateway, {
        password: passwordOf("alice"),
        database: "main",
        reach: "read",
      });
      const notebook = new Notebook(REDIRECT);
      notebook.saveClientInformation({ client_id: held.clientId });
      const tokens = { access_token: accessToken, refresh_token: held.refreshToken };
      notebook.saveTokens({ ...tokens, token_type: "Bearer" });
      const app = make(t, gateway, notebook);
      await app.connect();
      const before = refreshes();
      for (let round = 0; round < ROUNDS; round++) {
        spoilToken(notebook);
        const calls = Array.from({ length: AT_ONCE }, () =>
          // The earlier SDK gives up on a call whose 401 comes while another call is sent again.
          app.listTools().catch((error: unknown) => {
            if (/401 after successful authentication/.test(String(error))) return app.listTools();
            throw error;
          }),
        );
        for (const { tools } of await Promise.all(calls)) t.ok(tools.length > 0, name);
      }
      t.equal(notebook.sentTo, undefined, `${name} need not ask its user again`);
      // The audit line follows the answer.
      const what = `${name} has refreshed more than once a round`;
      await eventually(what, () => refreshes() - before > ROUNDS);
    }
    const refusals = /oauth_replay|"token_(?:revoked|expired)"/;
    t.notMatch(gateway.service.output.slice(logged), refusals);
  });
}

t.test("client documents on private hosts are fetched only from configured hosts", async (t) => {
  const [named, unnamed] = [await openDocumentHost(t), await openDocumentHost(t)];
  const gateway = await openTrusting(named, [named.host]);
  const browser = new PlainBrowser(gateway.url);
  const redirect_uris = ["http://127.0.0.1:4999/callback"];
  for (const host of [unnamed, { ...unnamed, url: `https://127.0.0.1:${unnamed.port}` }]) {
    const client_id = `${host.url}/app.json`;
    unnamed.served.set("/app.json", { document: { client_id, redirect_uris } });
    const page = await browser.open(authorizeUrl(gateway, { client_id }));
    t.match(page, { status: 400, text: "This gateway does not know the app" }, client_id);
  }
  const client_id = `${named.url}/app.json`;
  named.served.set("/app.json", { location: `${unnamed.url}/app.json` });
  const page = await browser.open(authorizeUrl(gateway, { client_id }));
  t.equal(page.status, 400, "nor by a redirect");
  const logged = await gateway.service.logged(({ document }) => document === client_id);
  t.match(logged.reason, "returned 302 instead of 200; redirects are not followed");
  t.ok(named.reached() > 0, "it has been asked itself");
  t.equal(unnamed.reached(), 0);
});

t.test("a client document is not fetched from a host with an untrusted certificate", async (t) => {
  const [trusted, host] = [await openDocumentHost(t), await openDocumentHost(t)];
  const gateway = await openTrusting(trusted, [host.host]);
  const notebook = await openNotebook(t, host);
  const url = authorizeUrl(gateway, { client_id: notebook.clientMetadataUrl ?? "" });
  t.equal((await new PlainBrowser(gateway.url).open(url)).status, 400);
});

const outcomeShape = z.object({
  asked: z.number(),
  answered: z.number(),
  failures: z.array(z.string()),
  refreshes: z.number(),
  hasAsked: z.boolean(),
});

async function openGateway(t: Test) {
  const home = await staffedHome(t, ["root * Owner", "alice main ReadOnly"]);
  const gateway = await startGateway(t, { home });
  await fillUsers(gateway);
  return gateway;
}

t.test(
  "parallel calls continue after expiry with every library",
  { skip: noClients || nightly.skip },
  async (t) => {
    const gateway = await openGateway(t);
    const workplace = new Workplace(t);
    const url = `${gateway.url}/mcp`;
    const libraries = [
      ["@langchain/mcp-adapters", "each"],
      ["@openai/agents", "each"],
      ["@mastra/mcp", "each"],
      ["@ai-sdk/mcp", "once"],
    ] as const;
    for (const [library, refreshes] of libraries) {
      const held = await obtainTokens(gateway, { password: passwordOf("alice") });
      const { accessToken: access_token, refreshToken: refresh_token, clientId } = held;
      const issuer = gateway.url;
      // Libraries store tokens with their server.
      const server = {
        issuer,
        authorization_server: issuer,
        token_endpoint: `${issuer}/oauth/token`,
      };
      const tokens = { access_token, refresh_token, token_type: "Bearer", ...server };
      const input = { url, redirectUrl: REDIRECT, client: { client_id: clientId, issuer }, tokens };
      const program = clientProgram("parallel.js");
      const output = await workplace.run("node", [program, library], JSON.stringify(input));
      const outcome = outcomeShape.parse(JSON.parse(output));
      t.strictSame(outcome.failures, [], library);
      t.equal(outcome.answered, outcome.asked, library);
      t.notOk(outcome.hasAsked, `${library} need not ask its user again`);
      if (refreshes === "each") t.ok(outcome.refreshes > 3, `${library}: ${outcome.refreshes}`);
      else t.equal(outcome.refreshes, 3, `${library} refreshes once a round`);
    }
    t.notMatch(gateway.service.output, "oauth_replay");
  },
);

async function printed(stream: Stream, pattern: RegExp): Promise<string> {
  let output = "";
  stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  await eventually(`${pattern} is printed`, () => pattern.test(output));
  return pattern.exec(output)?.[1] ?? "";
}

t.test("mcp-remote logs its user in and continues after expiry", { skip: noClients }, async (t) => {
  const gateway = await openGateway(t);
  const workplace = new Workplace(t);
  const page = readFileSync(new URL("../../docs/mcp-clients.md", import.meta.url), "utf8");
  const [, recipe = ""] = /^```json\n(.*?)^```$/ms.exec(page) ?? [];
  const { mcpServers } = z
    .object({
      mcpServers: z.object({
        database: z.object({ command: z.string(), args: z.array(z.string()) }),
      }),
    })
    .parse(JSON.parse(recipe.replace("http://127.0.0.1:8080", gateway.url)));
  const transport = new StdioClientTransport({
    ...mcpServers.database,
    env: workplace.environment,
    cwd: workplace.directory,
    stderr: "pipe",
  });
  const client = new Client({ name: "desktop", version: "1.0.0" });
  t.teardown(() => client.close());
  const connected = client.connect(transport);
  const { stderr } = transport;
  if (stderr === null) throw new Error("its errors are not piped");
  const login = await printed(stderr, /^(http\S+\/oauth\/authorize\S+)/m);
  const browser = new PlainBrowser(gateway.url);
  const fields = { username: "alice", password: passwordOf("alice"), action: "login" };
  const consent = await browser.submit(await browser.open(login), fields);
  const back = await browser.submit(consent, { database: "main", reach: "read", action: "allow" });
  t.equal((await fetch(back.url)).status, 200, "it takes the answer");
  await connected;
  // mcp-remote connects twice, and each time asks for a stream at last. If that finds the broken
  // token too, it refreshes twice at once, and one save of its tokens fails.
  await eventually("both streams are refused", () => {
    return gateway.service.log.filter(({ status }) => status === 405).length === 2;
  });

  const files = path.join(workplace.directory, ".mcp-auth");
  const names = readdirSync(files, { recursive: true, encoding: "utf8" });
  const file = path.join(files, names.find((name) => name.endsWith("_tokens.json")) ?? "");
  const select = { database: "main", from: "users", columns: ["name"] };
  for (let round = 0; round < 3; round++) {
    const text = readFileSync(file, "utf8");
    writeFileSync(file, text.replace(/("access_token":\s*")[^"]+/, "$1gone.stale.bad"));
    const answer = await client.callTool({ name: "select", arguments: select });
    t.match(JSON.stringify(answer), "Alice");
  }
  t.notMatch(gateway.service.output, "oauth_replay");
});

t.test("an app loses access with its user's role and password", async (t) => {
  const password = passwordOf("alice");
  const { accessToken, refreshToken, clientId } = await obtainTokens(shared, { password });
  const call = () => callTool(shared, "insert", insert, accessToken);
  t.equal(refusalOf(await call()), undefined);
  const drop = await callTool(shared, "drop_table", { database: "main", table: "t" }, accessToken);
  t.equal(refusalOf(drop), "role_insufficient");
  await shared.edit((text) => text.replace('"ReadWrite"', '"ReadOnly"'));
  await soon(t, "a demotion", async () => refusalOf(await call()) === "role_insufficient");

  const change = { old_password: password, new_password: "an entirely new one" };
  const login = await tokenOf(shared, "alice");
  await succeed(shared.send("PUT", "/api/users/alice/password", change, login));
  t.equal(refusalOf(await send(shared, list, accessToken)), "token_revoked");
  const refresh = await postForm(`${shared.url}/oauth/token`, {
    grant_type: "refresh_token",
    client_id: clientId,
    refresh_token: refreshToken,
    resource: `${shared.url}/mcp`,
  });
  t.match(refresh, { status: 400, body: { error: "invalid_grant" } });
});
