import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { install } from "./kit.ts";

const products = {
  CreateTable: {
    database: "main",
    table: "products",
    columns: [
      { name: "id", type: "int", primary_key: true },
      { name: "tenant", type: "text" },
    ],
  },
};

/** Repeats the command, since the database may respond too late on a busy machine. */
async function untilPrinted(home: string, flags: string[], ...texts: string[]): Promise<void> {
  await eventually(texts.join(), async () => {
    const { code, stdout, stderr } = await runWarm(home, flags);
    if (code !== 0) throw new Error(stderr);
    return texts.every((text) => (stdout + stderr).includes(text));
  });
}

const gateway = await startGateway(t, {});
const admin = await gateway.login();

t.test("a filter is checked only against tables that no narrower entry decides", async (t) => {
  const tables = ["orders", "tenants", "log_a", "log_b"];
  for (const table of tables) {
    const columns = [
      { name: "id", type: "int", primary_key: true },
      ...(table === "orders" ? [{ name: "tenant", type: "text" }] : []),
    ];
    const made = await gateway.query({ CreateTable: { database: "main", table, columns } }, admin);
    t.equal(made.status, 200);
  }
  await gateway.addUser("alice", "ReadOnly");
  const run = async (command: string, more: string[] = []) => {
    const { code, stderr } = await runWarm(gateway.home, [...command.split(" "), ...more]);
    t.equal(code, 0, stderr);
  };
  const filter = ["--row-filter", "tenant = acme"];
  await run("access grant alice main.tenants ReadOnly");
  await run("access grant alice main.log_* None");
  await run("access grant alice main ReadOnly", filter);
  await run("group set eu --add alice");
  await run("access grant --group eu main.tenants None");
  await run("access grant --group eu main.log_* ReadOnly");
  const configuration = ["config", "check", "--json"];
  const warnings = async () => {
    const { stdout } = await runWarm(gateway.home, configuration);
    return JSON.parse(stdout).warnings;
  };
  t.strictSame(await warnings(), []);
  await run("access grant --group eu main ReadWrite", [...filter, "--require-where", "tenant"]);
  t.strictSame(await warnings(), []);
  await run("access revoke --group eu main.tenants");
  const about = "the entry of group eu for main: main.tenants has no column tenant";
  await untilPrinted(gateway.home, configuration, about);
  await run("access revoke alice main.log_*");
  t.strictSame((await warnings()).length, 1, "the group's pattern decides for alice");
  await run("access revoke --group eu main.log_*");
  await untilPrinted(
    gateway.home,
    configuration,
    "the entry of alice for main: main.log_a and 1 other table has no column tenant",
    "the entry of group eu for main: main.log_a and 2 other tables has no column tenant",
  );
  for (const table of tables) {
    await gateway.query({ DropTable: { database: "main", table } }, admin);
  }
});

t.test("access grant warns about names that the database does not have", async (t) => {
  t.equal((await gateway.query(products, admin)).status, 200);
  await gateway.addUser("bea", "ReadOnly");
  const grant = ["access", "grant", "bea"];
  const right = [...grant, "main.products", "ReadOnly", "--row-filter", "tenant = acme"];
  t.equal((await runWarm(gateway.home, right)).stderr, "");
  const wrong: [flags: string[], words: string][] = [
    [["main.product", "ReadOnly"], "main has no table product (did you mean products?)"],
    [["mian", "ReadOnly"], "the database mian does not exist (did you mean main?)"],
    [["public", "ReadOnly"], "the database public does not exist (known: main)"],
    [["main.order_*", "ReadOnly"], "no table of main begins with order_"],
    [
      ["main.products", "ReadWrite", "--row-filter", "tennant = acme"],
      "main.products has no column tennant (did you mean tenant?)",
    ],
    [
      ["main", "ReadWrite", "--columns", "id,size"],
      "main.products has no column size (known: id, tenant)",
    ],
  ];
  for (const [flags, words] of wrong) {
    await untilPrinted(gateway.home, [...grant, ...flags], words);
  }
  const all = wrong.map(([, words]) => words);
  await untilPrinted(gateway.home, ["config", "check", "--json"], ...all);
});

t.test("without a running gateway, commands ask PostgreSQL for its names", async (t) => {
  const server = await sharedServer();
  const database = await server.createDatabase();
  await server.sql("create table products (id int primary key)", database);
  const { home } = install(t);
  const configuration = path.join(home, "gateway.toml");
  const upstream = `[upstream]\nurl = "${server.url(database)}"\n`;
  writeFileSync(configuration, readFileSync(configuration, "utf8") + upstream);
  let count = 0;
  await eventually("the hint names public", async () => {
    count += 1;
    const { stdout } = await runWarm(home, ["user", "add", `u${count}`, "--no-password"]);
    return stdout.includes(`access grant u${count} public ReadOnly`);
  });
  const missing = "public has no table product (did you mean products?)";
  await untilPrinted(home, ["access", "grant", "alice", "public.product", "ReadOnly"], missing);
  await untilPrinted(home, ["config", "check"], "the database main does not exist (known: public)");
  const right = ["access", "grant", "alice", "public.products", "ReadOnly"];
  t.match(await runWarm(home, right), { code: 0, stderr: /^$/ });
});

t.test("access grant does not wait for a database that does not respond", async (t) => {
  const port = await freePort();
  const silent = createServer(() => {}).listen(port, "127.0.0.1");
  await once(silent, "listening");
  t.teardown(() => silent.close());
  for (const scheme of ["http://", "postgres://app@"]) {
    const gatehouse = install(t);
    const url = `${scheme}127.0.0.1:${port}`;
    writeFileSync(path.join(gatehouse.home, "gateway.toml"), `[upstream]\nurl = "${url}"\n`);
    const start = performance.now();
    const { code, stderr } = await gatehouse.run("access grant alice public.product ReadOnly");
    t.strictSame([code, stderr], [0, ""]);
    const seconds = Math.round((performance.now() - start) / 1000);
    t.ok(seconds < 15, `${url}: ${seconds} s`);
  }
});
