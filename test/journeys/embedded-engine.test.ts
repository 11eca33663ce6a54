import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { startMysql } from "../engine/mysql/server.ts";
import { startPostgres } from "../engine/postgres/server.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand } from "../kit/process.ts";
import { childrenOf, isAlive } from "../kit/process-info.ts";
import { queryHeaders } from "../kit/queries.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

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

async function engineOf({ service }: TestGateway): Promise<number> {
  const find = () =>
    childrenOf(service.child.pid ?? 0).filter((pid) => /\bengine\b/.test(commandOf(pid)));
  await eventually("there is one engine", () => find().length === 1);
  return find()[0] ?? 0;
}

function socketOf({ home }: TestGateway): string {
  return path.join(home, readdirSync(home).find((name) => name.endsWith(".sock")) ?? "missing");
}

async function scene(t: Test, home?: string) {
  const gateway = await startGateway(t, home === undefined ? {} : { home });
  const token = await gateway.login();
  if (home === undefined) {
    t.equal((await gateway.query(createTable, token)).status, 200);
    t.equal((await gateway.query(insertOf(1), token)).status, 200);
  }
  const pid = gateway.service.child.pid ?? 0;
  return { gateway, token, pid, engine: await engineOf(gateway), socket: socketOf(gateway) };
}

async function answers(t: Test, gateway: TestGateway, token: string, rows?: object[]) {
  await eventually("queries are answered", async () => {
    const { status, body } = await gateway.query(select, token);
    if (status === 200 && rows !== undefined) t.strictSame(body.data, rows);
    return status === 200;
  });
  t.equal((await gateway.request("/readyz")).status, 200);
}

t.test("a second gateway on a service directory is refused at once", async (t) => {
  const { gateway, token } = await scene(t);
  const { port } = new URL(gateway.url);
  const message =
    `another gateway already uses the service directory ${gateway.home}: stop it first, or give ` +
    "this one a service directory of its own with $GATEHOUSE_HOME, or another upstream.url with --config";
  for (const chosen of ["0", port]) {
    const { code, stdout, stderr } = await runCommand(gateway.home, ["serve", "--port", chosen]);
    t.strictSame([code, stderr], [1, `gatehouse: ${message}\n`]);
    t.notMatch(stdout, /engine/, "no engine is started");
  }
  t.equal((await gateway.query(select, token)).status, 200);

  const elsewhere = await runCommand(gateway.home, ["serve", "--port", port], {
    env: { GATEHOUSE_HOME: path.join(gateway.home, "other") },
  });
  t.match(elsewhere.stderr, `:${port} is in use by another process`);
  t.notMatch(elsewhere.stdout, /engine/, "nor where the port is taken");
  await gateway.service.stop();
  await startGateway(t, { home: gateway.home });
});

t.test("the engine has its own socket and session, and keeps its data", async (t) => {
  const { gateway, token, pid, engine, socket } = await scene(t);
  t.equal(statSync(socket).mode & 0o777, 0o600);
  t.equal(statSync(path.dirname(socket)).mode & 0o077, 0, "and so is its directory");
  // A negative id is a process group, which a terminal's Ctrl-C signals. The gateway is in another.
  process.kill(-engine, "SIGINT");
  t.ok(isAlive(engine) && isAlive(pid));
  for (let killed = engine, round = 0; round < 2; round++) {
    process.kill(killed, "SIGKILL");
    await gateway.service.logged(({ msg }) => String(msg).startsWith("the engine exited"));
    await answers(t, gateway, token, [{ id: 1 }]);
    t.not(await engineOf(gateway), killed, "by another process");
    killed = await engineOf(gateway);
  }
  const last = await engineOf(gateway);
  t.equal(await gateway.service.stop(), 0);
  t.notOk(existsSync(socket) || isAlive(last));

  const again = await scene(t, gateway.home);
  await answers(t, again.gateway, again.token, [{ id: 1 }]);
  await again.gateway.service.stop("SIGKILL");
  await eventually("the engine never outlives the gateway", () => !isAlive(again.engine));
  t.notOk(existsSync(again.socket));
  const third = await scene(t, gateway.home);
  await answers(t, third.gateway, third.token, [{ id: 1 }]);
});

t.test("a signal to gateway and engine together lets the request in flight finish", async (t) => {
  const { gateway, token, pid, engine } = await scene(t);
  const body = JSON.stringify(insertOf(5000, 2));
  const request = wireRequest("POST /query", queryHeaders(token), body);
  const wire = await Wire.open(gateway.url);
  t.teardown(() => wire.cut());
  // Without the last byte the request is surely in flight.
  wire.send(request.slice(0, -1));
  await gateway.request("/healthz");
  for (const each of [engine, pid]) process.kill(each, "SIGINT");
  await gateway.service.logged(({ msg }) => String(msg).startsWith("draining"));
  for (const each of [engine, pid]) process.kill(each, "SIGTERM");
  wire.send(request.slice(-1));
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 .*"status":"success"/s);
  t.equal(await gateway.service.stop(), 0);
  await eventually("the engine ends too", () => !isAlive(engine));
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
  const engine = await engineOf(gateway);
  t.notMatch(commandOf(engine), secret, "the password is not in the list of processes");
  process.kill(engine, "SIGKILL");
  await eventually("it is gone", () => !isAlive(engine));
  await answers(t, gateway, token);
  const next = await engineOf(gateway);
  await gateway.service.stop("SIGKILL");
  await eventually("the engine never outlives the gateway", () => !isAlive(next));
  t.notMatch(gateway.service.output, secret);
}

t.test("a URL of PostgreSQL makes the gateway start the engine itself", async (t) => {
  const server = await startPostgres(t);
  await server.requirePassword("app", "hunter2");
  await server.sql("alter role app superuser");
  await live(t, `postgres://app:hunter2@127.0.0.1:${server.port}/postgres`, "hunter2");
});

t.test("a URL of MySQL makes the gateway start the engine itself", nightly, async (t) => {
  const server = await startMysql(t);
  await server.sql("create user app identified by 'hunter2'", "grant all on *.* to app");
  const url = `mysql://app:hunter2@127.0.0.1:${server.port}/`;
  await live(t, url, "hunter2", "statement_timeout = 5\npool_size = 2\n");
});

t.test("a relative SQLite directory is created next to the configuration file", async (t) => {
  const gateway = await startGateway(t, { upstream: "sqlite:shop" });
  const token = await gateway.login();
  t.equal((await gateway.query(createTable, token)).status, 200);
  t.ok(existsSync(path.join(gateway.home, "shop", "main.sqlite")));
  t.notOk(existsSync(path.join(gateway.home, "data")));
});

t.test("the engine applies the configured limits", async (t) => {
  const server = await startPostgres(t);
  const config = "statement_timeout = 1\npool_size = 2\n";
  const gateway = await startGateway(t, { upstream: server.url(), config });
  const token = await gateway.login();
  await server.sql(
    `create schema main; create view main.t as select 1 as id, pg_sleep(60)::text as slept`,
  );
  let most = 0;
  const sleeping = "select count(*)::int as n from pg_stat_activity where wait_event = 'PgSleep'";
  // On a busy machine they may end before they are seen: then once more.
  await eventually("two are seen at one time", async () => {
    let isOver = false;
    const asked = Array.from({ length: 4 }, () => gateway.query(select, token));
    const over = Promise.all(asked).finally(() => {
      isOver = true;
    });
    while (!isOver) most = Math.max(most, Number((await server.sql(sleeping))[0]?.n));
    for (const answer of await over) {
      t.match(answer, { status: 503, body: { code: "query_timeout", message: /1 second/ } });
    }
    return most >= 2;
  });
  t.equal(most, 2, "no more than so many at one time");
});

t.test("the start fails with the reason if the database refuses the engine", async (t) => {
  const server = await startPostgres(t);
  await server.requirePassword("app", "hunter2");
  const wrong = `postgres://app:wrong-one@127.0.0.1:${server.port}/postgres`;
  const home = temporaryHome(t);
  const env = {
    GATEHOUSE_ADMIN_PASSWORD: "correct horse",
    GATEHOUSE_CONFIG: path.join(home, "c.toml"),
  };
  writeFileSync(env.GATEHOUSE_CONFIG, `[upstream]\nurl = "${wrong}"\n`, { mode: 0o600 });
  const { code, stdout, stderr } = await runCommand(home, ["serve", "--port", "0"], { env });
  t.equal(code, 1);
  t.match(stdout + stderr, /refuses the engine for postgres/);
  t.notMatch(stdout + stderr, /wrong-one/);
});

t.test("a stopped engine is reported at once and replaced later", nightly, async (t) => {
  const { gateway, token, engine } = await scene(t);
  process.kill(engine, "SIGSTOP");
  await eventually("it is reported", async () => (await gateway.request("/readyz")).status === 503);
  t.ok(isAlive(engine));
  await gateway.service.logged(({ msg }) => msg === "the engine does not respond: it is killed");
  await answers(t, gateway, token);
  t.not(await engineOf(gateway), engine);
  t.notOk(isAlive(engine));
});

t.test("an engine listens again after its socket was deleted", nightly, async (t) => {
  const { gateway, token, engine, socket } = await scene(t);
  rmSync(socket);
  await eventually("it is there again", () => existsSync(socket));
  await answers(t, gateway, token);
  t.equal(await engineOf(gateway), engine, "by the same process");
  t.equal(await gateway.service.stop(), 0);
  t.notOk(existsSync(socket));
});

t.test("the engine restarts although the configuration has become invalid", nightly, async (t) => {
  const { gateway, token, engine } = await scene(t);
  writeFileSync(path.join(gateway.home, "gateway.toml"), "nonsense = ");
  process.kill(engine, "SIGKILL");
  await answers(t, gateway, token);
});
