import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { entryRoles, tables } from "../../src/core/access/records.ts";
import { grant, user } from "../access/kit.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { openGatewaySetup, select } from "./kit.ts";

t.test("a first start without a terminal writes the password to a file", async (t) => {
  const home = temporaryHome(t);
  const { gateway } = await openGatewaySetup(t, {
    home,
    env: { GATEHOUSE_ADMIN_PASSWORD: undefined },
  });
  const file = path.join(home, "initial_admin_password");
  t.equal(statSync(file).mode & 0o777, 0o600);
  const password = readFileSync(file, "utf8").trim();
  t.ok(password.length >= 16);
  t.equal((await gateway.query(select, await gateway.login("admin", password))).status, 200);
  const line = await gateway.service.logged(({ msg }) => String(msg).startsWith("first start"));
  t.equal(line.file, file);
  t.notMatch(gateway.service.output, password);
  await gateway.service.stop();
  const again = await openGatewaySetup(t, { home });
  t.notMatch(again.gateway.service.output, "first start");
  const left = await again.gateway.service.logged(({ msg }) =>
    /first password is still/.test(`${msg}`),
  );
  t.equal(left.file, file, "the next start names the file while it exists");
});

t.test("an empty directory for keys is a first start, keys without users are not", async (t) => {
  const home = temporaryHome(t);
  const keys = path.join(home, "keys");
  mkdirSync(keys, { mode: 0o700 });
  const { stdout } = await runWarm(home, ["config", "check"]);
  t.match(stdout, /access file +-- .* created by the first start/);
  const { gateway } = await openGatewaySetup(t, { home });
  t.type(await gateway.login(), "string");
  await gateway.service.stop();
  rmSync(gateway.accessFile);
  await t.rejects(startGateway(t, { home }), /is missing, but there are signing keys in .*keys: /);
});

const chosen = "chosen by the operator";
const first = openGatewaySetup(t, { env: { GATEHOUSE_ADMIN_PASSWORD: chosen } });

t.test("the first access file names every key and the page to read", async (t) => {
  const { gateway } = await first;
  const [head = ""] = readFileSync(gateway.accessFile, "utf8").split("\n\n");
  const words = new Set(head.match(/\w+/g));
  for (const name of [...Object.keys(tables), ...Object.values(tables).flat(), ...entryRoles]) {
    t.ok(words.has(name), name);
  }
  for (const [page = ""] of head.matchAll(/docs\/[\w-]+\.md/g)) t.ok(existsSync(page), page);
  t.match(head, /docs\/access-file\.md/);
});

t.test("after two concurrent first starts, the stored password works", async (t) => {
  const home = temporaryHome(t);
  const env = { GATEHOUSE_ADMIN_PASSWORD: undefined };
  const settings = await Promise.all([
    openGatewaySetup(t, { home, env }),
    openGatewaySetup(t, { home, env }),
  ]);
  const password = readFileSync(path.join(home, "initial_admin_password"), "utf8").trim();
  for (const { gateway } of settings) t.type(await gateway.login("admin", password), "string");
});

t.test("a chosen first password is used and not stored as text", async (t) => {
  const { gateway } = await first;
  t.type(await gateway.login("admin", chosen), "string");
  t.notMatch(gateway.service.output, chosen);
  t.notOk(readdirSync(gateway.home).includes("initial_admin_password"));
  t.notMatch(readFileSync(gateway.accessFile, "utf8"), chosen);
});

t.test("a reload of many records names a hundred and counts the rest", async (t) => {
  const { gateway } = await first;
  const users = Array.from({ length: 150 }, (_, at) => user(`user${at}`)).join("");
  const strangers = Array.from({ length: 101 }, (_, at) => grant(`gone${at}`, "main", "Owner"));
  await gateway.edit((text) => `${text}\n${users}${strangers.join("")}`);
  const line = await gateway.service.logged(({ msg }) => msg === "access file reloaded");
  t.match(line, { more: { usersAdded: 50, grantsAdded: 1 } });
  t.equal([line.usersAdded].flat().length, 100);
  const warning = await gateway.service.logged(({ names }) => names !== undefined);
  t.match(warning, { more: { names: 1 } });
});

t.test("each mistake in a refused access file is logged", async (t) => {
  const { gateway } = await first;
  await gateway.edit(
    (text) => `${text}\n${grant("a", "main", "Writer")}${grant("b", "a b", "Owner")}`,
  );
  const refused = /^access file refused/;
  const about = (key: string) =>
    gateway.service.logged(
      ({ msg, reason }) => refused.test(String(msg)) && String(reason).startsWith(`\`${key}\``),
    );
  const [role, database] = await Promise.all([about("role"), about("database")]);
  t.equal(Number(database.line) - Number(role.line), 4);
});
