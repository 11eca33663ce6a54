/** Clients whose calls, made at one moment, find their access token expired and refresh each. */
import { auth, Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { REDIRECT } from "../oauth/kit.ts";
import { Notebook } from "../oauth/notebook.ts";
import { passwordOf, staffedHome } from "./staff.ts";
import { servedBy } from "./supervised.ts";

const AT_ONCE = 8;
const ROUNDS = 3;

/** What both generations of the official client have in common here. */
interface Caller {
  listTools(): Promise<{ tools: unknown[] }>;
}

/** Goes through the login and the consent of an app, and gives it its tokens. */
async function letIn({ url }: TestGateway, notebook: Notebook): Promise<void> {
  const serverUrl = `${url}/mcp`;
  await auth(notebook, { serverUrl });
  const browser = new PlainBrowser(url);
  const login = await browser.open(notebook.sentTo?.href ?? "");
  const right = { username: "alice", password: passwordOf("alice"), action: "login" };
  const consent = await browser.submit(login, right);
  const yes = { database: "main", reach: "read", action: "allow" };
  const { searchParams } = new URL((await browser.submit(consent, yes)).url);
  const authorizationCode = searchParams.get("code") ?? "";
  const iss = searchParams.get("iss") ?? "";
  await auth(notebook, { serverUrl, authorizationCode, iss });
  notebook.sentTo = undefined;
}

const clients: Record<
  string,
  (t: Test, gateway: TestGateway, authProvider: Notebook) => Promise<Caller>
> = {
  async "client 2"(t, { url }, authProvider) {
    const client = new Client({ name: "notebook", version: "1.0.0" });
    t.teardown(() => client.close());
    await client.connect(
      new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { authProvider }),
    );
    return client;
  },
  async "sdk 1"(t, { url }, authProvider) {
    const client = new EarlierClient({ name: "notebook", version: "1.0.0" });
    t.teardown(() => client.close());
    await client.connect(new EarlierTransport(new URL(`${url}/mcp`), { authProvider }));
    return client;
  },
};

/** How often tokens were given for a refresh token. */
function refreshesOf({ service }: TestGateway): number {
  return (
    service.output.match(/"grant_type":"refresh_token"[^\n]*"outcome":"allowed"/g)?.length ?? 0
  );
}

for (const workers of [1, 3]) {
  const options = workers === 1 ? {} : nightly;
  t.test(`calls at one moment refresh each, over ${workers} workers`, options, async (t) => {
    const home = await staffedHome(t, ["root * Owner", "alice main ReadOnly"]);
    const gateway = await startGateway(t, { home, ...servedBy(workers) });
    for (const [name, connect] of Object.entries(clients)) {
      const notebook = new Notebook(REDIRECT);
      await letIn(gateway, notebook);
      const client = await connect(t, gateway, notebook);
      const before = refreshesOf(gateway);
      for (let round = 0; round < ROUNDS; round++) {
        const tokens = notebook.tokens();
        if (tokens !== undefined)
          notebook.saveTokens({ ...tokens, access_token: "gone.stale.bad" });
        const calls = Array.from({ length: AT_ONCE }, () => client.listTools());
        for (const { tools } of await Promise.all(calls)) t.ok(tools.length > 0, name);
      }
      t.equal(notebook.sentTo, undefined, `${name} need not ask its user again`);
      // The audit tells of an answer behind it.
      await eventually(
        `${name} has refreshed more than once a round`,
        () => refreshesOf(gateway) - before > ROUNDS,
      );
    }
    t.notMatch(gateway.service.output, "oauth_replay");
  });
}
