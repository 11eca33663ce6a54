import { readFileSync } from "node:fs";
import t from "tap";
import { grant, groupGrant, user } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import {
  type ConsoleClient,
  seenOn,
  signedIn,
  staffedConsole,
  startConsole,
  unescaped,
} from "./kit.ts";

const USERS = 1000;
const DATABASES = 20;

/** Users without a password, each with a grant on each of the databases. */
function manyUsers(): string {
  const numbered = (count: number, name: string) =>
    Array.from({ length: count }, (_, at) => `${name}${String(at).padStart(4, "0")}`);
  const databases = numbered(DATABASES, "db");
  return numbered(USERS, "user")
    .map((name) => user(name, "") + databases.map((one) => grant(name, one, "ReadOnly")).join(""))
    .join("");
}

/** The users that a page of the list names, in order. */
function namesOn(text: string): string[] {
  const links = text.matchAll(/href="\/access\/user\?user=([\w.-]+)"><bdi>/g);
  return [...links].map(([, name = ""]) => name);
}

/** The rows of the list as text. */
async function rowsOf(client: ConsoleClient, query: string, list = ""): Promise<string[]> {
  const { text } = await client.get(`/access${list}?${query}`);
  const body = /<tbody[^>]*>([\s\S]*?)<\/tbody>/.exec(text)?.[1] ?? "";
  return body
    .split("</tr>")
    .map((row) => unescaped(row.replaceAll("</td>", "|").replaceAll(/<[^>]*>/g, "")).trim())
    .filter((row) => row !== "");
}

const setting = startConsole(t).then(async ({ gateway, url }) => {
  await gateway.addUser("alice", "ReadWrite");
  await gateway.addUser("bob", "ReadOnly", "other");
  await gateway.addUser("carol", "ReadOnly", "third");
  return { gateway, url };
});

t.test("for a table, the list shows the entry of each user that decides", async (t) => {
  const { gateway, url } = await setting;
  const token = await gateway.login();
  const put = (path: string, entry: object) =>
    gateway.send("PUT", `/api/access/${path}`, entry, token);
  await put("alice/main/tickets", { role: "ReadOnly", max_rows: 20 });
  await put("alice/main/customer_*", { role: "None" });
  const client = await signedIn(url);
  const cases = {
    "main.tickets": "alice |main.tickets|ReadOnly|at most 20 rows|never|",
    "main.customer_eu": "alice |main.customer_*|None|none|never|",
    "main.orders": "alice |main|ReadWrite|none|never|",
  };
  for (const [place, row] of Object.entries(cases)) {
    t.strictSame(await rowsOf(client, `place=${place}`), ["admin |*|Owner|none|never|", row]);
  }
  t.equal((await rowsOf(client, "place=main")).length, 4);
});

t.test("groups are listed with their members and entries", async (t) => {
  const { gateway, url } = await setting;
  const token = await gateway.login();
  const put = (path: string, body: object) =>
    gateway.send("PUT", `/api/groups/${path}`, body, token);
  await put("analysts", { members: ["bob", "corp:jane doe"] });
  await put("idle", { members: [] });
  await put("analysts/access/reports", { role: "ReadOnly" });
  await put("corp%3Astaff/access/reports", { role: "None" });
  const client = await signedIn(url);
  const analysts = "group analysts 2 members|reports|ReadOnly|none|never|";
  const staff = "group corp:staff no local members|reports|None|none|never|";
  const admin = "admin |*|Owner|none|never|";
  const bob = "bob |reports (group analysts)|ReadOnly|none|never|";
  for (const place of ["reports", "reports.t"]) {
    t.strictSame(await rowsOf(client, `place=${place}`), [admin, bob], place);
    t.strictSame(await rowsOf(client, `place=${place}`, "/groups"), [analysts, staff], place);
  }
  t.notMatch((await rowsOf(client, "")).join("\n"), /analysts \d|corp:staff/);
  t.match(await rowsOf(client, "user=bob"), [
    /^bob \|other\|ReadOnly/,
    /\|reports \(group analysts\)\|/,
  ]);
  await gateway.send("DELETE", "/api/access/bob/other", undefined, token);
  t.strictSame(await rowsOf(client, "user=bob"), [bob], "never as without grants");
  const page = unescaped((await client.get("/access/user?user=bob")).text);
  t.match(page, /<code>reports<\/code>.*by <bdi>group analysts<\/bdi>/s);
  t.notMatch(page, "No grants.");
  await gateway.send("PUT", "/api/access/bob/other", { role: "ReadOnly" }, token);
  const idle = "group idle 0 members|no grants||||";
  t.strictSame(await rowsOf(client, "", "/groups"), [analysts, staff, idle]);
  t.strictSame(await rowsOf(client, "user=ANA", "/groups"), [analysts]);
  const { text } = await client.get("/access/groups?user=corp:new");
  t.match(unescaped(text), "/access/entry?user=group%3Acorp%3Anew");
});

/** The rows of a table of the page as text, by its label. */
function tableRows(text: string, label: string): string[] {
  const start = unescaped(text).indexOf(`aria-label="${label}"`);
  const body = /<tbody[^>]*>([\s\S]*?)<\/tbody>/.exec(unescaped(text).slice(start))?.[1] ?? "";
  return (start < 0 ? "" : body)
    .split("</tr>")
    .map((row) =>
      row
        .replaceAll("</td>", "|")
        .replaceAll(/<[^>]*>/g, "")
        .trim(),
    )
    .filter((row) => row !== "");
}

t.test("a table's page shows who may what there, and a user's page every place", async (t) => {
  const more = [
    '[[groups]]\nname = "team"\nmembers = ["gina"]\n\n',
    user("gina", ""),
    user("dead", "disabled = true"),
    user("staff:ann", ""),
    grant("dead", "main", "ReadOnly"),
    grant("gina", "main", "ReadOnly", 'tables = ["orders"]\ncolumns = ["id", "total"]'),
    groupGrant("team", "main", "ReadWrite", 'require_approval = ["DELETE"]'),
    groupGrant("staff:eng", "main", "ReadOnly", "max_rows = 3"),
    '[[boundaries]]\nvia = "mcp"\nrole = "ReadOnly"\nusername = "gina"\n',
  ].join("");
  const { url } = await staffedConsole(t, ["root * Owner", "oona main Owner"], "", more);
  const client = await signedIn(url, "root");
  const page = async (one: ConsoleClient, place: string) =>
    tableRows((await one.get(`/access/table?place=${place}`)).text, `Users of ${place}`);
  const rights = "SELECT, INSERT, UPDATE, DELETE";
  const all = `${rights}, CREATE, DROP`;
  const owner = `oona |${all}|all|none|any|main|`;
  const staff =
    "group staff:eng no local members|SELECT|all|at most 3 rows|any|main (group staff:eng)|";
  t.strictSame(await page(client, "main.orders"), [
    "gina no password|SELECT|id, total|none|any|main.orders|",
    staff,
    owner,
    `root |${all}|all|none|any|*|`,
  ]);
  t.strictSame((await page(client, "main.tickets")).slice(0, 2), [
    `gina no password|${rights}|all|DELETE after approval|query|main (group team)|`,
    "gina|SELECT|all|none|mcp|main (group team)|",
  ]);
  const asOwner = await signedIn(url, "oona");
  t.strictSame(await page(asOwner, "main.orders"), [
    "gina no password|SELECT|id, total|none|any|main.orders|",
    staff,
    owner,
  ]);
  t.equal((await asOwner.get("/access/table?place=other.t")).status, 403);
  const rows = async (query: string, name: string) =>
    tableRows((await client.get(`/access/user?user=${query}`)).text, `Effective access of ${name}`);
  t.strictSame(await rows("gina", "gina"), [
    "main.orders|SELECT|columns id, total|any|main.orders|",
    `main|${rights}|DELETE after approval|query|main (group team)|`,
    "main|SELECT|none|mcp|main (group team)|",
  ]);
  t.match(await rows("dead", "dead"), [/none \(user_disabled\)/]);
  t.strictSame(await rows("staff%3Aann", "staff:ann"), []);
  t.strictSame(await rows("staff%3Aann&groups=staff:eng", "staff:ann"), [
    "main|SELECT|at most 3 rows|any|main (group staff:eng)|",
  ]);
  t.match(await rowsOf(client, "user=staff:ann"), [/by groups of the token/]);
});

t.test("a temporary entry is saved beside a permanent one, and edited separately", async (t) => {
  const { url } = await setting;
  const client = await signedIn(url);
  const route = "/access/entry?user=bob&database=other&table=";
  const expires = "2199-12-24T18:00";
  const temporary = await client.submit(route, { role: "ReadWrite", expires, beside: "yes" });
  t.equal(temporary.status, 303);
  const { text } = await client.get("/access/user?user=bob");
  t.match(text, /2199-12-24 18:00:00 UTC/);
  t.match(text, /never/);
  const form = (await client.get(`${route}&temporary=yes`)).text;
  t.match(form, /value="2199-12-24T18:00:00"/);
  t.match(form, /name="beside" value="yes" checked/);
  t.match((await client.get(route)).text, /name="expires" type="datetime-local" value=""/);
  t.equal((await client.submit(route, { role: "DbAdmin", beside: "yes" })).status, 303);
  t.match(
    (await rowsOf(client, "user=bob&place=other")).sort().join(),
    /DbAdmin.*ReadWrite|ReadWrite.*DbAdmin/,
  );
  t.equal((await client.submit(route, { role: "ReadOnly" })).status, 303);
  t.equal((await rowsOf(client, "user=bob&place=other")).length, 1, "both are replaced");
});

t.test("of two changes at the same moment, one is saved and one sees the other", async (t) => {
  const { url } = await setting;
  const clients = await Promise.all([signedIn(url), signedIn(url)]);
  const route = "/access/entry?user=carol&database=third";
  for (let round = 0; round < 5; round++) {
    const roles = round % 2 === 0 ? ["ReadWrite", "DbAdmin"] : ["ReadOnly", "None"];
    const seen = await Promise.all(clients.map((client) => seenOn(client, route)));
    const form = { user: "carol", database: "third", table: "", password: ADMIN_PASSWORD };
    const answers = await Promise.all(
      clients.map((client, at) =>
        client.post("/access/entry", { ...form, role: roles[at] ?? "", seen: seen[at] ?? "" }),
      ),
    );
    t.strictSame(answers.map(({ status }) => status).sort(), [303, 409], `round ${round}`);
    t.match(answers.find(({ status }) => status === 409)?.text, /Removed:[\s\S]*Added:/);
  }
});

t.test("a user who is demoted while a form is open cannot save it", async (t) => {
  const { gateway, url } = await setting;
  await gateway.addUser("erin", "Owner", "*");
  const erin = await signedIn(url, "erin");
  const route = "/access/entry?user=carol&database=third";
  const seen = await seenOn(erin, route);
  await gateway.send("PUT", "/api/access/erin/*", { role: "ReadOnly" }, await gateway.login());
  const before = readFileSync(gateway.accessFile, "utf8");
  const form = { user: "carol", database: "third", table: "", role: "DbAdmin", seen };
  const { status } = await erin.post("/access/entry", { ...form, password: "erin password" });
  t.equal(status, 403);
  t.equal((await erin.get(route)).status, 403);
  t.equal(readFileSync(gateway.accessFile, "utf8"), before);
});

t.test("a thousand users with twenty grants each are paged and searched", async (t) => {
  const { gateway, url } = await setting;
  const client = await signedIn(url);
  await gateway.edit((text) => `${text}\n${manyUsers()}`);
  await eventually("they are in force", async () => {
    const { text } = await client.get("/access?user=user0000");
    return namesOn(text).length > 0;
  });
  const found: string[] = [];
  let pages = 0;
  for (let route = "/access"; route !== ""; pages++) {
    const { status, text } = await client.get(route);
    t.equal(status, 200, route);
    t.ok(text.length < 200_000, "a page is small enough for a browser to show at once");
    found.push(...namesOn(text));
    route = unescaped(/<a class="button" href="([^"]*)">More users/.exec(text)?.[1] ?? "");
  }
  t.equal(pages, 21);
  t.equal(found.length, USERS + 5, "each once");
  t.strictSame(found, found.toSorted());
  const { text } = await client.get("/access?user=USER0999");
  t.strictSame(namesOn(text), ["user0999"]);
  t.match(text, "and 14 more");
  t.equal((await rowsOf(client, "user=user0999&place=db0019")).length, 1);
  t.equal((await rowsOf(client, "user=user0999&place=nowhere")).length, 0);
});
