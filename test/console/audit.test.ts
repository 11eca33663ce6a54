import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { openStaffed, passwordOf, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import type { TestGateway } from "../kit/gateway.ts";
import {
  type ConsoleClient,
  lookAt,
  onScreens,
  sharedBrowser,
  signedIn,
  signInBrowser,
} from "./kit.ts";

const staff = [
  ...["root * Owner", "dora main DbAdmin", "rita main ReadOnly"],
  ...["rita payroll ReadWrite", "paul payroll ReadWrite"],
];
const select = (database: string, from = "orders") => ({
  Select: { database, from, columns: ["id", "state"] },
});
const remove = (database: string, table = "orders") => ({
  Delete: { database, table, where: { column: "id", cmp: "=", value: 7 } },
});

async function open(t: Test, audit = '[audit]\nfile = "audit.log"\n') {
  const port = await freePort();
  const config = `[console]\nlisten = "127.0.0.1:${port}"\n${audit}`;
  const { gateway } = await openStaffed(t, staff, { config });
  return { gateway, url: `http://127.0.0.1:${port}` };
}

/** Asks for things that are allowed and denied, on two databases, and has them written. */
async function use(gateway: TestGateway): Promise<void> {
  const rita = await tokenOf(gateway, "rita");
  await gateway.query(select("main"), rita);
  await gateway.query(remove("main"), rita);
  await gateway.query(remove("payroll"), rita);
  await gateway.query({ Batch: [remove("payroll"), select("main", "people")] }, rita);
  const answer = await gateway.query({ DropTable: { database: "main", table: "people" } }, rita);
  const id = answer.headers.get("x-request-id") ?? "";
  const file = path.join(gateway.home, "audit.log");
  await eventually("the lines are written", async () => readFileSync(file, "utf8").includes(id));
}

const as = (t: Test, url: string, name: string) => signedIn(t, url, name, passwordOf(name));

/** What the page's table has in its column of operations. */
async function operationsOn(client: ConsoleClient, query = ""): Promise<string[]> {
  const { text } = await client.get(`/audit?${query}`);
  return [...text.matchAll(/<div><code>([^<]+)<\/code>/g)].map(([, words = ""]) => words);
}

const { gateway, url } = await open(t);
await use(gateway);

t.test("the form asks by user, table, operation, outcome and time", async (t) => {
  const root = await as(t, url, "root");
  const dropped = "DropTable main.people";
  const both = ["Delete payroll.orders", "Select main.people"];
  t.strictSame(await operationsOn(root, "user=rita"), [
    ...[dropped, ...both, "Delete payroll.orders", "Delete main.orders", "Select main.orders"],
    "login",
  ]);
  t.strictSame(await operationsOn(root, "table=people"), [dropped, ...both]);
  t.strictSame(await operationsOn(root, "operation=DropTable"), [dropped]);
  t.strictSame(await operationsOn(root, "outcome=denied&user=rita"), [
    dropped,
    "Delete main.orders",
  ]);
  t.strictSame(await operationsOn(root, "user=rita&until=2020-01-01T00:00&since="), []);
  t.strictSame(await operationsOn(root, "user=paul"), []);
  const wrong = await root.get("/audit?since=lately");
  t.match(wrong, { status: 400, text: "From may be such as 24h" });
  t.equal((await root.get("/audit?from=1-2")).status, 200);
  t.match((await root.get("/audit?from=1-2")).text, "begin again");
  t.notMatch((await root.get(`/audit?user=${encodeURIComponent("<b>&")}`)).text, "<b>");
});

t.test("who grants on a database sees its lines alone, and others nothing", async (t) => {
  const dora = await as(t, url, "dora");
  t.strictSame(await operationsOn(dora), [
    ...["DropTable main.people", "Delete main.orders", "Select main.orders"],
  ]);
  const { text } = await dora.get("/audit");
  t.notMatch(text, /payroll|login|signed/);
  const rita = await as(t, url, "rita");
  t.equal((await rita.get("/audit")).status, 403);
  t.notMatch((await rita.get("/sessions")).text, 'href="/audit"');
});

t.test("a denial leads to a drafted grant, with a browser", async (t) => {
  await onScreens(async (page, name) => {
    await signInBrowser(page, url, "root", passwordOf("root"));
    await page.getByRole("link", { name: "Audit" }).click();
    await page.getByRole("heading", { name: "Audit" }).waitFor();
    await lookAt(t, page, `audit-${name}`);
    await page.getByLabel("User").fill("rita");
    await page.getByLabel("Table").fill("main.orders");
    await page.getByLabel("Outcome").selectOption("Denied");
    await page.keyboard.press("Tab");
    await page.getByRole("button", { name: "Show" }).click();
    await page.getByText("Delete main.orders").waitFor();
    await lookAt(t, page, `audit-denied-${name}`);
    await page.getByRole("link", { name: "Draft a grant: ReadWrite on main.orders" }).click();
    await page.getByRole("heading", { name: "Grant to rita" }).waitFor();
    const before = readFileSync(gateway.accessFile, "utf8");
    t.strictSame(
      [
        await page.getByLabel("Database").inputValue(),
        await page.getByLabel("Table").inputValue(),
        await page.getByLabel("Role").inputValue(),
      ],
      ["main", "orders", "ReadWrite"],
    );
    t.equal(readFileSync(gateway.accessFile, "utf8"), before, "nothing is granted yet");
    await page.goto(`${url}/audit?user=nobody&outcome=denied&since=7d`);
    await page.getByText("Nothing was found for").waitFor();
    await lookAt(t, page, `audit-none-${name}`);
  });
  const root = await as(t, url, "root");
  const form = { user: "rita", database: "main", table: "orders", role: "ReadWrite" };
  const { text } = await root.get(`/access/entry?${new URLSearchParams(form)}`);
  const seen = (/name="seen" value="([^"]*)"/.exec(text)?.[1] ?? "").replaceAll("&#39;", "'");
  const given = await root.post("/access/entry", { ...form, seen, password: passwordOf("root") });
  t.equal(given.status, 303);
  const asked = await root.get("/audit?outcome=denied&table=main.orders");
  t.match(asked.text, "Delete main.orders");
  t.notMatch(asked.text, "Draft a grant", "it would pass by now");
});

t.test("where the audit goes to the log, the page says how to switch it on", async (t) => {
  const { url } = await open(t, "");
  const browser = await sharedBrowser();
  const page = await browser.newPage();
  await signInBrowser(page, url, "root", passwordOf("root"));
  await page.goto(`${url}/audit`);
  await page.getByText("The audit goes to the log").waitFor();
  await page.getByText('file = "audit.log"').waitFor();
  await lookAt(t, page, "audit-off");
});
