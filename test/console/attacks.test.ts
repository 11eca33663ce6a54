import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import t from "tap";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { openSite } from "../oauth/chromium.ts";
import { ask, ConsoleClient, openPage, signedIn, signInBrowser, startConsole } from "./kit.ts";

const policy =
  "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const { gateway, url } = await startConsole(t);
await gateway.addUser("alice", "ReadWrite");

t.test("every response forbids caching, framing and scripts", async (t) => {
  const client = await signedIn(t, url);
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
  const good = ["console.example.com", `localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`];
  const bad = [
    "evil.example",
    `evil.example:${port}`,
    "console.example.com.evil.example",
    `console.example.com:${port}`,
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
  const second = await signedIn(t, url);
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
  const client = await signedIn(t, url);
  const form = { session: "none" };
  for (const type of ["text/plain", "multipart/form-data; boundary=x", "application/json"]) {
    const { status } = await client.post("/sessions/end", form, { "content-type": type });
    t.ok([403, 415].includes(status), `${type}: ${status}`);
  }
  const other = (await (await signedIn(t, url)).get("/sessions")).text;
  const [, token = ""] = /name="csrf" value="([^"]+)"/.exec(other) ?? [];
  for (const csrf of ["", "x", "A".repeat(43), token]) {
    t.equal((await client.post("/sessions/end", { ...form, csrf })).status, 403, csrf);
  }
  t.equal((await client.post("/sessions/end", form)).status, 303);
});

t.test("other pages on this machine can link to the console but load nothing", async (t) => {
  const page = await openPage(t);
  await signInBrowser(page, url);
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
  const page = await openPage(t);
  await signInBrowser(page, url);
  await page.goto(`${url}/state`);
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
  const client = await signedIn(t, url);
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
  const page = await openPage(t);
  await signInBrowser(page, url);
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
  const client = await signedIn(t, url);
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
