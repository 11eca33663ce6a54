import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { failed, installNothing } from "../commands/kit.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";

const upstream = "http://127.0.0.1:1";
const auth = "refuse_common_passwords = true";
const refused = { status: 400, body: { code: "password_common" } };
const message = "Password stands on a list of common passwords: choose another one";
const user = (password: string) => ({ username: "bob", password, role: "ReadOnly" });

t.test("a common password is refused by every route that sets one", async (t) => {
  const gateway = await startGateway(t, { upstream, auth });
  const token = await gateway.login();
  const before = readFileSync(gateway.accessFile, "utf8");
  const change = { old_password: ADMIN_PASSWORD };
  for (const password of ["password", "12345678", "PassWord1", "Qwertyuiop"]) {
    t.match(await gateway.send("POST", "/api/users", user(password), token), refused);
    const content = { ...change, new_password: password };
    t.match(await gateway.send("PUT", "/api/users/admin/password", content, token), refused);
  }
  t.equal(readFileSync(gateway.accessFile, "utf8"), before);
  const good = await gateway.send("POST", "/api/users", user("password of bob"), token);
  t.equal(good.status, 201);
});

t.test("without the key it is taken", async (t) => {
  const gateway = await startGateway(t, { upstream });
  const answer = await gateway.send("POST", "/api/users", user("password"), await gateway.login());
  t.equal(answer.status, 201);
});

t.test("a common first password stops the first start", async (t) => {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), `[auth]\n${auth}\n`);
  const env = { GATEHOUSE_ADMIN_PASSWORD: "password1" };
  const { code, stderr } = await runCommand(home, ["serve", "--port", "0"], { env });
  t.equal(code, 1);
  t.match(stderr, `$GATEHOUSE_ADMIN_PASSWORD: ${message}`);
});

t.test("a common password is refused by every command that sets one", async (t) => {
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
