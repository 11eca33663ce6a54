import t from "tap";
import { PlainBrowser } from "./browser.ts";
import { launch } from "./chromium.ts";
import { authorize, exchange, obtainTokens } from "./flow.ts";
import { authorizeUrl, openSetting, PASSWORD, postForm, registered } from "./kit.ts";

const redirect_uri = "com.example.app:/callback";
const app = { client_name: "Desk", redirect_uris: [redirect_uri] };

t.test("an app on the user's machine is answered by its own scheme", async (t) => {
  const setting = await openSetting(t);
  const clientId = await registered(setting, app);
  const tokens = await obtainTokens(setting, { clientId, parameters: { redirect_uri } });
  t.equal(tokens.callback.protocol, "com.example.app:");
  t.equal(tokens.callback.searchParams.get("iss"), setting.url);
  t.equal(tokens.callback.searchParams.get("state"), "s1");
  t.match(await setting.server.verify(tokens.accessToken), { clientId });
});

t.test("an app's redirect is compared exactly", async (t) => {
  const setting = await openSetting(t);
  const client_id = await registered(setting, app);
  for (const redirect_uri of [
    "com.example.app:/callback/",
    "com.example.app:/callback?x=1",
    "com.example.app://callback",
    "COM.example.app:/callback",
    "com.example.app2:/callback",
    "com.example.app:/../callback",
  ]) {
    const browser = new PlainBrowser(setting.url);
    const page = await browser.open(authorizeUrl(setting, { client_id, redirect_uri }));
    t.equal(page.status, 400, redirect_uri);
    t.ok(page.url.startsWith(setting.url), redirect_uri);
  }
});

t.test("another app that caught the code cannot use it", async (t) => {
  const setting = await openSetting(t);
  const clientId = await registered(setting, app);
  const authorized = await authorize(setting, { clientId, parameters: { redirect_uri } });
  const { body: without } = await postForm(`${setting.url}/oauth/token`, {
    grant_type: "authorization_code",
    client_id: clientId,
    code: authorized.callback.searchParams.get("code") ?? "",
    redirect_uri,
  });
  t.equal(without.error, "invalid_grant");
  const { body } = await exchange(setting, { ...authorized, verifier: "a".repeat(43) });
  t.equal(body.error, "invalid_grant");
});

t.test("an app's redirect opens its scheme to no page", async (t) => {
  const setting = await openSetting(t);
  const clientId = await registered(setting, {
    redirect_uris: ["com.example.app://pages.example/callback"],
  });
  const answer = await fetch(`${setting.url}/oauth/token`, {
    method: "POST",
    headers: { origin: "http://pages.example" },
    body: new URLSearchParams({ grant_type: "refresh_token", client_id: clientId }),
  });
  t.equal(answer.headers.get("access-control-allow-origin"), null);
});

t.test("a browser hands the answer to the app", async (t) => {
  const setting = await openSetting(t);
  const browser = await launch(t);
  const client_id = await registered(setting, app);
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  await page.goto(authorizeUrl(setting, { client_id, redirect_uri }));
  await page.getByLabel("Username").fill("alice");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("the app that opens com.example.app: links").waitFor();
  await page.getByText("The answer goes to a program on your own computer.").waitFor();
  const leaving = page.waitForRequest((request) => request.url().startsWith("com.example.app:"));
  await page.getByRole("button", { name: "Allow" }).click();
  const { searchParams } = new URL((await leaving).url());
  t.ok(searchParams.get("code"), "it leaves with the code");
  t.strictSame(
    complaints.filter((text) => /Content Security Policy/.test(text)),
    [],
  );
});
