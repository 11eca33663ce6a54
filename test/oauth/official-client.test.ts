import { auth } from "@modelcontextprotocol/client";
import t from "tap";
import { PlainBrowser } from "./browser.ts";
import { openSetting, PASSWORD, REDIRECT } from "./kit.ts";
import { Notebook } from "./notebook.ts";

t.test("the official client finds its way in, and refreshes", async (t) => {
  const setting = await openSetting(t);
  const client = new Notebook(REDIRECT);
  const serverUrl = `${setting.url}/mcp`;
  t.equal(await auth(client, { serverUrl }), "REDIRECT");
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(client.sentTo?.href ?? "");
  const right = { username: "alice", password: PASSWORD, action: "login" };
  const consent = await browser.submit(login, right);
  const yes = { database: "*", reach: "full", action: "allow" };
  const { searchParams } = new URL((await browser.submit(consent, yes)).url);
  const authorizationCode = searchParams.get("code") ?? "";
  const iss = searchParams.get("iss") ?? "";
  t.equal(await auth(client, { serverUrl, authorizationCode, iss }), "AUTHORIZED");
  const first = client.tokens()?.access_token ?? "";
  t.match(await setting.server.verify(first), { username: "alice", database: "*" });
  t.equal(await auth(client, { serverUrl }), "AUTHORIZED");
  const second = client.tokens()?.access_token ?? "";
  t.not(second, first);
  t.match(await setting.server.verify(second), { username: "alice" });
});
