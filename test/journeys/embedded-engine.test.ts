import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { startMysql } from "../engine/mysql/server.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand } from "../kit/process.ts";
import { childrenOf, isAlive, openSockets, residentBytes } from "../kit/process-info.ts";
import { queryHeaders } from "../kit/queries.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { succeed } from "./staff.ts";

const place = { database: "main", table: "t" };
const columns = [{ name: "id", type: "int", primary_key: true }];
const createTable = { CreateTable: { ...place, columns } };
const select = { Select: { database: "main", from: "t", columns: ["*"] } };

function insertOf(count: number, from = 1) {
  const values = Array.from({ length: count }, (_, at) => ({ id: from + at }));
  return { Insert: { ...place, values } };
}

function commandOf(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
}

/** The process that runs SQLite. */
async function sqliteOf({ service }: TestGateway): Promise<number> {
  const find = () =>
    childrenOf(service.child.pid ?? 0).filter((pid) => commandOf(pid).includes("sqlite/worker"));
  await eventually("a process runs SQLite", () => find().length > 0);
  return find()[0] ?? 0;
}

async function scene(t: Test, home?: string) {
  const gateway = await startGateway(t, home === undefined ? {} : { home });
  const token = await gateway.login();
  if (home === undefined) {
    await succeed(gateway.query(createTable, token));
    await succeed(gateway.query(insertOf(1), token));
  }
  const pid = gateway.service.child.pid ?? 0;
  return { gateway, token, pid, sqlite: await sqliteOf(gateway) };
}

async function answers(t: Test, gateway: TestGateway, token: string, rows?: object[]) {
  await eventually("queries are answered", async () => {
    const { status, body } = await gateway.query(select, token);
    if (status === 200 && rows !== undefined) t.strictSame(body.data, rows);
    return status === 200;
  });
  t.equal((await gateway.request("/readyz")).status, 200);
}

const first = await scene(t);

t.test("a second gateway on a service directory is refused at once", async (t) => {
  const { gateway, token } = first;
  const { port } = new URL(gateway.url);
  const message =
    `another gateway already uses the service directory ${gateway.home}: stop it first, or give ` +
    "this one a service directory of its own with $GATEHOUSE_HOME, or another upstream.url with --config";
  for (const chosen of ["0", port]) {
    const { code, stderr } = await runCommand(gateway.home, ["serve", "--port", chosen]);
    t.strictSame([code, stderr], [1, `gatehouse: ${message}\n`]);
  }
  t.equal((await gateway.query(select, token)).status, 200);

  const elsewhere = await runCommand(gateway.home, ["serve", "--port", port], {
    env: { GATEHOUSE_HOME: path.join(gateway.home, "other") },
  });
  t.match(elsewhere.stderr, `:${port} is in use by another process`);
  await gateway.service.stop();
});

t.test("a killed SQLite process is replaced, and none outlives the gateway", async (t) => {
  const { gateway, token, pid, sqlite } = await scene(t, first.gateway.home);
  // Until then it may still be starting.
  await answers(t, gateway, token, [{ id: 1 }]);
  // A negative id is a process group, which a terminal's Ctrl-C signals. The gateway is in another.
  process.kill(-sqlite, "SIGINT");
  t.ok(isAlive(sqlite) && isAlive(pid));
  process.kill(sqlite, "SIGKILL");
  await gateway.service.logged(({ msg }) => msg === "a SQLite process died and is replaced");
  await answers(t, gateway, token, [{ id: 1 }]);
  const next = await sqliteOf(gateway);
  t.not(next, sqlite);
  t.equal(await gateway.service.stop(), 0);
  t.notOk(isAlive(next));

  const again = await scene(t, gateway.home);
  await answers(t, again.gateway, again.token, [{ id: 1 }]);
  await again.gateway.service.stop("SIGKILL");
  await eventually("it never outlives the gateway", () => !isAlive(again.sqlite));
  const third = await scene(t, gateway.home);
  await answers(t, third.gateway, third.token, [{ id: 1 }]);
});

t.test("a signal to gateway and SQLite process lets the request in flight finish", async (t) => {
  const { gateway, token, pid, sqlite } = await scene(t);
  const body = JSON.stringify(insertOf(5000, 2));
  const request = wireRequest("POST /query", queryHeaders(token), body);
  const wire = await Wire.open(gateway.url, t);
  // Without the last byte the request is surely in flight.
  wire.send(request.slice(0, -1));
  await gateway.request("/healthz");
  for (const each of [sqlite, pid]) process.kill(each, "SIGINT");
  await gateway.service.logged(({ msg }) => String(msg).startsWith("draining"));
  for (const each of [sqlite, pid]) process.kill(each, "SIGTERM");
  wire.send(request.slice(-1));
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 .*"status":"success"/s);
  t.equal(await gateway.service.stop(), 0);
  await eventually("the SQLite process ends too", () => !isAlive(sqlite));
  const again = await scene(t, gateway.home);
  const rows = (await again.gateway.query(select, again.token)).body.data;
  t.equal(Array.isArray(rows) && rows.length, 5001, "what was answered was done");
});

async function live(t: Test, upstream: string, secret: string, config = ""): Promise<void> {
  const gateway = await startGateway(t, { upstream, config });
  const token = await gateway.login();
  await gateway.query({ CreateDatabase: { database: "main" } }, token);
  const made = await gateway.query(createTable, token);
  t.equal(made.status, 200, made.text);
  const { body } = await gateway.get("/schema/main", token);
  t.match(body, { data: { tables: ["t"] } });
  await answers(t, gateway, token);
  const pid = gateway.service.child.pid ?? 0;
  const commands = [pid, ...childrenOf(pid)].map(commandOf);
  t.notMatch(commands.join("\n"), secret, "the password is not in the list of processes");
  await gateway.service.stop("SIGKILL");
  t.notMatch(gateway.service.output, secret);
}

t.test("a file that another program has locked is busy, at each entry point", async (t) => {
  const { gateway, token } = await scene(t);
  const other = new DatabaseSync(path.join(gateway.home, "data/main.sqlite"));
  other.exec("begin exclusive");
  const answers = [gateway.query(select, token), gateway.get("/schema/main", token)];
  const busy = { status: 503, body: { code: "busy" } };
  for (const answer of await Promise.all(answers)) t.match(answer, busy);
  other.close();
  t.match(await gateway.get("/schema/main", token), { status: 200 });
});

t.test("a URL of PostgreSQL is all that the gateway needs", async (t) => {
  const server = await sharedServer();
  await server.requirePassword("app", "hunter2");
  await server.sql("alter role app superuser");
  const database = await server.createDatabase();
  await live(t, `postgres://app:hunter2@127.0.0.1:${server.port}/${database}`, "hunter2");
});

t.test("a URL of MySQL is all that the gateway needs", nightly, async (t) => {
  const server = await startMysql(t);
  await server.sql("create user app identified by 'hunter2'", "grant all on *.* to app");
  const url = `mysql://app:hunter2@127.0.0.1:${server.port}/`;
  await live(t, url, "hunter2", "statement_timeout = 5\npool_size = 2\n");
});

t.test("a relative SQLite directory is created next to the configuration file", async (t) => {
  const config = "[server]\nworkers = 0\n";
  const gateway = await startGateway(t, { upstream: "sqlite:shop", config });
  const token = await gateway.login();
  t.equal((await gateway.query(createTable, token)).status, 200);
  t.ok(existsSync(path.join(gateway.home, "shop", "main.sqlite")));
  t.notOk(existsSync(path.join(gateway.home, "data")));
});

/** A gateway over PostgreSQL whose Selects sleep. Its function asks `count` at once, and sees how many run. */
async function openSleeping(t: Test, seconds: number, config: string) {
  const server = await sharedServer();
  const database = await server.createDatabase();
  const gateway = await startGateway(t, { upstream: server.url(database), config });
  const token = await gateway.login();
  await server.sql(
    `create schema main; create view main.t as select 1 as id, pg_sleep(${seconds})::text as slept`,
    database,
  );
  const sleeping = "select count(*)::int as n from pg_stat_activity where wait_event = 'PgSleep'";
  return async (count: number) => {
    let isOver = false;
    const asked = Array.from({ length: count }, () => gateway.query(select, token));
    const over = Promise.all(asked).finally(() => (isOver = true));
    let most = 0;
    for (; !isOver; await delay(20)) {
      most = Math.max(most, Number((await server.sql(sleeping))[0]?.n));
    }
    return { most, answers: await over };
  };
}

t.test("the engine applies the configured limits", async (t) => {
  const ask = await openSleeping(t, 60, "statement_timeout = 1\npool_size = 2\n");
  // On a busy machine they may end before they are seen: then once more.
  await eventually("two are seen at one time, and no more", async () => {
    const { most, answers } = await ask(4);
    for (const answer of answers) {
      t.match(answer, { status: 503, body: { code: "query_timeout", message: /1 second/ } });
    }
    t.ok(most <= 2);
    return most === 2;
  });
});

t.test("the start fails with the database's reason, of which config check warns", async (t) => {
  const server = await sharedServer();
  const wrong = `postgres://app:wrong-one@127.0.0.1:${server.port}/postgres`;
  const home = temporaryHome(t);
  const env = {
    GATEHOUSE_ADMIN_PASSWORD: "correct horse",
    GATEHOUSE_CONFIG: path.join(home, "c.toml"),
  };
  writeFileSync(env.GATEHOUSE_CONFIG, `[upstream]\nurl = "${wrong}"\n`, { mode: 0o600 });
  const { code, stdout, stderr } = await runCommand(home, ["serve", "--port", "0"], { env });
  t.equal(code, 1);
  const refused =
    /PostgreSQL on 127.0.0.1:\d+ refuses the connection to database postgres: 28P01: /;
  t.match(stdout + stderr, refused);
  const checked = await runCommand(home, ["config", "check"], { env });
  t.match(checked, { code: 0, stderr: refused });
  t.notMatch([stdout, stderr, checked.stdout, checked.stderr].join(), /wrong-one/);
});

t.test("several workers over SQLite are refused at the start", async (t) => {
  const home = temporaryHome(t);
  const file = path.join(home, "gateway.toml");
  const start = () => runCommand(home, ["serve", "--port", "0"]);
  for (const upstream of ["", '[upstream]\nurl = "sqlite:shop"\n']) {
    writeFileSync(file, `[server]\nworkers = 2\n${upstream}`, { mode: 0o600 });
    const { code, stderr } = await start();
    t.equal(code, 1);
    t.match(stderr, /2: server\.workers: found 2; allowed: 1 over SQLite/);
  }
  const database = '[upstream]\nurl = "postgres://app@127.0.0.1:1/app"\npool_size = 2\n';
  writeFileSync(file, `[server]\nworkers = 3\n${database}`, { mode: 0o600 });
  t.match(await start(), { code: 1, stderr: /5: upstream\.pool_size: found 2; allowed: at least/ });
});

t.test("workers share the connections to a database server", async (t) => {
  const ask = await openSleeping(t, 0.3, "pool_size = 4\n[server]\nworkers = 2\n");
  const { most, answers } = await ask(24);
  for (const answer of answers) t.equal(answer.status, 200, answer.text);
  t.ok(most > 2 && most <= 4, `${most}`);
});

async function observed(t: Test, upstream?: string) {
  const { section: config, value: metric } = await reserveMetrics();
  const gateway = await startGateway(t, upstream === undefined ? { config } : { upstream, config });
  const token = await gateway.login();

  async function sees(what: string, status: number): Promise<void> {
    const up = status === 200 ? 1 : 0;
    await eventually(`${what}: ready ${status}`, async () => {
      const ready = await gateway.request("/readyz");
      return ready.status === status && (await metric("gatehouse_upstream_up")) === up;
    });
    t.pass(what);
  }
  return { gateway, token, metric, sees };
}

t.test("a start without the database logs one warning", async (t) => {
  const [silent, good] = await Promise.all([
    startGateway(t, { upstream: "http://127.0.0.1:1" }),
    startGateway(t),
  ]);
  const isWarning = ({ msg }: Record<string, unknown>) =>
    String(msg).startsWith("the upstream does not respond");
  t.match(await silent.service.logged(isWarning), { level: "warn", targets: ["127.0.0.1:1"] });
  t.equal((await good.request("/readyz")).status, 200);
  t.equal(silent.service.log.filter(isWarning).length, 1);
  t.notOk(good.service.log.some(isWarning));
});

t.test("readiness and metrics follow PostgreSQL behind the engine", async (t) => {
  const server = await sharedServer();
  const { gateway, token, metric, sees } = await observed(t, server.url());
  await sees("it is there", 200);

  await server.crash();
  await sees("it is gone", 503);
  t.match((await gateway.request("/readyz")).body, { upstream: "down" });
  const errors = 'gatehouse_upstream_failures_total{kind="error"}';
  t.equal(await metric(errors), 0);
  t.equal((await gateway.query(select, token)).status, 503);
  t.equal(await metric(errors), 1, "what the second alert counts rises");

  await server.start();
  await sees("it is back", 200);
  server.signal("SIGSTOP");
  await sees("it has stopped answering", 503);
  server.signal("SIGCONT");
  await sees("it goes on", 200);
});

t.test("readiness and metrics follow MySQL behind the engine", nightly, async (t) => {
  const server = await startMysql(t);
  const { sees } = await observed(t, server.url);
  await sees("it is there", 200);
  await server.crash();
  await sees("it is gone", 503);
  await server.start();
  await sees("it is back", 200);
});

t.test("readiness and metrics follow the files of the embedded engine", async (t) => {
  const { gateway, token, sees } = await observed(t);
  await sees("they are there", 200);
  const data = path.join(gateway.home, "data");
  renameSync(data, `${data}.away`);
  await sees("they are gone", 503);
  const gone = { status: 503, body: { code: "database_unavailable" } };
  t.match(await gateway.query(all, token), gone);
  writeFileSync(data, "no directory");
  t.match(await gateway.query(all, token), gone);
  rmSync(data);
  renameSync(`${data}.away`, data);
  await sees("they are back", 200);
});

const CLIENTS = 16;
const MEGABYTE = 1024 * 1024;

const create = {
  CreateTable: { database: "main", table: "rows", columns: [{ name: "tag", type: "int" }] },
};
const insertTagged = (tag: number) => ({
  Insert: { database: "main", table: "rows", values: [{ tag }] },
});
const all = { Select: { database: "main", from: "rows", columns: ["tag"] } };

t.test("after PostgreSQL was killed under load, no acknowledged write is lost", async (t) => {
  const server = await sharedServer();
  const gateway = await startGateway(t, { upstream: server.url() });
  const token = await gateway.login();
  await gateway.query({ CreateDatabase: { database: "main" } }, token);
  t.match(await gateway.query(create, token), { status: 200 });

  let tag = 0;
  let isOver = false;
  const outcomes: { tag: number; status: number; message: string; at: number }[] = [];
  async function write(): Promise<void> {
    while (!isOver) {
      tag++;
      const mine = tag;
      const { status, body } = await gateway.query(insertTagged(mine), token);
      outcomes.push({ tag: mine, status, message: String(body.message), at: performance.now() });
      // Refusals come at once and would use all processor time.
      if (status !== 200) await delay(5);
    }
  }
  const successes = () => outcomes.filter(({ status }) => status === 200).length;
  const writers = Array.from({ length: CLIENTS }, write);
  await eventually("writes succeed", () => successes() > 200);
  const pid = gateway.service.child.pid ?? 0;
  const held = () => ({ sockets: openSockets(pid), megabytes: residentBytes(pid) / MEGABYTE });
  const before = held();

  await server.crash();
  const gone = outcomes.length;
  await eventually("writes are answered", () => outcomes.length > gone + 200);
  await server.start();
  const back = performance.now();
  const later = () => outcomes.some(({ status, at }) => status === 200 && at > back);
  await eventually("a write succeeds", later);
  const known = successes();
  await eventually("writes succeed again", () => successes() > known + 200);
  isOver = true;
  await Promise.all(writers);

  const statuses = new Set(outcomes.map(({ status }) => status));
  t.ok(statuses.has(200) && statuses.has(503), "there were both");
  for (const status of statuses) t.ok([200, 502, 503].includes(status), `${status}`);

  const { body } = await gateway.query(all, token);
  const rows = Array.isArray(body.data) ? body.data : [];
  const stored: number[] = rows.map((row) => row.tag);
  t.equal(new Set(stored).size, stored.length, "nothing was carried out twice");
  const kept = new Set(stored);
  const lost = outcomes.filter((outcome) => outcome.status === 200 && !kept.has(outcome.tag));
  t.strictSame(lost, [], "nothing that was acknowledged is lost");
  const after = held();
  // Pools may have grown by a few connections.
  t.ok(after.sockets <= before.sockets + 32, `${before.sockets} and then ${after.sockets} sockets`);
  // Heaps keep growing for a while after the start.
  t.ok(
    after.megabytes < before.megabytes + 150,
    `${before.megabytes} and then ${after.megabytes} MB`,
  );
});
