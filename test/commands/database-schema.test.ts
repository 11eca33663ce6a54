import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { install } from "./kit.ts";

const products = {
  CreateTable: {
    ...{ database: "main", table: "products" },
    columns: [
      { name: "id", type: "int", primary_key: true },
      { name: "tenant", type: "text" },
    ],
  },
};

t.test(
  "a grant that names what the running database does not have says what is near",
  async (t) => {
    const gateway = await startGateway(t, {});
    const admin = await gateway.login();
    t.equal((await gateway.query(products, admin)).status, 200);
    await gateway.addUser("alice", "ReadOnly");
    const warnings = async (...flags: string[]) => {
      const { code, stderr } = await runCommand(gateway.home, [
        "access",
        "grant",
        "alice",
        ...flags,
      ]);
      t.equal(code, 0, flags.join(" "));
      return stderr;
    };
    t.equal(await warnings("main.products", "ReadOnly", "--row-filter", "tenant = acme"), "");
    t.match(
      await warnings("main.product", "ReadOnly"),
      "the entry of alice for main.product: main has no table product (did you mean products?)",
    );
    t.match(await warnings("mian", "ReadOnly"), "no database mian (did you mean main?)");
    t.match(await warnings("public", "ReadOnly"), "no database public (there are: main)");
    t.match(await warnings("main.order_*", "ReadOnly"), "no table of main begins with order_");
    t.match(
      await warnings("main.products", "ReadWrite", "--row-filter", "tennant = acme"),
      "main.products has no column tennant (did you mean tenant?)",
    );
    t.match(
      await warnings("main", "ReadWrite", "--columns", "id,size"),
      "main.products has no column size (there are: id, tenant)",
    );
    const { code, stdout } = await runCommand(gateway.home, ["config", "check", "--json"]);
    t.equal(code, 0);
    const found = JSON.parse(stdout).warnings.join("\n");
    for (const what of ["main.product:", "mian:", "public:", "tennant", "size"])
      t.match(found, what);
  },
);

t.test("PostgreSQL is asked without a running gateway, and hints name its databases", async (t) => {
  const server = await sharedServer();
  const database = await server.createDatabase();
  await server.sql("create table products (id int primary key)", database);
  const gatehouse = install(t);
  const configuration = path.join(gatehouse.home, "gateway.toml");
  const upstream = `[upstream]\nurl = "${server.url(database)}"\n`;
  writeFileSync(configuration, readFileSync(configuration, "utf8") + upstream);
  const added = await gatehouse.run("user add carol --no-password");
  t.match(added, { code: 0, stdout: "access grant carol public ReadOnly" });
  t.match(await gatehouse.run("access grant carol public.products ReadOnly"), { stderr: /^$/ });
  t.match(await gatehouse.run("access grant carol public.product ReadOnly"), {
    code: 0,
    stderr: "public has no table product (did you mean products?)",
  });
  t.match(await gatehouse.run("config check"), {
    code: 0,
    stderr: "no database main (there are: public)",
  });
});

t.test("a database that does not answer keeps no grant waiting", async (t) => {
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
