import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import { childrenOf, isAlive } from "../kit/process-info.ts";
import { queryHeaders } from "../kit/queries.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

const columns = [{ name: "id", type: "int", primary_key: true }];
const createTable = { CreateTable: { database: "main", table: "t", columns } };
const selectAll = { Select: { database: "main", from: "t", columns: ["*"] } };

function insertOf(count: number, from = 1) {
  const values = Array.from({ length: count }, (_, at) => ({ id: from + at }));
  return { Insert: { database: "main", table: "t", values } };
}

interface Scene {
  gateway: TestGateway;
  token: string;
  pid: number;
  engine: number;
  socket: string;
}

/** The id of the engine's process. */
function engineOf(pid: number): number {
  const [engine, ...others] = childrenOf(pid).filter((child) =>
    readFileSync(`/proc/${child}/cmdline`, "utf8").split("\0").includes("engine"),
  );
  if (engine === undefined || others.length > 0) throw new Error("not exactly one engine");
  return engine;
}

/** A gateway with its own engine, and a table with one row. */
async function scene(t: Test, home?: string): Promise<Scene> {
  const gateway = await startGateway(t, home === undefined ? {} : { home });
  const token = await gateway.login();
  if (home === undefined) {
    await gateway.query({ CreateDatabase: { database: "main" } }, token);
    t.equal((await gateway.query(createTable, token)).status, 200);
    t.equal((await gateway.query(insertOf(1), token)).status, 200);
  }
  const pid = gateway.service.child.pid ?? 0;
  const [name] = readdirSync(gateway.home).filter((name) => name.endsWith(".sock"));
  const socket = path.join(gateway.home, name ?? "missing");
  return { gateway, token, pid, engine: engineOf(pid), socket };
}

t.test(
  "a second gateway on a service directory is refused at once, and leaves it alone",
  async (t) => {
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
    t.equal((await gateway.query(selectAll, token)).status, 200);

    const elsewhere = await runCommand(gateway.home, ["serve", "--port", port], {
      env: { GATEHOUSE_HOME: path.join(gateway.home, "other") },
    });
    t.match(elsewhere.stderr, `:${port} is taken by another process`);
    t.notMatch(elsewhere.stdout, /engine/, "nor where the port is taken");
    await gateway.service.stop();
    await startGateway(t, { home: gateway.home });
  },
);

t.test("the engine's socket is for its owner alone, and gone after the end", async (t) => {
  const { gateway, engine, socket } = await scene(t);
  t.ok(statSync(socket).isSocket());
  t.equal(statSync(socket).mode & 0o777, 0o600);
  t.equal(statSync(path.dirname(socket)).mode & 0o077, 0, "and so is its directory");
  t.equal(await gateway.service.stop(), 0);
  t.notOk(existsSync(socket));
  t.notOk(isAlive(engine));
});

t.test("data outlives the gateway", async (t) => {
  const { gateway } = await scene(t);
  await gateway.service.stop();
  const again = await scene(t, gateway.home);
  const answer = await again.gateway.query(selectAll, again.token);
  t.strictSame(answer.body.data, [{ id: 1 }]);
});

t.test("an engine that is killed is started again with its data", async (t) => {
  const { gateway, token, pid, engine } = await scene(t);
  for (let killed = engine, round = 0; round < 2; round++) {
    process.kill(killed, "SIGKILL");
    await gateway.service.logged(({ msg }) => String(msg).startsWith("the engine died"));
    await eventually("a query is answered again", async () => {
      const answer = await gateway.query(selectAll, token);
      if (answer.status === 200) t.strictSame(answer.body.data, [{ id: 1 }]);
      return answer.status === 200;
    });
    t.not(engineOf(pid), killed, "by another process");
    killed = engineOf(pid);
  }
  t.equal(await gateway.service.stop(), 0);
});

t.test("a signal to gateway and engine together lets the request in flight finish", async (t) => {
  const { gateway, token, pid, engine } = await scene(t);
  const body = JSON.stringify(insertOf(5000, 2));
  const wire = await Wire.open(gateway.url);
  t.teardown(() => wire.cut());
  const length = { "Content-Length": String(body.length) };
  // The last byte is held back, so that the request is surely in flight.
  wire.send(
    `${wireRequest("POST /query", { ...queryHeaders(token), ...length })}${body.slice(0, -1)}`,
  );
  await gateway.request("/healthz");
  for (const each of [engine, pid]) process.kill(each, "SIGINT");
  await gateway.service.logged(({ msg }) => String(msg).startsWith("draining"));
  for (const each of [engine, pid]) process.kill(each, "SIGTERM");
  wire.send(body.slice(-1));
  t.match(await wire.untilClosed(), /^HTTP\/1\.1 200 .*"status":"success"/s);
  t.equal(await gateway.service.stop(), 0);
  await eventually("the engine ends too", () => !isAlive(engine));

  const again = await scene(t, gateway.home);
  const count = (await again.gateway.query(selectAll, again.token)).body.data;
  t.equal(Array.isArray(count) && count.length, 5001, "what was answered was done");
});

t.test("an engine never outlives a gateway that was killed, and the next one starts", async (t) => {
  const { gateway, engine, socket } = await scene(t);
  await gateway.service.stop("SIGKILL");
  await eventually("the engine ends", () => !isAlive(engine));
  t.notOk(existsSync(socket));
  const again = await scene(t, gateway.home);
  t.strictSame((await again.gateway.query(selectAll, again.token)).body.data, [{ id: 1 }]);
});

t.test(
  "the engine runs in a session of its own, so that a terminal's Ctrl-C passes it by",
  async (t) => {
    const { engine, pid } = await scene(t);
    // A negative id is a process group; the engine leads one, which the gateway is not in.
    t.ok(process.kill(-engine, 0));
    process.kill(-engine, "SIGINT");
    t.ok(isAlive(engine));
    t.ok(isAlive(pid));
  },
);
