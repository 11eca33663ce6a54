import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";
import { Wire } from "../kit/wire.ts";

const program = fileURLToPath(new URL("../kit/upstream-program.ts", import.meta.url));

const CLIENTS = 16;

/** A database process on a port of its own, that can be killed and started again. */
class Database {
  readonly port: number;
  readonly #record: string;
  #process: ChildProcess | undefined;

  constructor(port: number, record: string) {
    this.port = port;
    this.#record = record;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  start(): void {
    const flags = [program, String(this.port), this.#record];
    this.#process = spawn(...nodeCommand(flags), { stdio: "ignore" });
  }

  async kill(): Promise<void> {
    if (this.#process === undefined || this.#process.signalCode !== null) return;
    const exit = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exit;
  }

  /** The ids of the queries that it ran, in order. */
  ran(): string[] {
    if (!existsSync(this.#record)) return [];
    return readFileSync(this.#record, "utf8").split("\n").filter(Boolean);
  }
}

async function startDatabase(t: Test, name: string): Promise<Database> {
  const database = new Database(await freePort(), path.join(temporaryHome(t), name));
  t.teardown(() => database.kill());
  database.start();
  // A gateway that starts before it listens would log that it failed, and came back.
  await eventually("it listens", async () => !(await Wire.isRefused(database.url)));
  return database;
}

function asking(id: string, isRead: boolean): object {
  const where = { column: "id", cmp: "=", value: id };
  if (isRead) return { Select: { database: "main", from: "t", columns: ["*"], where } };
  return { Insert: { database: "main", table: "t", values: [{ id }] } };
}

t.test("one of two databases is killed under load and comes back", async (t) => {
  const [one, two] = [await startDatabase(t, "one"), await startDatabase(t, "two")];
  const config = `[upstream]\nurls = ${JSON.stringify([one.url, two.url])}\nhealth_interval = 1\n`;
  const gateway = await startGateway(t, { config });
  const token = await gateway.login();
  const ready = async () => (await gateway.request("/readyz")).status === 200;
  await eventually("the databases are there", ready);
  await eventually("both serve", async () => {
    await gateway.query(asking("id-0", true), token);
    return one.ran().length > 0 && two.ran().length > 0;
  });

  let answered = 0;
  let hasFinished = false;
  const failed: { id: string; isRead: boolean; code: unknown; startedAt: number }[] = [];
  async function keepAsking(client: number): Promise<void> {
    for (let round = 1; !hasFinished; round++) {
      const id = `id-${client * 100_000 + round}`;
      const isRead = round % 2 === 0;
      const startedAt = performance.now();
      const { status, text, body } = await gateway.query(asking(id, isRead), token);
      if (status !== 200) failed.push({ id, isRead, code: body.code, startedAt });
      else if (text === JSON.stringify(id)) answered++;
      else t.fail(`${id} was answered with ${text}`);
    }
  }
  const clients = Array.from({ length: CLIENTS }, (_, client) => keepAsking(client));
  const answersMore = async () => {
    const before = answered;
    await eventually("it answers", () => answered > before + 100);
  };
  await answersMore();
  await one.kill();
  const killedAt = performance.now();
  await answersMore();
  t.ok(await ready(), "one of them is enough");
  const ranBefore = one.ran().length;
  one.start();
  await eventually("it serves again", () => one.ran().length > ranBefore + 50);
  hasFinished = true;
  await Promise.all(clients);

  t.strictSame(
    failed.filter(({ isRead }) => isRead),
    [],
    "no Select failed",
  );
  t.strictSame(
    failed.filter(({ startedAt, code }) => startedAt > killedAt || code !== "upstream_broken"),
    [],
    "nothing failed but what was in flight",
  );
  t.ok(failed.length <= CLIENTS);
  const writes = [...one.ran(), ...two.ran()].filter((id) => Number(id.slice(3)) % 2 === 1);
  t.equal(new Set(writes).size, writes.length, "no Insert ran twice");
  const messages = gateway.service.log.filter(({ target }) => target === one.url);
  t.match(messages, [{ msg: /failed/ }, { msg: /back/ }]);
});
