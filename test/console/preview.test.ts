import { readFileSync } from "node:fs";
import t from "tap";
import { grant, groupGrant, user } from "../access/kit.ts";
import { passwordOf } from "../journeys/staff.ts";
import {
  type ConsoleClient,
  lookAt,
  openSignedIn,
  signedIn,
  staffedConsole,
  textOf,
} from "./kit.ts";

const more = [
  '[[groups]]\nname = "team"\nmembers = ["carol", "gina"]\n\n',
  user("carol", ""),
  user("gina", ""),
  user("dead", "disabled = true"),
  grant("dead", "shop", "ReadOnly"),
  grant("carol", "payroll", "ReadOnly"),
  grant("carol", "shop", "ReadOnly", "expires = 2199-01-01T00:00:00Z"),
  grant("carol", "shop", "ReadOnly", 'tables = ["orders"]'),
  grant("gina", "shop", "ReadOnly", 'tables = ["orders"]'),
  groupGrant("team", "shop", "ReadWrite"),
  '[[boundaries]]\nvia = "mcp"\nrole = "ReadOnly"\nmax_rows = 20\nrate_limit = "60/min"\n\n',
  '[[boundaries]]\nvia = "query"\nclient = "agent"\nusername = "gina"\nrequire_approval = ["DELETE"]\n\n',
  '[[boundaries]]\nvia = "mcp"\nusername = "other"\nmax_rows = 1\n\n',
].join("");
const { gateway, url } = await staffedConsole(
  t,
  ["root * Owner", "oona shop Owner", "dora shop DbAdmin", "other shop ReadOnly"],
  "",
  more,
);
const root = await signedIn(url, "root");

const preview = async (client: ConsoleClient, route: string, fields: Record<string, string>) => {
  const { status, text } = await client.submit(route, { look: "preview", password: "", ...fields });
  const [, shown = ""] = /id="preview"[^>]*>([\s\S]*?)<\/section>/.exec(text) ?? [];
  return { status, text, shown: textOf(shown).trim() };
};

t.test("a preview says in words what the entry will allow, and saves nothing", async (t) => {
  const before = readFileSync(gateway.accessFile, "utf8");
  const entry = "/access/entry?user=carol";
  const limited = await preview(root, entry, {
    database: "shop",
    table: "orders",
    role: "ReadOnly",
    columns: "id, total, state",
    max_rows: "100",
    expires: "2126-12-03T18:00",
  });
  t.equal(limited.status, 200);
  const boundary =
    "Over MCP: at most ReadOnly, at most 20 rows, at most 60/min queries (boundary mcp).";
  t.equal(
    limited.shown,
    `Preview carol will be able to read shop.orders, 3 columns (id, total and state), at most 100 rows, until 3 Dec 2126, 18:00 UTC. ${boundary} After that, it denies everything there until it is removed or replaced. Now: carol can read shop.orders. Nothing is saved yet.`,
  );
  const whole = { database: "shop", table: "", role: "ReadWrite" };
  t.match(
    (await preview(root, entry, { ...whole, beside: "yes" })).shown,
    [
      "carol will be able to read and change every table of shop.",
      "This entry counts instead of the one of group team. Other entries decide on shop.orders.",
      boundary,
      "Until 1 Jan 2199, 00:00 UTC, the temporary entry decides there: ReadOnly.",
      "Now: carol can read every table of shop, until 1 Jan 2199, 00:00 UTC.",
    ].join(" "),
  );
  const group = await preview(root, "/access/entry?user=group:team", { ...whole, table: "orders" });
  t.match(
    group.shown,
    [
      "Members of the group team will be able to read and change shop.orders.",
      "The group has 2 members: carol and gina. For carol and gina, another entry decides there.",
      boundary,
      "Over /query with the client agent for gina: DELETE only after approval (boundary query client=agent username=gina).",
      "Now: The entry for shop (group team) applies there: ReadWrite.",
    ].join(" "),
  );
  const staff = await preview(root, "/access/entry?user=group:staff:eng", whole);
  t.match(staff.shown, "Members are the users whose tokens name staff:eng.");
  const dead = await preview(root, "/access/entry?user=dead", { ...whole, role: "None" });
  t.match(dead.shown, "dead will have no access to shop. dead is disabled");
  t.notMatch(dead.shown, "Over MCP");
  const external = await preview(root, "/access/entry?user=staff:ann", {
    ...whole,
    role: "ReadOnly",
    writable_columns: "id",
  });
  t.match(external.shown, "staff:ann will be able to read every table of shop, writing only id.");
  t.match(external.shown, "Warning: The entry of staff:ann for shop: `writable_columns` has no");
  t.equal(readFileSync(gateway.accessFile, "utf8"), before);
});

t.test("a preview tells an administrator of one database nothing about others", async (t) => {
  const oona = await signedIn(url, "oona");
  const entry = "/access/entry?user=carol";
  const own = await preview(oona, entry, { database: "shop", table: "", role: "ReadOnly" });
  t.match(own.shown, "carol will be able to read every table of shop.");
  t.notMatch(own.text, "payroll");
  for (const database of ["payroll", "*"]) {
    const { status, text, shown } = await preview(oona, entry, { database, role: "ReadOnly" });
    t.equal(status, 403, database);
    t.match(text, "Your own rights are too low");
    t.notMatch(shown, "carol");
  }
  const dora = await signedIn(url, "dora");
  const owner = await preview(dora, entry, { database: "shop", role: "Owner" });
  t.equal(owner.status, 403);
  const wrong = await preview(oona, entry, { database: "shop", table: "*", role: "ReadOnly" });
  t.match(wrong, { status: 400, text: "Correct the marked field" });
  t.equal((await oona.get(`${entry}&database=payroll`)).status, 200);
  t.notMatch((await oona.get(`${entry}&database=payroll`)).text, "carol can read");
});

t.test("a message after a change warns as lint does", async (t) => {
  const saved = await root.submit("/access/entry?user=carol", {
    database: "shop",
    table: "items",
    role: "ReadWrite",
    row_filter: "tenant = @tenant",
    approvers: "nobody",
  });
  t.equal(saved.status, 303);
  const { text } = await root.get(String(saved.headers.location));
  t.match(textOf(text), "carol can read and change shop.items, only rows where tenant = @tenant.");
  t.match(textOf(text), "refers to @tenant, which the user's record lacks: every query is denied.");
  t.match(textOf(text), "`approvers` has no effect without `require_approval`.");
});

t.test("forms for revoking, users and groups say their effect in words", async (t) => {
  const shownOn = async (route: string) => {
    const [, shown = ""] =
      /id="preview"[^>]*>([\s\S]*?)<\/section>/.exec((await root.get(route)).text) ?? [];
    return textOf(shown).trim();
  };
  t.equal(
    await shownOn("/access/end?user=gina&database=shop&table=orders"),
    "Preview Now: gina can read shop.orders. Then: The entry for shop (group team) applies there: ReadWrite.",
  );
  t.equal(
    await shownOn("/access/end?user=dead&database=shop&table="),
    "Preview Now: dead can read every table of shop. Then: dead has no access there.",
  );
  t.equal(await shownOn("/access/end?user=dead&database=other"), "");
  t.equal(
    await shownOn("/access/members?user=group:team"),
    "Preview Members of the group team can read and change every table of shop.",
  );
  const fields = { user: "nina", database: "shop", role: "DbAdmin" };
  t.equal(
    (await preview(root, "/access/new", fields)).shown,
    "Preview nina will be able to read, change, create and drop every table of shop, and grant roles up to ReadWrite.",
  );
  t.match((await preview(root, "/access/new", { ...fields, database: "" })).shown, "Fill in");
  t.equal((await root.get("/access/user?user=nina")).status, 404, "nothing was saved");
  const added = await root.submit("/access/new", { ...fields, new_password: "a long password 7" });
  const { text } = await root.get(String(added.headers.location));
  t.match(textOf(text), "Added nina. nina can read, change, create and drop every table of shop");
});

t.test("a form that was previewed is still refused after someone else's change", async (t) => {
  const route = "/access/entry?user=dead";
  const seenIn = (text: string) => /name="seen" value="([^"]*)"/.exec(text)?.[1] ?? "";
  const seen = seenIn((await root.get(route)).text);
  const fields = { user: "dead", database: "shop", table: "", role: "ReadOnly", max_rows: "9" };
  const other = await root.submit(route, { ...fields, role: "None", max_rows: "" });
  t.equal(other.status, 303);
  for (const look of ["preview", "yes"]) {
    const { text } = await root.post("/access/entry", { ...fields, look, seen, password: "" });
    t.equal(seenIn(text), seen, look);
  }
  const wrong = await root.post("/access/entry", { ...fields, seen, password: "wrong" });
  t.equal(seenIn(wrong.text), seen);
  const password = passwordOf("root");
  const saved = await root.post("/access/entry", { ...fields, seen, password });
  t.equal(saved.status, 409);
  t.match(saved.text, "Someone else has changed this user.");
  t.not(seenIn(saved.text), seen);
  t.equal(
    (await root.post("/access/entry", { ...fields, seen: seenIn(saved.text), password })).status,
    303,
  );
});

t.test("sentences about an entry escape invisible characters", async (t) => {
  const route = "/access/entry?user=gina";
  const fields = {
    database: "shop",
    table: "notes",
    role: "ReadOnly",
    row_filter: "a = 'x\u202ey'",
  };
  const { shown } = await preview(root, route, fields);
  t.match(shown, "only rows where a = 'x\\u202ey'");
  t.notMatch(shown, "\u202e");
  const saved = await root.submit(route, fields);
  const { text } = await root.get(String(saved.headers.location));
  t.match(text, "x\\u202ey");
  t.notMatch(text.replace(/<input[^>]*>/g, ""), "\u202e", "in the message and the limits");
  t.notMatch(
    (await preview(root, "/access/end?user=gina&database=shop&table=notes", {})).shown,
    "\u202e",
  );
});

t.test("a preview is beside the form on a wide screen, and used by keyboard", async (t) => {
  const page = await openSignedIn(t, url, "/access/entry?user=carol", "root");
  await page.getByText("Fill in the form and choose Preview").waitFor();
  await page.getByLabel("Database").fill("shop");
  await page.getByRole("button", { name: "Preview" }).focus();
  await page.keyboard.press("Enter");
  await page.getByText("carol will be able to read every table of shop.").waitFor();
  t.match(page.url(), /#preview$/, "a phone scrolls to it");
  const boxOf = async (selector: string) => {
    const box = await page.locator(selector).boundingBox();
    if (box === null) throw new Error(`${selector} is not shown`);
    return box;
  };
  for (const [width, isBeside] of [
    [390, false],
    [1050, false],
    [1100, true],
    [1920, true],
  ] as const) {
    await page.setViewportSize({ width, height: 900 });
    const [form, shown] = [await boxOf("form.sheet"), await boxOf("#preview")];
    t.equal(shown.x >= form.x + form.width, isBeside, `${width} pixels`);
    const over = "document.documentElement.scrollWidth - window.innerWidth";
    t.ok(Number(await page.evaluate(over)) <= 0, `the page fits ${width} pixels`);
  }
  await lookAt(t, page, "preview");
  await page.getByLabel("Your password").fill(passwordOf("root"));
  await page.keyboard.press("Enter");
  await page.getByText("carol can read every table of shop.").first().waitFor();
});
