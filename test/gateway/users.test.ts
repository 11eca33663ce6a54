import { readFile } from "node:fs/promises";
import t from "tap";
import { checkRefusal, edit, openSetting, type Setting } from "./kit.ts";

const password = "long enough";

function create({ gateway }: Setting, token: string, fields: Record<string, unknown>) {
  return gateway.send("POST", "/api/users", { password, role: "ReadOnly", ...fields }, token);
}

t.test("a new user is shown without its hash, and can log in", async (t) => {
  const setting = await openSetting(t, { auth: 'default_database = "home"' });
  const { gateway } = setting;
  const token = await gateway.login();
  const answer = await create(setting, token, { username: "bob", email: "bob@example.com" });
  t.equal(answer.status, 201);
  t.equal(answer.headers.get("x-gatehouse-decision"), "allow");
  t.strictSame(answer.body, {
    status: "success",
    user: {
      username: "bob",
      email: "bob@example.com",
      disabled: false,
      access: [{ database: "home", role: "ReadOnly" }],
    },
  });
  t.type(await gateway.login("bob", password, "home"), "string");
  const without = await create(setting, token, { username: "eve", email: null, database: "*" });
  t.match(without.body.user, { email: null, access: [{ database: "*", role: "ReadOnly" }] });
});

t.test("a role is given by who may grant it there, and by nobody else", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  const tokens = new Map([["admin", await gateway.login()]]);
  const holders = { owner: "Owner", dbadmin: "DbAdmin", writer: "ReadWrite", reader: "ReadOnly" };
  for (const [name, role] of Object.entries(holders)) {
    tokens.set(name, await gateway.addUser(name, role));
  }
  tokens.set("everywhere", await gateway.addUser("everywhere", "DbAdmin", "*"));
  const all = ["Owner", "DbAdmin", "ReadWrite", "ReadOnly"];
  const two = ["ReadWrite", "ReadOnly"];
  const table: Record<string, Record<string, string[]>> = {
    admin: { main: all, other: all, "*": all },
    owner: { main: all, other: [], "*": [] },
    dbadmin: { main: two, other: [], "*": [] },
    writer: { main: [], other: [], "*": [] },
    reader: { main: [], other: [], "*": [] },
    everywhere: { main: two, other: two, "*": two },
  };
  let count = 0;
  for (const [name, rights] of Object.entries(table)) {
    for (const [database, given] of Object.entries(rights)) {
      for (const role of all) {
        const username = `user-${count++}`;
        const fields = { username, role, database };
        const { status } = await create(setting, tokens.get(name) ?? "", fields);
        t.equal(status, given.includes(role) ? 201 : 403, `${name}: ${role} on ${database}`);
      }
    }
  }
});

t.test("a token for one database makes no users, not even there", async (t) => {
  const setting = await openSetting(t);
  const token = await setting.gateway.login("admin", undefined, "main");
  const answer = await create(setting, token, { username: "bob" });
  checkRefusal(t, answer, { status: 403, code: "token_database" });
});

t.test("a name with earlier grants needs the right to give each of them", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  const owner = await gateway.addUser("owner", "Owner");
  const dbadmin = await gateway.addUser("dbadmin", "DbAdmin");
  await edit(
    setting,
    (text) =>
      `${text}\n[[acl]]\nusername = "ghost"\ndatabase = "other"\nrole = "ReadOnly"\n` +
      `\n[[acl]]\nusername = "shade"\ndatabase = "main"\nrole = "DbAdmin"\n`,
  );
  const answer = await create(setting, owner, { username: "ghost" });
  checkRefusal(t, answer, { status: 403, code: "no_grant" });
  const equal = await create(setting, dbadmin, { username: "shade" });
  checkRefusal(t, equal, { status: 403, code: "role_insufficient" });
  const lowered = await create(setting, owner, { username: "shade" });
  t.match(lowered.body.user, { access: [{ database: "main", role: "ReadOnly" }] });
  t.equal((await create(setting, await gateway.login(), { username: "ghost" })).status, 201);
});

t.test("what cannot be a user is refused with the reason", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  const token = await gateway.login();
  const before = await readFile(gateway.accessFile, "utf8");
  const cases: [fields: Record<string, unknown>, code: string][] = [
    [{ password: "1234567" }, "password_too_short"],
    [{ password: "😀".repeat(7) }, "password_too_short"],
    [{ password: "x".repeat(1025) }, "password_too_long"],
    [{ password: "é".repeat(513) }, "password_too_long"],
    [{ role: "owner" }, "invalid_role"],
    [{ role: "toString" }, "invalid_role"],
    [{ database: "a.b" }, "invalid_database"],
    [{ database: "" }, "invalid_database"],
    [{ database: "x".repeat(64) }, "invalid_database"],
    [{ database: "MAIN" }, "database_case_conflict"],
    [{ email: `${"x".repeat(250)}@x.io` }, "invalid_email"],
    [{ email: "a@b.c\n[[acl]]" }, "invalid_email"],
    [{ email: "a\u0000@b.c" }, "invalid_email"],
    [{ email: "a\u007f@b.c" }, "invalid_email"],
    [{ email: "" }, "invalid_email"],
  ];
  for (const name of ["", ".", "..", "a b", "a/b", "a:b", "é", "a\n", "x".repeat(65), "*"]) {
    cases.push([{ username: name }, "invalid_username"]);
  }
  await create(setting, token, { username: "first", database: "main" });
  for (const [fields, code] of cases) {
    const answer = await create(setting, token, { username: "bob", ...fields });
    checkRefusal(t, answer, { status: code === "database_case_conflict" ? 409 : 400, code });
  }
  const after = await readFile(gateway.accessFile, "utf8");
  t.notMatch(after.slice(before.length), "bob", "nothing was written");
  const short = await create(setting, token, { username: "bob", password: "1234567" });
  t.equal(short.body.message, "Password must be at least 8 characters");
});

t.test("a hostile email is text and nothing more", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  const token = await gateway.login();
  const emails = [
    'x"]]\\',
    "'''",
    '"""',
    "# comment",
    "$HOME",
    "\\u0022",
    "é😀\u202e@example.com",
    "<script>alert(1)</script>",
  ];
  for (const [at, email] of emails.entries()) {
    const answer = await create(setting, token, { username: `user-${at}`, email });
    t.equal(answer.status, 201, email);
    t.match(answer.body.user, { email });
  }
  const checked = await gateway.request("/readyz");
  t.equal(checked.body.access_file, "fresh", "the file is still one that can be read");
  const last = await create(setting, token, { username: "user-0" });
  checkRefusal(t, last, { status: 409, code: "user_exists" });
});

t.test("of many who make the same user at one moment one succeeds", async (t) => {
  const setting = await openSetting(t);
  const token = await setting.gateway.login();
  const asked = Array.from({ length: 8 }, () => create(setting, token, { username: "bob" }));
  const statuses = (await Promise.all(asked)).map(({ status }) => status).sort();
  t.strictSame(statuses, [201, ...Array(7).fill(409)]);
});
