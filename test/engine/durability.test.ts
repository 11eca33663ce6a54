import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { mock } from "node:test";
import { pino } from "pino";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";
import { childrenOf, isAlive } from "../kit/process-info.ts";
import {
  createDatabase,
  createTable,
  fillForJoin,
  insert,
  query,
  selectAll,
  stallIn,
  startOver,
} from "./kit.ts";
import { startEngine } from "./server.ts";

const program = `
  import { pino } from "pino";
  import { startEngine } from ${JSON.stringify(new URL("server.ts", import.meta.url))};
  const [url] = process.argv.slice(1);
  const engine = await startEngine({ url, log: pino({ level: "silent" }) });
  console.log(engine.address);
`;

async function spawnEngine(directory: string): Promise<{ engine: ChildProcess; address: string }> {
  const url = `sqlite:${join(directory, "data")}`;
  const engine = spawn(...nodeCommand(["--input-type=module", "-e", program, url]), {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [address] = await once(createInterface(engine.stdout), "line");
  return { engine, address };
}

t.test("acknowledged changes survive a kill", async (t) => {
  const directory = temporaryHome(t);
  const { engine, address } = await spawnEngine(directory);
  t.teardown(() => engine.kill("SIGKILL"));
  const types = { id: "int", label: "string", on: "boolean", doc: "jsonb", raw: "blob" };
  const row = { id: 1, label: "007", on: true, doc: { b: [1, null], a: 1.5 }, raw: "aGVsbG8=" };
  await query(address, createTable("users", types));
  t.equal((await query(address, insert("users", [row]))).status, 200);
  engine.kill("SIGKILL");
  await once(engine, "exit");
  const restarted = await startOver(t, directory);
  t.same((await query(restarted.address, selectAll("users"))).body.data, [row], "with its types");
});

t.test("after a kill, a Batch is in both databases or in neither", async (t) => {
  const directory = temporaryHome(t);
  const { engine, address } = await spawnEngine(directory);
  t.teardown(() => engine.kill("SIGKILL"));
  await query(address, createDatabase("copy"));
  await query(address, createTable("rows", { id: "int" }));
  await query(address, createTable("rows", { id: "int" }, "copy"));
  let acknowledged = 0;
  const writes = (async () => {
    for (let id = 0; ; id += 1) {
      const Batch = [insert("rows", [{ id }]), insert("rows", [{ id }], "copy")];
      await query(address, { Batch });
      acknowledged = id + 1;
      if (acknowledged === 20) engine.kill("SIGKILL");
    }
  })();
  await t.rejects(writes);
  const restarted = await startOver(t, directory);
  const main = (await query(restarted.address, selectAll("rows"))).body.data;
  const copy = (await query(restarted.address, selectAll("rows", {}, "copy"))).body.data;
  t.same(main, copy);
  t.ok((main?.length ?? 0) >= acknowledged);
});

t.test("a busy worker ends with a killed engine", async (t) => {
  const directory = temporaryHome(t);
  const { engine, address } = await spawnEngine(directory);
  t.teardown(() => engine.kill("SIGKILL"));
  await fillForJoin((body) => query(address, body));
  const [busy = 0] = childrenOf(engine.pid ?? 0);
  await stallIn(busy, address);
  await query(address, selectAll("a", { limit: 1 }));
  const workers = childrenOf(engine.pid ?? 0);
  t.ok(workers.length > 1, "one is busy, another has answered");
  engine.kill("SIGKILL");
  await eventually("all have ended", () => !workers.some(isAlive));
});

const log = pino({ level: "silent" });

t.test("a directory that another engine uses is refused and not changed", async (t) => {
  const directory = temporaryHome(t);
  const first = await startOver(t, directory);
  await query(first.address, createTable("rows", { id: "int" }));
  const data = join(directory, "data");
  // It waits for ten seconds, of which each look at the clock takes one here.
  const now = performance.now.bind(performance);
  let later = 0;
  const clock = mock.method(performance, "now", () => {
    later += 1000;
    return now() + later;
  });
  t.teardown(() => clock.mock.restore());
  await t.rejects(startEngine({ url: `sqlite:${data}`, log }), {
    message: `Another engine uses the databases in ${data}. Stop it, or use another directory.`,
  });
  clock.mock.restore();
  t.match(await query(first.address, insert("rows", [{ id: 1 }])), { status: 200 });
});

t.test("a start waits for an engine that is shutting down", async (t) => {
  const directory = temporaryHome(t);
  const first = await startOver(t, directory);
  await query(first.address, createTable("rows", { id: "int" }));
  const url = `sqlite:${join(directory, "data")}`;
  const second = startEngine({ url, log });
  t.match(await query(first.address, insert("rows", [{ id: 1 }])), { status: 200 });
  await first.close();
  const engine = await second;
  t.teardown(() => engine.close());
  t.same((await query(engine.address, selectAll("rows"))).body.data, [{ id: 1 }]);
});

t.test("a missing parent directory is not created: it may have been moved", async (t) => {
  const parent = join(temporaryHome(t), "moved");
  const url = `sqlite:${join(parent, "data")}`;
  await t.rejects(startEngine({ url, log }), { code: "ENOENT" });
  t.notOk(existsSync(parent));
  mkdirSync(parent);
  const lines: string[] = [];
  const engine = await startEngine({ url, log: pino({}, { write: (line) => lines.push(line) }) });
  await engine.close();
  t.match(
    lines.find((line) => line.includes("created")),
    `"directory":"${join(parent, "data")}"`,
  );
});
