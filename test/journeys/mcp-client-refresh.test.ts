/** As mcp-parallel.test.ts, with libraries over the official ones, and mcp-remote. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Stream } from "node:stream";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import t, { type Test } from "tap";
import * as z from "zod";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { REDIRECT } from "../oauth/kit.ts";
import { clientProgram, fillUsers, noClients, Workplace } from "./installed-clients.ts";
import { passwordOf, staffedHome } from "./staff.ts";

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
  "parallel calls go on after expiry, whichever the library",
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
      // As libraries keep them: with the server that they are of.
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

/** Waits for a line of a program that fits, and returns what its first group holds. */
async function printed(stream: Stream, pattern: RegExp): Promise<string> {
  let output = "";
  stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  await eventually(`${pattern} is printed`, () => pattern.test(output));
  return pattern.exec(output)?.[1] ?? "";
}

t.test("mcp-remote logs its user in, and goes on after expiry", { skip: noClients }, async (t) => {
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
