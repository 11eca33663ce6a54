import t from "tap";
import { openGatewaySetup } from "../gateway/kit.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { auditOf } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { obtainTokens, refresh } from "../oauth/flow.ts";
import { registered } from "../oauth/kit.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import { passwordOf, staffedHome } from "./staff.ts";
import { servedBy } from "./supervised.ts";

/** So many new connections reach every worker almost certainly. */
const MANY = 16;
const list = statelessCall("tools/list");
const people = ["root * Owner", "alice main ReadWrite", "bob main ReadOnly"];
const home = await staffedHome(t, people);
const { gateway } = await openGatewaySetup(t, { home, ...servedBy(2) });
const clientId = await registered(gateway);
const run = (...flags: string[]) => runWarm(gateway.home, ["token", ...flags]);
const tokensOf = (username: string, client = clientId) =>
  obtainTokens(gateway, {
    clientId: client,
    username,
    password: passwordOf(username),
    database: "main",
    reach: "read",
  });
const codeOf = async (token: string) => refusalOf(await send(gateway, list, token));
const select = { database: "main", from: "t", columns: ["*"] };

t.test("token list shows connected apps and the tools that they called", async (t) => {
  const alice = await tokensOf("alice");
  await callTool(gateway, "select", select, alice.accessToken);
  await callTool(gateway, "no_such_tool", {}, alice.accessToken);
  const { code, stdout } = await run("list", "--json");
  t.equal(code, 0);
  t.match(JSON.parse(stdout).apps, [
    {
      username: "alice",
      client: clientId,
      app: "Notebook",
      database: "main",
      read_only: true,
      called: ["select"],
      allowed: /Z$/,
      renewed: /Z$/,
    },
  ]);
  const table = await run("list");
  t.match(table.stdout, /^USERNAME +CLIENT +APP +DATABASE +MAY +ALLOWED +RENEWED +LAST USE\n/m);
  t.match(table.stdout, new RegExp(`^alice +${clientId} +Notebook +main +read +\\d{4}-`, "m"));
  for (const token of [alice.accessToken, alice.refreshToken]) t.notMatch(stdout, token);
  await eventually("its last use is written", async () =>
    /"last_use": "\d{4}-/.test((await run("list", "--json")).stdout),
  );
});

t.test("revoking an access token ends every token of the same consent", async (t) => {
  const [alice, other] = [await tokensOf("alice"), await tokensOf("alice")];
  const { body } = await refresh(gateway, clientId, alice.refreshToken);
  const renewed = String(body.access_token);
  const [, payload = ""] = alice.accessToken.split(".");
  const { jti } = JSON.parse(Buffer.from(payload, "base64url").toString());
  const ended = await run("revoke", jti);
  t.strictSame(ended, {
    code: 0,
    stderr: "",
    stdout: `Revoked the token ${jti}.\nEnded the access of client ${clientId} for alice, and all its tokens.\n`,
  });
  for (const token of [alice.accessToken, renewed]) t.equal(await codeOf(token), "token_revoked");
  const refused = { user: "alice", tokenId: jti, client: clientId, detail: /revoked$/ };
  t.match(await auditOf(gateway, await send(gateway, list, alice.accessToken)), refused);
  const again = await refresh(gateway, clientId, String(body.refresh_token));
  t.equal(again.body.error, "invalid_grant");
  t.equal(await codeOf(other.accessToken), undefined, "another consent is another family");
  t.equal((await run("revoke", jti)).stdout, `Revoked the token ${jti}.\n`);
});

t.test("token revoke --client disconnects an app from one user or from all", async (t) => {
  const another = await registered(gateway);
  const [alice, bob] = [await tokensOf("alice"), await tokensOf("bob")];
  const apart = await tokensOf("alice", another);
  t.equal((await run("revoke", "--client", clientId, "--user", "alice")).code, 0);
  t.equal(await codeOf(alice.accessToken), "token_revoked");
  t.equal(await codeOf(bob.accessToken), undefined);
  t.equal((await run("revoke", "--client", clientId)).code, 0);
  t.equal(await codeOf(bob.accessToken), "token_revoked");
  t.equal((await refresh(gateway, clientId, bob.refreshToken)).body.error, "invalid_grant");
  t.equal(await codeOf(apart.accessToken), undefined, "another app goes on");
  t.match(await run("revoke", "--client", clientId), {
    code: 1,
    stdout: "",
    stderr: `gatehouse: the client ${clientId} was not connected\n`,
  });
  t.equal((await run("revoke", "--client", another, "--user", "bob")).code, 1);
  t.equal((await run("revoke", "x", "--client", another)).code, 2);
});

t.test("a user disconnects an app on the page, in every worker", async (t) => {
  const [alice, bob] = [await tokensOf("alice"), await tokensOf("bob")];
  const browser = new PlainBrowser(gateway.url);
  const login = await browser.open(`${gateway.url}/oauth/applications`);
  const right = { username: "alice", password: passwordOf("alice"), action: "login" };
  const page = await browser.submit(login, right);
  t.match(page.text, "Notebook");
  await browser.submit(page, { disconnect: clientId });
  t.equal(await codeOf(alice.accessToken), "token_revoked");
  t.equal(await codeOf(bob.accessToken), undefined);
  const headers = { ...list.headers, authorization: `Bearer ${alice.accessToken}` };
  for (let count = 0; count < MANY; count++) {
    const fresh = { ...list, headers: { ...headers, connection: "close" } };
    t.equal((await ask(`${gateway.url}/mcp`, fresh)).status, 401);
  }
  const { audit, ...event } = await gateway.service.logged(({ token }) => token === "all");
  t.ok(audit);
  t.match(event, { msg: "oauth_revocation", user: "alice", client: clientId });
});

t.test("token list is empty without issued tokens and connected apps", async (t) => {
  const empty = await staffedHome(t, people);
  const { code, stdout } = await runWarm(empty, ["token", "list", "--json"]);
  t.strictSame([code, JSON.parse(stdout)], [0, { tokens: [], apps: [] }]);
});
