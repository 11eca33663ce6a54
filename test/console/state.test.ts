import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import { tokenOf } from "../journeys/staff.ts";
import { makeCertificate } from "../kit/certificate.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { replaceFile, tlsSection, writePair } from "../kit/tls-files.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { makeStore } from "../store/kit.ts";
import {
  auditFile,
  type ConsoleClient,
  type ConsoleSetting,
  consoleConfig,
  lookAt,
  openPage,
  openSignedIn,
  signedIn,
  signInBrowser,
  staffedConsole,
  startConsole,
  textOf,
} from "./kit.ts";

/** Waits until the State page matches. @returns its text */
async function stateOnce(client: ConsoleClient, wanted: RegExp): Promise<string> {
  let text = "";
  await eventually(`the page matches ${wanted}`, async () => {
    text = textOf((await client.get("/state")).text);
    return wanted.test(text);
  });
  return text;
}

t.test("the State page shows what is in force, and why a file was rejected", async (t) => {
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
  const client = await signedIn(url);
  const text = await stateOnce(client, /Open: queries go elsewhere/);
  t.match(text, new RegExp(`${upstream.url} all others Reachable Closed 0 0`));
  t.match(text, `${gone} is unreachable. Its queries fail or use another upstream.`);
  t.match(text, /Certificate DNS:localhost, until \d{4}-\d\d-\d\d/);

  const keys = readdirSync(path.join(home, "keys"));
  t.equal((await runCommand(home, ["key", "rotate"])).code, 0);
  const rotated = await stateOnce(client, /Verifies \d{4}/);
  t.match(
    rotated,
    /[\w-]{43} Signs with ES256 [\d-]{10} [\d:]{5} UTC \d+ (?:second|minute)s? no end/,
  );
  const [first = ""] = keys;
  t.match(rotated, first.replace(".json", ""));
  const { jwk } = JSON.parse(readFileSync(path.join(home, "keys", first), "utf8"));
  t.notMatch((await client.get("/state")).text, jwk.d, "no key material");

  replaceFile(home, "key.pem", makeCertificate("other").key);
  await stateOnce(client, /TLS certificate rejected: .* is not the key of/);
  await gateway.edit(
    (file) =>
      `${file}\n[[users]]\nusername = "bob"\n\n[[acl]]\nusername = "bob"\ndatabase = "main"\nrole = "King"\n`,
  );
  const refused = await stateOnce(client, /Access file rejected/);
  t.match(refused, /Rejected \d{4}\S+ \S+ UTC Line \d+: .*the last valid state stayed/);
  const page = await openSignedIn(t, url, "/state");
  await lookAt(t, page, "state-refused");
  await gateway.edit((file) => file.replace("King", "ReadOnly"));
  const fixed = await stateOnce(client, /bob main \+ SELECT no grant → ReadOnly/);
  t.notMatch(fixed, "Access file rejected");
});

const plain = await startConsole(t);

t.test("versions show which users gain and lose which rights", async (t) => {
  const { gateway, url } = plain;
  const client = await signedIn(url);
  t.match(textOf((await client.get("/state")).text), "No changes to users or grants since");
  await gateway.addUser("alice", "ReadOnly");
  const token = await gateway.login();
  const put = (entry: object) => gateway.send("PUT", "/api/access/alice/main", entry, token);
  await put({ role: "ReadWrite" });
  await put({ role: "ReadWrite", max_rows: 20 });
  await gateway.send("DELETE", "/api/access/alice/main", {}, token);
  await gateway.edit((file) => `${file}\n# a comment\n`);
  const text = await stateOnce(client, /UTC no change to users or grants/);
  const wanted = [
    /alice main − SELECT, INSERT, UPDATE, DELETE ReadWrite → no grant/,
    /alice main max_rows from no limit to 20 ReadWrite → ReadWrite/,
    /alice main \+ INSERT, UPDATE, DELETE ReadOnly → ReadWrite/,
    /alice main \+ SELECT no grant → ReadOnly \w+ alice added/,
  ];
  const places = wanted.map((one) => text.search(one));
  t.notOk(places.includes(-1), text);
  const sorted = places.toSorted((one, other) => one - other);
  t.strictSame(places, sorted, "newest first");
});

t.test("the State page names the embedded engine's database and refreshes itself", async (t) => {
  const client = await signedIn(plain.url);
  const { text } = await client.get("/state");
  t.match(textOf(text), /sqlite:\S+ all others Reachable Closed 0 0/);
  t.match(text, '<meta http-equiv="refresh" content="30; url=/state?refresh=auto">');
  t.match(textOf(text), /Updated at \d\d:\d\d:\d\d UTC \. Refreshes every 30 seconds/);
  const paused = (await client.get("/state?refresh=off")).text;
  t.notMatch(paused, "http-equiv");
  t.match(textOf(paused), /Updated at \d\d:\d\d:\d\d UTC \. Refresh is paused/);
});

t.test("with a store, the State page shows replicas, leases and all versions", async (t) => {
  const store = await makeStore(t, { maxStaleness: 3 });
  await store.good(["user", "add", "alice", "--no-password"]);
  await store.good(["access", "grant", "alice", "main", "ReadOnly"]);
  const { config, url } = await consoleConfig();
  const other = await store.replica();
  await store.replica(store.url, store.makeHome(), config);
  const client = await signedIn(url);
  const first = textOf((await client.get("/state")).text);
  t.match(first, /\S+:\d+ \(this one\) \d+ 0 in \d+ seconds \d+ \d{4}/);
  t.match(first, new RegExp(`:${other.service.child.pid} \\d+ 0 in \\d+ seconds`));
  const byCommand = / 4 \d{4}\S+ \S+ UTC by \S+ \(command line\) alice main \+ SELECT no grant/;
  t.match(first, byCommand);
  t.match(first, "Run gatehouse access history to list earlier versions");
  const route = "/access/entry?user=alice&database=main";
  t.equal((await client.submit(route, { role: "ReadWrite" })).status, 303);
  const text = await stateOnce(client, / 5 \d{4}\S+ \S+ UTC by admin \(console\)/);
  t.match(text, /alice main \+ INSERT, UPDATE, DELETE ReadOnly → ReadWrite/);
  t.equal(text.match(/alice main \+ SELECT no grant/g)?.length, 1);
  other.service.child.kill("SIGKILL");
  await stateOnce(client, /seconds? ago/);
});

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const soon = new Date(Date.now() + 2 * DAY_MS).toISOString();
const later = new Date(Date.now() + 20 * DAY_MS).toISOString();
const more = `${grant("rita", "payroll", "ReadOnly", `expires = ${soon}`)}
[[acl]]
username = "rita"
database = "main"
role = "ReadWrite"
tables = ["orders"]
require_approval = ["DELETE"]
expires = ${soon}

${grant("paul", "main", "ReadOnly", `expires = ${later}`)}
`;

const staff = ["root * Owner", "dora main DbAdmin", "rita main ReadOnly"];

const open = (t: Test, audit = auditFile) =>
  staffedConsole(t, [...staff, "paul main ReadWrite"], audit, more);

/** Sends queries that are allowed, denied and pending. @returns their number */
async function work({ gateway }: ConsoleSetting): Promise<number> {
  const rita = await tokenOf(gateway, "rita");
  const select = (database: string) => ({
    Select: { database, from: "orders", columns: ["id"] },
  });
  const where = { column: "id", cmp: "=", value: 7 };
  const queries = [
    ...Array.from({ length: 12 }, () => select("main")),
    select("shop"),
    select("shop"),
    select("payroll"),
    { Update: { database: "main", table: "people", set: { id: 1 }, where } },
    { Delete: { database: "main", table: "orders", where } },
  ];
  const ids: string[] = [];
  for (const query of queries) {
    ids.push((await gateway.query(query, rita)).headers.get("x-request-id") ?? "");
  }
  const file = path.join(gateway.home, "audit.log");
  const decided = () =>
    readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => /"operations":\[\{"operation":"(?!login).*"decision":/.test(line));
  await eventually("the lines are written", () => {
    const lines = decided();
    return ids.every((id) => lines.some((line) => line.includes(id)));
  });
  return decided().length;
}

const used = open(t).then(async (setting) => ({ ...setting, count: await work(setting) }));

t.test("the overview links a denial to its audit lines and to a drafted grant", async (t) => {
  const { url, count } = await used;
  const page = await openPage(t);
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  await signInBrowser(page, url, "root");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.getByText("Everything is in order.").waitFor();
  await lookAt(t, page, "overview");
  await page.getByText("As a table").click();
  const hours = page.getByRole("table", { name: "Queries, denials and latency per hour" });
  const cells = await hours.getByRole("row").nth(1).getByRole("cell").allTextContents();
  const before = await hours.getByRole("row").nth(2).getByRole("cell").allTextContents();
  const sum = (at: number) => Number(cells[at]) + Number(before[at]);
  t.strictSame([sum(1), sum(2)], [count, 3], "in this hour and the one before");
  await lookAt(t, page, "overview-table");

  const chart = page.getByRole("group", { name: "Queries and denials per hour" });
  const bar = chart.getByRole("link", { name: /[1-9] denied/ }).last();
  t.match(await bar.getAttribute("aria-label"), /^\d\d:00 UTC: \d+ queries, \d+ denied$/);
  await bar.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  t.equal(await page.getByLabel("Outcome").inputValue(), "denied");
  await page.getByText("Select shop.orders").first().waitFor();
  await page.goBack();
  const tables = page.getByRole("table", { name: "Most denied tables" });
  await tables.getByRole("link", { name: "main.people", exact: true }).click();
  await page.getByText("Update main.people").waitFor();
  await page.goBack();
  await tables.getByRole("link", { name: "Draft a grant of ReadWrite on main.people" }).click();
  await page.getByRole("heading", { name: "Grant access to rita" }).waitFor();
  t.strictSame(complaints, [], "the browser logs no errors");
});

/** A console of two workers, over an audit of past days. */
async function startPair(t: Test): Promise<ConsoleSetting> {
  const upstream = await new RecordingUpstream().listen(t);
  const home = temporaryHome(t);
  const line = (hoursAgo: number, ms: number) => {
    const time = new Date(Date.now() - hoursAgo * HOUR_MS).toISOString();
    const operations = [{ operation: "Select", database: "main", tables: ["orders"] }];
    const who = { user: "staff:mia", operations, operationCount: 1, decision: "allow" };
    return `${JSON.stringify({ time, ...who, status: 200, ms, msg: "request" })}\n`;
  };
  const past = [line(200, 1), line(70, 40_000), line(5, 900), line(0.2, 900), line(0.2, 900)];
  writeFileSync(path.join(home, "audit.log"), past.join(""), { mode: 0o600 });
  const config = `[server]\nworkers = 2\n[upstream]\nurl = "${upstream.url}"\n${auditFile}`;
  return startConsole(t, { home, config });
}

const pair = startPair(t);

t.test("a rejected configuration is shown, also with several workers", async (t) => {
  for (const { gateway, url } of [plain, await pair]) {
    const { home } = gateway;
    const client = await signedIn(url);
    t.match(textOf((await client.get("/state")).text), "Everything is in order.");
    const good = readFileSync(path.join(home, "gateway.toml"), "utf8");
    replaceFile(home, "gateway.toml", `${good}\n[auth]\ntoken_lifetime = "soon"\n`);
    await stateOnce(client, /Configuration rejected: line \d+: .*The last valid state/);
    replaceFile(home, "gateway.toml", good);
    await stateOnce(client, /Everything is in order/);
  }
});

t.test("the overview counts the last hour, day or week, over all workers", async (t) => {
  const { gateway, url } = await pair;
  const token = await gateway.login();
  for (let asked = 0; asked < 6; asked++) {
    await gateway.query({ Select: { database: "main", from: "orders", columns: ["id"] } }, token);
  }
  const page = await openSignedIn(t, url);
  for (const [name, count] of [
    ["hour", 8],
    ["day", 9],
    ["week", 10],
  ] as const) {
    await page.getByRole("link", { name: `Last ${name}` }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: `Queries in the last ${name}` }).waitFor();
    t.equal(await page.locator(".switch [aria-current]").innerText(), `Last ${name}`);
    await eventually("all workers have written", async () => {
      await page.reload();
      return (await page.locator(".figures dd").first().innerText()) === String(count);
    });
    const busiest = page.getByRole("table", { name: "Busiest users" });
    const shown = (await busiest.innerText()).replaceAll(/\s+/g, " ");
    t.match(shown, `staff:mia ${count - 6} 0`, name);
    const p95 = page.locator(".figures .sheet").filter({ hasText: "p95" }).locator("dd");
    t.match(await p95.innerText(), name === "week" ? /^(?:39|40|41) s$/ : /^\d+ ms$/);
    await lookAt(t, page, `overview-${name}`);
  }
  await page.getByRole("table", { name: "Busiest users" }).getByText("staff:mia").click();
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  t.equal(await page.getByLabel("Period").inputValue(), "7d");
  t.equal(await page.getByText("Select main.orders").count(), 4);
});

t.test("the overview shows each user only what they may see", async (t) => {
  const { url, count } = await used;
  const overviewOf = async (name: string) => {
    const client = await signedIn(url, name);
    return textOf((await client.get("/overview")).text);
  };
  const root = await overviewOf("root");
  t.match(root, `Queries in the last day ${count} Denied 3 Latency p50 `);
  t.match(root, /Latency p50 [\d.]+ m?s Latency p95 [\d.]+ m?s Approvals/);
  t.match(root, /Most denied users .* rita 3 /);
  t.match(root, /shop.orders 2 no_grant Draft a grant of ReadOnly/);
  t.match(root, /Grants that expire this week 2/);
  t.match(root, /Delete main.orders rita/);
  t.notMatch(root, /paul main/, "that grant expires later");

  const dora = await overviewOf("dora");
  t.match(dora, /Queries in the last day 14 Denied 1 /);
  t.match(dora, /Busiest users .* rita 14 1 Busiest tables/);
  t.match(dora, /main.people 1 role_insufficient/);
  t.match(dora, /Approvals for you to decide 1 Grants that expire this week 1 /);
  t.match(dora, "Only databases on which you may grant are included.");
  t.notMatch(dora, /shop|payroll|Everything is in order/);

  const rita = await overviewOf("rita");
  t.match(rita, /Approvals for you to decide 0 Grants that expire this week 2 /);
  t.match(rita, /Delete main.orders rita in \d+ min others/);
  t.notMatch(rita, /Queries|Denied|Recent changes|people|paul/);
});

t.test("without an audit file, the overview explains how to set one", async (t) => {
  const { gateway, url } = await open(t, "");
  const client = await signedIn(url, "root");
  const { status, headers } = await client.get("/");
  t.match({ status, headers }, { status: 303, headers: { location: "/overview" } });
  const { text } = await client.get("/overview");
  t.match(textOf(text), /Queries are counted only if the audit has a file/);
  t.notMatch(text, "<svg");
  const token = await tokenOf(gateway, "root");
  await gateway.send("PUT", "/api/access/rita/main", { role: "ReadWrite" }, token);
  const dora = await signedIn(url, "dora");
  for (const one of [client, dora]) {
    t.match(textOf((await one.get("/overview")).text), /Recent changes .* rita main \+ INSERT/);
  }
});
