import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { entryRoles, tables } from "../../src/access/records.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { openSetting, select } from "./kit.ts";

t.test("a first start without a terminal leaves the password in a file of its own", async (t) => {
  const home = temporaryHome(t);
  const { gateway } = await openSetting(t, { home, env: { GATEHOUSE_ADMIN_PASSWORD: undefined } });
  const file = path.join(home, "initial_admin_password");
  t.equal(statSync(file).mode & 0o777, 0o600);
  const password = readFileSync(file, "utf8").trim();
  t.ok(password.length >= 16);
  t.equal((await gateway.query(select, await gateway.login("admin", password))).status, 200);
  const line = await gateway.service.logged(({ msg }) => String(msg).startsWith("first start"));
  t.equal(line.file, file);
  t.notMatch(gateway.service.output, password);
  await gateway.service.stop();
  const again = await openSetting(t, { home });
  t.notMatch(again.gateway.service.output, "first start");
  const left = await again.gateway.service.logged(({ msg }) =>
    /first password is still/.test(`${msg}`),
  );
  t.equal(left.file, file, "and the next start names it as long as it is there");
});

t.test("the first access file names each key that it may have, and the page to read", async (t) => {
  const { gateway } = await openSetting(t);
  const [head = ""] = readFileSync(gateway.accessFile, "utf8").split("\n\n");
  const words = new Set(head.match(/\w+/g));
  for (const name of [...Object.keys(tables), ...Object.values(tables).flat(), ...entryRoles]) {
    t.ok(words.has(name), name);
  }
  for (const [page = ""] of head.matchAll(/docs\/[\w-]+\.md/g)) t.ok(existsSync(page), page);
  t.match(head, /docs\/operations\.md, "The access file"/);
});

t.test("of two first starts at once, the password that is left is in force", async (t) => {
  const home = temporaryHome(t);
  const env = { GATEHOUSE_ADMIN_PASSWORD: undefined };
  const settings = await Promise.all([
    openSetting(t, { home, env }),
    openSetting(t, { home, env }),
  ]);
  const password = readFileSync(path.join(home, "initial_admin_password"), "utf8").trim();
  for (const { gateway } of settings) t.type(await gateway.login("admin", password), "string");
});

t.test("a chosen first password is used and nowhere to be seen", async (t) => {
  const password = "chosen by the operator";
  const { gateway } = await openSetting(t, { env: { GATEHOUSE_ADMIN_PASSWORD: password } });
  t.type(await gateway.login("admin", password), "string");
  t.notMatch(gateway.service.output, password);
  t.notOk(readdirSync(gateway.home).includes("initial_admin_password"));
  t.notMatch(readFileSync(gateway.accessFile, "utf8"), password);
});
