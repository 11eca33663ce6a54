import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { text } from "node:stream/consumers";
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
import {
  ask,
  ConsoleClient,
  consoleConfig,
  openSignedIn,
  signedIn,
  startConsole,
  textOf,
} from "./kit.ts";

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
    const bob = await signedIn(url, "bob");
    t.equal((await bob.get("/sessions")).status, 200);
    await gateway.send(method, route, body, admin);
    t.equal((await bob.get("/sessions")).status, 303, `${method} ${route}`);
    await gateway.send("DELETE", path, {}, admin);
  }
});

t.test("an administrator who is demoted loses the pages of administrators", async (t) => {
  await gateway.addUser("carol", "Owner", "*");
  const carol = await signedIn(url, "carol");
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
  const access = { snapshot: { ...emptySnapshot, users: new Map([["alice", alice]]) } };
  const sessions = openSessions({ access, revocations }, () => clock.now);
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
  const client = await signedIn(url);
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

const policy =
  "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

await gateway.addUser("alice", "ReadWrite");

t.test("every response forbids caching, framing and scripts", async (t) => {
  const client = await signedIn(url);
  const routes = ["/sign-in", "/state", "/sessions", "/style.css", "/icon.svg", "/nowhere"];
  const answers = [
    ...(await Promise.all(routes.map((route) => client.get(route)))),
    await client.get("/state", { host: "evil.example" }),
    await client.post("/sessions/end", { csrf: "wrong" }),
    await client.post("/sign-out", {}, { "sec-fetch-site": "cross-site" }),
    await ask(`${url}/`),
  ];
  const statuses = answers.map(({ status }) => status);
  t.strictSame(statuses, [303, 200, 200, 200, 200, 404, 403, 403, 403, 303]);
  for (const { headers, text } of answers) {
    t.equal(headers["content-security-policy"], policy);
    t.equal(headers["cache-control"], "no-store");
    t.equal(headers["x-frame-options"], "DENY");
    t.equal(headers["x-content-type-options"], "nosniff");
    t.notMatch(text, /<script|style="|javascript:| on[a-z]+=/i);
  }
});

const named = startConsole(t, { console: 'public_url = "https://console.example.com"' });

t.test("only the console's own host names are accepted", async (t) => {
  const { url } = await named;
  const { port } = new URL(url);
  const good = ["console.example.com", "Console.example.com:443"];
  good.push(`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`);
  const bad = [
    "evil.example",
    `evil.example:${port}`,
    "console.example.com.evil.example",
    `console.example.com:${port}`,
    "console.example.com:80",
    "127.0.0.1",
    "localhost",
    `127.1:${port}`,
    `127.0.0.1:${port}@evil.example`,
    `localhost.evil.example:${port}`,
    `0.0.0.0:${port}`,
  ];
  for (const host of good) {
    t.equal((await ask(`${url}/sign-in`, { headers: { host } })).status, 200, host);
  }
  for (const host of bad) {
    const { status, headers } = await ask(`${url}/sign-in`, { headers: { host } });
    t.ok([400, 403].includes(status), `${host}: ${status}`);
    t.equal(headers["set-cookie"], undefined, host);
  }
});

t.test("behind https only cookies bound to the host are accepted", async (t) => {
  const { url } = await named;
  const headers = { host: "console.example.com", origin: "https://console.example.com" };
  const client = new ConsoleClient(url);
  const form = await client.get("/sign-in", headers);
  const flags = "=[\\w-]{43}; Path=/; HttpOnly; Secure; SameSite=Lax$";
  t.match(form.headers["set-cookie"]?.[0], RegExp(`^__Host-gatehouse-console-browser${flags}`));
  const login = { username: "admin", password: ADMIN_PASSWORD };
  const signIn = await client.post("/sign-in", login, headers);
  t.equal(signIn.status, 303);
  t.match(signIn.headers["set-cookie"]?.[0], RegExp(`^__Host-gatehouse-console${flags}`));
  t.equal((await client.get("/state", headers)).status, 200);
  const cookie = client.cookie.replaceAll("__Host-", "");
  t.equal((await client.get("/state", { ...headers, cookie })).status, 303);
});

t.test("on loopback the cookie is plain, HttpOnly and new for each session", async (t) => {
  const client = new ConsoleClient(url);
  await client.get("/sign-in");
  client.cookies.set("gatehouse-console", "chosen-by-an-attacker");
  const answer = await client.signIn();
  const [line = ""] = answer.headers["set-cookie"] ?? [];
  t.match(line, /^gatehouse-console=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/);
  const second = await signedIn(url);
  t.not(second.cookie, client.cookie);
  t.equal((await ask(`${url}/state`, { headers: { cookie: client.cookie } })).status, 200);
});

t.test("no bearer token opens a page", async (t) => {
  const authorization = `Bearer ${await gateway.login()}`;
  for (const route of ["/", "/state", "/sessions"]) {
    const answer = await ask(`${url}${route}`, { headers: { authorization } });
    t.equal(answer.status, 303, route);
    t.match(answer.headers.location, /^\/sign-in/);
  }
  const cookie = `gatehouse-console=${await gateway.login()}`;
  t.equal((await ask(`${url}/state`, { headers: { cookie } })).status, 303, "as a cookie");
});

t.test("a form needs the token of its own session", async (t) => {
  const client = await signedIn(url);
  const form = { session: "none" };
  for (const type of ["text/plain", "multipart/form-data; boundary=x", "application/json"]) {
    const { status } = await client.post("/sessions/end", form, { "content-type": type });
    t.ok([403, 415].includes(status), `${type}: ${status}`);
  }
  const other = (await (await signedIn(url)).get("/sessions")).text;
  const [, token = ""] = /name="csrf" value="([^"]+)"/.exec(other) ?? [];
  for (const csrf of ["", "x", "A".repeat(43), token]) {
    t.equal((await client.post("/sessions/end", { ...form, csrf })).status, 403, csrf);
  }
  t.equal((await client.post("/sessions/end", form)).status, 303);
});

t.test("other pages on this machine can link to the console but load nothing", async (t) => {
  const page = await openSignedIn(t, url);
  const site = await openSite(
    t,
    `<a href="${url}/state">State</a><img src="${url}/icon.svg"><iframe src="${url}/state"></iframe>
<form method="post" action="${url}/sign-out"><button>Win a prize</button></form>`,
  );
  await page.goto(site);
  t.equal(await page.evaluate("document.images[0].naturalWidth"), 0, "no picture");
  const cookies = await page.context().cookies();
  const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
  for (const dest of ["image", "iframe", "script", "empty"]) {
    const headers = { cookie, "sec-fetch-site": "same-site", "sec-fetch-dest": dest };
    t.equal((await ask(`${url}/state`, { headers })).status, 403, dest);
  }
  const refused = page.waitForResponse(`${url}/sign-out`);
  await page.getByRole("button", { name: "Win a prize" }).click();
  t.equal((await refused).status(), 403);
  await page.goto(site);
  await page.getByRole("link", { name: "State" }).click();
  await page.getByRole("heading", { name: "State", exact: true }).waitFor();
});

t.test("after signing out, the back button shows nothing", async (t) => {
  const page = await openSignedIn(t, url, "/state");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  t.equal(await page.getByText("Access version").count(), 0);
});

const password = ADMIN_PASSWORD;
/** A form for each change, as the console's pages send it. */
const forms: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "/access/entry": { user: "alice", database: "main", table: "", role: "Owner", password },
  "/access/end": { user: "alice", database: "main", table: "", password },
  "/access/act": { user: "alice", action: "disable", password },
  "/access/new": { user: "eve", database: "main", role: "Owner", new_password: password, password },
  "/access/check": { user: "alice", via: "query", query: "{}" },
  "/approvals/none": { decision: "approve", password },
  "/sessions/end": { session: "none" },
  "/sessions/disconnect": { grant: "none" },
  "/sessions/end-all": { user: "alice" },
  "/sessions/revoke": { token: "none" },
  "/sessions/password": { new_password: "another password", password },
  "/sign-out": {},
};

t.test("no form is accepted from another origin", async (t) => {
  const client = await signedIn(url);
  const before = readFileSync(gateway.accessFile, "utf8");
  const elsewhere = `http://127.0.0.1:${Number(new URL(url).port) + 1}`;
  const origins: Readonly<Record<string, string>>[] = [
    { "sec-fetch-site": "same-site", origin: elsewhere },
    { "sec-fetch-site": "same-site" },
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "cross-site", origin: "null" },
    { "sec-fetch-site": "cross-site", origin: url },
    { "sec-fetch-site": "", origin: elsewhere },
    { "sec-fetch-site": "", origin: "null" },
    { "sec-fetch-site": "", origin: "" },
    { "sec-fetch-site": "", origin: "", referer: `${url}/access` },
  ];
  const seen = "enabled\nmain: ReadWrite";
  for (const [route, form] of Object.entries(forms)) {
    for (const headers of origins) {
      const { status } = await client.post(route, { ...form, seen }, headers);
      t.equal(status, 403, `${route} ${JSON.stringify(headers)}`);
    }
    t.equal((await client.get(route)).headers["set-cookie"], undefined, "GET changes nothing");
  }
  t.equal(readFileSync(gateway.accessFile, "utf8"), before);
  t.equal((await client.get("/state")).status, 200, "still signed in");
});

t.test("a browser cannot submit forms from another port or an opaque origin", async (t) => {
  const page = await openSignedIn(t, url);
  const form = `<form method="post" action="${url}/sessions/end-all"><input name="user" value="admin"><button>Go</button></form>`;
  const sandbox = `<iframe sandbox="allow-forms allow-scripts" srcdoc='${form}<script>document.forms[0].submit()</script>'></iframe>`;
  const script = `<script>fetch("${url}/sessions/end-all", { method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({ user: "admin" }) })</script>`;
  for (const attack of [sandbox, script, `${form}<script>document.forms[0].submit()</script>`]) {
    const target = `${url}/sessions/end-all`;
    // The browser hides the response from scripts of another origin, and from this test.
    const other = await page.context().newPage();
    const outcome = Promise.any([
      other.waitForResponse(target).then((answer) => answer.status()),
      other.waitForEvent("requestfailed", (asked) => asked.url() === target).then(() => 403),
    ]);
    await other.goto(await openSite(t, attack), { waitUntil: "commit" });
    t.equal(await outcome, 403);
    await other.close();
  }
  await page.goto(`${url}/state`);
  await page.getByRole("heading", { name: "State", exact: true }).waitFor();
});

/** Sends raw bytes. */
async function answerTo(url: string, bytes: string): Promise<string> {
  const { port } = new URL(url);
  const socket = connect(Number(port), "127.0.0.1");
  socket.end(bytes);
  return text(socket);
}

t.test("a foreign host name is refused in each part of a request", async (t) => {
  const { host } = new URL(url);
  const end = "Connection: close\r\n\r\n";
  const requests = [
    `GET / HTTP/1.1\r\nHost: evil.example\r\n${end}`,
    `GET / HTTP/1.1\r\nHost: evil.example\r\nHost: ${host}\r\n${end}`,
    `GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n${end}`,
    `GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: ${host}\r\n${end}`,
    `GET / HTTP/1.0\r\n\r\n`,
  ];
  for (const bytes of requests) {
    t.match(await answerTo(url, bytes), /^HTTP\/1\.1 40[03] /, bytes);
  }
  const target = `GET http://evil.example/ HTTP/1.1\r\nHost: ${host}\r\n${end}`;
  const absolute = await answerTo(url, target);
  t.notMatch(absolute, "evil.example");
  t.match(absolute, /^HTTP\/1\.1 403 /, "the host of the target counts");
  const own = await answerTo(url, `GET http://${host}/ HTTP/1.1\r\nHost: evil.example\r\n${end}`);
  t.match(own, /^HTTP\/1\.1 303 /);
  t.notMatch(own, "evil.example");
});

t.test("confirming a change shares the throttle of logins", async (t) => {
  const { gateway, url } = await startConsole(t, { auth: "max_failures_per_user_and_address = 3" });
  const client = await signedIn(url);
  const form = { user: "admin", action: "disable", seen: "", password: "wrong horse" };
  for (let at = 0; at < 3; at++) t.equal((await client.post("/access/act", form)).status, 401);
  t.equal((await client.post("/access/act", form)).status, 429);
  const login = { username: "admin", password };
  t.equal((await gateway.send("POST", "/login", login)).status, 429, "at /login too");
});

t.test("cookies from before sign-in and after sign-out open no page", async (t) => {
  const victim = new ConsoleClient(url);
  await victim.get("/sign-in");
  const planted = victim.cookie;
  await victim.signIn();
  t.equal((await ask(`${url}/state`, { headers: { cookie: planted } })).status, 303);
  const stolen = { headers: { cookie: victim.cookie } };
  t.equal((await ask(`${url}/state`, stolen)).status, 200);
  await victim.get("/sessions");
  t.equal((await victim.post("/sign-out", {})).status, 303);
  for (const route of ["/state", "/access", "/sessions", "/approvals"]) {
    t.equal((await ask(`${url}${route}`, stolen)).status, 303, route);
  }
});

t.test("a chunked form is read, and refused if it is too large", async (t) => {
  const client = new ConsoleClient(url);
  await client.get("/sign-in");
  const form = { username: "admin", password, next: "/state" };
  const chunked = { "transfer-encoding": "chunked" };
  t.match(await client.post("/sign-in", form, chunked), {
    status: 303,
    headers: { location: "/state" },
  });
  await client.get("/sessions");
  const large = { user: "alice", via: "query", query: "x".repeat(300_000) };
  t.equal((await client.post("/access/check", large, chunked)).status, 413);
  t.equal((await client.post("/access/check", large)).status, 413);
  t.equal((await client.get("/state")).status, 200, "still signed in");
});
