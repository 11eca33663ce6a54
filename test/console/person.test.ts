import t from "tap";
import { unfinishedSearch } from "../../src/features/console/person.ts";
import { grant, groupGrant, user } from "../access/kit.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import {
  auditFile,
  type ConsoleClient,
  consoleConfig,
  lookAt,
  openSignedIn,
  signedIn,
  textOf,
} from "./kit.ts";

const more = [
  '[[groups]]\nname = "team"\nmembers = ["carol"]\n\n',
  '[[users]]\nusername = "nora"\nemail = "nora@example.com"\nattributes = { tenant = "acme", level = 3 }\n\n',
  grant("nora", "shop", "ReadOnly", 'tables = ["orders"]\ncolumns = ["id", "total"]'),
  groupGrant("team", "shop", "ReadWrite", 'require_approval = ["DELETE"]\napprovers = ["oona"]'),
  groupGrant("staff:eng", "shop", "ReadOnly", 'columns = ["id"]'),
  user("staff:ann", ""),
  user("eva", ""),
  grant("eva", "shop", "ReadOnly", 'tables = ["items"]'),
  grant(
    "eva",
    "*",
    "ReadWrite",
    'tables = ["orders", "Wages"]\nwritable_columns = ["total"]\nrow_filter = [{ column = "card", cmp = "=", value = "secret" }]',
  ),
  '[[groups]]\nname = "paygroup"\nmembers = ["carol", "eva"]\n\n',
  groupGrant("paygroup", "payroll", "ReadOnly"),
  '[[boundaries]]\nvia = "query"\ngroup = "paygroup"\ndatabase = "shop"\nclient = "agent"\nrole = "None"\n\n',
  '[[boundaries]]\nvia = "mcp"\ngroup = "paygroup"\nrole = "ReadOnly"\nrequire_approval = ["SELECT"]\napprovers = ["group:paygroup"]\n\n',
  '[[boundaries]]\nvia = "mcp"\nusername = "carol"\nrole = "ReadOnly"\n\n',
].join("");
const grants = ["root * Owner", "oona shop Owner", "carol payroll ReadOnly"];
const home = await staffedHome(t, grants, more);
const { config, url } = await consoleConfig(`${auditFile}[query.operations]\nVacuum = "DROP"\n`);
const gateway = await startGateway(t, { home, config });
const root = await tokenOf(gateway, "root");
const columns = ["id", "total", "card"].map((name) => ({ name, type: "text" }));
for (const query of [
  { CreateDatabase: { database: "shop" } },
  { CreateTable: { database: "shop", table: "orders", columns } },
]) {
  const { status, text } = await gateway.query(query, root);
  if (status !== 200) throw new Error(text);
}

const pageOf = async (client: ConsoleClient, query: string) =>
  textOf((await client.get(`/access/user?user=${query}`)).text);

t.test("a user's page shows account and recent denials to those who may see them", async (t) => {
  const carol = await tokenOf(gateway, "carol");
  const drop = (database: string) => ({ DropTable: { database, table: "orders" } });
  t.equal((await gateway.query(drop("payroll"), carol)).status, 403);
  t.equal((await gateway.query(drop("shop"), carol)).status, 403);
  const admin = await signedIn(url, "root");
  const owner = await signedIn(url, "oona");
  let text = "";
  await eventually("the denials are in the audit", async () => {
    text = await pageOf(admin, "carol");
    return text.includes("DropTable shop.orders");
  });
  t.match(
    text,
    /Recent denials .*DropTable shop\.orders role_insufficient Draft a grant: DbAdmin on shop /,
  );
  t.match(text, "DropTable payroll.orders role_insufficient");
  t.match(text, /Last sign-in \d{4}-\d\d-\d\d.* Last seen \d{4}-/);
  const own = await pageOf(owner, "carol");
  t.match(own, "DropTable shop.orders");
  t.notMatch(own, /payroll|Last seen/, "an Owner of one database sees no other");
  t.match(
    await pageOf(admin, "nora"),
    'Email nora@example.com Attributes tenant = "acme" level = 3',
  );
  t.match(await pageOf(admin, "nora"), "No denials in the last 30 days.");
  const others = await pageOf(owner, "nora");
  t.match(others, "nora@example.com");
  t.notMatch(others, "acme");
  t.notMatch(await pageOf(admin, "group:team"), /Recent denials|Last seen/);
});

t.test("a search for denials that ends early says how far it got", async (t) => {
  const next = { inode: "1", offset: 5 };
  const reached = "2026-11-29T10:00:00.000Z";
  t.match(
    unfinishedSearch({ lines: [], next, reached }),
    /^No denials found since about 2026-11-2.*\. The audit is too large to search further here\.$/,
  );
  t.match(unfinishedSearch({ lines: [], next, reached: undefined }), /^No denials found\. /);
  t.equal(unfinishedSearch({ lines: [], next: undefined, reached }), undefined);
});

t.test("Test as tells the decision on an operation, without a query", async (t) => {
  const admin = await signedIn(url, "root");
  const owner = await signedIn(url, "oona");
  const result = async (client: ConsoleClient, query: string) =>
    (await pageOf(client, query)).match(
      /mcp (?:Test )?((?:Allowed|Denied|Enter|You may) ?.*?) Recent|mcp Test (.*?) Members/,
    )?.[1];
  const cases: [query: string, result: string | RegExp][] = [
    [
      "nora&operation=Select&place=shop.orders",
      "Allowed : nora , Select on shop.orders : ReadOnly by the entry for shop.orders; columns id, total.",
    ],
    [
      "nora&operation=Select&place=shop",
      "Denied : nora , Select on shop : there is no entry for this place or for *; there are entries for tables: shop.orders.",
    ],
    [
      "nora&operation=Update&place=shop.orders",
      "Denied : nora , Update on shop.orders : the role does not include this: ReadOnly by the entry for shop.orders.",
    ],
    [
      "carol&operation=Delete&place=shop.orders",
      /^Allowed : carol , Delete on shop\.orders : ReadWrite by the entry for shop \(group team\).*\. DELETE only after approval by oona\.$/,
    ],
    ["carol&operation=Delete&place=shop.orders&via=mcp", /^Denied .* \(a boundary\)\.$/],
    ["carol&operation=Vacuum&place=shop.orders", /^Denied .*role does not include this/],
    ["staff:ann&operation=Select&place=shop.orders", /^Denied .*no entry/],
    [
      "staff:ann&groups=staff:eng&operation=Select&place=shop.orders",
      /^Allowed .*\(group staff:eng\); columns id\.$/,
    ],
    [
      "carol&operation=Select&place=*",
      "Enter a database or a table, such as main or main.tickets.",
    ],
  ];
  for (const [query, expected] of cases) t.match(await result(admin, query), expected, query);
  const denied = "You may test only databases on which you may grant.";
  t.equal(await result(owner, "carol&operation=Select&place=payroll"), denied);
  t.match(await result(owner, "carol&operation=Select&place=shop"), /^Allowed/);
  t.match(
    await pageOf(admin, "group:team&operation=Update&place=shop"),
    "Allowed : group team , Update on shop : ReadWrite by the entry for shop (group team)",
  );
  const unknown = await pageOf(admin, "carol&operation=Nothing&place=shop");
  t.match(unknown, "Shows the current decision. No query is sent to a database.");
});

t.test("an Owner of one database reads nothing of entries and groups of others", async (t) => {
  const owner = await signedIn(url, "oona");
  const admin = await signedIn(url, "root");
  const eva = await pageOf(owner, "eva&operation=Update&place=shop.orders");
  t.match(eva, "eva , Update on shop.orders : an entry that you may not see decides here.");
  t.match(eva, "shop.items");
  t.notMatch(eva, /secret|Wages|paygroup|Allowed|Denied|\*\.orders/);
  const other = await pageOf(owner, "eva&operation=Update&place=shop.wages");
  t.match(other, "an entry that you may not see decides here.");
  t.notMatch(other, "Wages");
  t.match(await pageOf(admin, "eva&operation=Update&place=shop.orders"), /Allowed .*secret/);
  const carol = await pageOf(owner, "carol&operation=Update&place=shop&via=mcp");
  t.match(carol, "Denied : carol , Update on shop : a boundary denies it.");
  t.match(carol, "none (boundary query client=agent database=shop)");
  t.notMatch(carol, "paygroup");
  t.match(
    await pageOf(admin, "carol&operation=Update&place=shop&via=mcp"),
    /under the boundary mcp group=paygroup/,
  );
  const select = await pageOf(owner, "carol&operation=Select&place=shop&via=mcp");
  t.match(select, "SELECT only after approval.");
  t.notMatch(select, "paygroup");
  t.notMatch(textOf((await owner.get("/access/table?place=shop.orders")).text), "paygroup");
  const asked = { user: "eva", via: "query", groups: "" };
  const query = '{"Select":{"database":"shop","from":"orders","columns":["id"]}}';
  const tested = await owner.post("/access/check", { ...asked, query });
  t.equal(tested.status, 403);
  t.match(tested.text, "An entry that you may not see decides on this query.");
  t.notMatch(tested.text, "secret");
  const items = query.replace("orders", "items");
  t.match((await owner.post("/access/check", { ...asked, query: items })).text, "Allowed");
  const update =
    '{"Update":{"database":"shop","table":"orders","set":{"id":"1"},"where":{"column":"id","cmp":"=","value":"2"}}}';
  const bounded = { user: "carol", via: "mcp", groups: "", query: update };
  const shown = await owner.post("/access/check", bounded);
  t.match(shown.text, /Denied/);
  t.notMatch(shown.text, "paygroup");
  t.match((await admin.post("/access/check", bounded)).text, "paygroup");
});

t.test("a table's page strikes out the columns that are hidden from each user", async (t) => {
  const admin = await signedIn(url, "root");
  const { text } = await admin.get("/access/table?place=shop.orders");
  const row = (name: string) =>
    text.split("</tr>").find((one) => one.includes(`<bdi>${name}</bdi></a>`)) ?? "";
  t.match(row("nora"), "<code>id, total</code>");
  t.match(row("nora"), "<del><code>card</code></del>");
  t.match(textOf(row("nora")), "Hidden: card");
  t.match(row("group staff:eng"), "<del><code>total</code></del> <del><code>card</code></del>");
  t.notMatch(row("carol"), "<del>");
  t.notMatch(row("root"), "<del>");
});

t.test("the page of tables begins with an existing database, or says what to do", async (t) => {
  const [admin, owner] = [await signedIn(url, "root"), await signedIn(url, "oona")];
  t.match((await owner.get("/access/table")).text, "Users of shop", "main is not hers");
  t.match((await admin.get("/access/table")).text, "Users of main");
  for (const [place, status, problem] of [
    ["shpo", 200, "The database shpo does not exist (did you mean shop?)."],
    ["shop.order", 200, "shop has no table order (did you mean orders?)."],
    ["a b", 400, "Invalid database"],
  ] as const) {
    t.match(await admin.get(`/access/table?place=${place}`), { status, text: problem });
  }
});

t.test("the pages of users and tables work on each screen, and by keyboard", async (t) => {
  const page = await openSignedIn(t, url, "/access/user?user=nora", "root");
  await page.getByLabel("Operation").focus();
  await page.keyboard.type("Update");
  await page.keyboard.press("Tab");
  await page.keyboard.type("shop.orders");
  await page.keyboard.press("Enter");
  await page.getByText("the role does not include this").waitFor();
  t.equal(await page.getByLabel("Operation").inputValue(), "Update");
  for (const width of [390, 768, 1100, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    const over = "document.documentElement.scrollWidth - window.innerWidth";
    t.ok(Number(await page.evaluate(over)) <= 0, `the page fits ${width} pixels`);
  }
  await lookAt(t, page, "user-test");
  await page.goto(`${url}/access/user?user=carol`);
  await lookAt(t, page, "user-denials");
  await page.goto(`${url}/access/table?place=shop.orders`);
  await lookAt(t, page, "table-columns");
});
