import t from "tap";
import { PlainBrowser } from "./browser.ts";
import { authorize, exchange } from "./flow.ts";
import { authorizeUrl, openSetting, PASSWORD, registered, type Setting } from "./kit.ts";

const loginAs = (username: string) => ({ username, password: PASSWORD, action: "login" });
const yes = { database: "*", reach: "full", action: "allow" };

async function open(setting: Setting, browser: PlainBrowser) {
  return browser.open(authorizeUrl(setting, { client_id: await registered(setting) }));
}

t.test("a page that another browser was given does nothing here", async (t) => {
  const setting = await openSetting(t);
  const [victim, attacker] = [new PlainBrowser(setting.url), new PlainBrowser(setting.url)];
  await authorize(setting, { browser: victim });
  const consent = await attacker.submit(await open(setting, attacker), loginAs("bob"));
  for (const page of [
    await victim.open(consent.url),
    await victim.submit(consent, yes),
    await victim.open(consent.url.replace("/interaction/", "/authorize/")),
  ]) {
    t.equal(page.status, 400);
    t.ok(page.url.startsWith(setting.url));
  }
  t.match((await attacker.submit(consent, yes)).url, /code=/, "it still waits where it belongs");
});

t.test("a consent is that of the user who is logged in, or none", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const [first, second] = [await open(setting, browser), await open(setting, browser)];
  const ofAlice = await browser.submit(first, loginAs("alice"));
  const ofBob = await browser.submit(second, loginAs("bob"));
  t.match(ofBob.text, "Logged in as <strong>bob</strong>");
  t.notMatch(ofBob.text, /<script/);
  const late = await browser.submit(ofAlice, yes);
  t.equal(late.status, 400, "alice is not logged in any more");
  t.ok(late.url.startsWith(setting.url));
  t.match((await browser.submit(ofBob, yes)).url, /code=/);
});

t.test("two pages of one user do not end each other", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const [first, second] = [await open(setting, browser), await open(setting, browser)];
  const pages = [
    await browser.submit(first, loginAs("alice")),
    await browser.submit(second, loginAs("alice")),
  ];
  for (const page of pages) t.match((await browser.submit(page, yes)).url, /code=/);
});

t.test("a login gives the browser another session", async (t) => {
  const setting = await openSetting(t);
  const browser = new PlainBrowser(setting.url);
  const session = () => browser.cookies.find(({ name }) => name === "gatehouse_session")?.value;
  const page = await open(setting, browser);
  const planted = session();
  await browser.submit(page, loginAs("alice"));
  t.ok(session());
  t.not(session(), planted, "one that was planted before is worth nothing");
});

t.test("an answer of one app is worth nothing to another one", async (t) => {
  const setting = await openSetting(t);
  const mine = await authorize(setting, { username: "bob" });
  const theirs = await authorize(setting, { username: "alice" });
  const mixed = await exchange(setting, { ...mine, callback: theirs.callback });
  t.equal(mixed.body.error, "invalid_grant");
  const swapped = await exchange(setting, { ...theirs, verifier: mine.verifier });
  t.equal(swapped.body.error, "invalid_grant");
});
