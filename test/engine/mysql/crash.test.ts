import { mkdirSync, rmSync } from "node:fs";
import { createConnection } from "mysql2/promise";
import t from "tap";
import { eventually } from "../../kit/eventually.ts";
import { crashUnderLoad, endAtCommit, waitForServer } from "../crash.ts";
import { insert, query, selectAll } from "../kit.ts";
import { startOn } from "../postgres/kit.ts";
import { startService } from "../postgres/service.ts";
import { sharedServer } from "./kit.ts";
import { startMysql } from "./server.ts";

t.test("an engine that is started before MySQL waits for it", async (t) => {
  const server = await sharedServer();
  await server.stop();
  const { address } = await startOn(t, server.url);
  await waitForServer(t, server, address);
});

t.test("while MySQL is killed and comes back, no query is carried out twice", async (t) => {
  const server = await sharedServer();
  const { address } = await startOn(t, server.url);
  await crashUnderLoad(t, server, address);
});

t.test("a read that is under way when MySQL is killed is a 503", async (t) => {
  const server = await sharedServer();
  const { address } = await startOn(t, server.url);
  await server.sql(
    "create view main.stuck as select 1 as id, sleep(0) as pause union all select 2, sleep(60)",
  );
  const reading = query(address, selectAll("stuck"));
  await eventually("it is under way", async () => {
    const rows = await server.sql(
      "select 1 from information_schema.processlist where state = 'User sleep'",
    );
    return rows.length === 1;
  });
  await server.crash();
  t.match(await reading, { status: 503, body: { code: "database_unavailable" } });
});

t.test("a change that ends at its commit has an unknown outcome, and says why", async (t) => {
  const server = await startMysql(t);
  await server.sql("create database main", "create table main.held (id bigint primary key)");
  const holder = await createConnection({ host: "127.0.0.1", port: server.port, user: "root" });
  holder.on("error", () => {});
  t.teardown(() => holder.destroy());
  for (const stage of ["start", "flush", "block_ddl", "block_commit"]) {
    await holder.query(`backup stage ${stage}`);
  }
  await endAtCommit(t, server, async () => {
    const words = "select 1 from information_schema.processlist where info = 'commit'";
    return (await server.sql(words)).length;
  });
});

t.test("a server that cannot write its temporary tables is not a lost server", async (t) => {
  const server = await startMysql(t);
  await server.sql("create database main", "create table main.rows (id bigint primary key)");
  const { service, address } = await startService(t, server.url);
  rmSync(server.temporary, { recursive: true });
  const Batch = [insert("rows", [{ id: 1 }])];
  t.match(await query(address, { Batch }), { status: 507, body: { code: "storage_failed" } });
  t.notMatch(service.output, /cannot be used/);
  mkdirSync(server.temporary);
  t.match(await query(address, { Batch }), { status: 200 });
});
