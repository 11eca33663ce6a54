import { readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import t from "tap";
import { failed, installNothing } from "../commands/kit.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { checkRefusal, type GatewaySetup, openGatewaySetup, select } from "./kit.ts";

const password = "long enough";

function create({ gateway }: GatewaySetup, token: string, fields: Record<string, unknown>) {
  return gateway.send("POST", "/api/users", { password, role: "ReadOnly", ...fields }, token);
}

const setting = await openGatewaySetup(t);
const { gateway } = setting;

t.test("a new user is shown without a hash and can log in", async (t) => {
  const setting = await openGatewaySetup(t, { auth: 'default_database = "home"' });
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

t.test("invalid users are refused with a code", async (t) => {
  const token = await gateway.login();
  const before = await readFile(gateway.accessFile, "utf8");
  const cases: [fields: Record<string, unknown>, code: string][] = [
    [{ password: "1234567" }, "password_too_short"],
    [{ password: "😀".repeat(7) }, "password_too_short"],
    [{ password: "x".repeat(1025) }, "password_too_long"],
    [{ password: "é".repeat(513) }, "password_too_long"],
    [{ role: "owner4" }, "invalid_role"],
    [{ role: "toString" }, "invalid_role"],
    [{ database: "a.b.c" }, "invalid_database"],
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
    const answer = await create(setting, token, { username: "bob4", ...fields });
    checkRefusal(t, answer, { status: code === "database_case_conflict" ? 409 : 400, code });
  }
  const after = await readFile(gateway.accessFile, "utf8");
  t.notMatch(after.slice(before.length), "bob4", "nothing was written");
  const short = await create(setting, token, { username: "bob4", password: "1234567" });
  t.equal(short.body.message, "Password must be at least 8 characters");
});

const fresh = "another password";

function change({ gateway }: GatewaySetup, token: string, username: string, body: unknown) {
  return gateway.send("PUT", `/api/users/${username}/password`, body, token);
}

t.test("a user who changes the password with the old one loses all tokens", async (t) => {
  const token = await gateway.addUser("bob7", "ReadOnly");
  const limited = await gateway.login("bob7", "bob7 password", "main");
  const body = { old_password: "bob7 password", new_password: fresh };
  const answer = await change(setting, token, "bob7", body);
  t.equal(answer.status, 200);
  t.strictSame(answer.body, { status: "success" });
  for (const old of [token, limited]) {
    const refused = await gateway.query(select, old);
    checkRefusal(t, refused, { status: 401, code: "token_revoked", message: "Token revoked" });
  }
  const old = await gateway.send("POST", "/login", { username: "bob7", password: "bob7 password" });
  t.equal(old.status, 401);
  t.equal((await gateway.query(select, await gateway.login("bob7", fresh))).status, 200);
});

t.test("a wrong old password counts as a failed login", async (t) => {
  const setting = await openGatewaySetup(t, { auth: "max_failures_per_user_and_address = 3" });
  const { gateway } = setting;
  const token = await gateway.addUser("bob", "ReadOnly");
  const body = { old_password: "a wrong one", new_password: fresh };
  for (let attempt = 0; attempt < 3; attempt++) {
    const answer = await change(setting, token, "bob", body);
    const message = "Invalid username or password";
    checkRefusal(t, answer, { status: 401, code: "credentials_invalid", message });
  }
  const answer = await change(setting, token, "bob", body);
  checkRefusal(t, answer, { status: 429, code: "too_many_attempts" });
  t.ok(Number(answer.headers.get("retry-after")) > 0);
  const login = { username: "bob", password: "bob password" };
  t.equal(
    (await gateway.send("POST", "/login", login)).status,
    429,
    "logins and password changes are counted together",
  );
});

t.test("an administrator sets another user's password without the old one", async (t) => {
  const token = await gateway.addUser("bob9", "ReadOnly");
  const admin = await gateway.login();
  t.equal((await change(setting, admin, "bob9", { new_password: fresh })).status, 200);
  t.equal((await gateway.query(select, token)).body.code, "token_revoked");
  t.type(await gateway.login("bob9", fresh), "string");
  t.equal(
    (await gateway.query(select, admin)).status,
    200,
    "the administrator's tokens stay valid",
  );

  const wrong = { old_password: "a wrong one", new_password: fresh };
  t.equal(
    (await change(setting, admin, "bob9", wrong)).status,
    401,
    "an old password that is given must be correct",
  );
  const unknown = await change(setting, admin, "nobody", { new_password: fresh });
  checkRefusal(t, unknown, { status: 404, code: "user_not_found", message: "User not found" });
});

// `test/administration/actions.test.ts` has who may act on others.
t.test("other callers and limited tokens may not set a password", async (t) => {
  await gateway.addUser("bob10", "ReadOnly");
  const owner = await gateway.addUser("owner10", "Owner");
  for (const username of ["bob10", "admin", "nobody"]) {
    for (const old of [{}, { old_password: "bob10 password" }]) {
      const answer = await change(setting, owner, username, { ...old, new_password: fresh });
      checkRefusal(t, answer, { status: 403, code: "role_insufficient" });
    }
  }
  const limited = await gateway.login("bob10", "bob10 password", "main");
  const own = { old_password: "bob10 password", new_password: fresh };
  const answer = await change(setting, limited, "bob10", own);
  checkRefusal(t, answer, { status: 403, code: "token_database" });
  t.type(await gateway.login("bob10", "bob10 password"), "string");
});

t.test("an invalid new password is refused before the old one is checked", async (t) => {
  const token = await gateway.addUser("bob12", "ReadOnly");
  for (const [password, code] of [
    ["1234567", "password_too_short"],
    ["x".repeat(1025), "password_too_long"],
    ["\ud800 password", "invalid_body"],
  ]) {
    const body = { old_password: "a wrong one", new_password: password };
    const answer = await change(setting, token, "bob12", body);
    checkRefusal(t, answer, { status: 400, code: String(code) });
  }
  t.equal((await gateway.query(select, token)).status, 200);
});

const upstream = "http://127.0.0.1:1";
const auth = "refuse_common_passwords = true";
const refusal = { status: 400, body: { code: "password_common" } };
const message = "Password is on a list of common passwords: choose another one";
const userWith = (password: string) => ({ username: "bob12", password, role: "ReadOnly" });

t.test("a common password is refused by every route that sets passwords", async (t) => {
  const gateway = await startGateway(t, { upstream, auth });
  const token = await gateway.login();
  const before = readFileSync(gateway.accessFile, "utf8");
  const change = { old_password: ADMIN_PASSWORD };
  for (const password of ["password", "12345678", "PassWord1", "Qwertyuiop"]) {
    t.match(await gateway.send("POST", "/api/users", userWith(password), token), refusal);
    const content = { ...change, new_password: password };
    t.match(await gateway.send("PUT", "/api/users/admin/password", content, token), refusal);
  }
  t.equal(readFileSync(gateway.accessFile, "utf8"), before);
  const good = await gateway.send("POST", "/api/users", userWith("password of bob"), token);
  t.equal(good.status, 201);
});

t.test("a common first password stops the first start", async (t) => {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), `[auth]\n${auth}\n`);
  const env = { GATEHOUSE_ADMIN_PASSWORD: "password1" };
  const { code, stderr } = await runCommand(home, ["serve", "--port", "0"], { env });
  t.equal(code, 1);
  t.match(stderr, `$GATEHOUSE_ADMIN_PASSWORD: ${message}`);
});

t.test("a common password is refused by every command that sets passwords", async (t) => {
  const gatehouse = installNothing(t);
  const file = path.join(gatehouse.home, "gateway.toml");
  writeFileSync(file, `${readFileSync(file, "utf8")}${auth}\n`);
  const add = "user add root --admin --password-stdin";
  t.strictSame(await gatehouse.run(add, "iloveyou"), failed(1, message));
  t.strictSame(
    await gatehouse.run("hash-password --password-stdin", "iloveyou"),
    failed(1, message),
  );
  t.equal((await gatehouse.run(add, "correct horse battery")).code, 0);
  const change = "user password root --password-stdin";
  t.strictSame(await gatehouse.run(change, "ILoveYou"), failed(1, message));
});
