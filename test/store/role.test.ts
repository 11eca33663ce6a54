import t, { type Test } from "tap";
import { query, send } from "../engine/kit.ts";
import { sharedServer, startOn } from "../engine/postgres/kit.ts";
import { ADMIN_PASSWORD, startGateway, temporaryHome, writeConfiguration } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { makeStore, select, storeConfig } from "./kit.ts";
import { makeRole, storeRole } from "./role.ts";

const server = await sharedServer();
await server.sql("create role app login");

/** What PostgreSQL says to somebody without the right. */
const INSUFFICIENT_PRIVILEGE = "42501";

t.test("a store's role carries replicas, and can do nothing beyond its own tables", async (t) => {
  const url = await makeRole(server);
  const home = temporaryHome(t);
  writeConfiguration(home, { config: storeConfig(url, {}) });
  const env = { GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD };
  const made = await runCommand(home, ["store", "init"], { env });
  t.match(made, { code: 0, stdout: /Made the tables/ }, made.stderr);
  const replica = await startGateway(t, { home, config: storeConfig(url, {}) });
  await replica.addUser("alice", "ReadWrite");

  await server.sql(
    "create schema app; create table app.secrets (secret text); create table public.others ()",
    "gatehouse",
  );
  const forbidden = [
    "select * from app.secrets",
    "insert into public.others default values",
    "create table public.mine ()",
    "create table app.mine ()",
    "create temporary table mine ()",
    "create schema mine",
    "create database mine",
    "create role mine",
    "drop role app",
    "set role gatehouse",
    "alter role replicas superuser",
    "select * from pg_catalog.pg_authid",
    "select pg_catalog.pg_read_file('postgresql.conf')",
    "copy gatehouse.users to program 'cat'",
    "create extension postgres_fdw schema gatehouse",
  ];
  for (const statement of forbidden) {
    const asked = server.sql(statement, "gatehouse", storeRole);
    await t.rejects(asked, { code: INSUFFICIENT_PRIVILEGE }, statement);
  }
  const [{ can_drop: owns } = {}] = await server.sql(
    `select pg_get_userbyid(datdba) = '${storeRole}' as can_drop from pg_database
      where datname = 'gatehouse'`,
  );
  t.equal(owns, false, "it may not drop its database either");
  await t.rejects(server.sql("select * from gatehouse.users", "gatehouse", "app"), {
    code: INSUFFICIENT_PRIVILEGE,
  });
});

/** Asks all that might reach the store by queries of an administrator. */
async function checkUnreachable(t: Test, database: string, engineUrl: string): Promise<void> {
  const engine = await startOn(t, engineUrl);
  const store = await makeStore(t, {}, server, database);
  const gateway = await startGateway(t, {
    home: store.makeHome(),
    upstream: engine.address,
    config: storeConfig(store.url, {}),
  });
  const admin = await gateway.login();
  const listed = await send(engine.address, { path: "/schema" });
  t.same(listed.body.data, { databases: ["public"] });
  for (const database of ["gatehouse", "Gatehouse", "GATEHOUSE"]) {
    for (const table of ["users", "keys", "log"]) {
      const from = { Select: { ...select.Select, database, from: table } };
      t.match(await gateway.query(from, admin), { status: 404 }, `${database}.${table}`);
    }
    const dropped = await gateway.query({ DropDatabase: { database } }, admin);
    t.equal(dropped.status, 404, `no ${database} to drop`);
    const made = await gateway.query({ CreateDatabase: { database } }, admin);
    t.equal(made.status, 400, `no ${database} to make`);
  }
  t.match(await query(engine.address, { Select: { ...select.Select, database: "gatehouse" } }), {
    status: 404,
    body: { code: "database_not_found" },
  });
  const [{ count } = {}] = await store.sql("select count(*)::int from gatehouse.users");
  t.equal(count, 1, "it is there all the time");
}

t.test("no query reaches a store in the very database that the engine serves", async (t) => {
  const database = await server.createDatabase();
  await server.sql(`grant create on database ${database} to app`);
  await checkUnreachable(t, database, server.url(database, "app"));
});

t.test("nor where both were given one and the same role, a superuser", async (t) => {
  const database = await server.createDatabase();
  await checkUnreachable(t, database, server.url(database));
});
