import { readFileSync, statSync } from "node:fs";
import promises from "node:fs/promises";
import type { ClientRequest } from "node:http";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { mock } from "node:test";
import { setImmediate } from "node:timers/promises";
import { pino } from "pino";
import type { Test } from "tap";
import t from "tap";
import { createGrammar } from "../../src/core/query/grammar.ts";
import { parseQuery } from "../../src/core/query/parse.ts";
import { answerText } from "../../src/engine/spool.ts";
import { DatabaseLocks, openSqliteStore } from "../../src/engine/sqlite/store.ts";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { childrenOf } from "../kit/process-info.ts";
import {
  createDatabase,
  createTable,
  dropDatabase,
  endlessSelect,
  equal,
  fillForJoin,
  freshEngine,
  insert,
  query,
  refusal,
  remove,
  selectAll,
  send,
  sendOnly,
  stallIn,
  startOver,
} from "./kit.ts";

/** An engine with a limit in milliseconds, over tables that were filled without one. */
async function limitedEngine(t: Test, queryTimeLimit: number) {
  const { ask, engine, directory } = await freshEngine(t);
  await fillForJoin(ask);
  await engine.close();
  const { address } = await startOver(t, directory, { queryTimeLimit });
  return { directory, ask: (body: object) => query(address, body) };
}

const storeOptions = { timeLimit: 30_000, log: pino({ level: "silent" }), isGuest: false };
const grammar = createGrammar({ extraFields: [], operations: {} });

const firstRow = selectAll("a", { limit: 1 });

t.test("queries that take minutes block neither readers nor other databases", async (t) => {
  const { ask, engine } = await freshEngine(t);
  await fillForJoin(ask);
  let answers = 0;
  const stall = async (body: object = endlessSelect) => {
    const stalled = await sendOnly(engine.address, body);
    stalled.once("response", () => (answers += 1));
    t.teardown(() => stalled.destroy());
  };
  await stall();
  await stall({ Batch: [firstRow, endlessSelect] });
  t.match(await ask(firstRow), { status: 200, body: { data: [{ key: 0, id: 0, k: 1 }] } });
  for (let count = 0; count < 10; count += 1) await stall();
  for (const body of [
    createDatabase("other"),
    createTable("rows", { id: "int" }, "other"),
    insert("rows", [{ id: 1 }], "other"),
  ]) {
    t.match(await ask(body), { status: 200 });
  }
  t.equal(answers, 0);
});

/** A Select and an Insert that take long to parse. */
const manyRows = Array.from({ length: 20_000 }, (_, at) => ({ key: -1 - at, id: 0.5 }));
const longBodies = [
  selectAll("a", { limit: 1, where: { or: manyRows.slice(0, 3000).map(() => equal("id", 1)) } }),
  insert("c", manyRows),
];

t.test("no query waits while a SQLite process parses a long body", async (t) => {
  for (const long of longBodies) {
    const before = childrenOf(process.pid);
    const store = await openSqliteStore(join(temporaryHome(t), "data"), storeOptions);
    t.teardown(() => store.close());
    const ask = async (body: object): Promise<string> => {
      const query = parseQuery(Buffer.from(JSON.stringify(body)), grammar);
      return answerText(await store.execute({ query, limits: [] }, new AbortController()));
    };
    await ask(createTable("a", { key: "int", id: "int" }));
    await ask(createTable("c", { key: "int", id: "double" }));
    const [worker = 0] = childrenOf(process.pid).filter((pid) => !before.includes(pid));
    process.kill(worker, "SIGSTOP");
    const parsed = ask(long);
    await setImmediate();
    await ask(insert("a", [{ key: 1, id: 1 }]));
    t.match(await ask(selectAll("a")), '"data":[{"key":1,"id":1}]');
    await ask(remove("a"));
    process.kill(worker, "SIGCONT");
    t.match(await parsed, '"status":"success"');
  }
});

t.test("long bodies that wait for a database do not delay others", async (t) => {
  const { ask, engine } = await freshEngine(t);
  await fillForJoin(ask);
  await ask(createTable("c", { key: "int", id: "double" }));
  await ask(createDatabase("other"));
  await ask(createTable("c", { key: "int", id: "double" }, "other"));
  const abandoned: ClientRequest[] = [];
  const leave = () => {
    for (const one of abandoned) one.destroy();
  };
  t.teardown(leave);
  for (const body of [endlessSelect, ...Array(8).fill(insert("c", manyRows))]) {
    abandoned.push(await sendOnly(engine.address, body));
  }
  t.match(await ask(insert("c", manyRows, "other")), { status: 200 });
  t.equal((await ask(selectAll("c", {}, "other"))).body.data?.length, manyRows.length);
  leave();
  t.match(await ask(insert("c", manyRows)), { status: 200 });
});

t.test("a SQLite process that dies before a long body is run is replaced", async (t) => {
  const { ask, engine } = await freshEngine(t);
  await fillForJoin(ask);
  await ask(createTable("c", { key: "int", id: "double" }));
  const [reader = 0] = childrenOf(process.pid);
  const reading = await stallIn(reader, engine.address);
  t.teardown(() => reading.destroy());
  const writing = ask(insert("c", manyRows));
  const others = () => childrenOf(process.pid).filter((pid) => pid !== reader);
  await eventually("a worker waits", () => others().length > 0);
  for (const worker of others()) process.kill(worker, "SIGKILL");
  await eventually("it is gone", () => others().length === 0);
  reading.destroy();
  t.match(await writing, refusal(502, "upstream_broken", /nothing was changed/));
  t.match(await ask(insert("c", manyRows)), { status: 200 });
});

t.test("the query of a client that leaves ends", async (t) => {
  const { ask, engine } = await freshEngine(t);
  await fillForJoin(ask);
  const [worker = 0] = childrenOf(process.pid);
  const stalled = await stallIn(worker, engine.address);
  await ask(firstRow);
  stalled.destroy();
  // A write waits for every reader of its database.
  t.match(await ask(remove("a")), { status: 200 });
  await eventually("its worker has ended", () => !childrenOf(process.pid).includes(worker));
  t.same((await ask(selectAll("a"))).body.data, []);
});

t.test("a query past the time limit is a 503, and the next one is answered", async (t) => {
  const { ask } = await limitedEngine(t, 3000);
  t.match(await ask(endlessSelect), refusal(503, "query_timeout", /longer than 3 seconds/));
  t.match(await ask(insert("a", [{ key: -1 }])), { status: 200 });
});

/** Ends a Batch by its time limit. Returns whether both databases had been written by then. */
async function endHalfway(t: Test, limit: number): Promise<boolean> {
  const { ask, directory } = await limitedEngine(t, limit);
  await ask(createDatabase("copy"));
  for (const database of ["main", "copy"]) {
    await ask(createTable("rows", { id: "int", text: "text" }, database));
    await ask(insert("rows", [{ id: -1, text: "kept" }], database));
  }
  // More than the page cache holds, so that changed pages reach the files before the commit.
  const rows = Array.from({ length: 8000 }, (_, id) => ({ id, text: "x".repeat(1000) }));
  const Batch = [insert("rows", rows), insert("rows", rows, "copy"), endlessSelect];
  t.match(await ask({ Batch }), refusal(503, "query_timeout"));
  let isWritten = true;
  for (const database of ["main", "copy"]) {
    const file = join(directory, "data", `${database}.sqlite`);
    const journal = statSync(`${file}-journal`, { throwIfNoEntry: false });
    isWritten &&= statSync(file).size > 1_000_000 && (journal?.size ?? 0) > 0;
    t.same((await ask(selectAll("rows", {}, database))).body.data, [{ id: -1, text: "kept" }]);
  }
  return isWritten;
}

t.test("a Batch that ends half-written leaves nothing", nightly, async (t) => {
  let isWritten = false;
  // On a slow machine the rows alone may take longer than the first of these.
  for (const limit of [4000, 16_000, 48_000]) isWritten ||= await endHalfway(t, limit);
  t.ok(isWritten, "both databases have a journal to play back");
});

t.test("a database that was dropped and created again is empty for every worker", async (t) => {
  const { ask } = await freshEngine(t);
  const rows = Array.from({ length: 2000 }, (_, id) => ({ id }));
  const readTogether = () =>
    Promise.all(Array.from({ length: 12 }, () => ask(selectAll("rows", {}, "passing"))));
  await ask(createDatabase("passing"));
  await ask(createTable("rows", { id: "int" }, "passing"));
  await ask(insert("rows", rows, "passing"));
  // On a busy machine, requests may arrive one after the other.
  for (let tries = 0; tries < 10 && childrenOf(process.pid).length < 2; tries++) {
    for (const answer of await readTogether()) t.equal(answer.body.data?.length, 2000);
  }
  t.ok(childrenOf(process.pid).length > 1, "several workers had it open");
  t.match(await ask(dropDatabase("passing")), { status: 200 });
  for (const answer of await readTogether()) t.equal(answer.body.code, "database_not_found");
  t.match(await ask(createDatabase("passing")), { status: 200 });
  for (const answer of await readTogether()) t.equal(answer.body.code, "table_not_found");
});

t.test("a hanging SQLite process fails the health check and is replaced", nightly, async (t) => {
  const { ask, engine } = await freshEngine(t);
  await ask(createTable("rows", { id: "int" }));
  const health = () => send(engine.address, { path: "/healthz" });
  const [worker = 0] = childrenOf(process.pid);
  const stoppedAt = performance.now();
  process.kill(worker, "SIGSTOP");
  const reading = ask(selectAll("rows"));
  await eventually("the health check fails", async () => (await health()).status === 503);
  t.match(await reading, refusal(502, "upstream_broken"));
  t.ok(performance.now() - stoppedAt < 10_000, "within ten seconds");
  t.match(await ask(selectAll("rows")), { status: 200 });
  t.match(await health(), { status: 200 });
  t.notOk(childrenOf(process.pid).includes(worker));
});

/** SQLite's "pending" byte, which a commit locks while it waits for readers. */
const PENDING = 0x4000_0000;

/** An engine whose commits wait for a reader. */
async function heldCommits(t: Test, queryTimeLimit: number) {
  const { ask, directory } = await limitedEngine(t, queryTimeLimit);
  const reader = new DatabaseSync(join(directory, "data", "main.sqlite"));
  t.teardown(() => reader.close());
  reader.exec("begin; select * from a limit 1");
  const signalInCommit = async (signal: NodeJS.Signals): Promise<void> => {
    const committing = () =>
      childrenOf(process.pid).find((pid) =>
        new RegExp(` WRITE ${pid} .* ${PENDING} `).test(readFileSync("/proc/locks", "utf8")),
      );
    await eventually("a commit waits", () => committing() !== undefined);
    process.kill(committing() ?? 0, signal);
  };
  return { ask, signalInCommit };
}

t.test("a SQLite process killed in a commit makes the outcome unknown", async (t) => {
  const { ask, signalInCommit } = await heldCommits(t, 30_000);
  const row = insert("b", [{ key: -1 }]);
  for (const change of [row, { Batch: [row] }]) {
    const changing = ask(change);
    await signalInCommit("SIGKILL");
    t.match(await changing, refusal(503, "outcome_unknown", /^The SQLite process ended/));
  }
  for (const Batch of [[endlessSelect], [row, endlessSelect]]) {
    const asked = ask({ Batch });
    await eventually("it is under way", () => childrenOf(process.pid).length > 0);
    for (const worker of childrenOf(process.pid)) process.kill(worker, "SIGKILL");
    t.match(await asked, refusal(502, "upstream_broken"));
  }
});

t.test("a time limit reached in a commit of SQLite is reported", nightly, async (t) => {
  const { ask, signalInCommit } = await heldCommits(t, 3000);
  const changing = ask(insert("b", [{ key: -1 }]));
  await signalInCommit("SIGSTOP");
  const message = /^The time limit of 3 seconds was reached/;
  t.match(await changing, refusal(503, "outcome_unknown", message));
});

t.test("no query waits until the file of a long answer is removed (SQLite)", async (t) => {
  const { ask } = await freshEngine(t);
  await ask(createTable("a", { id: "int", text: "text" }));
  await ask(insert("a", [{ id: 1, text: "x".repeat(5 * 1024 * 1024) }]));
  const { promise: removed, resolve: onRemoved } = Promise.withResolvers<void>();
  const rm = mock.method(promises, "rm", () => removed);
  syncBuiltinESMExports();
  t.teardown(() => {
    onRemoved();
    rm.mock.restore();
    syncBuiltinESMExports();
  });
  const long = ask(selectAll("a"));
  await eventually("its file is being removed", () => rm.mock.callCount() === 1);
  t.match(await ask(remove("a")), { status: 200 });
  t.equal(rm.mock.callCount(), 1, "a short answer has no file");
  onRemoved();
  t.match(await long, { status: 200 });
});

t.test("idle SQLite processes end after a minute, except one", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const before = childrenOf(process.pid);
  const processes = () => childrenOf(process.pid).filter((pid) => !before.includes(pid));
  const directory = join(temporaryHome(t), "data");
  const store = await openSqliteStore(directory, storeOptions);
  t.teardown(() => store.close());
  const look = () => store.readSchema({ database: "main" }, new AbortController());
  await Promise.all([look(), look(), look()]);
  const used = processes();
  t.equal(used.length, 3);
  mock.timers.tick(60_000);
  mock.timers.reset();
  await eventually("they have ended", () => !processes().some((pid) => used.includes(pid)));
  t.equal(processes().length, 1);
  await look();
});

t.test("locks are shared by readers, exclusive for writers, and granted in order", async (t) => {
  const locks = new DatabaseLocks();
  const events: string[] = [];
  const hold = (name: string) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const work = async (): Promise<void> => {
      events.push(`${name} in`);
      await promise;
      events.push(`${name} out`);
    };
    return { work, release: resolve };
  };
  const [first, second] = [hold("first"), hold("second")];
  const [writer, late] = [hold("writer"), hold("late")];
  const done = [
    locks.shared(["a"], first.work),
    locks.shared(["a"], second.work),
    locks.exclusive(["a"], writer.work),
    locks.shared(["a"], late.work),
  ];
  late.release();
  writer.release();
  second.release();
  await done[1];
  t.same(events, ["first in", "second in", "second out"]);
  first.release();
  await Promise.all(done);
  t.same(events.slice(3), ["first out", "writer in", "writer out", "late in", "late out"]);
});

t.test("locks on the same databases in another order do not deadlock", async (t) => {
  const locks = new DatabaseLocks();
  const done: string[] = [];
  const work = (name: string) => async (): Promise<void> => {
    await setImmediate();
    done.push(name);
  };
  await Promise.all([
    locks.exclusive(["a", "b", "a"], work("first")),
    locks.exclusive(["b", "a"], work("second")),
    locks.shared(["c"], work("other")),
  ]);
  t.same(done, ["first", "other", "second"]);
});
