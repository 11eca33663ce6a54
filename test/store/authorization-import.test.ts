import { copyFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { callTool, refusalOf, send } from "../journeys/mcp.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { statelessCall } from "../mcp/messages.ts";
import { obtainTokens, refresh } from "../oauth/flow.ts";
import { postForm } from "../oauth/kit.ts";
import { makeStore, storeConfig } from "./kit.ts";
import { addUser } from "./round-robin.ts";

const list = statelessCall("tools/list");
const alice = { username: "alice", password: "alice password" };

t.test("apps that were let in by a gateway over files stay so over a store", async (t) => {
  const port = await freePort();
  const home = temporaryHome(t);
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const options = { home, port, upstream: upstream.url };
  const before = await startGateway(t, options);
  await addUser(before, "alice", "ReadWrite");
  const [app, revoked] = [await obtainTokens(before, alice), await obtainTokens(before, alice)];
  const next = await refresh(before, app.clientId, app.refreshToken);
  t.equal((await callTool(before, "whoami", {}, app.accessToken)).status, 200);
  const fields = { client_id: revoked.clientId, token: revoked.accessToken };
  t.equal((await postForm(`${before.url}/oauth/revoke`, fields)).status, 200);
  await before.service.stop();

  const store = await makeStore(t, {}, await sharedServer());
  copyFileSync(path.join(store.home, "store.key"), path.join(home, "store.key"));
  const config = storeConfig(store.url, { mcp: "enabled = true" });
  writeConfiguration(home, { ...options, config });
  t.match(await runCommand(home, ["store", "import", before.accessFile]), {
    code: 0,
    stdout: /with 2 apps let in/,
  });

  const after = await startGateway(t, { ...options, config });
  t.equal((await send(after, list, app.accessToken)).status, 200);
  t.equal(refusalOf(await send(after, list, revoked.accessToken)), "token_revoked");
  t.equal((await refresh(after, revoked.clientId, revoked.refreshToken)).status, 200);
  const { stdout } = await runCommand(home, ["token", "list", "--json"]);
  t.match(
    JSON.parse(stdout).find(({ client }: { client: string }) => client === app.clientId),
    { username: "alice", called: ["whoami"] },
  );
  const last = await refresh(after, app.clientId, String(next.body.refresh_token));
  t.equal(last.status, 200);
  await store.sql("update gatehouse.oauth set consumed = consumed - interval '11 seconds'");
  const stolen = await refresh(after, app.clientId, app.refreshToken);
  t.equal(stolen.body.error, "invalid_grant", "it was used before the import");
  t.equal(refusalOf(await send(after, list, String(last.body.access_token))), "token_revoked");
});
