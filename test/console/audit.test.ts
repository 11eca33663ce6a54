import { appendFileSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import t from "tap";
import { askAudit } from "../../src/features/console/audit.ts";
import {
  dateInWords,
  inZone,
  knownZone,
  localTime,
  readLocalTime,
  zoneInUse,
} from "../../src/features/console/moment.ts";
import { findEdges, roundMarks, spans } from "../../src/features/console/overview.ts";
import { tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import {
  auditFile,
  type ConsoleClient,
  lookAt,
  openSignedIn,
  signedIn,
  staffedConsole,
  startConsole,
  textOf,
  unescaped,
} from "./kit.ts";

const staff = [
  "root * Owner",
  "dora main DbAdmin",
  "rita main ReadOnly",
  "rita payroll ReadWrite",
  "paul payroll ReadWrite",
];
const select = (database: string, from = "orders") => ({
  Select: { database, from, columns: ["id", "state"] },
});
const remove = (database: string) => ({
  Delete: { database, table: "orders", where: { column: "id", cmp: "=", value: 7 } },
});

/** Sends allowed and denied queries on two databases, each after the audit line of the one before. */
async function use(gateway: TestGateway): Promise<void> {
  const rita = await tokenOf(gateway, "rita");
  const file = path.join(gateway.home, "audit.log");
  for (const query of [
    select("main"),
    remove("main"),
    remove("payroll"),
    { Batch: [remove("payroll"), select("main", "people")] },
    { DropTable: { database: "main", table: "people" } },
  ]) {
    const id = (await gateway.query(query, rita)).headers.get("x-request-id") ?? "";
    await eventually("its line is written", () => readFileSync(file, "utf8").includes(id));
  }
}

/** The column of operations. */
async function operationsOn(client: ConsoleClient, query = ""): Promise<string[]> {
  const { text } = await client.get(`/audit?${query}`);
  return [...text.matchAll(/<div><code>([^<]+)<\/code>/g)].map(([, words = ""]) => words);
}

const payers = '[[groups]]\nname = "payers"\nmembers = ["paul"]\n';
const { gateway, url } = await staffedConsole(t, staff, auditFile, payers);
const root = await signedIn(url, "root");
const file = path.join(gateway.home, "audit.log");
await use(gateway);

t.test("the audit is searched by user, table, operation, outcome and time", async (t) => {
  const dropped = "DropTable main.people";
  const both = ["Delete payroll.orders", "Select main.people"];
  t.strictSame(await operationsOn(root, "user=rita"), [
    dropped,
    ...both,
    "Delete payroll.orders",
    "Delete main.orders",
    "Select main.orders",
    "login",
  ]);
  t.strictSame(await operationsOn(root, "table=people"), [dropped, ...both]);
  t.strictSame(await operationsOn(root, "operation=DropTable"), [dropped]);
  t.strictSame(await operationsOn(root, "outcome=denied&user=rita"), [
    dropped,
    "Delete main.orders",
  ]);
  for (const until of ["2020-01-01T00:00", "2020-01-01T00:00:30", "2020-01-01T00:00:30.500"]) {
    t.strictSame(await operationsOn(root, `user=rita&until=${until}&since=`), [], until);
  }
  t.equal((await operationsOn(root, "user=rita&until=2199-01-01T00:00:30&since=")).length, 7);
  t.strictSame(await operationsOn(root, "user=paul"), []);
  const wrong = await root.get("/audit?since=lately");
  t.match(wrong, { status: 400, text: "From may be such as 24h" });
  const early = { status: 400, text: "The period ends before it begins: set From" };
  for (const period of ["since=24h", "start=2020-01-02T00:00"]) {
    t.match(await root.get(`/audit?${period}&until=2020-01-01T00:00`), early, period);
  }
  t.equal((await root.get("/audit?from=1-2")).status, 200);
  t.match((await root.get("/audit?from=1-2")).text, "Start again");
  t.notMatch((await root.get(`/audit?user=${encodeURIComponent("<b>&")}`)).text, "<b>");
});

t.test("the audit is filtered by a range of dates and by group", async (t) => {
  const paul = await tokenOf(gateway, "paul");
  const answer = await gateway.query(select("payroll"), paul);
  const id = answer.headers.get("x-request-id") ?? "";
  await eventually("the line is written", async () => readFileSync(file, "utf8").includes(id));
  t.strictSame(await operationsOn(root, "group=payers"), ["Select payroll.orders", "login"]);
  t.strictSame(await operationsOn(root, "group=others"), []);
  const dora = await signedIn(url, "dora");
  t.strictSame(await operationsOn(dora, "group=payers"), []);
  const today = new Date().toISOString().slice(0, 10);
  const onPayroll = "user=paul&operation=Select";
  t.equal((await operationsOn(root, `${onPayroll}&start=${today}T00:00&since=1h`)).length, 1);
  t.equal((await operationsOn(root, `${onPayroll}&start=2199-01-01T00:00&since=`)).length, 0);
  t.match((await root.get("/audit?start=lately")).status, 400);
});

t.test("a line opens to show its request, its caller and its response", async (t) => {
  const page = await openSignedIn(t, url, "/audit?user=rita&operation=DropTable", "root");
  await page.getByText("Details of").focus();
  await page.keyboard.press("Enter");
  const text = await page.locator("td details").innerText();
  t.match(
    text,
    /Request\s+[\da-f-]{36}\s+Address\s+127\.0\.0\.1\s+Token\s+\S+\s+Response\s+403, \d+ bytes/,
  );
  await page.goto(`${url}/audit?user=rita&operation=Select`);
  await page.getByText("Details of").last().click();
  t.match(await page.locator("td details").last().innerText(), /Shape\s+.*\bid\b/);
  await lookAt(t, page, "audit-details");
  const dora = await signedIn(url, "dora");
  const { text: seen } = await dora.get("/audit");
  t.match(seen, "<dt>Request</dt>");
  t.notMatch(seen, /<dt>(?:Address|Token)<\/dt>/);
});

t.test("the lines of a filter are exported as CSV, with what the visitor may see", async (t) => {
  const page = await openSignedIn(t, url, "/audit?user=rita&outcome=denied", "root");
  const link = page.getByRole("link", { name: "Export as CSV" });
  await link.focus();
  const [file] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
  t.match(file.suggestedFilename(), /^audit-\d{4}-\d\d-\d\d\.csv$/);
  const { text, headers } = await root.get("/audit.csv?user=rita&outcome=denied");
  t.match(headers["content-type"], /^text\/csv/);
  const [head = "", ...rows] = text.split("\r\n");
  t.match(head, /^"time","event","user",.*"request"$/);
  t.strictSame(
    rows.map((row) => /"(?:DropTable|Delete)","[^"]*"/.exec(row)?.[0]),
    ['"DropTable","main.people"', '"Delete","main.orders"', undefined],
  );
  t.match(rows[0], '"127.0.0.1"');
  await eventually("the export is in the audit", async () =>
    readFileSync(path.join(gateway.home, "audit.log"), "utf8")
      .split("\n")
      .some(
        (line) =>
          line.includes('"user":"root"') &&
          line.includes('"filter":{"user":"rita","outcome":"denied","since":"24h"},"lines":2') &&
          line.includes('"msg":"console_export"'),
      ),
  );
  const dora = await signedIn(url, "dora");
  const own = (await dora.get("/audit.csv")).text;
  t.notMatch(own, "console_export");
  t.match(own, '"main.people"');
  t.notMatch(own, /payroll|login|127\.0\.0\.1/);
  const rita = await signedIn(url, "rita");
  t.equal((await rita.get("/audit.csv")).status, 403);
  t.equal((await root.get("/audit.csv?since=lately")).status, 400);
  const empty = await root.get("/audit?user=nobody");
  t.notMatch(empty.text, "Export as CSV");
});

/** Lines of one table, a second apart, newest last. */
function manyLines(count: number, more: object): string {
  const end = Date.now() - 3_600_000;
  return Array.from({ length: count }, (_, at) => {
    const time = new Date(end - (count - at) * 1000).toISOString();
    const operations = [{ operation: "Select", database: "main", tables: ["orders"] }];
    return `${JSON.stringify({ level: "info", time, user: "rita", operations, operationCount: 1, decision: "allow", status: 200, msg: "request", ...more })}\n`;
  }).join("");
}

t.test("an export is cut after 50,000 lines and says so", nightly, async (t) => {
  const { gateway, url } = await staffedConsole(t, staff, auditFile);
  const root = await signedIn(url, "root");
  const file = path.join(gateway.home, "audit.log");
  writeFileSync(`${file}.1.gz`, gzipSync(manyLines(30_000, { client: "=1+1" })));
  const past = Date.now() / 1000 - 7200;
  utimesSync(`${file}.1.gz`, past, past);
  appendFileSync(file, manyLines(30_000, { client: "@SUM(1)", requestId: "+2" }));
  const { text } = await root.get("/audit.csv?user=rita&since=");
  const lines = text.split("\r\n");
  t.equal(lines.length, 50_003, "a head, the lines, a note, and the end");
  t.match(lines.at(-2), /^"Incomplete: cut after 50000 lines\. .* Choose a shorter period\.",""/);
  t.equal(text.split(`"'@SUM(1)"`).length - 1, 30_000);
  t.equal(text.split(`"'=1+1"`).length - 1, 20_000);
  const page = await root.get("/audit?request=%2B2&since=");
  t.equal(page.text.split("<code>+2</code>").length - 1, 50);
  t.equal((await root.get("/audit.csv?request=unknown&since=")).text.split("\r\n").length, 2);
});

t.test("an export says that older lines are missing, and runs no formula", async (t) => {
  const { gateway, url } = await staffedConsole(t, staff, auditFile);
  const root = await signedIn(url, "root");
  const file = path.join(gateway.home, "audit.log");
  writeFileSync(`${file}.1.gz`, "damaged");
  appendFileSync(file, manyLines(6000, { client: "=1+1", requestId: "+2" }));
  const { text } = await root.get("/audit.csv?user=rita&since=");
  t.match(text.split("\r\n").at(-2), /^"Incomplete: .*\. Older lines are missing\.",""/);
  t.ok(text.includes(`"'=1+1"`));
  t.notMatch(text, /(?:^|,)"\s*[=+\-@]/m);
});

t.test("a search that took too long or lost its client is not retried", async (t) => {
  const filter = { since: 0, until: Number.POSITIVE_INFINITY };
  const all = { visible: undefined, from: undefined, limit: 1, timeoutMs: 1000 };
  const question = { file, filter, ...all };
  const asked = (signal?: AbortSignal) => ({
    req: { raw: new Request("http://console/audit", signal && { signal }) },
  });
  for (let time = 0; time < 3; time += 1) {
    const late = askAudit(asked(), "search", question, 1).catch((error) => error);
    t.match(await late, { code: "busy", message: /took too long: choose a shorter period/ });
    t.equal((await late).retryAfter, undefined);
    const gone = askAudit(asked(AbortSignal.abort()), "search", question, 60_000);
    await t.rejects(gone, { code: "busy" });
  }
  t.equal((await askAudit(asked(), "search", question, 60_000)).lines.length, 1);
});

t.test("a DbAdmin sees only lines of managed databases, other users none", async (t) => {
  const dora = await signedIn(url, "dora");
  t.strictSame(await operationsOn(dora), [
    "DropTable main.people",
    "Delete main.orders",
    "Select main.orders",
  ]);
  const { text } = await dora.get("/audit");
  t.notMatch(text, /payroll|login|signed/);
  const rita = await signedIn(url, "rita");
  t.equal((await rita.get("/audit")).status, 403);
  t.notMatch((await rita.get("/sessions")).text, 'href="/audit"');
});

t.test("a denial links to a drafted grant", async (t) => {
  const page = await openSignedIn(t, url, "/", "root");
  await page.getByRole("link", { name: "Audit" }).click();
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  await lookAt(t, page, "audit");
  await page.getByLabel("User").fill("rita");
  await page.getByLabel("Table").fill("main.orders");
  await page.getByLabel("Outcome").selectOption("Denied");
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByText("Delete main.orders").waitFor();
  await lookAt(t, page, "audit-denied");
  await page.getByRole("link", { name: "Draft a grant: ReadWrite on main.orders" }).click();
  await page.getByRole("heading", { name: "Grant access to rita" }).waitFor();
  const before = readFileSync(gateway.accessFile, "utf8");
  t.equal(await page.getByLabel("Database").inputValue(), "main");
  t.equal(await page.getByLabel("Table", { exact: true }).inputValue(), "orders");
  t.equal(await page.getByLabel("Role").inputValue(), "ReadWrite");
  t.equal(readFileSync(gateway.accessFile, "utf8"), before, "nothing is granted yet");
  await page.goto(`${url}/audit?user=nobody&outcome=denied&since=7d`);
  await page.getByText("No lines found for").waitFor();
  await lookAt(t, page, "audit-none");
  const form = { user: "rita", database: "main", table: "orders", role: "ReadWrite" };
  const given = await root.submit(`/access/entry?${new URLSearchParams(form)}`);
  t.equal(given.status, 303);
  const later = await root.get("/audit?outcome=denied&table=main.orders");
  t.match(later.text, "Delete main.orders");
  t.notMatch(later.text, "Draft a grant", "the grant now allows it");
});

t.test("a drafted grant knows the groups that decided, and keeps their limits", async (t) => {
  const group = (name: string, role: string, more = "") =>
    `[[acl]]\ngroup = "${name}"\ndatabase = "main"\nrole = "${role}"\n${more}\n`;
  const filter = 'row_filter = [{ column = "state", cmp = "=", value = "new" }]\nmax_rows = 5\n';
  const eng = group("staff:R/D #1", "ReadOnly", filter);
  const local = '[[groups]]\nname = "readers"\nmembers = ["rita"]\n';
  const more = `${eng}${local}${group("readers", "ReadOnly", filter)}`;
  const { gateway, url } = await staffedConsole(
    t,
    ["root * Owner", "rita side ReadOnly"],
    auditFile,
    more,
  );
  const line = (user: string, name: string) =>
    `${JSON.stringify({
      level: "warn",
      time: new Date().toISOString(),
      user,
      via: "query",
      decision: "deny",
      reason: "role_insufficient",
      status: 403,
      operationCount: 1,
      msg: "request",
      operations: [
        {
          operation: "Update",
          database: "main",
          tables: ["orders"],
          role: "ReadOnly",
          entry: `main (group ${name})`,
        },
      ],
    })}\n`;
  const file = path.join(gateway.home, "audit.log");
  appendFileSync(file, line("staff:bob", "staff:R/D #1") + line("rita", "readers"));
  const root = await signedIn(url, "root");
  const draftsFor = async (user: string) => {
    const { text } = await root.get(`/audit?outcome=denied&user=${user}`);
    return [...text.matchAll(/href="(\/access\/entry[^"]*)"/g)].map(([, link = ""]) =>
      unescaped(link),
    );
  };
  for (const [user, groups] of [
    ["staff:bob", "&group=staff%3AR%2FD%20%231"],
    ["rita", "&group=readers"],
  ] as const) {
    const [link = ""] = await draftsFor(user);
    t.match(link, /database=main&table=orders&role=ReadWrite/);
    t.ok(link.endsWith(groups), link);
    const form = unescaped((await root.get(link)).text);
    t.match(form, "state = new</textarea>", user);
    t.match(form, 'name="max_rows" type="text" value="5"', user);
    t.match(form, "<option selected>ReadWrite</option>", user);
  }
  await gateway.edit((text) =>
    text.replaceAll('role = "ReadOnly"\nrow', 'role = "ReadWrite"\nrow'),
  );
  for (const user of ["staff:bob", "rita"]) {
    await eventually(`${user} may by the group`, async () => (await draftsFor(user)).length === 0);
  }
});

t.test("a grant is drafted from a denied request of a preset or a route", async (t) => {
  const { gateway, url } = await staffedConsole(
    t,
    ["root * Owner", "rita side ReadOnly"],
    auditFile,
  );
  const denied = (operation: string, tables: readonly string[]) => {
    const decided = { level: "warn", decision: "deny", reason: "no_grant", status: 403 };
    const operations = [{ operation, database: "main", tables, role: "" }];
    const line = { user: "rita", via: "query", operationCount: 1, msg: "request", operations };
    return `${JSON.stringify({ time: new Date().toISOString(), ...decided, ...line })}\n`;
  };
  const lines = [
    ["SELECT", ["docs"], "table=docs&role=ReadOnly"],
    ["INSERT UPDATE", ["docs"], "table=docs&role=ReadWrite"],
    ["SELECT", ["logs-*"], "table=logs-*&role=ReadOnly"],
    ["SELECT", ["*"], "role=ReadOnly"],
    ["CREATE", [], "role=DbAdmin"],
    ["DROP DATABASE", [], "role=Owner"],
  ] as const;
  const file = path.join(gateway.home, "audit.log");
  const root = await signedIn(url, "root");
  for (const [operation, tables, expected] of lines) {
    writeFileSync(file, denied(operation, tables));
    const text = unescaped((await root.get("/audit?outcome=denied&user=rita")).text);
    const [link = ""] = /\/access\/entry[^"]*/.exec(text) ?? [];
    t.equal(decodeURIComponent(link).replace(/.*&database=main&/, ""), expected, operation);
  }
  writeFileSync(
    file,
    denied("SELECT", []).replace(/"warn".*no_grant"/, '"info","decision":"allow"'),
  );
  for (const place of ["/audit?outcome=denied", "/overview", "/access/user?user=rita"]) {
    t.match((await root.get(place)).text, "denied by the database", place);
  }
});

t.test("without an audit file, the page explains how to set one", async (t) => {
  const { url } = await staffedConsole(t, staff, "");
  const page = await openSignedIn(t, url, "/audit", "root");
  await page.getByText("The audit is written to the log").waitFor();
  await page.getByText('file = "audit.log"').waitFor();
  await lookAt(t, page, "audit-off");
});

const HOUR_MS = 3_600_000;

t.test("local times have their offset and lead back to their moment", async (t) => {
  const summer = Date.UTC(2026, 6, 1, 22, 30);
  for (const [zone, text] of [
    ["Europe/Berlin", "2026-07-02 00:30 +02:00"],
    ["America/St_Johns", "2026-07-01 20:00 -02:30"],
    ["Asia/Kathmandu", "2026-07-02 04:15 +05:45"],
    ["UTC", "2026-07-01 22:30 UTC"],
  ] as const) {
    inZone(zone, () => {
      t.equal(dateInWords(summer), text);
      t.equal(readLocalTime(localTime(summer).replace(" ", "T")), summer, zone);
      t.ok(Number.isNaN(readLocalTime("2026-13-45T99:99")));
    });
  }
});

t.test("an offset is not a time zone, so that a browser cannot fill the memory", async (t) => {
  const now = Date.UTC(2026, 6, 1);
  const { heapUsed } = process.memoryUsage();
  for (let minutes = 0; minutes < 24 * 60; minutes += 1) {
    const time = new Date(minutes * 60_000).toISOString().slice(11, 16);
    for (const zone of [`+${time}`, `-${time}`]) {
      if (inZone(zone, zoneInUse) === zone) t.fail(`${zone} is a zone`);
      inZone(zone, () => localTime(now));
    }
  }
  t.equal(knownZone("+01:23"), undefined);
  t.equal(knownZone("-0200"), undefined);
  t.equal(knownZone("Etc/GMT+5"), "Etc/GMT+5");
  t.equal(knownZone("europe/berlin"), "Europe/Berlin");
  t.ok(process.memoryUsage().heapUsed - heapUsed < 50e6, "no formatter is kept for them");
});

t.test("the periods of the overview ascend and are whole, also when clocks change", async (t) => {
  // Clocks go back in Berlin on 25 October 2026 at 01:00 UTC, and ahead on 29 March.
  const changes = [Date.UTC(2026, 9, 25, 1), Date.UTC(2026, 2, 29, 1)];
  for (const zone of ["Europe/Berlin", "Asia/Kathmandu", "UTC"]) {
    for (const change of changes) {
      for (let hour = -30; hour < 30; hour += 0.5) {
        const now = change + hour * HOUR_MS;
        for (const span of spans) {
          const edges = inZone(zone, () => findEdges(span, now));
          const begin = edges.at(-2) ?? 0;
          const isSound = begin <= now && now < (edges.at(-1) ?? 0);
          const isRising = edges.every((edge, at) => at === 0 || edge > (edges[at - 1] ?? 0));
          const name = `${zone} ${span.name} ${new Date(now).toISOString()}`;
          if (!isSound || !isRising) t.fail(name);
          const whole = span.name === "week" ? /(?:00|06|12|18):00:00$/ : /:\d\d:00$/;
          const texts = inZone(zone, () => edges.map(localTime));
          if (!texts.every((text) => whole.test(text))) t.fail(`${name}: ${texts}`);
        }
      }
    }
  }
});

t.test("the marks of an axis are 1, 2 or 5 times a power of ten apart", async (t) => {
  t.strictSame(roundMarks(0, 1), [0, 1]);
  t.strictSame(roundMarks(3, 1), [0, 1, 2, 3]);
  t.strictSame(roundMarks(17, 1), [0, 5, 10, 15, 20]);
  t.strictSame(roundMarks(203, 1), [0, 100, 200, 300]);
  t.strictSame(roundMarks(0.6, 0.1).length, 4);
  for (let most = 1; most < 1e7; most = Math.ceil(most * 1.3)) {
    const marks = roundMarks(most, 1);
    const [, step = 0] = marks;
    t.match(String(step), /^[125]0*$/);
    t.ok((marks.at(-1) ?? 0) >= most && marks.length <= 6, String(most));
  }
});

t.test("times are in the server's zone, or in the one that a browser chooses", async (t) => {
  const { gateway, url } = await startConsole(t, {
    config: auditFile,
    env: { TZ: "America/St_Johns" },
  });
  const time = "2026-07-01T22:30:15.000Z";
  const line = { time, user: "admin", operations: [], operationCount: 0, msg: "request" };
  appendFileSync(path.join(gateway.home, "audit.log"), `${JSON.stringify(line)}\n`);
  const page = await openSignedIn(t, url, "/audit?since=2026-07-01&until=2026-07-02T12:00");
  await page.getByRole("columnheader", { name: "Time (America/St_Johns)" }).waitFor();
  await page.getByText("2026-07-01 20:00:15").waitFor();
  await page.getByRole("link", { name: "Change the time zone" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Time zone" }).waitFor();
  await lookAt(t, page, "zone");
  await page.getByLabel("Time zone").fill("Mars/Olympus");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("There is no time zone Mars/Olympus").waitFor();
  await page.getByLabel("Time zone").fill("Europe/Berlin");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  const shown = page.locator("td time").first();
  t.equal(await shown.innerText(), "2026-07-02 00:30:15", "back on the same page");
  t.equal(await shown.getAttribute("title"), "2026-07-01 22:30:15 UTC");
  t.equal(await shown.getAttribute("datetime"), time);
  await page.goto(`${url}/audit?start=2026-07-02T00:30&until=2026-07-02T00:31&since=`);
  t.equal(await page.locator("td time").count(), 1, "From and Until are in the chosen zone");
  await page.goto(`${url}/audit?start=2026-07-01T22:30&until=2026-07-01T22:31&since=`);
  t.equal(await page.locator("td time").count(), 0);
  await page.goto(`${url}/state`);
  t.match(
    await page.getByRole("main").innerText(),
    /Times are in Europe\/Berlin \(UTC\+0[12]:00\)/,
  );

  const other = await signedIn(url);
  const { text } = await other.get("/state", {
    cookie: `${other.cookie}; gatehouse-console-zone=<x>`,
  });
  t.match(
    textOf(text),
    /Times are in America\/St_Johns \(UTC-0[23]:30\)/,
    "an unknown zone is ignored",
  );
  t.equal(
    (await other.post("/sessions/zone", { zone: "UTC", next: "//evil.example" })).headers.location,
    "/",
  );
});
