import { readFileSync } from "node:fs";
import t from "tap";
import { ADMIN_PASSWORD, type TestGateway } from "../kit/gateway.ts";
import {
  lookAt,
  onScreens,
  seenOn,
  signedIn,
  signInBrowser,
  startConsole,
  unescaped,
} from "./kit.ts";

const grantForm = formOf("alice");
const wanted = { user: "alice", database: "main", table: "", role: "ReadOnly" };

function formOf(user: string): string {
  return `/access/entry?user=${user}&database=main`;
}

function fileOf(gateway: TestGateway): string {
  return readFileSync(gateway.accessFile, "utf8");
}

const issuer = '[[mcp.authorization_servers]]\nissuer = "https://a.test/"\nprefix = "corp"\n';
const { gateway, url } = await startConsole(t, { config: issuer });
await gateway.addUser("alice", "ReadWrite");

t.test("an operator grants, narrows and ends with a browser", async (t) => {
  await onScreens(async (page, name) => {
    await signInBrowser(page, url);
    await page.getByRole("link", { name: "Access" }).click();
    await page.getByRole("heading", { name: "Access" }).waitFor();
    await lookAt(t, page, `access-${name}`);
    await page.getByRole("link", { name: "alice" }).first().click();
    await page.getByRole("heading", { name: "Grants" }).waitFor();
    await lookAt(t, page, `user-${name}`);
    await page.getByRole("link", { name: "Grant", exact: true }).click();
    await page.getByLabel("Database", { exact: true }).fill("main");
    await page.getByLabel("Table").fill("tickets");
    await page.getByText("Narrow it").click();
    await page.getByLabel("Row filter").fill("tenant = acme\nsize < 5");
    await page.getByLabel("Row limit").fill("200");
    await page.getByLabel("Your own password").fill("wrong horse");
    await page.getByRole("button", { name: "Give this entry" }).click();
    await page.getByRole("alert").getByText("That is not your password").waitFor();
    await lookAt(t, page, `entry-${name}`);
    await page.getByLabel("Your own password").fill(ADMIN_PASSWORD);
    await page.keyboard.press("Enter");
    await page.getByText("rows where tenant = acme and size < 5; at most 200 rows").waitFor();
    t.match(fileOf(gateway), /tables = \["tickets"\]/);
    await page.getByRole("link", { name: "End the entry for main.tickets" }).click();
    await lookAt(t, page, `end-${name}`);
    await page.getByLabel("Your own password").fill(ADMIN_PASSWORD);
    await page.getByRole("button", { name: "End this entry" }).click();
    await page.getByRole("heading", { name: "Grants" }).waitFor();
    t.notMatch(fileOf(gateway), "tickets");
    await page.goto(`${url}/access/new`);
    await lookAt(t, page, `new-user-${name}`);
    await page.goto(`${url}/access/act?user=alice&action=password`);
    await lookAt(t, page, `password-${name}`);
    await page.goto(`${url}/access/check?user=alice`);
    await page
      .getByLabel("Query")
      .fill('{"Delete":{"database":"main","table":"users","where":null}}');
    await page.getByRole("button", { name: "Decide" }).click();
    await page.getByText("It would pass").waitFor();
    await lookAt(t, page, `check-${name}`);
    await page.goto(`${url}/access?user=nobody`);
    await lookAt(t, page, `nobody-${name}`);
  });
});

t.test("the second of two operators is told what the first has changed", async (t) => {
  await gateway.addUser("alan", "ReadWrite");
  const client = await signedIn(t, url);
  const seen = await seenOn(client, formOf("alan"));
  t.equal(seen, "enabled\nmain: ReadWrite");
  const token = await gateway.login();
  await gateway.send("PUT", "/api/access/alan/main", { role: "DbAdmin" }, token);
  const form = { ...wanted, user: "alan", password: ADMIN_PASSWORD };
  const told = await client.post("/access/entry", { ...form, seen });
  t.equal(told.status, 409);
  t.match(told.text, /Gone:[\s\S]*main: ReadWrite[\s\S]*New:[\s\S]*main: DbAdmin/);
  t.match(fileOf(gateway), /username = "alan"\ndatabase = "main"\nrole = "DbAdmin"/);
  const again = unescaped(/name="seen" value="([^"]*)"/.exec(told.text)?.[1] ?? "");
  // A browser ends lines as text on the wire ends.
  const sent = again.replaceAll("\n", "\r\n");
  t.equal((await client.post("/access/entry", { ...form, seen: sent })).status, 303);
  t.match(fileOf(gateway), /username = "alan"\ndatabase = "main"\nrole = "ReadOnly"/);
});

t.test("nothing is changed without the password of whoever is signed in", async (t) => {
  const { gateway, url } = await startConsole(t);
  await gateway.addUser("alice", "ReadWrite");
  const client = await signedIn(t, url);
  const seen = await seenOn(client, grantForm);
  const before = fileOf(gateway);
  for (const password of ["", "wrong horse", "alice password"]) {
    const forms: [string, Record<string, string>][] = [
      ["/access/entry", wanted],
      ["/access/end", wanted],
      ["/access/act", { user: "alice", action: "disable" }],
      ["/access/act", { user: "alice", action: "remove" }],
      ["/access/act", { user: "alice", action: "password", new_password: "a new password" }],
    ];
    for (const [route, form] of forms) {
      const { status } = await client.post(route, { ...form, seen, password });
      t.ok([401, 429].includes(status), `${route} ${form.action ?? ""}: ${status}`);
    }
  }
  t.equal(fileOf(gateway), before);
});

t.test("an account is added, disabled, enabled, given a password and removed", async (t) => {
  const client = await signedIn(t, url);
  const password = ADMIN_PASSWORD;
  const account = { user: "bob", email: "", database: "main", role: "ReadOnly" };
  const added = { ...account, new_password: "bob password", seen: "no record", password };
  t.equal((await client.post("/access/new", { ...added, new_password: "short" })).status, 400);
  t.equal((await client.post("/access/new", added)).status, 303);
  t.equal((await client.post("/access/new", added)).status, 409);
  const token = await gateway.login("bob", "bob password");
  const act = async (action: string, fields: Record<string, string> = {}) => {
    const seen = await seenOn(client, `/access/act?user=bob&action=${action}`);
    return client.post("/access/act", { user: "bob", action, seen, password, ...fields });
  };
  const me = () => gateway.request("/api/me", { headers: { authorization: `Bearer ${token}` } });
  t.equal((await me()).status, 200);
  const bob = await signedIn(t, url, "bob", "bob password");
  t.equal((await act("disable")).status, 303);
  t.equal((await me()).status, 401);
  t.equal((await act("enable")).status, 303);
  t.equal((await me()).status, 401, "a token from before stays dead");
  t.match(
    (await bob.get("/sessions")).headers,
    { location: /^\/sign-in/ },
    "and so does a session",
  );
  await signedIn(t, url, "bob", "bob password");
  t.equal((await act("password", { new_password: "another password" })).status, 303);
  t.equal((await me()).status, 401);
  await gateway.login("bob", "another password");
  t.equal((await act("remove")).status, 303);
  t.notMatch(fileOf(gateway), "bob");
  t.equal((await act("explode")).status, 404);
});

t.test("a user of an issuer is disabled without a record, and gets no password here", async (t) => {
  const token = await gateway.login();
  await gateway.send("PUT", "/api/access/corp:jane/main", { role: "ReadOnly" }, token);
  const client = await signedIn(t, url);
  const page = (await client.get("/access/user?user=corp:jane")).text;
  t.match(page, "action=disable");
  t.notMatch(page, /action=(password|remove)/);
  const act = async (action: string) => {
    const seen = await seenOn(client, `/access/act?user=corp:jane&action=${action}`);
    const form = { user: "corp:jane", action, seen, password: ADMIN_PASSWORD };
    return client.post("/access/act", { ...form, new_password: "a new password" });
  };
  t.equal((await act("password")).status, 400);
  t.equal((await act("disable")).status, 303);
  t.match(fileOf(gateway), 'username = "corp:jane"\ndisabled = true');
  t.equal((await act("enable")).status, 303);
});

t.test("the last administrator can take itself away here as little as elsewhere", async (t) => {
  const client = await signedIn(t, url);
  for (const action of ["disable", "remove"]) {
    const seen = await seenOn(client, `/access/act?user=admin&action=${action}`);
    const form = { user: "admin", action, seen, password: ADMIN_PASSWORD };
    const { status, text } = await client.post("/access/act", form);
    t.equal(status, 409, action);
    t.match(text, "The last administrator cannot be removed, lowered or disabled");
  }
});

t.test("a DbAdmin sees and changes its own databases alone, others nothing", async (t) => {
  await gateway.addUser("dora", "DbAdmin");
  await gateway.addUser("anna", "ReadWrite");
  await gateway.addUser("paul", "ReadWrite", "payroll");
  const token = await gateway.login();
  await gateway.send("PUT", "/api/access/anna/payroll", { role: "ReadOnly" }, token);
  const dora = await signedIn(t, url, "dora", "dora password");
  const list = (await dora.get("/access")).text;
  t.match(list, "anna");
  t.notMatch(list, /payroll|paul/);
  t.notMatch((await dora.get("/access/user?user=anna")).text, "payroll");
  const paul = {
    ...wanted,
    user: "paul",
    seen: "no record",
    password: "dora password",
  };
  for (const page of ["user", "entry", "end"]) {
    const route = `/access/${page}?${new URLSearchParams({ user: "paul", database: "main" })}`;
    t.equal((await dora.get(route)).status, 404, route);
  }
  for (const route of ["/access/entry", "/access/end"]) {
    t.equal((await dora.post(route, paul)).status, 404, route);
  }
  const external = "/access/entry?user=corp:june&database=main";
  t.equal(await seenOn(dora, external), "no record", "an external user may get a first grant");
  t.notMatch(
    (await dora.get("/access/entry?user=anna&database=payroll")).text,
    "ReadOnly</option selected",
  );
  t.equal((await dora.get("/access/act?user=anna&action=remove")).status, 403);
  t.equal((await dora.get("/state")).status, 403);
  const query = '{"Select":{"database":"payroll","from":"t","columns":["*"]}}';
  t.equal((await dora.post("/access/check", { user: "anna", query })).status, 403);
  const seen = await seenOn(dora, formOf("anna"));
  t.equal(seen, "enabled\nmain: ReadWrite");
  const form = { ...wanted, user: "anna", seen, password: "dora password" };
  t.equal((await dora.post("/access/entry", { ...form, role: "Owner" })).status, 403);
  t.equal((await dora.post("/access/entry", { ...form, database: "payroll" })).status, 403);
  t.equal((await dora.post("/access/entry", form)).status, 303);
  const anna = await signedIn(t, url, "anna", "anna password");
  for (const route of [
    "/access",
    "/access/user?user=dora",
    formOf("anna"),
    "/access/new",
    "/access/check",
  ]) {
    t.equal((await anna.get(route)).status, 403, route);
  }
  t.equal((await anna.post("/access/entry", { ...form, password: "anna password" })).status, 403);
});

t.test("a question shows the entry that decides, and the bytes that would go up", async (t) => {
  await gateway.addUser("amy", "ReadWrite");
  const client = await signedIn(t, url);
  const seen = await seenOn(client, formOf("amy"));
  const entry = {
    ...wanted,
    user: "amy",
    row_filter: "tenant = '<b>acme</b>'",
    seen,
    password: ADMIN_PASSWORD,
  };
  t.equal((await client.post("/access/entry", entry)).status, 303);
  const ask = async (query: string) =>
    unescaped((await client.post("/access/check", { user: "amy", via: "mcp", query })).text);
  const read = await ask('{"Select":{"database":"main","from":"t","columns":["id"]}}');
  t.match(read, "It would pass");
  t.match(
    read,
    '{"Select":{"where":{"column":"tenant","cmp":"=","value":"&lt;b&gt;acme&lt;/b&gt;"},',
  );
  const change = await ask('{"DropTable":{"database":"main","table":"<script>"}}');
  t.match(change, "It would be refused");
  t.notMatch(change, "<script>");
  t.match(await ask("nothing"), "It would be refused");
});

t.test("each change is a line of the audit that names the console's user", async (t) => {
  const { gateway, url } = await startConsole(t, { config: '[audit]\nfile = "audit.log"\n' });
  await gateway.addUser("alice", "ReadWrite");
  const client = await signedIn(t, url);
  const seen = await seenOn(client, grantForm);
  await client.post("/access/entry", { ...wanted, seen, password: ADMIN_PASSWORD });
  await client.post("/sessions/end-all", { user: "alice" });
  await gateway.service.stop("SIGTERM");
  const lines = readFileSync(`${gateway.home}/audit.log`, "utf8").trim().split("\n");
  const changes = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "change");
  t.match(changes, [
    {
      author: { kind: "console", name: "admin" },
      changes: [{ change: "grant changed", user: "alice", entry: "main", role: "ReadOnly" }],
    },
    {
      author: { kind: "console", name: "admin" },
      changes: [{ change: "tokens revoked", user: "alice" }],
    },
  ]);
  t.equal(changes.length, 2);
  t.match(
    lines.map((line) => JSON.parse(line)).find(({ msg }) => msg === "console_login"),
    {
      user: "admin",
      outcome: "allowed",
    },
  );
});

t.test("the form to grant offers the databases, tables and columns that there are", async (t) => {
  await gateway.addUser("doris", "DbAdmin");
  await gateway.addUser("abel", "ReadWrite");
  const token = await gateway.login();
  const columns = ["id", "state", "tenant"].map((name) => ({
    ...{ name, type: name === "id" ? "int" : "text", primary_key: name === "id" },
  }));
  for (const database of ["main", "payroll"]) {
    await gateway.query({ CreateDatabase: { database } }, token);
    const made = await gateway.query(
      { CreateTable: { database, table: database, columns } },
      token,
    );
    t.equal(made.status, 200);
  }
  const doris = await signedIn(t, url, "doris", "doris password");
  const { text } = await doris.get("/access/entry?user=abel&database=payroll&table=payroll");
  t.match(text, '<option value="main"></option>');
  t.notMatch(
    text,
    /<option value="payroll">|value="yes"><code>state/,
    "not where she may not grant",
  );

  await onScreens(async (page, name) => {
    await signInBrowser(page, url);
    await page.goto(`${url}/access/entry?user=abel`);
    await page.getByLabel("Database", { exact: true }).fill("main");
    await page.getByLabel("Table").fill("ma*");
    await page.getByRole("button", { name: "List tables and columns" }).click();
    const read = page.getByRole("group", { name: "Columns that may be read" });
    await read.getByLabel("id").check();
    await read.getByLabel("state").check();
    await page.getByRole("group", { name: "may be written" }).getByLabel("no column").check();
    await page.getByRole("group", { name: "Required" }).getByLabel("id").check();
    await lookAt(t, page, `columns-${name}`);
    await page.getByLabel("Your own password").fill(ADMIN_PASSWORD);
    await page.keyboard.press("Enter");
    await page.getByText("columns id, state; writes no column; where pins id").waitFor();
    await page.getByRole("link", { name: "Change the entry for main.ma*" }).click();
    t.ok(await read.getByLabel("state").isChecked());
    t.notOk(await read.getByLabel("tenant").isChecked());
  });
});

t.test("every field that is wrong has its message beside it, all at once", async (t) => {
  const before = fileOf(gateway);
  await onScreens(async (page, name) => {
    await signInBrowser(page, url);
    await page.goto(`${url}/access/entry?user=alice`);
    const wrong = new Map([
      ["Database", "two words"],
      ["Table", "a*b"],
      ["Row limit", "many"],
      ["Change limit", "-1"],
      ["Needs approval", "READ"],
      ["Row filter", "tenant = acme\nnothing"],
    ]);
    await page.getByText("Narrow it").click();
    for (const [label, text] of wrong) {
      await page.getByLabel(label, { exact: label === "Database" }).fill(text);
    }
    await page.getByLabel("Your own password").fill(ADMIN_PASSWORD);
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("Correct the 6 marked fields").waitFor();
    t.equal(await page.locator("[aria-invalid]").count(), wrong.size);
    const limit = page.getByLabel("Row limit");
    t.match(await limit.getAttribute("aria-describedby"), "max_rows-wrong");
    t.equal(await page.locator("#max_rows-wrong").textContent(), "Must be a whole number from 1");
    t.match(await page.locator("#row_filter-wrong").textContent(), "`nothing` is not a condition");
    t.ok(await page.locator("#database:focus").isVisible(), "the first has the focus");
    await lookAt(t, page, `entry-wrong-${name}`);
  });
  const client = await signedIn(t, url);
  const account = { user: "a b", email: "a\tb", database: "a b", role: "King", new_password: "x" };
  const { status, text } = await client.post("/access/new", { ...account, password: "" });
  t.equal(status, 400);
  t.equal(text.match(/aria-invalid/g)?.length, 5);
  t.equal(fileOf(gateway), before);
});

t.test("names and times are shown whole, on a wide screen and on a phone", async (t) => {
  await gateway.addUser("alma", "ReadWrite");
  const token = await gateway.login();
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
  await onScreens(async (page, name) => {
    await signInBrowser(page, url);
    await page.goto(`${url}/access`);
    await page.getByText("ended 2019-12-24 18:00:00 UTC").waitFor();
    await lookAt(t, page, `whole-${name}`);
    await page.goto(`${url}/access/user?user=alma`);
    await lookAt(t, page, `whole-user-${name}`);
  });
});
