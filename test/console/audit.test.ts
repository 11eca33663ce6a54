import { appendFileSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import t from "tap";
import { askAudit } from "../../src/features/console/audit.ts";
import { tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import {
  auditFile,
  type ConsoleClient,
  lookAt,
  openPage,
  signedIn,
  signInBrowser,
  staffedConsole,
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
const remove = (database: string, table = "orders") => ({
  Delete: { database, table, where: { column: "id", cmp: "=", value: 7 } },
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
await use(gateway);

t.test("the audit is searched by user, table, operation, outcome and time", async (t) => {
  const root = await signedIn(t, url, "root");
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
  const file = path.join(gateway.home, "audit.log");
  await eventually("the line is written", async () => readFileSync(file, "utf8").includes(id));
  const root = await signedIn(t, url, "root");
  t.strictSame(await operationsOn(root, "group=payers"), ["Select payroll.orders", "login"]);
  t.strictSame(await operationsOn(root, "group=others"), []);
  const dora = await signedIn(t, url, "dora");
  t.strictSame(await operationsOn(dora, "group=payers"), []);
  const today = new Date().toISOString().slice(0, 10);
  const onPayroll = "user=paul&operation=Select";
  t.equal((await operationsOn(root, `${onPayroll}&start=${today}T00:00&since=1h`)).length, 1);
  t.equal((await operationsOn(root, `${onPayroll}&start=2199-01-01T00:00&since=`)).length, 0);
  t.match((await root.get("/audit?start=lately")).status, 400);
});

t.test("a line opens to show its request, its caller and its response", async (t) => {
  const page = await openPage(t);
  await signInBrowser(page, url, "root");
  await page.goto(`${url}/audit?user=rita&operation=DropTable`);
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
  const dora = await signedIn(t, url, "dora");
  const { text: seen } = await dora.get("/audit");
  t.match(seen, "<dt>Request</dt>");
  t.notMatch(seen, /<dt>(?:Address|Token)<\/dt>/);
});

t.test("the lines of a filter are exported as CSV, with what the visitor may see", async (t) => {
  const page = await openPage(t);
  await signInBrowser(page, url, "root");
  await page.goto(`${url}/audit?user=rita&outcome=denied`);
  const link = page.getByRole("link", { name: "Export as CSV" });
  await link.focus();
  const [file] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
  t.match(file.suggestedFilename(), /^audit-\d{4}-\d\d-\d\d\.csv$/);
  const root = await signedIn(t, url, "root");
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
  const dora = await signedIn(t, url, "dora");
  const own = (await dora.get("/audit.csv")).text;
  t.notMatch(own, "console_export");
  t.match(own, '"main.people"');
  t.notMatch(own, /payroll|login|127\.0\.0\.1/);
  const rita = await signedIn(t, url, "rita");
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
  const root = await signedIn(t, url, "root");
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
  const root = await signedIn(t, url, "root");
  const file = path.join(gateway.home, "audit.log");
  writeFileSync(`${file}.1.gz`, "damaged");
  appendFileSync(file, manyLines(6000, { client: "=1+1", requestId: "+2" }));
  const { text } = await root.get("/audit.csv?user=rita&since=");
  t.match(text.split("\r\n").at(-2), /^"Incomplete: .*\. Older lines are missing\.",""/);
  t.ok(text.includes(`"'=1+1"`));
  t.notMatch(text, /(?:^|,)"\s*[=+\-@]/m);
});

t.test("a search that took too long or lost its client is not retried", async (t) => {
  const file = path.join(gateway.home, "audit.log");
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
  const dora = await signedIn(t, url, "dora");
  t.strictSame(await operationsOn(dora), [
    "DropTable main.people",
    "Delete main.orders",
    "Select main.orders",
  ]);
  const { text } = await dora.get("/audit");
  t.notMatch(text, /payroll|login|signed/);
  const rita = await signedIn(t, url, "rita");
  t.equal((await rita.get("/audit")).status, 403);
  t.notMatch((await rita.get("/sessions")).text, 'href="/audit"');
});

t.test("a denial links to a drafted grant", async (t) => {
  const page = await openPage(t);
  await signInBrowser(page, url, "root");
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
  const root = await signedIn(t, url, "root");
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
  const root = await signedIn(t, url, "root");
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
  const root = await signedIn(t, url, "root");
  for (const [operation, tables, expected] of lines) {
    writeFileSync(file, denied(operation, tables));
    const text = unescaped((await root.get("/audit?outcome=denied&user=rita")).text);
    const [link = ""] = /\/access\/entry[^"]*/.exec(text) ?? [];
    t.equal(decodeURIComponent(link).replace(/.*&database=main&/, ""), expected, operation);
  }
});

t.test("without an audit file, the page explains how to set one", async (t) => {
  const { url } = await staffedConsole(t, staff, "");
  const page = await openPage(t);
  await signInBrowser(page, url, "root");
  await page.goto(`${url}/audit`);
  await page.getByText("The audit is written to the log").waitFor();
  await page.getByText('file = "audit.log"').waitFor();
  await lookAt(t, page, "audit-off");
});
