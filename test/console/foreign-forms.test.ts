/** Forms and requests that do not come from the console's own pages, or by its own names. */
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import t from "tap";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { launch, openSite } from "../oauth/chromium.ts";
import { ask, ConsoleClient, signedIn, signInBrowser, startConsole } from "./kit.ts";

const password = ADMIN_PASSWORD;
/** A form for everything that can be changed, as the console's pages send it. */
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
  "/sign-out": {},
};

const setting = startConsole(t).then(async ({ gateway, url }) => {
  await gateway.addUser("alice", "ReadWrite");
  return { gateway, url };
});

t.test("no form is taken from another origin, whatever it holds", async (t) => {
  const { gateway, url } = await setting;
  const client = await signedIn(t, url);
  const before = readFileSync(gateway.accessFile, "utf8");
  const elsewhere = `http://127.0.0.1:${Number(new URL(url).port) + 1}`;
  const origins: Readonly<Record<string, string>>[] = [
    { "sec-fetch-site": "same-site", origin: elsewhere },
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

t.test("a browser sends none for a page of another port, or of no origin", async (t) => {
  const { url } = await setting;
  const browser = await launch(t);
  const context = await browser.newContext();
  const page = await context.newPage();
  await signInBrowser(page, url);
  const form = `<form method="post" action="${url}/sessions/end-all"><input name="user" value="admin"><button>Go</button></form>`;
  const sandbox = `<iframe sandbox="allow-forms allow-scripts" srcdoc='${form}<script>document.forms[0].submit()</script>'></iframe>`;
  const script = `<script>fetch("${url}/sessions/end-all", { method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({ user: "admin" }) })</script>`;
  for (const attack of [sandbox, script, `${form}<script>document.forms[0].submit()</script>`]) {
    const target = `${url}/sessions/end-all`;
    // What is answered to a script elsewhere is kept from it, and from here.
    const other = await context.newPage();
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

/** What is answered to bytes as they are. */
async function answerTo(url: string, bytes: string): Promise<string> {
  const { port } = new URL(url);
  const socket = connect(Number(port), "127.0.0.1");
  socket.end(bytes);
  return text(socket);
}

t.test("no other name leads anywhere, in whatever part of a request it stands", async (t) => {
  const { url } = await setting;
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
  const absolute = await answerTo(
    url,
    `GET http://evil.example/ HTTP/1.1\r\nHost: ${host}\r\n${end}`,
  );
  t.notMatch(absolute, "evil.example");
  t.match(absolute, /^HTTP\/1\.1 (?:40[034]|303) /);
});

t.test("a password asked for again is guessed under the throttle of every login", async (t) => {
  const { gateway, url } = await startConsole(t, { auth: "max_failures_per_user_and_address = 3" });
  const client = await signedIn(t, url);
  const form = { user: "admin", action: "disable", seen: "", password: "wrong horse" };
  for (let at = 0; at < 3; at++) t.equal((await client.post("/access/act", form)).status, 401);
  t.equal((await client.post("/access/act", form)).status, 429);
  const login = { username: "admin", password };
  t.equal((await gateway.send("POST", "/login", login)).status, 429, "at /login, too");
});

t.test(
  "a session is no browser's that has not signed in, and nobody's once it is over",
  async (t) => {
    const { url } = await setting;
    const victim = new ConsoleClient(url);
    await victim.get("/sign-in");
    const planted = new Map(victim.cookies);
    await victim.signIn();
    const stale = Array.from(planted, ([name, value]) => `${name}=${value}`).join("; ");
    t.equal((await ask(`${url}/state`, { headers: { cookie: stale } })).status, 303, "from before");
    const stolen = victim.cookie;
    t.equal((await ask(`${url}/state`, { headers: { cookie: stolen } })).status, 200);
    await victim.get("/sessions");
    t.equal((await victim.post("/sign-out", {})).status, 303);
    for (const route of ["/state", "/access", "/sessions", "/approvals"]) {
      const { status, headers } = await ask(`${url}${route}`, { headers: { cookie: stolen } });
      t.equal(status, 303, route);
      t.equal(headers["cache-control"], "no-store");
    }
  },
);

t.test("a form that arrives in chunks is read, and refused once it is too large", async (t) => {
  const { url } = await setting;
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
