import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { send } from "../journeys/mcp.ts";
import { eventually } from "../kit/eventually.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorize, exchange, obtainTokens, refresh } from "../oauth/flow.ts";
import { authorizeUrl, postForm, register } from "../oauth/kit.ts";
import { Wire } from "./faults/wire.ts";
import { addUser, openReplicated } from "./round-robin.ts";

const alice = { username: "alice", password: "alice password" };

t.test("without the store the authorization server says so at once", async (t) => {
  const wires: Wire[] = [];
  const settings = { mcp: "enabled = true", maxStaleness: 60, server: await sharedServer() };
  const { front, replicas } = await openReplicated(t, settings, async (store) => {
    const wire = await Wire.to(t, store.server.port);
    wires.push(wire);
    return [store.url.replace(`:${store.server.port}/`, `:${wire.port}/`)];
  });
  await addUser(front, "alice", "ReadWrite");
  const { accessToken, refreshToken, clientId } = await obtainTokens(front, alice);
  const authorized = await authorize(front, alice);
  const browser = new PlainBrowser(front.url);
  const page = await browser.open(authorizeUrl(front, { client_id: clientId }));
  const login = await browser.open(`${front.url}/oauth/applications`);

  for (const wire of wires) wire.cut();
  await eventually("the replica has noticed", async () => {
    const { body } = await front.request("/readyz");
    return body.store === "unreachable";
  });
  const away = { status: 503, body: { error: "temporarily_unavailable" } };
  const answers = [
    await register(front),
    await exchange(front, authorized),
    await refresh(front, clientId, refreshToken),
  ];
  for (const token of [accessToken, refreshToken]) {
    const fields = { client_id: clientId, token };
    answers.push(await postForm(`${front.url}/oauth/revoke`, fields));
  }
  for (const answer of answers) t.match(answer, away);
  const pages = [
    await browser.open(authorizeUrl(front, { client_id: clientId })),
    await browser.submit(page, { ...alice, action: "login" }),
    await browser.open(page.url),
    await browser.submit(login, { ...alice, action: "login" }),
  ];
  for (const { status, text } of pages) t.match({ status, text }, { status: 503, text: /<html/ });
  for (const { headers } of [...answers, ...pages]) t.equal(headers.get("retry-after"), "1");
  for (const path of ["/oauth/jwks", "/.well-known/oauth-authorization-server"]) {
    t.equal((await front.request(path)).status, 200, path);
  }
  const list = statelessCall("tools/list");
  t.equal((await send(front, list, accessToken)).status, 200, "tokens open what they opened");

  for (const wire of wires) wire.mend();
  await eventually("the store is reached", async () => {
    const { body } = await front.request("/readyz");
    return body.store === "reached";
  });
  t.equal((await exchange(front, authorized)).status, 200, "nothing was used up");
  for (const replica of replicas) t.equal((await send(replica, list, accessToken)).status, 200);
});
