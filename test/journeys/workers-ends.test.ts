import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand, Service } from "../kit/process.ts";
import { childrenOf, isAlive } from "../kit/process-info.ts";
import { select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire } from "../kit/wire.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import {
  askUntilRefused,
  connectToEach,
  KeptConnection,
  servedBy,
  workerOf,
  workersOf,
} from "./supervised.ts";

const COUNT = 2;

class Client {
  readonly workers: number[] = [];
  answers = 0;
  failures = 0;
  #isOver = false;
  readonly #gateway: TestGateway;

  constructor(gateway: TestGateway) {
    this.#gateway = gateway;
  }

  async run(token: string): Promise<void> {
    const kept = new KeptConnection(this.#gateway.url);
    while (!this.#isOver) {
      try {
        const { status, isReused, requestId } = await kept.send("POST", "/query", token, select);
        if (status !== 200) this.failures++;
        else this.answers++;
        if (!isReused) this.workers.push(await workerOf(this.#gateway, requestId));
      } catch {
        this.failures++;
      }
    }
    kept.close();
  }

  stop(): void {
    this.#isOver = true;
  }
}

const { section, read } = await reserveMetrics();

async function asked(): Promise<number> {
  const lines = (await read()).split("\n");
  const values = lines.filter((line) => line.startsWith("gatehouse_requests_total{"));
  return values.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

async function scene(more: Parameters<typeof servedBy>[1] = {}) {
  const upstream = await new RecordingUpstream().listen(t);
  upstream.answer = async (_, response) => {
    await delay(Math.random() * 40);
    response.end("{}");
  };
  const gateway = await startGateway(t, { upstream: upstream.url, ...servedBy(COUNT, more) });
  return { upstream, gateway, token: await gateway.login() };
}

const { upstream, gateway, token } = await scene({ config: section });

t.test("a killed worker loses only its own requests", async (t) => {
  // So many that each worker almost certainly has some.
  const clients = Array.from({ length: 30 }, () => new Client(gateway));
  const running = clients.map((client) => client.run(token));
  const isSpread = () => new Set(clients.flatMap(({ workers }) => workers)).size === COUNT;
  await eventually("all ask, of both workers", () => {
    return isSpread() && clients.every(({ answers }) => answers > 5);
  });
  const before = await asked();
  const [victim = 0] = workersOf(gateway);
  process.kill(victim, "SIGKILL");
  const { worker, signal } = await gateway.service.logged(({ restartInMs }) => restartInMs === 0);
  t.equal(signal, "SIGKILL");
  const { pid } = await gateway.service.logged(({ msg }) => msg === "a worker serves again");
  t.ok(workersOf(gateway).includes(Number(pid)));
  const after = clients.map(({ answers }) => answers);
  await eventually("all go on", () => {
    return clients.every(({ answers }, at) => answers > (after[at] ?? 0) + 5);
  });
  for (const client of clients) client.stop();
  await Promise.all(running);
  for (const { workers, failures } of clients) {
    // One for the connection, and one if a request raced with its end.
    if (workers[0] === worker) t.ok(failures >= 1 && failures <= 2, "its connection was cut");
    else t.equal(failures, 0, "a client of the other has seen nothing");
  }
  t.ok((await asked()) >= before, "no count falls");
});

t.test("a hanging worker is replaced and does not delay changes", nightly, async (t) => {
  const connections = await connectToEach(t, gateway, token, COUNT);
  const [victim = 0] = workersOf(gateway);
  const start = performance.now();
  process.kill(victim, "SIGSTOP");
  t.teardown(() => isAlive(victim) && process.kill(victim, "SIGKILL"));
  const changes = connections.map((connection, at) => {
    const user = {
      username: `user${at}`,
      password: "a password",
      role: "ReadOnly",
      database: "main",
    };
    return connection.send("POST", "/api/users", token, JSON.stringify(user));
  });
  t.equal((await Promise.any(changes)).status, 201);
  const isItsEnd = ({ reason }: Record<string, unknown>) => reason === "it did not respond";
  const { worker } = await gateway.service.logged(isItsEnd);
  t.ok(performance.now() - start < 20_000, "ten seconds, and as many for a busy machine");
  await gateway.service.logged(({ msg, worker: number, pid }) => {
    return msg === "a worker serves again" && number === worker && isAlive(Number(pid));
  });
  t.notOk(isAlive(victim));
  t.equal(workersOf(gateway).length, COUNT);
});

t.test("while the main process hangs, no worker is ready", async (t) => {
  const connections = await connectToEach(t, gateway, token, COUNT);
  gateway.service.child.kill("SIGSTOP");
  t.teardown(() => gateway.service.child.kill("SIGCONT"));
  for (const connection of connections) {
    t.match(await connection.send("GET", "/readyz", token), { status: 503, code: "busy" });
  }
});

t.test("a port in use is reported once by several processes", async (t) => {
  const port = new URL(gateway.url).port;
  const other = new Service(gateway.home, ["serve", "--port", port]);
  t.teardown(() => other.stop("SIGKILL"));
  await once(other.child, "close");
  t.equal(other.child.exitCode, 1);
  const reason = `127.0.0.1:${port} is in use by another process`;
  t.equal(
    other.output.replace(/^\{.*\n/gm, ""),
    `gatehouse: ${reason}; choose another with --port (or server.port)\n`,
  );
});

t.test("a worker that fails to start is retried while the others serve", async (t) => {
  const good = await gateway.edit((text) => `${text}broken`).then(() => workersOf(gateway));
  await gateway.service.logged(({ msg }) => String(msg).startsWith("access file refused"));
  process.kill(good[0] ?? 0, "SIGKILL");
  const { worker: gone } = await gateway.service.logged(
    ({ restartInMs }) => Number(restartInMs) >= 200,
  );
  t.equal((await gateway.query(select, token)).status, 200);
  await gateway.edit((text) => text.replace(/broken$/, ""));
  await gateway.service.logged(({ msg, worker, pid }) => {
    return msg === "a worker serves again" && worker === gone && !good.includes(Number(pid));
  });
  t.equal(workersOf(gateway).length, COUNT);
});

t.test("a drain under load answers every accepted request of every worker", async (t) => {
  const before = upstream.received.length;
  const isOfQuery = ({ path }: Record<string, unknown>) => path === "/query";
  const auditedBefore = gateway.service.log.filter(isOfQuery).length;
  const clients = Array.from({ length: 32 }, () => askUntilRefused(gateway, token));
  await eventually("they are at it", () => upstream.received.length > before + 200);
  // A terminal sends Ctrl-C to all of them.
  for (const pid of workersOf(gateway)) process.kill(pid, "SIGINT");
  t.equal(await gateway.service.stop("SIGINT"), 0);
  t.strictSame((await Promise.all(clients)).flat(), []);
  const received = upstream.received.length - before;
  const audited = gateway.service.log.filter(isOfQuery).length - auditedBefore;
  t.equal(audited, received, "the last lines of the log are there");
});

t.test("workers end with the main process", async (t) => {
  const { gateway } = await scene();
  const all = childrenOf(gateway.service.child.pid ?? 0);
  t.ok(all.length >= COUNT);
  await gateway.service.stop("SIGKILL");
  await eventually("all are gone", () => !all.some(isAlive));
  await eventually("the port is closed", () => Wire.isRefused(gateway.url));

  await gateway.edit((text) => `${text}broken`);
  const { code, stderr, stdout } = await runCommand(gateway.home, ["serve", "--port", "0"]);
  t.strictSame([code, stdout], [1, ""]);
  t.match(stderr, /^gatehouse: \S+access_control\.toml:\d+: [^\n]+\n$/);
});
