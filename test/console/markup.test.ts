/** What strangers can write stands on every page of the console as text, and as nothing else. */
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import t from "tap";
import { idIn, openCareful, orders } from "../approvals/kit.ts";
import { passwordOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { REDIRECT, registered } from "../oauth/kit.ts";
import { ConsoleClient, signedIn, unescaped } from "./kit.ts";

/** Markup that ends whatever it may stand in. */
function markup(name: string): string {
  return `'"></textarea></title><x-${name} onclick="alert(1)">`;
}

/** Every page that links lead to, by its path. */
async function crawl(
  client: ConsoleClient,
  starts: readonly string[],
): Promise<Map<string, string>> {
  const pages = new Map<string, string>();
  const waiting = [...starts];
  for (let route = waiting.shift(); route !== undefined; route = waiting.shift()) {
    if (pages.has(route) || pages.size >= 120) continue;
    const { text, headers } = await client.get(route);
    if (!String(headers["content-type"]).startsWith("text/html")) continue;
    pages.set(route, text);
    const links = [...text.matchAll(/ href="(\/[^"]*)"/g)].map(([, link = ""]) => unescaped(link));
    waiting.push(...links.filter((link) => !/^\/(?:style|icon)\./.test(link)));
  }
  return pages;
}

t.test("what a stranger can write is only ever text, on every page", async (t) => {
  const port = await freePort();
  const config = `[console]\nlisten = "127.0.0.1:${port}"\n[server]\ntrusted_proxies = ["127.0.0.1/32"]\n[audit]\nfile = "audit.log"\n`;
  const { gateway, ask, bot, root } = await openCareful(t, { config });
  const url = `http://127.0.0.1:${port}`;
  const email = await gateway.send("PATCH", "/api/users/wim", { email: markup("email") }, root);
  t.equal(email.status, 200);
  const rowFilter = [{ column: "tenant", cmp: "=", value: markup("filter") }];
  const narrowed = { role: "ReadOnly", row_filter: rowFilter };
  t.equal((await gateway.send("PUT", "/api/access/wim/main/tickets", narrowed, root)).status, 200);
  const client_name = markup("client");
  const clientId = await registered(gateway, { client_name, redirect_uris: [REDIRECT] });
  await obtainTokens(gateway, { clientId, username: "wim", password: passwordOf("wim") });
  const where = { column: "state", cmp: "=", value: markup("approval") };
  idIn(await ask(bot, { Delete: { ...orders, where } }));
  await ask(bot, { Select: { database: "main", from: markup("table"), columns: ["*"] } });
  await ask(bot, { Select: { database: "main", from: "orders", columns: [markup("column")] } });
  const stranger = new ConsoleClient(url);
  await stranger.get("/sign-in");
  await stranger.post("/sign-in", { username: markup("name"), password: "x", next: "/" });
  await stranger.get("/sign-in");
  const entry = { username: "wim", password: passwordOf("wim"), next: markup("next") };
  const headers = { "user-agent": markup("agent"), "x-forwarded-for": markup("forwarded") };
  t.equal((await stranger.post("/sign-in", entry, headers)).status, 303);

  const client = await signedIn(t, url, "root", passwordOf("root"));
  const good = readFileSync(gateway.accessFile, "utf8");
  appendFileSync(
    gateway.accessFile,
    `\n[[acl]]\nusername = '''${markup("user")}'''\ndatabase = "main"\nrole = '''${markup("role")}'''\n`,
  );
  await eventually("the file is refused", async () =>
    (await client.get("/state")).text.includes("The access file was refused"),
  );
  const asked = encodeURIComponent(markup("asked"));
  const pages = await crawl(client, [
    ...["/overview", "/access", "/approvals", "/sessions", "/audit", "/state", "/access/check"],
    ..."access?user access?place access/user?user access/entry?user sessions?user"
      .split(" ")
      .map((route) => `/${route}=${asked}`),
    ...["audit?user", "audit?table", "access/act?action"].map((route) => `/${route}=${asked}`),
  ]);
  writeFileSync(gateway.accessFile, good);
  for (const [route, text] of pages) {
    t.notMatch(text, /<x-/, route);
    t.notMatch(text, /onclick="/, route);
  }
  const all = [...pages.values()].join("\n");
  for (const name of ["email", "filter", "client", "approval", "agent", "asked"]) {
    t.ok(all.includes(`&lt;x-${name} onclick=`), `${name} is shown, as text`);
  }
  t.ok(pages.size > 25, `${pages.size} pages were looked at`);
});
