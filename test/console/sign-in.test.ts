import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { blankUser, emptySnapshot } from "../../src/core/access/snapshot.ts";
import { RevocationIndex } from "../../src/core/identity/revocations.ts";
import { browserNamed } from "../../src/features/console/own-sessions.ts";
import { IDLE_MS, LONGEST_MS, openSessions } from "../../src/features/console/sessions.ts";
import { installNothing } from "../commands/kit.ts";
import { noTerminal, Terminal } from "../commands/terminal.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD, startGateway } from "../kit/gateway.ts";
import { openSite } from "../oauth/chromium.ts";
import { ConsoleClient, consoleConfig, signedIn, startConsole, textOf } from "./kit.ts";

const { gateway, url } = await startConsole(t);

t.test("a session ends with a new password, by disabling, revocation and removal", async (t) => {
  const admin = await gateway.login();
  const path = "/api/users/bob";
  const ends: [method: string, path: string, body: object][] = [
    ["PUT", `${path}/password`, { new_password: "another password" }],
    ["PATCH", path, { disabled: true }],
    ["DELETE", `${path}/tokens`, {}],
    ["DELETE", path, {}],
  ];
  for (const [method, route, body] of ends) {
    await gateway.addUser("bob", "ReadOnly");
    const bob = await signedIn(t, url, "bob");
    t.equal((await bob.get("/sessions")).status, 200);
    await gateway.send(method, route, body, admin);
    t.equal((await bob.get("/sessions")).status, 303, `${method} ${route}`);
    await gateway.send("DELETE", path, {}, admin);
  }
});

t.test("an administrator who is demoted loses the pages of administrators", async (t) => {
  await gateway.addUser("carol", "Owner", "*");
  const carol = await signedIn(t, url, "carol");
  t.equal((await carol.get("/state")).status, 200);
  await gateway.edit((text) =>
    text.replace(/(username = "carol"\ndatabase = "\*"\nrole = )"Owner"/, '$1"ReadOnly"'),
  );
  const isDemoted = async () => (await carol.get("/state")).status === 403;
  await eventually("the demotion is in force", isDemoted);
  const page = await carol.get("/sessions?user=admin");
  t.notMatch(page.text, /admin/);
  t.equal((await carol.post("/sessions/end-all", { user: "admin" })).status, 403);
});

t.test("sign-in shares the throttle of logins", async (t) => {
  const { gateway, url } = await startConsole(t, {
    auth: "max_failures_per_user_and_address = 3",
  });
  const client = new ConsoleClient(url);
  for (let at = 0; at < 3; at++) {
    const { status, text } = await client.signIn("admin", "wrong horse");
    t.equal(status, 401);
    t.match(text, /role="alert"[\s\S]*The username or the password is wrong/);
    t.notMatch(text, "wrong horse");
  }
  const answer = await client.signIn();
  t.equal(answer.status, 429);
  t.match(answer.headers["retry-after"], /^\d+$/);
  const login = { username: "admin", password: ADMIN_PASSWORD };
  t.equal((await gateway.send("POST", "/login", login)).status, 429, "at /login too");
});

t.test("sign-in redirects only to the console's own pages", async (t) => {
  const elsewhere = [
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "javascript:alert(1)",
    "/\tevil",
    "",
  ];
  for (const next of elsewhere) {
    const client = new ConsoleClient(url);
    await client.get(`/sign-in?next=${encodeURIComponent(next)}`);
    const answer = await client.post("/sign-in", {
      username: "admin",
      password: ADMIN_PASSWORD,
      next,
    });
    t.equal(answer.headers.location, "/", next);
  }
  const client = new ConsoleClient(url);
  const { headers } = await client.get("/sessions?user=bob");
  t.equal(headers.location, "/sign-in?next=%2Fsessions%3Fuser%3Dbob");
});

const alice = blankUser("alice");
const place = { address: "127.0.0.1", userAgent: "test" };

async function openSetting() {
  const clock = { now: 1000 };
  const revocations = new RevocationIndex();
  const state = { snapshot: { ...emptySnapshot, users: new Map([["alice", alice]]) } };
  const context = { snapshot: () => state.snapshot, revocations };
  const sessions = openSessions(context, () => clock.now);
  return { clock, revocations, sessions, secret: await sessions.open(alice, place) };
}

t.test("a session ends after half an hour without use", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  clock.now += IDLE_MS - 1;
  t.match(await sessions.use(secret), { username: "alice" });
  clock.now += IDLE_MS - 1;
  t.match(await sessions.use(secret), { username: "alice" });
  clock.now += IDLE_MS;
  t.equal(await sessions.use(secret), undefined);
});

t.test("a session in constant use ends after twelve hours", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  const end = clock.now + LONGEST_MS;
  for (; clock.now < end; clock.now += IDLE_MS / 2) t.ok(await sessions.use(secret));
  t.equal(await sessions.use(secret), undefined);
  t.strictSame(await sessions.list(), []);
});

t.test("a page that refreshes itself does not extend the session", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  clock.now += IDLE_MS - 1;
  t.match(await sessions.use(secret, true), { username: "alice" });
  clock.now += 1;
  t.equal(await sessions.use(secret, true), undefined);
});

t.test("listing sessions does not extend them", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  clock.now += IDLE_MS - 1;
  t.equal((await sessions.list("alice")).length, 1);
  clock.now += 1;
  t.strictSame(await sessions.list("alice"), []);
  t.equal(await sessions.use(secret), undefined);
});

t.test("a revocation ends earlier sessions but not later ones", async (t) => {
  const { revocations, sessions, secret } = await openSetting();
  revocations.add({ user: "alice", before: Math.floor(Date.now() / 1000) + 2 });
  t.equal(await sessions.use(secret), undefined);
  t.ok(await sessions.use(await sessions.open(alice, place)));
});

t.test("the twenty-first session of a user ends the least recently used one", async (t) => {
  const { clock, sessions, secret } = await openSetting();
  const secrets: string[] = [];
  while (secrets.length < 20) {
    clock.now++;
    secrets.push(await sessions.open(alice, place));
  }
  t.equal(await sessions.use(secret), undefined);
  for (const one of secrets) t.ok(await sessions.use(one));
});

t.test("browsers are recognized by their user agents", (t) => {
  const webkit = "AppleWebKit/537.36 (KHTML, like Gecko)";
  const known = {
    "Firefox 145 on Linux":
      "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    "Chrome 142 on Windows": `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/142.0.0.0 Safari/537.36`,
    "Edge 142 on Windows": `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0`,
    "Safari 18 on macOS":
      "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15",
    "Safari 18 on iOS":
      "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
    "Chrome 142 on Android": `Mozilla/5.0 (Linux; Android 16; Pixel 9) ${webkit} Chrome/142.0.0.0 Mobile Safari/537.36`,
    "curl/8.15.0": "curl/8.15.0",
    "unknown browser": "",
  };
  for (const [name, userAgent] of Object.entries(known)) t.equal(browserNamed(userAgent), name);
  t.end();
});

const html = { headers: { accept: "text/html" } };

t.test("several workers share one console, and each links to it", async (t) => {
  const { gateway, url } = await startConsole(t, { config: "[server]\nworkers = 2\n" });
  const client = await signedIn(t, url);
  for (let at = 0; at < 8; at++) {
    t.equal((await client.get("/state")).status, 200);
    t.match((await gateway.request("/", html)).text, `<a href="${url}">${url}</a> is the console`);
  }
  for (const name of ["bob", "carol", "dave"]) {
    await gateway.addUser(name, "ReadOnly");
    const text = textOf((await client.get("/state")).text);
    t.match(text, `${name} main + SELECT no grant → ReadOnly`, "whichever worker wrote it");
  }
});

t.test("a gateway without a console explains how to enable it", async (t) => {
  const gateway = await startGateway(t);
  const { text } = await gateway.request("/", html);
  t.match(text, "<code>[console]</code> in gateway.toml");
});

t.test("the greeting says where the console is", { skip: noTerminal }, async (t) => {
  const gatehouse = installNothing(t);
  const { config, url } = await consoleConfig();
  const cases: [string, string | RegExp][] = [
    ["", 'off; to enable it, set [console] listen = "127.0.0.1:8081"'],
    [config, url],
    ['[console]\nlisten = "127.0.0.1:0"\n', /http:\/\/127\.0\.0\.1:[1-9]\d+/],
  ];
  for (const [section, where] of cases) {
    writeFileSync(path.join(gatehouse.home, "gateway.toml"), `[server]\nport = 0\n${section}`);
    const terminal = new Terminal(t, gatehouse.home, ["serve"]);
    await terminal.until(/Next, in another terminal/);
    t.match(/Console {8}(.*)/.exec(terminal.shown)?.[1], where);
    terminal.type("\u0003");
    await terminal.ended();
  }
});

t.test("a console address that is in use is reported", async (t) => {
  const { host } = new URL(await openSite(t, "taken"));
  const config = `[console]\nlisten = "${host}"\n`;
  const gatehouse = installNothing(t);
  writeFileSync(path.join(gatehouse.home, "gateway.toml"), `[server]\nport = 0\n${config}`);
  const { code, stderr } = await gatehouse.run("serve");
  t.equal(code, 1);
  t.match(stderr, `${host} is in use by another process; choose another with console.listen`);
});
