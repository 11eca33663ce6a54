import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { PassThrough } from "node:stream";
import { finished } from "node:stream/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Test } from "tap";
import t from "tap";
import { createShared } from "../../src/app/shared.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import { createLog } from "../../src/core/observe/log.ts";
import { Metrics, MetricsAggregation } from "../../src/core/observe/metrics.ts";
import { addressLimit } from "../../src/features/oauth/server/http.ts";
import { openWorkerHandlers } from "../../src/features/workers/calls.ts";
import { workerConfiguration, workerCount } from "../../src/features/workers/count.ts";
import { forwardLines, preloadFlags } from "../../src/features/workers/start.ts";
import { installNothing } from "../commands/kit.ts";
import { CTRL_C, noTerminal, Terminal } from "../commands/terminal.ts";

t.test("log lines are forwarded whole, however they arrive", async (t) => {
  const source = new PassThrough();
  const written: string[] = [];
  forwardLines(source, { write: (lines) => void written.push(lines) });
  const text = Buffer.from("one\nzwölf\nthree\ncut");
  for (const byte of text) source.write(Buffer.of(byte));
  source.end();
  await finished(source);
  t.strictSame(written, ["one\n", "zwölf\n", "three\n"]);
});

t.test("metrics of several processes are summed, and counts outlive their process", async (t) => {
  const [one, other] = [new Metrics(), new Metrics()];
  const request = {
    route: "/query",
    status: 200,
    reason: "allowed",
    decision: "allow" as const,
    operation: "Select",
    user: "ann",
    seconds: 0.1,
    gatewaySeconds: 0.1,
  };
  one.request(request);
  other.request(request);
  other.request(request);
  one.reloaded("abc");
  other.reloaded("abc");
  other.reloadFailed();
  const gathered = new MetricsAggregation();
  gathered.note(1, await one.values());
  gathered.note(2, await other.values());
  const text = await gathered.text();
  t.match(text, 'gatehouse_requests_total{route="/query",status="200",reason="allowed"} 3');
  t.match(text, 'gatehouse_request_duration_seconds_count{route="/query"} 3');
  t.match(
    text,
    "gatehouse_access_file_last_reload_successful 0",
    "a failure of one process counts for all",
  );
  t.match(text, 'gatehouse_access_file_info{version="abc"} 1');

  await gathered.retire(2);
  const fresh = new Metrics();
  fresh.reloaded("abc");
  fresh.request(request);
  gathered.note(2, await fresh.values());
  const after = await gathered.text();
  t.match(after, 'gatehouse_requests_total{route="/query",status="200",reason="allowed"} 4');
  t.match(after, "gatehouse_access_file_last_reload_successful 1", "a state ends with its process");
});

const numbers = [1, 2, 3];

t.test("limits of the whole gateway are divided without remainder", (t) => {
  const configuration = configurationSchema.parse({
    server: { workers: 3, max_buffered_bytes: 100_000_001 },
    upstream: { url: "postgres://app@db/app", connections: 64 },
  });
  const shares = numbers.map((number) => workerConfiguration(configuration, 3, number));
  const bodies = shares.map(({ server }) => server.max_buffered_bytes);
  t.strictSame(bodies, [33_333_334, 33_333_334, 33_333_333]);
  t.strictSame(
    shares.map(({ upstream }) => upstream.connections),
    [22, 21, 21],
  );
  t.strictSame(
    shares.map(({ upstream }) => upstream.pool_size),
    [6, 5, 5],
  );
  t.end();
});

t.test("workers = 0 means one per core, as long as each gets a share of every limit", (t) => {
  const upstream = { url: "http://127.0.0.1:1" };
  const count = (content: object) =>
    workerCount(configurationSchema.parse({ server: { workers: 0 }, ...content }), "linux");
  t.equal(count({ upstream }), Math.min(25, availableParallelism()));
  t.equal(count({ upstream: { ...upstream, connections: 1 } }), 1);
  t.equal(count({ upstream: { url: "postgres://app@db/app", pool_size: 1 } }), 1);
  t.equal(count({}), 1, "over SQLite");
  const server = { workers: 0, max_body_bytes: 100, max_buffered_bytes: 199 };
  t.equal(count({ server, upstream }), 1);
  t.end();
});

t.test("a system that cannot share a port runs one worker", (t) => {
  const of = (workers: number) =>
    configurationSchema.parse({
      server: { workers, max_body_bytes: 1000 },
      upstream: { url: "http://127.0.0.1:1" },
    });
  t.equal(workerCount(of(0), "darwin"), 1);
  t.equal(workerCount(of(1), "darwin"), 1);
  t.throws(() => workerCount(of(2), "darwin"), /server\.workers: darwin .* set it to 1/);
  t.equal(workerCount(of(64), "linux"), 64);
  t.end();
});

t.test(
  "a terminal shows one greeting and all logs until Ctrl-C",
  { skip: noTerminal },
  async (t) => {
    const { home } = installNothing(t);
    writeFileSync(
      path.join(home, "gateway.toml"),
      '[server]\nworkers = 2\n[upstream]\nurl = "http://127.0.0.1:1"\n',
    );
    const terminal = new Terminal(t, home, ["serve", "--port", "0"]);
    await terminal.until(/The password, shown only once, is \S+\n/);
    await terminal.until(/Next, in another terminal:\n\n.*\n\n/);
    const [, url = ""] = /Gatehouse \S+ listens on (\S+)/.exec(terminal.shown) ?? [];
    await fetch(`${url}/query`, { method: "POST" });
    await terminal.until(/^\d\d:\d\d:\d\d - POST \/query deny unauthenticated 401 \d+ms\n/m);
    terminal.type(CTRL_C);
    await terminal.until(/^(?:\^C)?[\d:]{8} draining: .* \(signal: SIGINT\)\n/m);
    t.equal(await terminal.ended(), 0);
    t.equal(terminal.shown.match(/listens on/g)?.length, 1);
    t.notMatch(terminal.shown, /worker is gone|ERROR/);
  },
);

t.test("a worker gets only the preload flags of its main process", async (t) => {
  const loaded = ["--import", "./otel.mjs", "--import=./more.mjs", "-r", "dotenv", "--require=x"];
  t.strictSame(preloadFlags(loaded), loaded);
  const mixed = ["--inspect=9229", "--import", "./otel.mjs", "--max-old-space-size=512"];
  t.strictSame(preloadFlags(mixed), ["--import", "./otel.mjs"]);
  t.strictSame(preloadFlags(["--importance", "--eval", "1"]), []);
});

const never = new AbortController().signal;
const costs = [{ memory: 64, time: 1, parallelism: 1 }];
const order = { password: "a password", salt: Buffer.alloc(16), costs: costs[0], length: 32 };

function scene(t: Test) {
  const auth = {
    max_failures_per_user_and_address: 2,
    argon2_parallelism: 64,
    argon2_memory_cost: 512,
  };
  const opened = new AsyncDisposableStack();
  t.teardown(() => opened.disposeAsync());
  const configuration = configurationSchema.parse({ auth });
  const loaded = { configuration, file: undefined, serviceDirectory: "", warnings: [] };
  const log = createLog({ write() {} });
  const shared = createShared(loaded, log, opened);
  const unused = () => {
    throw new Error("not asked for");
  };
  const common = {
    engine: unused,
    claimPort: unused,
    broadcastReload: unused,
    countRequests: shared.countRequests,
    condition: shared.condition,
  };
  return { one: openWorkerHandlers(shared, common), other: openWorkerHandlers(shared, common) };
}

const login = { username: "alice", address: "192.0.2.1", isShared: false };

t.test("a worker that ends during a login attempt counts as a failed attempt", async (t) => {
  const { one, other } = scene(t);
  await one.handlers.beginLogin(login, never);
  await one.handlers.beginLogin(login, never);
  const waiting = other.handlers.beginLogin(login, never);
  one.close();
  await t.rejects(Promise.resolve(waiting), { code: "too_many_attempts" });
});

t.test("a worker that ends releases its turn in the hashing queue", async (t) => {
  const { one, other } = scene(t);
  const turn = await one.handlers.enterHashing({ costs, client: { address: "a" } }, never);
  const next = other.handlers.enterHashing({ costs, client: { address: "b" } }, never);
  let isIn = false;
  void Promise.resolve(next).then(() => {
    isIn = true;
  });
  await nextTurn();
  t.notOk(isIn, "one at a time");
  const [cost] = costs;
  if (cost === undefined) throw new Error("no costs");
  t.equal(
    (await one.handlers.derive({ turn, order: { ...order, costs: cost } }, never)).length,
    32,
  );
  one.close();
  const last = await next;
  other.handlers.leaveHashing(last, never);
  t.throws(() => other.handlers.derive({ turn: last, order: { ...order, costs: cost } }, never));
});

t.test("all workers know a session, and a stream counts until its worker ends", async (t) => {
  const { one, other } = scene(t);
  t.ok(await one.handlers.openSession({ id: "s", username: "alice" }, never));
  t.ok(await other.handlers.useSession({ id: "s", username: "alice" }, never));
  t.notOk(await other.handlers.openSession({ id: "s", username: "bob" }, never));
  for (let count = 0; count < 100; count++) await one.handlers.openStream("alice", never);
  t.equal(await other.handlers.openStream("alice", never), undefined);
  one.close();
  t.ok(await other.handlers.openStream("alice", never));
});

t.test("requests of an address are counted over all workers, by name", async (t) => {
  const { one, other } = scene(t);
  const origin = { address: "192.0.2.1", isShared: false };
  const limitOf = ({ handlers }: typeof one, name: string) =>
    addressLimit(async (window) => handlers.countRequests(window, never), name, 1, 60);
  t.equal(await limitOf(one, "x")(origin), 0);
  t.ok((await limitOf(other, "x")(origin)) > 0);
  t.equal(await limitOf(other, "y")(origin), 0);
  t.equal(await limitOf(other, "x")({ ...origin, isShared: true }), 0);
});
