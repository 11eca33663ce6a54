import { writeFileSync } from "node:fs";
import path from "node:path";
import {
  Client,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { UnauthorizedError as EarlierUnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t, { type Test } from "tap";
import { type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { launch, openCallback } from "../oauth/chromium.ts";
import { type DocumentHost, openDocumentHost } from "../oauth/document-host.ts";
import { authorizeUrl, postForm } from "../oauth/kit.ts";
import { Notebook } from "../oauth/notebook.ts";
import { refusalOf, send } from "./mcp.ts";
import { letIn, openWithTables } from "./mcp-app.ts";

const select = { name: "select", arguments: { database: "main", from: "t", columns: ["*"] } };
const list = statelessCall("tools/list");
const clientInfo = { name: "notebook", version: "1.0.0" };

/** A gateway that trusts the host's certificate, and may ask the hosts that the operator named. */
async function openTrusting(
  t: Test,
  { cert }: DocumentHost,
  named: readonly string[],
): Promise<TestGateway> {
  const authority = path.join(temporaryHome(t), "authority.pem");
  writeFileSync(authority, cert);
  return openWithTables(t, {
    config: `[mcp]\nprivate_client_hosts = ${JSON.stringify(named)}\n`,
    env: { NODE_EXTRA_CA_CERTS: authority },
  });
}

/** An app whose document is at the host. */
async function openNotebook(t: Test, { url, served }: DocumentHost): Promise<Notebook> {
  const clientMetadataUrl = `${url}/notebook.json`;
  const notebook = new Notebook(await openCallback(t), { clientMetadataUrl });
  const document = { client_id: clientMetadataUrl, ...notebook.clientMetadata };
  served.set("/notebook.json", { document });
  return notebook;
}

interface Scene {
  readonly host: DocumentHost;
  readonly gateway: TestGateway;
  readonly notebook: Notebook;
  readonly endpoint: URL;
}

/** An app whose document the gateway may ask for. */
async function openScene(t: Test): Promise<Scene> {
  const host = await openDocumentHost(t);
  const gateway = await openTrusting(t, host, [host.host]);
  const endpoint = new URL(`${gateway.url}/mcp`);
  return { host, gateway, notebook: await openNotebook(t, host), endpoint };
}

/** The answer of a person, who lets the app in that has sent them to the gateway. */
async function permit(t: Test, { host, notebook }: Scene): Promise<URLSearchParams> {
  const id = notebook.clientMetadataUrl;
  t.equal(notebook.sentTo?.searchParams.get("client_id"), id);
  return letIn(await launch(t), notebook, { reach: "Only read", sees: [host.host] });
}

/** The app's tokens are those of its document, renewed by it, and end when it gives them back. */
async function checkTokens(
  t: Test,
  { gateway, notebook }: Scene,
  call: () => Promise<object>,
): Promise<void> {
  const rows = { structuredContent: { rows: [], truncated: false } };
  t.match(await call(), rows);
  const tokens = notebook.tokens();
  if (tokens !== undefined) notebook.saveTokens({ ...tokens, access_token: "gone.stale.bad" });
  t.match(await call(), rows, "it refreshes by itself");

  const { access_token: token = "", refresh_token = "" } = notebook.tokens() ?? {};
  t.equal(refusalOf(await send(gateway, list, token)), undefined);
  const fields = { token: refresh_token, client_id: notebook.clientMetadataUrl ?? "" };
  t.equal((await postForm(`${gateway.url}/oauth/revoke`, fields)).status, 200);
  t.equal(refusalOf(await send(gateway, list, token)), "token_revoked");
}

t.test("an app is known by its document, and does all of it", async (t) => {
  const scene = await openScene(t);
  const { host, notebook, endpoint } = scene;
  const transport = () => new StreamableHTTPClientTransport(endpoint, { authProvider: notebook });
  const knocking = transport();
  await t.rejects(new Client(clientInfo).connect(knocking), UnauthorizedError);
  t.equal(notebook.clientInformation()?.client_id, notebook.clientMetadataUrl);
  await knocking.finishAuth(await permit(t, scene));
  const client = new Client(clientInfo);
  await client.connect(transport());
  t.teardown(() => client.close());
  await checkTokens(t, scene, () => client.callTool(select));
  await t.rejects(client.callTool(select), UnauthorizedError);
  t.equal(host.reached(), 1, "its document was fetched once");
});

t.test("so does an app on the earlier library", async (t) => {
  const scene = await openScene(t);
  const { notebook, endpoint } = scene;
  const transport = () => new EarlierTransport(endpoint, { authProvider: notebook });
  const knocking = transport();
  const refusal: unknown = await new EarlierClient(clientInfo)
    .connect(knocking)
    .catch((error: unknown) => error);
  t.ok(refusal instanceof EarlierUnauthorizedError, "it has to ask its user");
  await knocking.finishAuth((await permit(t, scene)).get("code") ?? "");
  const client = new EarlierClient(clientInfo);
  await client.connect(transport());
  t.teardown(() => client.close());
  await checkTokens(t, scene, () => client.callTool(select));
});

t.test("no document of a host near the gateway that nobody named is asked for", async (t) => {
  const [named, unnamed] = [await openDocumentHost(t), await openDocumentHost(t)];
  const gateway = await openTrusting(t, named, [named.host]);
  const browser = new PlainBrowser(gateway.url);
  const redirect_uris = ["http://127.0.0.1:4999/callback"];
  for (const host of [unnamed, { ...unnamed, url: `https://127.0.0.1:${unnamed.port}` }]) {
    const client_id = `${host.url}/app.json`;
    unnamed.served.set("/app.json", { document: { client_id, redirect_uris } });
    const page = await browser.open(authorizeUrl(gateway, { client_id }));
    t.match(page, { status: 400, text: "is not known to this gateway" }, client_id);
  }
  const client_id = `${named.url}/app.json`;
  named.served.set("/app.json", { location: `${unnamed.url}/app.json` });
  const page = await browser.open(authorizeUrl(gateway, { client_id }));
  t.equal(page.status, 400, "nor by a redirect");
  t.ok(named.reached() > 0, "it has been asked itself");
  t.equal(unnamed.reached(), 0);
});

t.test("by default none of them is", async (t) => {
  const host = await openDocumentHost(t);
  const gateway = await openTrusting(t, host, []);
  const notebook = await openNotebook(t, host);
  const url = authorizeUrl(gateway, { client_id: notebook.clientMetadataUrl ?? "" });
  t.equal((await new PlainBrowser(gateway.url).open(url)).status, 400);
  t.equal(host.reached(), 0);
});

t.test("a certificate that nobody vouches for is not trusted", async (t) => {
  const [trusted, host] = [await openDocumentHost(t), await openDocumentHost(t)];
  const gateway = await openTrusting(t, trusted, [host.host]);
  const notebook = await openNotebook(t, host);
  const url = authorizeUrl(gateway, { client_id: notebook.clientMetadataUrl ?? "" });
  t.equal((await new PlainBrowser(gateway.url).open(url)).status, 400);
});
