/** The first page of the console. */
import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { openStaffed, passwordOf, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { launch } from "../oauth/chromium.ts";
import { lookAt, screens, signedIn, signInBrowser, textOf } from "./kit.ts";

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

t.test(
  "the overview leads from a denial to its lines and to a grant, with a browser",
  async (t) => {
    const setting = await open(t);
    const { url } = setting;
    const count = await work(setting);
    const browser = await launch(t);
    for (const { name, ...screen } of screens) {
      const context = await browser.newContext(screen);
      const page = await context.newPage();
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
      await context.close();
    }
  },
);

t.test("the overview shows everybody what is theirs, and nothing else", async (t) => {
  const setting = await open(t);
  const { url } = setting;
  const count = await work(setting);
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
