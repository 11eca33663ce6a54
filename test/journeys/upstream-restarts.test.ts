import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";
import { Wire } from "../kit/wire.ts";

const program = fileURLToPath(new URL("../kit/upstream-program.ts", import.meta.url));

async function startDatabase(t: Test) {
  const port = await freePort();
  const record = path.join(temporaryHome(t), "record");
  const url = `http://127.0.0.1:${port}`;
  let child: ChildProcess | undefined;
  const kill = async () => {
    if (child === undefined || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  };
  const start = () => {
    child = spawn(...nodeCommand([program, String(port), record]), { stdio: "ignore" });
  };
  t.teardown(kill);
  start();
  // A gateway that starts earlier would log a failure.
  await eventually("it listens", async () => !(await Wire.isRefused(url)));
  return {
    url,
    start,
    kill,
    cutConnections: () => child?.kill("SIGUSR2"),
    ran: () => (existsSync(record) ? readFileSync(record, "utf8").split("\n").filter(Boolean) : []),
  };
}

function asking(id: string, isRead: boolean): object {
  const where = { column: "id", cmp: "=", value: id };
  if (isRead) return { Select: { database: "main", from: "t", columns: ["*"], where } };
  return { Insert: { database: "main", table: "t", values: [{ id }] } };
}

function load(t: Test, gateway: TestGateway, token: string, count: number) {
  const answered = new Set<string>();
  const failed: { isRead: boolean; code: unknown; startedAt: number }[] = [];
  let hasFinished = false;
  async function keepAsking(client: number): Promise<void> {
    for (let round = 1; !hasFinished; round++) {
      const id = `id-${client * 100_000 + round}`;
      const isRead = round % 2 === 0;
      const startedAt = performance.now();
      const { status, text, body } = await gateway.query(asking(id, isRead), token);
      if (status !== 200) failed.push({ isRead, code: body.code, startedAt });
      else if (text === JSON.stringify(id)) answered.add(id);
      else t.fail(`${id} was answered with ${text}`);
    }
  }
  const clients = Array.from({ length: count }, (_, client) => keepAsking(client));
  return {
    answered,
    failed,
    async answersMore() {
      const before = answered.size;
      await eventually("it answers", () => answered.size > before + 100);
    },
    async stop() {
      hasFinished = true;
      await Promise.all(clients);
    },
  };
}

const isWrite = (id: string) => Number(id.slice(3)) % 2 === 1;

t.test("no write runs twice when the database cuts connections or is killed", async (t) => {
  const database = await startDatabase(t);
  const gateway = await startGateway(t, { upstream: database.url });
  const { answered, failed, answersMore, stop } = load(t, gateway, await gateway.login(), 32);
  for (let time = 0; time < 3; time++) {
    for (let cuts = 0; cuts < 3; cuts++) {
      await answersMore();
      database.cutConnections();
    }
    await answersMore();
    await database.kill();
    database.start();
  }
  await answersMore();
  await stop();
  const times = new Map<string, number>();
  for (const id of database.ran()) times.set(id, (times.get(id) ?? 0) + 1);
  const twice = [...times].filter(([id, count]) => isWrite(id) && count > 1);
  t.strictSame(twice, [], "no Insert ran twice");
  t.ok(Math.max(...times.values()) <= 2, "a Select ran at most once more");
  const didRun = [...answered].every((id) => times.has(id));
  t.ok(didRun, "what was answered did run");
  for (const { code } of failed) t.match(code, /^upstream_(unreachable|broken)$/);
});

t.test("only writes in flight fail when one of two databases is killed", async (t) => {
  const CLIENTS = 16;
  const [one, two] = [await startDatabase(t), await startDatabase(t)];
  const config = `[upstream]\nurls = ${JSON.stringify([one.url, two.url])}\nhealth_interval = 1\n`;
  const gateway = await startGateway(t, { config });
  const token = await gateway.login();
  const ready = async () => (await gateway.request("/readyz")).status === 200;
  await eventually("the databases are there", ready);
  await eventually("both serve", async () => {
    await gateway.query(asking("id-0", true), token);
    return one.ran().length > 0 && two.ran().length > 0;
  });
  const { failed, answersMore, stop } = load(t, gateway, token, CLIENTS);
  await answersMore();
  await one.kill();
  const killedAt = performance.now();
  await answersMore();
  t.ok(await ready(), "one of them is enough");
  const ranBefore = one.ran().length;
  one.start();
  await eventually("it serves again", () => one.ran().length > ranBefore + 50);
  await stop();
  const unexpected = failed.filter(
    ({ isRead, startedAt, code }) => isRead || startedAt > killedAt || code !== "upstream_broken",
  );
  t.strictSame(unexpected, [], "nothing failed but writes that were in flight");
  t.ok(failed.length <= CLIENTS);
  const writes = [...one.ran(), ...two.ran()].filter(isWrite);
  t.equal(new Set(writes).size, writes.length, "no Insert ran twice");
  const messages = gateway.service.log.filter(({ target }) => target === one.url);
  t.match(messages, [{ msg: /failed/ }, { msg: /back/ }]);
});
