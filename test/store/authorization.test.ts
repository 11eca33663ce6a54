import { existsSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { refusalOf, send } from "../journeys/mcp.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { connectEarlier, connectStateless } from "../mcp/clients.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { obtainTokens, refresh } from "../oauth/flow.ts";
import { postForm } from "../oauth/kit.ts";
import { addUser, openReplicated } from "./round-robin.ts";

const list = statelessCall("tools/list");
const alice = { username: "alice", password: "alice password" };

const { store, replicas, front } = await openReplicated(t, {
  ...{ mcp: "enabled = true", server: await sharedServer() },
});
await addUser(front, "alice", "ReadWrite");

/** Holds that a token is refused, or taken, at every replica now. */
async function checkEverywhere(t: Test, token: string, refused?: string): Promise<void> {
  for (const replica of replicas) t.equal(refusalOf(await send(replica, list, token)), refused);
}

function replica(at: number): TestGateway {
  return replicas[at % replicas.length] ?? front;
}

t.test("each step of a login may go to another replica", async (t) => {
  for (let round = 0; round < 3; round++) {
    const { clientId, accessToken, refreshToken } = await obtainTokens(front, alice);
    await checkEverywhere(t, accessToken);
    let current = refreshToken;
    for (let step = 0; step < 4; step++) {
      const { status, body } = await refresh({ url: front.url }, clientId, current);
      t.equal(status, 200);
      await checkEverywhere(t, String(body.access_token));
      current = String(body.refresh_token);
    }
    const fields = { client_id: clientId, token: current };
    t.equal((await postForm(`${replica(round).url}/oauth/revoke`, fields)).status, 200);
    await checkEverywhere(t, accessToken, "token_revoked");
    t.equal((await refresh(front, clientId, current)).body.error, "invalid_grant");
  }
  for (const { home } of replicas) t.notOk(existsSync(path.join(home, "oauth")));
});

t.test("clients of the embedded MCP server may be sent to any replica", async (t) => {
  const { accessToken } = await obtainTokens(front, alice);
  for (const connect of [connectEarlier, connectStateless]) {
    const client = await connect(t, `${front.url}/mcp`, accessToken);
    for (let call = 0; call < 6; call++) {
      t.match(await client.call("whoami", {}), { text: /alice/ });
    }
  }
});

t.test("an access token that is revoked at one replica is refused at all", async (t) => {
  const { clientId, accessToken, refreshToken } = await obtainTokens(front, alice);
  const fields = { client_id: clientId, token: accessToken };
  t.equal((await postForm(`${replica(1).url}/oauth/revoke`, fields)).status, 200);
  await checkEverywhere(t, accessToken, "token_revoked");
  t.equal((await refresh(front, clientId, refreshToken)).status, 200);
});

t.test("a refresh token that is shown again later ends its family at every replica", async (t) => {
  const { clientId, accessToken, refreshToken } = await obtainTokens(front, alice);
  const next = await refresh(front, clientId, refreshToken);
  t.equal(next.status, 200);
  await store.sql(
    "update gatehouse.oauth set consumed = consumed - interval '11 seconds' where consumed is not null",
  );
  const stolen = await Promise.all(
    replicas.map(({ url }) => postForm(`${url}/oauth/token`, tokenForm(clientId, refreshToken))),
  );
  t.strictSame(new Set(stolen.map(({ body }) => body.error)), new Set(["invalid_grant"]));
  for (const token of [accessToken, String(next.body.access_token)]) {
    await checkEverywhere(t, token, "token_revoked");
  }
  t.equal(
    (await refresh(front, clientId, String(next.body.refresh_token))).body.error,
    "invalid_grant",
  );
});

function tokenForm(clientId: string, refreshToken: string) {
  return {
    ...{ grant_type: "refresh_token", client_id: clientId, refresh_token: refreshToken },
    resource: `${front.url}/mcp`,
  };
}

t.test("an app that is disconnected at one replica has no access at any", async (t) => {
  const browser = new PlainBrowser(front.url);
  const one = await obtainTokens(front, { ...alice, browser });
  const other = await obtainTokens(front, { ...alice, browser });
  const page = await browser.open(`${front.url}/oauth/applications`);
  t.equal(page.status, 200);
  t.match(page.text, one.clientId);
  t.match(page.text, other.clientId);
  const after = await browser.submit(page, { disconnect: one.clientId });
  await checkEverywhere(t, one.accessToken, "token_revoked");
  t.notMatch(after.text, one.clientId);
  await checkEverywhere(t, other.accessToken);

  const listed: { client: string; called: string[] }[] = JSON.parse(
    await store.good(["token", "list", "--json"]),
  );
  t.ok(listed.some(({ client }) => client === other.clientId));
  t.notOk(listed.some(({ client }) => client === one.clientId));
  t.match(await store.good(["token", "revoke", "--client", other.clientId]), "Ended what alice");
  await checkEverywhere(t, other.accessToken, "token_revoked");
});

t.test("a browser that logs out at one replica is logged out at all", async (t) => {
  const browser = new PlainBrowser(front.url);
  const url = `${front.url}/oauth/applications`;
  let page = await browser.submit(await browser.open(url), { ...alice, action: "login" });
  for (const _ of replicas) t.match((await browser.open(url)).text, "alice");
  page = await browser.submit(await browser.open(url), { action: "logout" });
  for (const _ of replicas) {
    page = await browser.open(url);
    t.match(page.text, 'value="login"');
  }
});

t.test("what a user's password opened is closed with it", async (t) => {
  const { clientId, accessToken, refreshToken } = await obtainTokens(front, alice);
  const { status } = await replica(2).send(
    ...(["PUT", "/api/users/alice/password", { new_password: "alice password" }] as const),
    await front.login(),
  );
  t.equal(status, 200);
  for (const one of replicas) t.equal((await send(one, list, accessToken)).status, 401);
  t.equal((await refresh(front, clientId, refreshToken)).body.error, "invalid_grant");
});
