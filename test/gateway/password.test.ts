import t from "tap";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { checkRefusal, openSetting, type Setting, select } from "./kit.ts";

const fresh = "another password";

function change({ gateway }: Setting, token: string, username: string, body: unknown) {
  return gateway.send("PUT", `/api/users/${username}/password`, body, token);
}

t.test("a user changes its own password with the old one, which ends every token", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  const token = await gateway.addUser("bob", "ReadOnly");
  const limited = await gateway.login("bob", "bob password", "main");
  const body = { old_password: "bob password", new_password: fresh };
  const answer = await change(setting, token, "bob", body);
  t.equal(answer.status, 200);
  t.strictSame(answer.body, { status: "success" });
  for (const old of [token, limited]) {
    const refused = await gateway.query(select, old);
    checkRefusal(t, refused, { status: 401, code: "token_revoked", message: "Token revoked" });
  }
  const old = await gateway.send("POST", "/login", { username: "bob", password: "bob password" });
  t.equal(old.status, 401);
  t.equal((await gateway.query(select, await gateway.login("bob", fresh))).status, 200);
});

t.test("the same password again is a new one: old tokens stop working", async (t) => {
  const setting = await openSetting(t);
  const token = await setting.gateway.addUser("bob", "ReadOnly");
  const body = { old_password: "bob password", new_password: "bob password" };
  t.equal((await change(setting, token, "bob", body)).status, 200);
  t.equal((await setting.gateway.query(select, token)).body.code, "token_revoked");
});

t.test("a wrong old password is a failed login, and throttled as one", async (t) => {
  const setting = await openSetting(t, { auth: "max_failures_per_user_and_address = 3" });
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
  t.equal((await gateway.send("POST", "/login", login)).status, 429, "one count for both");
});

t.test("an administrator sets another one's password without the old one", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  const token = await gateway.addUser("bob", "ReadOnly");
  const admin = await gateway.login();
  t.equal((await change(setting, admin, "bob", { new_password: fresh })).status, 200);
  t.equal((await gateway.query(select, token)).body.code, "token_revoked");
  t.type(await gateway.login("bob", fresh), "string");
  t.equal((await gateway.query(select, admin)).status, 200, "its own tokens live on");

  const wrong = { old_password: "a wrong one", new_password: fresh };
  t.equal((await change(setting, admin, "bob", wrong)).status, 401, "one that is given must fit");
  const gone = await change(setting, admin, "nobody", { new_password: fresh });
  checkRefusal(t, gone, { status: 404, code: "user_not_found", message: "User not found" });
});

t.test("anybody else may not, and is not told whether the user exists", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  await gateway.addUser("bob", "ReadOnly");
  const others = [
    await gateway.addUser("owner", "Owner"),
    await gateway.addUser("dba", "DbAdmin", "*"),
  ];
  for (const token of others) {
    for (const username of ["bob", "admin", "nobody"]) {
      for (const old of [{}, { old_password: "bob password" }]) {
        const answer = await change(setting, token, username, { ...old, new_password: fresh });
        checkRefusal(t, answer, { status: 403, code: "role_insufficient" });
      }
    }
  }
  t.type(await gateway.login("bob", "bob password"), "string");
});

t.test("a token for one database changes no password, not even its user's", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  await gateway.addUser("bob", "ReadOnly");
  const limited = await gateway.login("bob", "bob password", "main");
  const own = { old_password: "bob password", new_password: fresh };
  checkRefusal(t, await change(setting, limited, "bob", own), {
    status: 403,
    code: "token_database",
  });
  const admin = await gateway.login("admin", ADMIN_PASSWORD, "main");
  const other = await change(setting, admin, "bob", { new_password: fresh });
  checkRefusal(t, other, { status: 403, code: "token_database" });
});

t.test(
  "a new password that is too short or too long is refused before anything else",
  async (t) => {
    const setting = await openSetting(t);
    const token = await setting.gateway.addUser("bob", "ReadOnly");
    for (const [password, code] of [
      ["1234567", "password_too_short"],
      ["x".repeat(1025), "password_too_long"],
      ["\ud800 password", "invalid_body"],
    ]) {
      const body = { old_password: "a wrong one", new_password: password };
      const answer = await change(setting, token, "bob", body);
      checkRefusal(t, answer, { status: 400, code: String(code) });
    }
    t.equal((await setting.gateway.query(select, token)).status, 200);
  },
);

t.test("a login that raced with the change gets a token that is dead", async (t) => {
  const setting = await openSetting(t);
  const { gateway } = setting;
  const token = await gateway.addUser("bob", "ReadOnly");
  const body = { old_password: "bob password", new_password: fresh };
  const login = { username: "bob", password: "bob password" };
  const [changed, ...logins] = await Promise.all([
    change(setting, token, "bob", body),
    ...Array.from({ length: 5 }, () => gateway.send("POST", "/login", login)),
  ]);
  t.equal(changed.status, 200);
  for (const answer of logins) {
    if (answer.status === 200) {
      t.equal((await gateway.query(select, String(answer.body.token))).status, 401);
    } else t.equal(answer.status, 401);
  }
});
