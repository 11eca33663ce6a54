import { readFileSync } from "node:fs";
import t from "tap";
import { ADMIN_PASSWORD, type TestGateway } from "../kit/gateway.ts";
import {
  auditFile,
  type ConsoleClient,
  lookAt,
  openPage,
  openSignedIn,
  seenOn,
  signedIn,
  signInBrowser,
  startConsole,
  textOf,
  unescaped,
} from "./kit.ts";

const wanted = { table: "", role: "ReadOnly" };

function formOf(user: string): string {
  return `/access/entry?user=${user}&database=main`;
}

function fileOf(gateway: TestGateway): string {
  return readFileSync(gateway.accessFile, "utf8");
}

const issuer = '[[mcp.authorization_servers]]\nissuer = "https://a.test/"\nprefix = "corp"\n';
const { gateway, url } = await startConsole(t, { config: issuer });
const client = await signedIn(url);
const token = await gateway.login();
await gateway.addUser("alice", "ReadWrite");

t.test("an administrator grants, limits and revokes with a browser", async (t) => {
  const page = await openSignedIn(t, url);
  await page.getByRole("link", { name: "Access" }).click();
  await page.getByRole("heading", { name: "Access" }).waitFor();
  await lookAt(t, page, "access");
  await page.getByRole("link", { name: "alice" }).first().click();
  await page.getByRole("heading", { name: "Grants" }).waitFor();
  await lookAt(t, page, "user");
  await page.getByRole("link", { name: "Grant access", exact: true }).click();
  await page.getByLabel("Database", { exact: true }).fill("main");
  await page.getByLabel("Table", { exact: true }).fill("tickets");
  await page.getByText("Limits", { exact: true }).click();
  await page.getByLabel("Row filter").fill("tenant = acme\nsize < 5");
  await page.getByLabel("Row limit").fill("200");
  await page.getByLabel("Your password").fill("wrong horse");
  await page.getByRole("button", { name: "Save entry" }).click();
  await page.getByRole("alert").getByText("Incorrect password").waitFor();
  await lookAt(t, page, "entry");
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.keyboard.press("Enter");
  const limits = page.getByText("rows where tenant = acme and size < 5; at most 200 rows");
  await limits.first().waitFor();
  t.match(fileOf(gateway), /tables = \["tickets"\]/);
  await page.getByRole("link", { name: "Revoke the entry for main.tickets" }).click();
  await lookAt(t, page, "end");
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("heading", { name: "Grants" }).waitFor();
  t.notMatch(fileOf(gateway), "tickets");
  await page.goto(`${url}/access/new`);
  await lookAt(t, page, "new-user");
  await page.goto(`${url}/access/act?user=alice&action=password`);
  await lookAt(t, page, "password");
  await page.goto(`${url}/access/check?user=alice`);
  await page
    .getByLabel("Query")
    .fill('{"Delete":{"database":"main","table":"users","where":null}}');
  await page.getByRole("button", { name: "Test" }).click();
  await page.getByText("Allowed", { exact: true }).waitFor();
  await lookAt(t, page, "check");
  await page.goto(`${url}/access?user=nobody`);
  await lookAt(t, page, "nobody");
});

t.test("an outdated form shows what has changed, and can be submitted again", async (t) => {
  await gateway.addUser("alan", "ReadWrite");
  const seen = await seenOn(client, formOf("alan"));
  t.equal(seen, "enabled\nmain: ReadWrite");
  await gateway.send("PUT", "/api/access/alan/main", { role: "DbAdmin" }, token);
  const outdated = await client.submit(formOf("alan"), { ...wanted, seen });
  t.equal(outdated.status, 409);
  t.match(outdated.text, /Removed:[\s\S]*main: ReadWrite[\s\S]*Added:[\s\S]*main: DbAdmin/);
  t.match(fileOf(gateway), /username = "alan"\ndatabase = "main"\nrole = "DbAdmin"/);
  const again = unescaped(/name="seen" value="([^"]*)"/.exec(outdated.text)?.[1] ?? "");
  // Browsers submit CRLF line ends.
  const sent = { ...wanted, seen: again.replaceAll("\n", "\r\n") };
  t.equal((await client.submit(formOf("alan"), sent)).status, 303);
  t.match(fileOf(gateway), /username = "alan"\ndatabase = "main"\nrole = "ReadOnly"/);
});

t.test("nothing is changed without the password of the signed-in user", async (t) => {
  const { gateway, url } = await startConsole(t);
  await gateway.addUser("alice", "ReadWrite");
  const client = await signedIn(url);
  const before = fileOf(gateway);
  const routes = [formOf("alice"), "/access/end?user=alice&database=main"];
  const actions = ["disable", "unlock", "remove", "password&new_password=a+new+password"];
  routes.push(...actions.map((action) => `/access/act?user=alice&action=${action}`));
  for (const password of ["", "wrong horse", "alice password"]) {
    for (const route of routes) {
      const { status } = await client.submit(route, { ...wanted, password });
      t.ok([401, 429].includes(status), `${route}: ${status}`);
    }
  }
  t.equal(fileOf(gateway), before);
});

t.test("an account is added, disabled, enabled, given a new password and removed", async (t) => {
  const account = { user: "bob", email: "", database: "main", role: "ReadOnly" };
  const add = (new_password: string) => client.submit("/access/new", { ...account, new_password });
  t.equal((await add("short")).status, 400);
  t.equal((await add("bob password")).status, 303);
  t.equal((await add("bob password")).status, 409);
  const token = await gateway.login("bob", "bob password");
  const act = (action: string, fields?: Record<string, string>) =>
    client.submit(`/access/act?user=bob&action=${action}`, fields);
  const me = () => gateway.get("/api/me", token);
  t.equal((await me()).status, 200);
  const bob = await signedIn(url, "bob");
  t.equal((await act("disable")).status, 303);
  t.equal((await me()).status, 401);
  t.equal((await act("enable")).status, 303);
  t.equal((await me()).status, 401, "an earlier token stays revoked");
  t.match((await bob.get("/sessions")).headers, { location: /^\/sign-in/ });
  await signedIn(url, "bob");
  t.equal((await act("password", { new_password: "another password" })).status, 303);
  t.equal((await me()).status, 401);
  await gateway.login("bob", "another password");
  t.equal((await act("remove")).status, 303);
  t.notMatch(fileOf(gateway), "bob");
  t.equal((await act("explode")).status, 404);
});

t.test("an external user can be disabled without a record, but gets no password", async (t) => {
  await gateway.send("PUT", "/api/access/corp:jane/main", { role: "ReadOnly" }, token);
  const page = (await client.get("/access/user?user=corp:jane")).text;
  t.match(page, "action=disable");
  t.notMatch(page, /action=(password|remove)/);
  const act = (action: string) =>
    client.submit(`/access/act?user=corp:jane&action=${action}`, {
      new_password: "a new password",
    });
  t.equal((await act("password")).status, 400);
  t.equal((await act("disable")).status, 303);
  t.match(fileOf(gateway), 'username = "corp:jane"\ndisabled = true');
  t.equal((await act("enable")).status, 303);
});

t.test("a DbAdmin sees and changes only managed databases, other users nothing", async (t) => {
  await gateway.addUser("dora", "DbAdmin");
  await gateway.addUser("anna", "ReadWrite");
  await gateway.addUser("paul", "ReadWrite", "payroll");
  await gateway.send("PUT", "/api/access/anna/payroll", { role: "ReadOnly" }, token);
  const dora = await signedIn(url, "dora");
  const list = (await dora.get("/access")).text;
  t.match(list, "anna");
  t.notMatch(list, /payroll|paul/);
  t.notMatch((await dora.get("/access/user?user=anna")).text, "payroll");
  for (const page of ["user", "entry", "end"]) {
    const route = `/access/${page}?user=paul&database=main`;
    t.equal((await dora.get(route)).status, 404, route);
    if (page !== "user") t.equal((await dora.submit(route, wanted)).status, 404, route);
  }
  const external = "/access/entry?user=corp:june&database=main";
  t.equal(await seenOn(dora, external), "no record", "an external user may get a first grant");
  const payroll = "/access/entry?user=anna&database=payroll";
  t.notMatch((await dora.get(payroll)).text, "ReadOnly</option selected");
  t.equal((await dora.get("/access/act?user=anna&action=remove")).status, 403);
  const query = '{"Select":{"database":"payroll","from":"t","columns":["*"]}}';
  t.equal((await dora.post("/access/check", { user: "anna", query })).status, 403);
  t.equal(await seenOn(dora, formOf("anna")), "enabled\nmain: ReadWrite");
  t.equal((await dora.submit(formOf("anna"), { ...wanted, role: "Owner" })).status, 403);
  t.equal((await dora.submit(payroll, wanted)).status, 403);
  t.equal((await dora.submit(formOf("anna"), wanted)).status, 303);
  const anna = await signedIn(url, "anna");
  t.equal((await anna.submit(formOf("anna"), wanted)).status, 403);
});

t.test("an administrator adds, changes and removes a group with a browser", async (t) => {
  for (const name of ["gina", "gus"]) await gateway.addUser(name, "ReadOnly");
  const page = await openPage(t);
  const confirm = async (button: string) => {
    await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
    await page.getByRole("button", { name: button }).click();
  };
  await signInBrowser(page, url);
  await page.goto(`${url}/access`);
  await page.getByRole("link", { name: "Groups" }).click();
  await page.getByRole("heading", { name: "Groups" }).waitFor();
  await page.getByRole("link", { name: "Add a group" }).click();
  await page.getByLabel("Name", { exact: true }).fill("two words");
  await page.getByLabel("Members").fill("gina\n<b>, corp:Zoë #1");
  await confirm("Save group");
  await page.getByRole("alert").getByText("Correct the 2 marked fields").waitFor();
  await lookAt(t, page, "new-group");
  await page.getByLabel("Name", { exact: true }).fill("readers");
  await page.getByLabel("Members").fill("gina\ngus, corp:Zoë #1\ngus");
  await confirm("Save group");
  await page.getByRole("heading", { name: "group readers" }).waitFor();
  t.match(fileOf(gateway), 'name = "readers"\nmembers = ["gina", "gus", "corp:Zoë #1"]');
  await page.getByRole("link", { name: "Grant access" }).click();
  await page.getByLabel("Database", { exact: true }).fill("main");
  await confirm("Save entry");
  await page.getByRole("link", { name: "Change the entry for main" }).waitFor();
  t.match(fileOf(gateway), 'group = "readers"\ndatabase = "main"');
  await lookAt(t, page, "group");
  await page.getByRole("link", { name: "Change members" }).click();
  await page.getByLabel("Members").fill("gina");
  await lookAt(t, page, "members");
  await confirm("Save group");
  await page.getByText("The group readers has 1 member: gina.").waitFor();
  await page.getByRole("link", { name: "gina" }).click();
  await lookAt(t, page, "member");
  await page.getByRole("link", { name: "group readers" }).click();
  await page.goto(`${url}/access/groups`);
  await lookAt(t, page, "groups");
  await page.getByRole("link", { name: "group readers" }).click();
  await page.getByRole("link", { name: "Revoke the entry for main" }).click();
  await confirm("Revoke");
  await page.getByText("No grants.").waitFor();
  await page.getByRole("link", { name: "Remove group" }).click();
  await page.getByText("member gina").waitFor();
  await lookAt(t, page, "remove-group");
  await confirm("Remove permanently");
  await page.getByRole("heading", { name: "Access" }).waitFor();
  t.notMatch(fileOf(gateway), "readers");
});

t.test("forms of groups obey the same checks as forms of users", async (t) => {
  await gateway.addUser("greg", "DbAdmin");
  const add = (name: string, members: string) =>
    client.submit("/access/members", { name, members });
  t.match(await add("writers", "ghost"), { status: 404, text: /User not found: ghost/ });
  t.equal((await add("writers", "greg")).status, 303);
  t.match(await add("writers", ""), { status: 400, text: /This group already exists/ });
  const members = "/access/members?user=group:writers";
  const entry = "/access/entry?user=group:writers&database=main";
  const remove = "/access/act?user=group:writers&action=remove";
  const before = fileOf(gateway);
  for (const route of [members, entry, remove]) {
    const { status } = await client.submit(route, { ...wanted, password: "wrong horse" });
    t.ok([401, 429].includes(status), `${route}: ${status}`);
  }
  const seen = await seenOn(client, entry);
  t.equal(seen, "member greg");
  t.equal(fileOf(gateway), before);
  t.equal((await client.submit(members, { members: "" })).status, 303);
  const outdated = await client.submit(entry, { ...wanted, seen });
  t.match(outdated, { status: 409, text: /changed this group[\s\S]*Removed:[\s\S]*member greg/ });

  const greg = await signedIn(url, "greg");
  t.equal(
    (await greg.get("/access/user?user=group:writers")).status,
    404,
    "a group without entries",
  );
  const issuers = "/access/entry?user=group:corp:all&database=main";
  t.equal((await greg.submit(issuers, wanted)).status, 303);
  t.equal((await greg.submit(issuers, { ...wanted, role: "Owner" })).status, 403);
  const page = await greg.get("/access/user?user=group:corp:all");
  t.match(page, { status: 200, text: /The users whose tokens name this group/ });
  t.notMatch(page.text, /Change members|action=remove/);
  t.equal((await greg.get("/access/members?user=group:corp:all")).status, 403);
  const query = '{"Select":{"database":"main","from":"t","columns":["id"]}}';
  await client.submit("/access/entry?user=corp:ada&database=other", wanted);
  const asked = { user: "corp:ada", query };
  t.match((await client.post("/access/check", asked)).text, "Denied: ");
  const found = await client.post("/access/check", { ...asked, groups: "corp:all" });
  t.match(unescaped(found.text), "main (group corp:all)");
  t.equal((await greg.submit(issuers.replace("entry", "end"))).status, 303);
  t.equal((await client.submit(remove)).status, 303);
  t.equal((await client.get("/access/act?user=group:writers&action=remove")).status, 404);
  t.equal((await client.get("/access/act?user=group:corp:all&action=disable")).status, 404);
  t.notMatch(fileOf(gateway), /writers|corp:all/);
});

t.test("forms take any name of an issuer's group", async (t) => {
  const user = 'group:corp:R&D, "EU"';
  const place = (path: string) => `${path}?${new URLSearchParams({ user, database: "main" })}`;
  const found = await client.get(`/access/groups?${new URLSearchParams({ user: user.slice(6) })}`);
  t.match(found.text, "Grant access to <bdi>corp:R&amp;D, &quot;EU&quot;</bdi>");
  const approvers = `admin, "${user.replaceAll('"', '""')}"`;
  const limits = { require_approval: "SELECT", approvers };
  t.equal((await client.submit(place("/access/entry"), { ...wanted, ...limits })).status, 303);
  t.match(fileOf(gateway), 'group = "corp:R&D, \\"EU\\""');
  t.match(fileOf(gateway), 'approvers = ["admin", "group:corp:R&D, \\"EU\\""]');
  t.match(unescaped((await client.get(place("/access/entry"))).text), approvers);
  t.match(await client.get(place("/access/user")), { status: 200, text: /R&amp;D/ });
  const query = '{"Select":{"database":"main","from":"t","columns":["id"]}}';
  await client.submit("/access/entry?user=corp:ada&database=other", wanted);
  const asked = { user: "corp:ada", query, groups: `"${user.slice(6).replaceAll('"', '""')}"` };
  t.match(
    unescaped((await client.post("/access/check", asked)).text),
    `main (${user.replace(":", " ")})`,
  );
  t.equal((await client.submit(place("/access/end"))).status, 303);
  t.equal((await client.submit("/access/end?user=corp:ada&database=other")).status, 303);
  t.notMatch(fileOf(gateway), "R&D");
});

t.test("a form of a large group notices a change to any member", async (t) => {
  const names = Array.from({ length: 10_000 }, (_, at) => `corp:member-${at}`);
  const members = names.join("\n");
  t.equal((await client.submit("/access/members", { name: "many", members })).status, 303);
  const entry = "/access/entry?user=group:many&database=main";
  const seen = await seenOn(client, entry);
  t.match(seen, /^member corp:member-0\n[\s\S]*\n9900 more members \([\da-f]{12}\)$/);
  t.equal((await client.submit(entry, wanted)).status, 303);
  const last = { members: `${members}x` };
  t.equal((await client.submit("/access/members?user=group:many", last)).status, 303);
  await gateway.send("DELETE", "/api/groups/many/access/main", undefined, token);
  const outdated = await client.submit(entry, { ...wanted, seen });
  t.match(outdated, { status: 409, text: /Removed:[\s\S]*9900 more members/ });
  t.equal((await client.get("/access/user?user=group:many")).status, 200);
  await gateway.send("DELETE", "/api/groups/many", undefined, token);
});

t.test("the test of a query shows the deciding entry and the forwarded bytes", async (t) => {
  await gateway.addUser("amy", "ReadWrite");
  const entry = { ...wanted, row_filter: "tenant = '<b>acme</b>'" };
  t.equal((await client.submit(formOf("amy"), entry)).status, 303);
  const ask = async (query: string) =>
    unescaped((await client.post("/access/check", { user: "amy", via: "mcp", query })).text);
  const read = await ask('{"Select":{"database":"main","from":"t","columns":["id"]}}');
  t.match(read, ">Allowed<");
  const condition = '{"column":"tenant","cmp":"=","value":"&lt;b&gt;acme&lt;/b&gt;"}';
  t.match(read, `{"Select":{"where":${condition},`);
  const change = await ask('{"DropTable":{"database":"main","table":"<script>"}}');
  t.match(change, "Denied: ");
  t.notMatch(change, "<script>");
  t.match(await ask("nothing"), "Denied: ");
});

t.test("each change is an audit line that names the console's user", async (t) => {
  const { gateway, url } = await startConsole(t, { config: auditFile });
  await gateway.addUser("alice", "ReadWrite");
  const client = await signedIn(url);
  await client.submit(formOf("alice"), wanted);
  await client.post("/sessions/end-all", { user: "alice" });
  await gateway.service.stop("SIGTERM");
  const text = readFileSync(`${gateway.home}/audit.log`, "utf8").trim();
  const lines = text.split("\n").map((line) => JSON.parse(line));
  const changes = lines.filter(({ msg }) => msg === "change");
  const author = { kind: "console", name: "admin" };
  const grant = { change: "grant changed", user: "alice", entry: "main", role: "ReadOnly" };
  t.match(changes, [
    { author, changes: [grant] },
    { author, changes: [{ change: "tokens revoked", user: "alice" }] },
  ]);
  t.equal(changes.length, 2);
  const login = lines.find(({ msg }) => msg === "console_login");
  t.match(login, { user: "admin", outcome: "allowed" });
});

t.test("the form for an entry suggests existing databases, tables and columns", async (t) => {
  await gateway.addUser("doris", "DbAdmin");
  await gateway.addUser("abel", "ReadWrite");
  const columns = ["id", "state", "tenant"].map((name) => ({
    name,
    type: name === "id" ? "int" : "text",
    primary_key: name === "id",
  }));
  for (const database of ["main", "payroll"]) {
    await gateway.query({ CreateDatabase: { database } }, token);
    const table = { database, table: database, columns };
    t.equal((await gateway.query({ CreateTable: table }, token)).status, 200);
  }
  const doris = await signedIn(url, "doris");
  const { text } = await doris.get("/access/entry?user=abel&database=payroll&table=payroll");
  t.match(text, '<option value="main"></option>');
  t.notMatch(text, /<option value="payroll">|value="yes"><code>state/, "doris may not grant there");

  const page = await openSignedIn(t, url, "/access/entry?user=abel");
  await page.getByLabel("Database", { exact: true }).fill("main");
  await page.getByLabel("Table", { exact: true }).fill("ma*");
  await page.getByRole("button", { name: "List tables and columns" }).click();
  const read = page.getByRole("group", { name: "Readable columns" });
  await read.getByLabel("id").check();
  await read.getByLabel("state").check();
  await page.getByRole("group", { name: "Writable columns" }).getByLabel("no column").check();
  await page.getByRole("group", { name: "Required conditions" }).getByLabel("id").check();
  await lookAt(t, page, "columns");
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByText("columns id, state; writes no column; where pins id").first().waitFor();
  await page.getByRole("link", { name: "Change the entry for main.ma*" }).click();
  t.ok(await read.getByLabel("state").isChecked());
  t.notOk(await read.getByLabel("tenant").isChecked());
});

t.test("every invalid field has its own message", async (t) => {
  const before = fileOf(gateway);
  const page = await openSignedIn(t, url, "/access/entry?user=alice");
  const wrong = new Map([
    ["Database", "two words"],
    ["Table", "a*b"],
    ["Row limit", "many"],
    ["Change limit", "-1"],
    ["Require approval", "READ"],
    ["Row filter", "tenant = acme\nnothing"],
  ]);
  await page.getByText("Limits", { exact: true }).click();
  for (const [label, text] of wrong) {
    await page.getByLabel(label, { exact: true }).fill(text);
  }
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("Correct the 6 marked fields").waitFor();
  t.equal(await page.locator("[aria-invalid]").count(), wrong.size);
  const limit = page.getByLabel("Row limit");
  t.match(await limit.getAttribute("aria-describedby"), "max_rows-wrong");
  t.equal(await page.locator("#max_rows-wrong").textContent(), "Must be a whole number from 1");
  t.match(await page.locator("#row_filter-wrong").textContent(), "`nothing` is not a condition");
  await page.locator("#database:focus").waitFor();
  t.pass("the first has the focus");
  await lookAt(t, page, "entry-wrong");
  const account = { user: "a b", email: "a\tb", database: "a b", role: "King", new_password: "x" };
  const { status, text } = await client.post("/access/new", { ...account, password: "" });
  t.equal(status, 400);
  t.equal(text.match(/aria-invalid/g)?.length, 5);
  t.equal(fileOf(gateway), before);
});

t.test("names and times are shown in full on a wide screen and on a phone", async (t) => {
  await gateway.addUser("alma", "ReadWrite");
  const entry = {
    role: "ReadOnly",
    columns: ["id", "name", "city", "postal_code", "street", "registered_at"],
    row_filter: [{ column: "tenant", cmp: "=", value: "@tenant" }],
    expires: "2199-12-24T18:00:00Z",
  };
  const put = await gateway.send("PUT", "/api/access/alma/main/customer_*", entry, token);
  t.equal(put.status, 200);
  await gateway.edit((file) => file.replace("2199-", "2019-"));
  const later = { role: "ReadOnly", expires: "2199-12-24T18:00:00.123Z" };
  await gateway.send("PUT", "/api/access/alma/main/orders", later, token);
  const page = await openSignedIn(t, url, "/access");
  await page.getByText("expired 2019-12-24 18:00:00 UTC").waitFor();
  await lookAt(t, page, "whole");
  await page.goto(`${url}/access/user?user=alma`);
  await lookAt(t, page, "whole-user");
});

await gateway.addUser("rita", "ReadWrite");
const accessOf = () => readFileSync(gateway.accessFile, "utf8").trimEnd();
const cookieName = "gatehouse-console-notice";

async function follow(client: ConsoleClient, answer: Awaited<ReturnType<ConsoleClient["get"]>>) {
  t.equal(answer.status, 303);
  return client.get(String(answer.headers.location));
}

function noticeOf(page: string): string {
  return unescaped(/<div role="status"><p><bdi>([^<]*)/.exec(page)?.[1] ?? "");
}

/** Submits the form that takes the change back. */
async function undo(client: ConsoleClient, page: string, given: Record<string, string> = {}) {
  const [, path = "", form = ""] =
    /<summary>Undo<\/summary><form method="post" action="([^"]+)"([\s\S]*?)<\/form>/.exec(page) ??
    [];
  const hidden = [...form.matchAll(/type="hidden" name="([^"]+)" value="([^"]*)"/g)];
  const fields = hidden.map(([, name = "", value = ""]) => [name, unescaped(value)]);
  return client.post(path, {
    ...Object.fromEntries(fields),
    password: ADMIN_PASSWORD,
    ...given,
  });
}

t.test("a message tells once what a change did, and Undo takes it back", async (t) => {
  const members = () => /members = .*/.exec(accessOf())?.[0];
  const before = accessOf();
  const entry = "/access/entry?user=rita&database=main";
  const limits = {
    max_rows: "20",
    row_filter: 'tenant = "a, b"\nid IN (1, 2)',
    columns: "id, tenant",
  };
  const limited = await client.submit(`${entry}&table=tickets&role=ReadOnly`, limits);
  t.match(
    limited.headers.location,
    /^\/access\/user\?user=rita$/,
    "the URL does not hold the message",
  );
  const { text: page } = await follow(client, limited);
  t.match(noticeOf(page), /^rita can read main\.tickets, 2 columns .*at most 20 rows\.$/);
  t.notOk(client.cookies.has(cookieName), "the message is shown once");
  t.equal(noticeOf((await client.get("/access/user?user=rita")).text), "");
  const withLimits = accessOf();

  const end = "/access/end?user=rita&database=main&table=tickets";
  const revoked = (await follow(client, await client.submit(end))).text;
  t.equal(
    noticeOf(revoked),
    "Removed the entry of rita for main.tickets. The entry for main applies there now: ReadWrite.",
  );
  t.equal(accessOf(), before);
  const restored = (await follow(client, await undo(client, revoked))).text;
  t.equal(accessOf(), withLimits, "all limits are restored");
  t.match(noticeOf(restored), /^rita can read main\.tickets/);
  await follow(client, await undo(client, restored));
  t.equal(accessOf(), before, "Undo can be taken back");

  const lowered = (await follow(client, await client.submit(`${entry}&table=&role=ReadOnly`))).text;
  t.equal(noticeOf(lowered), "rita can read every table of main.");
  t.equal((await undo(client, lowered, { password: "wrong horse" })).status, 401);
  t.equal((await undo(client, lowered, { csrf: "" })).status, 403);
  t.not(accessOf(), before);
  await follow(client, await undo(client, lowered));
  t.equal(accessOf(), before);

  const act = "/access/act?user=rita&action=";
  const disabled = (await follow(client, await client.submit(`${act}disable`))).text;
  t.match(noticeOf(disabled), /^Disabled rita\. Logins are refused/);
  t.match(noticeOf((await follow(client, await undo(client, disabled))).text), /^Enabled rita\./);

  const add = { user: "", name: "readers", members: "rita" };
  const added = (await follow(client, await client.submit("/access/members", add))).text;
  t.equal(noticeOf(added), "The group readers has 1 member: rita.");
  const change = { user: "group:readers", members: "" };
  const emptied = await client.submit("/access/members?user=group:readers", change);
  const changed = (await follow(client, emptied)).text;
  t.equal(noticeOf(changed), "The group readers has no members.");
  await follow(client, await undo(client, changed));
  t.equal(members(), 'members = ["rita"]');
  const removed = await follow(client, await undo(client, added, { seen: "member rita" }));
  t.equal(noticeOf(removed.text), "Removed the group readers and its entries.");
  t.notMatch(removed.text, "<summary>Undo", "its entries are gone");
  const saved = { new_password: "another password" };
  const set = await follow(client, await client.submit(`${act}password`, saved));
  t.match(noticeOf(set.text), /^Changed the password of rita\./);
  t.notMatch(textOf(set.text), "Undo");
});

t.test("a message that the gateway has not signed for this user is not shown", async (t) => {
  const forged = Buffer.from(JSON.stringify({ text: "All is well." })).toString("base64url");
  await client.submit("/access/entry?user=rita&database=side", { table: "", role: "ReadOnly" });
  const given = client.cookies.get(cookieName) ?? "";
  const [body = "", signature = ""] = given.split(".");
  for (const value of [
    forged,
    `${forged}.`,
    `${forged}.${signature}`,
    body,
    `${body}.${forged}`,
    ".",
  ]) {
    client.cookies.set(cookieName, value);
    const { status, text } = await client.get("/access");
    t.equal(status, 200);
    t.equal(noticeOf(text), "", value);
  }
  await gateway.addUser("owen", "Owner");
  const owen = await signedIn(url, "owen", "owen password");
  owen.cookies.set(cookieName, given);
  t.equal(noticeOf((await owen.get("/access")).text), "");
  client.cookies.set(cookieName, given);
  t.equal(noticeOf((await client.get("/access")).text), "rita can read every table of side.");
});

t.test("Undo is used by keyboard, and its message fits each screen", async (t) => {
  const page = await openSignedIn(t, url, "/access/entry?user=rita&database=notes");
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByText("rita can read every table of notes.").waitFor();
  await lookAt(t, page, "notice");
  await page.locator("summary", { hasText: "Undo" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.type(ADMIN_PASSWORD);
  await lookAt(t, page, "undo");
  await page.keyboard.press("Enter");
  await page.getByText("Removed the entry of rita for notes.").waitFor();
  t.notMatch(accessOf(), "notes");
});

t.test("a grant for an unknown name warns with the nearest one", async (t) => {
  const columns = [{ name: "id", type: "int", primary_key: true }];
  await gateway.query({ CreateDatabase: { database: "shop" } }, token);
  await gateway.query({ CreateTable: { database: "shop", table: "tickets", columns } }, token);
  const warningFor = async (database: string, table: string) => {
    const fields = { database, table, role: "ReadOnly" };
    const answer = await client.submit("/access/entry?user=rita", fields);
    return textOf((await follow(client, answer)).text)
      .match(/Warning: .*?\. /)?.[0]
      .trim();
  };
  const unknown = "Warning: shop has no table tikets (did you mean tickets?).";
  t.equal(await warningFor("shop", "tikets"), unknown);
  t.equal(await warningFor("shop", "people"), "Warning: shop has no table people.");
  t.equal(await warningFor("shop", "tock*"), "Warning: No table of shop begins with tock.");
  const missing = "Warning: The database shpo does not exist (did you mean shop?).";
  t.equal(await warningFor("shpo", ""), missing);
  for (const table of ["tickets", "tick*", ""]) t.equal(await warningFor("shop", table), undefined);
  t.equal(await warningFor("*", "tikets"), undefined);
  const password = "a long password 7";
  const nina = { user: "nina", database: "shpo", role: "ReadOnly", new_password: password };
  const preview = await client.submit("/access/new", { ...nina, look: "preview" });
  t.match(textOf(preview.text), missing);
  const added = await client.submit("/access/new", nina);
  t.match(textOf((await follow(client, added)).text), missing);
  const page = await openSignedIn(t, url, "/access/entry?user=rita&database=shop&table=tikcets");
  await page.getByLabel("Your password").fill(ADMIN_PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByText("shop has no table tikcets (did you mean tickets?).").waitFor();
  await lookAt(t, page, "notice-warning");
});

t.test("with a preset, the page that tests queries says that none runs", async (t) => {
  const config = '[upstream]\nurl = "http://127.0.0.1:1"\npreset = "chroma"';
  const { url } = await startConsole(t, { config });
  const { text } = await (await signedIn(url)).get("/access/check");
  t.match(text, "With preset chroma, the gateway has no /query");
});
