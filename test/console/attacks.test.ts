import t from "tap";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { launch, openSite } from "../oauth/chromium.ts";
import { ask, ConsoleClient, signedIn, signInBrowser, startConsole } from "./kit.ts";

const policy =
  "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

t.test("every answer is kept by nobody, framed by nobody, and runs no script", async (t) => {
  const { url } = await startConsole(t);
  const client = await signedIn(t, url);
  const answers = [
    await client.get("/sign-in"),
    await client.get("/state"),
    await client.get("/sessions"),
    await client.get("/style.css"),
    await client.get("/icon.svg"),
    await client.get("/nowhere"),
    await client.get("/state", { host: "evil.example" }),
    await client.post("/sessions/end", { csrf: "wrong" }),
    await client.post("/sign-out", {}, { "sec-fetch-site": "cross-site" }),
    await ask(`${url}/`),
  ];
  t.strictSame(
    answers.map(({ status }) => status),
    [303, 200, 200, 200, 200, 404, 403, 403, 403, 303],
  );
  for (const { headers, text } of answers) {
    t.equal(headers["content-security-policy"], policy);
    t.equal(headers["cache-control"], "no-store");
    t.equal(headers["x-frame-options"], "DENY");
    t.equal(headers["x-content-type-options"], "nosniff");
    t.notMatch(text, /<script|style="|javascript:| on[a-z]+=/i);
  }
});

t.test("only the console's own names lead to it", async (t) => {
  const { url } = await startConsole(t, { console: 'public_url = "https://console.example.com"' });
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

t.test("behind https cookies are bound to the host, and no other is taken there", async (t) => {
  const { url } = await startConsole(t, { console: 'public_url = "https://console.example.com"' });
  const host = "console.example.com";
  const form = await ask(`${url}/sign-in`, { headers: { host } });
  const [browser = ""] = form.headers["set-cookie"] ?? [];
  t.match(
    browser,
    /^__Host-gatehouse-console-browser=[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Lax$/,
  );
  const csrf = /name="csrf" value="([^"]+)"/.exec(form.text)?.[1] ?? "";
  const signIn = await ask(`${url}/sign-in`, {
    method: "POST",
    headers: {
      host,
      origin: "https://console.example.com",
      "content-type": "application/x-www-form-urlencoded",
      cookie: browser.split(";")[0] ?? "",
    },
    body: String(new URLSearchParams({ csrf, username: "admin", password: ADMIN_PASSWORD })),
  });
  t.equal(signIn.status, 303);
  const [session = ""] = signIn.headers["set-cookie"] ?? [];
  t.match(session, /^__Host-gatehouse-console=[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
  const cookie = session.split(";")[0] ?? "";
  t.equal((await ask(`${url}/state`, { headers: { host, cookie } })).status, 200);
  const plain = cookie.replace("__Host-", "");
  t.equal(
    (await ask(`${url}/state`, { headers: { host, cookie: plain } })).status,
    303,
    "a plain cookie",
  );
});

t.test(
  "on this machine the cookie is plain, for the server alone, and a new one each time",
  async (t) => {
    const { url } = await startConsole(t);
    const client = new ConsoleClient(url);
    await client.get("/sign-in");
    client.cookies.set("gatehouse-console", "chosen-by-somebody-else");
    const answer = await client.signIn();
    const [line = ""] = answer.headers["set-cookie"] ?? [];
    t.match(line, /^gatehouse-console=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/);
    t.notMatch(line, "chosen-by-somebody-else");
    const first = client.cookie;
    await client.get("/sessions");
    // Whoever is signed in goes on from the form, so that the second sign-in has to be sent at once.
    const second = await signedIn(t, url);
    t.not(second.cookie, first);
    t.equal((await ask(`${url}/state`, { headers: { cookie: first } })).status, 200);
  },
);

t.test("no bearer token opens a page", async (t) => {
  const { gateway, url } = await startConsole(t);
  const authorization = `Bearer ${await gateway.login()}`;
  for (const route of ["/", "/state", "/sessions"]) {
    const answer = await ask(`${url}${route}`, { headers: { authorization } });
    t.equal(answer.status, 303, route);
    t.match(answer.headers.location, /^\/sign-in/);
  }
  const cookie = `gatehouse-console=${await gateway.login()}`;
  t.equal((await ask(`${url}/state`, { headers: { cookie } })).status, 303, "as a cookie");
});

t.test("a form is taken from the console's own pages alone", async (t) => {
  const { url } = await startConsole(t);
  const client = await signedIn(t, url);
  const own = { session: "none" };
  const { port } = new URL(url);
  const foreign: Record<string, string>[] = [
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "same-site" },
    { "sec-fetch-site": "same-site", origin: `http://127.0.0.1:${Number(port) + 1}` },
    { "sec-fetch-site": "", origin: "https://evil.example" },
    { "sec-fetch-site": "", origin: "null" },
    { "sec-fetch-site": "" },
    { "content-type": "text/plain" },
    { "content-type": "multipart/form-data; boundary=x" },
    { "content-type": "application/json" },
  ];
  for (const headers of foreign) {
    const { status } = await client.post("/sessions/end", own, headers);
    t.ok([403, 415].includes(status), `${JSON.stringify(headers)}: ${status}`);
  }
  for (const csrf of ["", "x", "A".repeat(43)]) {
    t.equal((await client.post("/sessions/end", { ...own, csrf })).status, 403, csrf);
  }
  const other = await signedIn(t, url);
  const [, token = ""] =
    /name="csrf" value="([^"]+)"/.exec((await other.get("/sessions")).text) ?? [];
  t.equal(
    (await client.post("/sessions/end", { ...own, csrf: token })).status,
    403,
    "another's token",
  );
  t.equal((await client.post("/sessions/end", own)).status, 303);
});

t.test("other pages of this machine can lead here, and load nothing", async (t) => {
  const { url } = await startConsole(t);
  const browser = await launch(t);
  const page = await browser.newPage();
  await signInBrowser(page, url);
  const site = await openSite(
    t,
    `<a href="${url}/state">State</a><img src="${url}/icon.svg"><iframe src="${url}/state"></iframe>
<form method="post" action="${url}/sign-out"><button>Win a prize</button></form>`,
  );
  await page.goto(site);
  t.equal(await page.evaluate("document.images[0].naturalWidth"), 0, "no picture");
  const { cookies } = new ConsoleClient(url);
  for (const { name, value } of await page.context().cookies()) cookies.set(name, value);
  const cookie = Array.from(cookies, ([name, value]) => `${name}=${value}`).join("; ");
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

t.test("after signing out nothing of a page is left", async (t) => {
  const { url } = await startConsole(t);
  const browser = await launch(t);
  const page = await browser.newPage();
  await signInBrowser(page, url);
  const [cookie] = await page.context().cookies();
  await page.goto(`${url}/state`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  t.equal(await page.getByText("Access version").count(), 0);
  const stolen = `${cookie?.name}=${cookie?.value}`;
  t.equal(
    (await ask(`${url}/state`, { headers: { cookie: stolen } })).status,
    303,
    "the old cookie",
  );
});
