import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import t from "tap";
import { openStaffed, passwordOf, tokenOf } from "../journeys/staff.ts";
import { makeCertificate } from "../kit/certificate.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { ADMIN_PASSWORD, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { replaceFile, tlsSection, writePair } from "../kit/tls-files.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { makeStore } from "../store/kit.ts";
import {
  type ConsoleClient,
  lookAt,
  onScreens,
  seenOn,
  sharedBrowser,
  signedIn,
  signInBrowser,
  startConsole,
  textOf,
} from "./kit.ts";

/** What the page of the state says, once it says something. */
async function stateOnce(client: ConsoleClient, wanted: RegExp): Promise<string> {
  let text = "";
  await eventually(`the page says ${wanted}`, async () => {
    text = textOf((await client.get("/state")).text);
    return wanted.test(text);
  });
  return text;
}

t.test("the page of the state tells what is in force, and why what is not is not", async (t) => {
  const home = temporaryHome(t);
  const certificate = makeCertificate("localhost");
  writePair(home, certificate);
  const upstream = await new RecordingUpstream().listen(t);
  const gone = `http://127.0.0.1:${await freePort()}`;
  const upstreams = `[upstream]\nurls = ["${upstream.url}", "${gone}"]\nhealth_interval = 1\n`;
  const { gateway, url } = await startConsole(t, {
    home,
    config: `[server]\nhost = "localhost"\n${tlsSection}${upstreams}`,
  });
  const client = await signedIn(t, url);
  const text = await stateOnce(client, /Open: queries go elsewhere/);
  t.match(text, new RegExp(`${upstream.url} all others Answers Closed 0 0`));
  t.match(text, `${gone} does not answer: queries for it are refused, or go to another.`);
  t.match(text, /Certificate DNS:localhost, until \d{4}-\d\d-\d\d/);

  const keys = readdirSync(path.join(home, "keys"));
  t.equal((await runCommand(home, ["key", "rotate"])).code, 0);
  const rotated = await stateOnce(client, /Verifies \d{4}/);
  t.match(
    rotated,
    /[\w-]{43} Signs by ES256 \d{4}-\d\d-\d\d \d\d:\d\d UTC \d+ (?:second|minute)s? no end/,
  );
  const [first = ""] = keys;
  t.match(rotated, first.replace(".json", ""));
  const { jwk } = JSON.parse(readFileSync(path.join(home, "keys", first), "utf8"));
  t.notMatch((await client.get("/state")).text, jwk.d, "no material");

  replaceFile(home, "key.pem", makeCertificate("other").key);
  await stateOnce(client, /The TLS certificate was refused: .* is not the key of/);
  await gateway.edit(
    (file) =>
      `${file}\n[[users]]\nusername = "bob"\n\n[[acl]]\nusername = "bob"\ndatabase = "main"\nrole = "King"\n`,
  );
  const refused = await stateOnce(client, /The access file was refused/);
  t.match(refused, /Refused \d{4}\S+ \S+ UTC Line \d+: .*the last good state stayed/);
  const browser = await sharedBrowser();
  for (const colorScheme of ["light", "dark"] as const) {
    const context = await browser.newContext({
      colorScheme,
      viewport: { width: 390, height: 844 },
    });
    const page = await context.newPage();
    await signInBrowser(page, url);
    await page.goto(`${url}/state`);
    await lookAt(t, page, `state-refused-${colorScheme}`);
    await context.close();
  }
  await gateway.edit((file) => file.replace("King", "ReadOnly"));
  const mended = await stateOnce(client, /bob main \+ SELECT no grant → ReadOnly/);
  t.notMatch(mended, "The access file was refused");
});

t.test("a configuration that is refused is told of, whichever process has read it", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  for (const workers of [1, 2]) {
    const home = temporaryHome(t);
    const config = `[server]\nworkers = ${workers}\n[upstream]\nurl = "${upstream.url}"\n`;
    const { url } = await startConsole(t, { home, config });
    const client = await signedIn(t, url);
    t.match(textOf((await client.get("/state")).text), "Everything is in order.");
    const file = path.join(home, "gateway.toml");
    const good = readFileSync(file, "utf8");
    replaceFile(home, "gateway.toml", `${good}\n[auth]\ntoken_lifetime = "soon"\n`);
    await stateOnce(client, /The configuration was refused: line \d+: .*The last good one/);
    replaceFile(home, "gateway.toml", good);
    await stateOnce(client, /Everything is in order/);
  }
});

t.test("between versions the page shows who gains and loses what", async (t) => {
  const { gateway, url } = await startConsole(t);
  const client = await signedIn(t, url);
  t.match(textOf((await client.get("/state")).text), "Nobody has changed users or grants since");
  await gateway.addUser("alice", "ReadOnly");
  const token = await gateway.login();
  const put = (entry: object) => gateway.send("PUT", "/api/access/alice/main", entry, token);
  await put({ role: "ReadWrite" });
  await put({ role: "ReadWrite", max_rows: 20 });
  await gateway.request("/api/access/alice/main", {
    method: "DELETE",
    headers: { authorization: `Bearer ${token}` },
  });
  await gateway.edit((file) => `${file}\n# only a word\n`);
  const text = await stateOnce(client, /UTC no change to users or grants/);
  const wanted = [
    /alice main − SELECT, INSERT, UPDATE, DELETE ReadWrite → no grant/,
    /alice main max_rows none to 20 ReadWrite → ReadWrite/,
    /alice main \+ INSERT, UPDATE, DELETE ReadOnly → ReadWrite/,
    /alice main \+ SELECT no grant → ReadOnly \w+ alice added/,
  ];
  const places = wanted.map((one) => text.search(one));
  t.notOk(places.includes(-1), text);
  t.strictSame(
    places,
    places.toSorted((one, other) => one - other),
    "the newest first",
  );
});

t.test(
  "the state names the database of the gateway's own engine, and refreshes itself",
  async (t) => {
    const { url } = await startConsole(t);
    const client = await signedIn(t, url);
    const { text } = await client.get("/state");
    t.match(textOf(text), /sqlite:\S+ all others Answers Closed 0 0/);
    t.notMatch(text, "engine-", "not the private socket");
    t.match(text, '<meta http-equiv="refresh" content="30; url=/state?refresh=auto">');
    t.match(textOf(text), /Last refreshed at \d\d:\d\d:\d\d UTC, every 30 seconds/);
    const paused = (await client.get("/state?refresh=off")).text;
    t.notMatch(paused, "http-equiv");
    t.match(textOf(paused), /As of \d\d:\d\d:\d\d UTC; refreshing is paused/);
  },
);

t.test("replicas, leases and every version of a store are on the page", async (t) => {
  const store = await makeStore(t);
  await store.good(["user", "add", "alice", "--no-password"]);
  await store.good(["access", "grant", "alice", "main", "ReadOnly"]);
  const port = await freePort();
  const other = await store.replica();
  await store.replica(store.url, store.makeHome(), `[console]\nlisten = "127.0.0.1:${port}"\n`);
  const client = await signedIn(t, `http://127.0.0.1:${port}`);
  const first = textOf((await client.get("/state")).text);
  t.match(first, /\S+:\d+ \(this one\) \d+ 0 in \d+ seconds \d+ \d{4}/);
  t.match(first, new RegExp(`:${other.service.child.pid} \\d+ 0 in \\d+ seconds`));
  t.match(
    first,
    / 4 \d{4}\S+ \S+ UTC by \S+ , by command alice main \+ SELECT no grant → ReadOnly/,
  );
  t.match(first, "What came before is listed by gatehouse access history");
  const seen = await seenOn(client, "/access/entry?user=alice&database=main");
  const form = { user: "alice", database: "main", table: "", role: "ReadWrite", seen };
  t.equal((await client.post("/access/entry", { ...form, password: ADMIN_PASSWORD })).status, 303);
  const text = await stateOnce(client, / 5 \d{4}\S+ \S+ UTC by admin , in the console/);
  t.match(text, /alice main \+ INSERT, UPDATE, DELETE ReadOnly → ReadWrite/);
  t.equal(text.match(/alice main \+ SELECT no grant/g)?.length, 1);
  other.service.child.kill("SIGKILL");
  await stateOnce(client, /seconds? ago/);
});

/** The first page of the console. */

const DAY_MS = 86_400_000;
const soon = new Date(Date.now() + 2 * DAY_MS).toISOString();
const later = new Date(Date.now() + 20 * DAY_MS).toISOString();
const more = `[[acl]]
username = "rita"
database = "payroll"
role = "ReadOnly"
expires = ${soon}

[[acl]]
username = "rita"
database = "main"
role = "ReadWrite"
tables = ["orders"]
require_approval = ["DELETE"]
expires = ${soon}

[[acl]]
username = "paul"
database = "main"
role = "ReadOnly"
expires = ${later}
`;

const staff = ["root * Owner", "dora main DbAdmin", "rita main ReadOnly"];

async function open(t: Test, audit = '[audit]\nfile = "audit.log"\n') {
  const port = await freePort();
  const config = `[console]\nlisten = "127.0.0.1:${port}"\n${audit}`;
  const { gateway } = await openStaffed(t, [...staff, "paul main ReadWrite"], { config, more });
  return { gateway, url: `http://127.0.0.1:${port}` };
}

/** Queries that are allowed, denied and held back. @returns how many there were */
async function work({ gateway }: Awaited<ReturnType<typeof open>>): Promise<number> {
  const rita = await tokenOf(gateway, "rita");
  const select = (database: string) => ({
    Select: { database, from: "orders", columns: ["id"] },
  });
  const where = { column: "id", cmp: "=", value: 7 };
  const queries = [
    ...Array.from({ length: 12 }, () => select("main")),
    ...[select("shop"), select("shop"), select("payroll")],
    { Update: { database: "main", table: "people", set: { id: 1 }, where } },
    { Delete: { database: "main", table: "orders", where } },
  ];
  let id = "";
  for (const query of queries) {
    id = (await gateway.query(query, rita)).headers.get("x-request-id") ?? "";
  }
  const file = path.join(gateway.home, "audit.log");
  await eventually("the lines are written", async () => readFileSync(file, "utf8").includes(id));
  const lines = readFileSync(file, "utf8").split("\n");
  return lines.filter((line) => /"operations":\[\{.*"decision":/.test(line)).length;
}

const used = open(t).then(async (setting) => ({ ...setting, count: await work(setting) }));

t.test(
  "the overview leads from a denial to its lines and to a grant, with a browser",
  async (t) => {
    const { url, count } = await used;
    await onScreens(async (page, name) => {
      const complaints: string[] = [];
      page.on("console", (message) => complaints.push(message.text()));
      await signInBrowser(page, url, "root", passwordOf("root"));
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      await page.getByText("Everything is in order.").waitFor();
      await lookAt(t, page, `overview-${name}`);
      await page.getByText("As a table").click();
      const hours = page.getByRole("table", { name: "Queries and denials per hour" });
      const cells = await hours.getByRole("row").nth(1).getByRole("cell").allTextContents();
      const before = await hours.getByRole("row").nth(2).getByRole("cell").allTextContents();
      const sum = (at: number) => Number(cells[at]) + Number(before[at]);
      t.strictSame([sum(1), sum(2)], [count, 3], "as of this hour, and perhaps the last");
      await lookAt(t, page, `overview-table-${name}`);

      const chart = page.getByRole("group", { name: "Queries and denials per hour" });
      const bar = chart.getByRole("link", { name: /[1-9] denied/ }).last();
      t.match(await bar.getAttribute("aria-label"), /^\d\d:00 UTC: \d+ queries, \d+ denied$/);
      await bar.focus();
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Audit" }).waitFor();
      t.equal(await page.getByLabel("Outcome").inputValue(), "denied");
      await page.getByText("Select shop.orders").first().waitFor();
      await page.goBack();
      await page.getByRole("link", { name: "main.people", exact: true }).click();
      await page.getByText("Update main.people").waitFor();
      await page.goBack();
      const tables = page.getByRole("table", { name: "Most denied tables" });
      await tables.getByRole("link", { name: "Draft a grant of ReadWrite on main.people" }).click();
      await page.getByRole("heading", { name: "Grant to rita" }).waitFor();
      t.strictSame(complaints, [], "the browser has nothing to complain of");
    });
  },
);

t.test("the overview shows everybody what is theirs, and nothing else", async (t) => {
  const { url, count } = await used;
  const overviewOf = async (name: string) => {
    const client = await signedIn(t, url, name, passwordOf(name));
    return textOf((await client.get("/overview")).text);
  };
  const root = await overviewOf("root");
  t.match(root, `Queries in the last day ${count} Denied 3 `);
  t.match(root, /Most denied users .* rita 3 /);
  t.match(root, /shop.orders 2 no_grant Draft a grant of ReadOnly/);
  t.match(root, /Grants that end this week 2/);
  t.match(root, /Delete main.orders rita/);
  t.notMatch(root, /paul main/, "that grant ends later");

  const dora = await overviewOf("dora");
  t.match(dora, /Queries in the last day 14 Denied 1 /);
  t.match(dora, /main.people 1 role_insufficient/);
  t.match(dora, /Approvals for you to decide 1 Grants that end this week 1 /);
  t.match(dora, "You are shown the databases on which you may grant.");
  t.notMatch(dora, /shop|payroll|Everything is in order/);

  const rita = await overviewOf("rita");
  t.match(rita, /Approvals for you to decide 0 Grants that end this week 2 /);
  t.match(rita, /Delete main.orders rita in \d+ min others/);
  t.notMatch(rita, /Queries|Denied|Last changes|people|paul/);
});

t.test("the overview says how to count where the audit goes to the log", async (t) => {
  const { gateway, url } = await open(t, "");
  const client = await signedIn(t, url, "root", passwordOf("root"));
  const { status, headers } = await client.get("/");
  t.match({ status, headers }, { status: 303, headers: { location: "/overview" } });
  const { text } = await client.get("/overview");
  t.match(textOf(text), /Queries are not counted, since the audit goes to the log/);
  t.notMatch(text, "<svg");
  const token = await tokenOf(gateway, "root");
  await gateway.send("PUT", "/api/access/rita/main", { role: "ReadWrite" }, token);
  const dora = await signedIn(t, url, "dora", passwordOf("dora"));
  for (const one of [client, dora]) {
    t.match(textOf((await one.get("/overview")).text), /Last changes .* rita main \+ INSERT/);
  }
});
