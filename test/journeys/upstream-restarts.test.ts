import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";

const program = fileURLToPath(new URL("../kit/upstream-program.ts", import.meta.url));
const CLIENTS = 32;

/** A query with an id that its answer must repeat. */
function asking(id: string, isRead: boolean): object {
  const where = { column: "id", cmp: "=", value: id };
  if (isRead) return { Select: { database: "main", from: "t", columns: ["*"], where } };
  return { Insert: { database: "main", table: "t", values: [{ id }] } };
}

t.test(
  "a database that cuts its connections, is killed and comes back under load runs nothing twice",
  async (t) => {
    const port = await freePort();
    const record = path.join(temporaryHome(t), "record");
    let database: ChildProcess | undefined;
    const start = () => {
      database = spawn(...nodeCommand([program, String(port), record]), { stdio: "ignore" });
    };
    const kill = async () => {
      if (database === undefined) return;
      const exit = once(database, "exit");
      database.kill("SIGKILL");
      await exit;
    };
    t.teardown(kill);
    const gateway = await startGateway(t, { upstream: `http://127.0.0.1:${port}` });
    const token = await gateway.login();

    const answered = new Map<string, boolean>();
    const failures = new Set<unknown>();
    let hasFinished = false;
    async function keepAsking(client: number): Promise<void> {
      for (let round = 0; !hasFinished; round++) {
        const id = `id-${client * 100_000 + round}`;
        const isRead = round % 2 === 0;
        const { status, text, body } = await gateway.query(asking(id, isRead), token);
        if (status !== 200) failures.add(body.code);
        else if (text === JSON.stringify(id)) answered.set(id, isRead);
        else t.fail(`${id} was answered with ${text}`);
      }
    }
    const clients = Array.from({ length: CLIENTS }, (_, client) => keepAsking(client));
    const answersMore = async () => {
      const before = answered.size;
      await eventually("it answers", () => answered.size > before + 100);
    };
    for (let time = 0; time < 3; time++) {
      start();
      for (let cuts = 0; cuts < 3; cuts++) {
        await answersMore();
        database?.kill("SIGUSR2");
      }
      await answersMore();
      await kill();
    }
    start();
    await answersMore();
    hasFinished = true;
    await Promise.all(clients);

    t.ok(existsSync(record));
    const times = new Map<string, number>();
    for (const id of readFileSync(record, "utf8").split("\n"))
      times.set(id, (times.get(id) ?? 0) + 1);
    times.delete("");
    const writes = [...times].filter(([id]) => Number(id.slice(3)) % 2 === 1);
    t.strictSame(
      writes.filter(([, count]) => count > 1),
      [],
      "no Insert ran twice",
    );
    t.ok(Math.max(...times.values()) <= 2, "a Select ran at most once more");
    t.ok(
      [...answered.keys()].every((id) => times.has(id)),
      "what was answered did run",
    );
    for (const code of failures) t.match(code, /^upstream_(unreachable|broken)$/);
  },
);
