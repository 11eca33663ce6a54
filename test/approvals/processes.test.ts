/** Approvals with several workers, restarts and expiry. */
import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { openApprovalsIn } from "../../src/features/approvals/approval-file.ts";
import { connectToEach, servedBy } from "../journeys/supervised.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { carefulOn, idIn, listed, openCareful, orders, removal, removeOne, step } from "./kit.ts";

t.test("workers share approvals, and only one of them runs the query", async (t) => {
  const options = servedBy(2, { config: '[metrics]\nlisten = "127.0.0.1:0"\n' });
  const careful = await openCareful(t, options);
  const { gateway, ask, run, bot, count } = careful;
  const query = removeOne(1);
  const text = JSON.stringify(query);
  const connections = await connectToEach(t, gateway, bot, 2);
  const asked = await Promise.all(connections.map((one) => one.send("POST", "/query", bot, text)));
  t.strictSame(
    asked.map(({ status }) => status),
    [202, 202],
  );
  const all = await listed(careful);
  t.equal(all.length, 1, "both requests share one approval");
  const id = String(all[0]?.id);
  await run("approve", id);
  const answers = await Promise.all(Array.from({ length: 6 }, () => ask(bot, query, id)));
  t.strictSame(answers.map(({ status }) => status).sort(), [200, ...Array(5).fill(409)]);
  t.equal(await count(), 14);
  await step(gateway, id, "approval_used");
  for (const name of ["approval_asked", "approval_approved", "approval_used"]) {
    const lines = gateway.service.log.filter((line) => line.approval === id && line.msg === name);
    t.equal(lines.length, 1, name);
  }
});

t.test("approvals survive a restart, with decisions made while the gateway was down", async (t) => {
  const first = await openCareful(t);
  const { home } = first.gateway;
  const waiting = idIn(await first.ask(first.bot, removal));
  const given = idIn(await first.ask(first.bot, removeOne(13)));
  t.equal(await first.gateway.service.stop(), 0);
  const file = path.join(home, "approvals.sqlite");
  t.notOk((await readFile(file)).includes('"where"'), "the query is encrypted");
  for (const name of ["approvals.sqlite", "approvals.key"]) {
    t.equal(statSync(path.join(home, name)).mode & 0o777, 0o600, name);
  }
  const shown = await first.run("show", waiting);
  t.match(shown, { query: JSON.stringify(removal), preview: { affected: 12 } });
  t.match(await first.run("approve", given), { state: "approved" });
  const again = await carefulOn(await startGateway(t, { home }));
  await step(again.gateway, given, "approval_approved");
  t.match(await again.ask(again.bot, removeOne(13), given), { status: 200 });
  t.equal(idIn(await again.ask(again.bot, removal)), waiting);
});

t.test("undecided and unused approvals expire", async (t) => {
  const config = '[approvals]\nwait = 1\n[metrics]\nlisten = "127.0.0.1:0"\n';
  const { gateway, ask, run, bot } = await openCareful(t, { config });
  const id = idIn(await ask(bot, removal));
  t.match(await step(gateway, id, "approval_expired"), { user: "bot" });
  t.match(await ask(bot, removal, id), { status: 409, body: { code: "approval_expired" } });
  await t.rejects(run("approve", id), /is already expired/);
  const { stdout } = await runWarm(gateway.home, ["approvals", "show", id]);
  t.match(stdout, /The query has been deleted/);

  await gateway.service.stop();
  const patient = await carefulOn(await startGateway(t, { home: gateway.home }));
  const given = idIn(await patient.ask(patient.bot, removal));
  const store = await openApprovalsIn(gateway.home, 30);
  const author = { kind: "cli", name: "root" } as const;
  await store.decide(given, { state: "approved", author, wait: 1 });
  await store.close();
  await step(patient.gateway, given, "approval_expired");
  const late = await patient.ask(patient.bot, removal, given);
  t.match(late, { status: 409, body: { code: "approval_expired" } });
  t.equal(await patient.count(), 15);
});

t.test("a decided query can be reviewed for the configured number of days", async (t) => {
  const { gateway, ask, run, bot } = await openCareful(t);
  const denied = idIn(await ask(bot, removeOne(1)));
  const used = idIn(await ask(bot, removeOne(2)));
  const unused = idIn(await ask(bot, removeOne(3)));
  await run("deny", denied);
  await run("approve", used);
  await run("approve", unused);
  t.match(await ask(bot, removeOne(2), used), { status: 200 });
  const file = path.join(gateway.home, "approvals.sqlite");
  const edit = (sql: string) => {
    const database = new DatabaseSync(file);
    database.exec(sql);
    database.close();
  };
  edit(`UPDATE approvals SET expires = expires - 2 * 86400000 WHERE state != 'pending'`);
  await step(gateway, unused, "approval_expired");
  for (const [id, row, state] of [
    [denied, 1, "denied"],
    [used, 2, "used"],
    [unused, 3, "expired"],
  ] as const) {
    const shown = await run("show", id);
    t.match(shown, { state, query: JSON.stringify(removeOne(row)) });
    t.notOk("preview" in shown, "no preview after the decision");
  }
  t.notOk((await readFile(file)).includes('"where"'), "the queries are encrypted");
  edit(`UPDATE approvals SET decided = decided - 30 * 86400000 WHERE id != '${used}'`);
  await eventually("they are deleted", async () => {
    const { stdout } = await runWarm(gateway.home, ["approvals", "list", "--all", "--json"]);
    return !stdout.includes(denied) && !stdout.includes(unused) && stdout.includes(used);
  });
});

t.test("requests for approval wait for another process, and others do not", async (t) => {
  const { gateway, ask, bot } = await openCareful(t);
  await ask(bot, removeOne(1));
  const holder = new DatabaseSync(path.join(gateway.home, "approvals.sqlite"));
  holder.exec("BEGIN IMMEDIATE");
  const asked = ask(bot, removeOne(2));
  await delay(200);
  t.equal((await gateway.request("/healthz")).status, 200);
  holder.close();
  t.match(await asked, { status: 202 });
});

t.test("those who wait for the file of approvals give up at the same time", async (t) => {
  const home = temporaryHome(t);
  const store = await openApprovalsIn(home, 30);
  const holder = new DatabaseSync(path.join(home, "approvals.sqlite"));
  t.teardown(() => store.close().then(() => holder.close()));
  holder.exec("BEGIN IMMEDIATE");
  let now = performance.now();
  const clock = mock.method(performance, "now", () => now);
  t.teardown(() => clock.mock.restore());
  const waits = [store.list(), store.list(), store.list()];
  now += 5001;
  for (const wait of waits) await t.rejects(wait, /locked/);
});

t.test("with keep = 0 a query is deleted when it is decided", async (t) => {
  const { ask, run, bot } = await openCareful(t, { config: "[approvals]\nkeep = 0\n" });
  for (const decision of ["deny", "approve"]) {
    const id = idIn(await ask(bot, removal));
    await run(decision, id);
    t.notOk("query" in (await run("show", id)), decision);
  }
});

t.test("commands report unknown approvals and escape invisible characters", async (t) => {
  const { gateway, ask, bot } = await openCareful(t);
  const say = (...flags: string[]) => runWarm(gateway.home, ["approvals", ...flags]);
  t.match(await say("list"), { code: 0, stdout: /^ID +STATE +USER/ });
  for (const command of ["show", "approve", "deny"]) {
    const { code, stderr } = await say(command, "0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43");
    t.equal(code, 1);
    t.match(stderr, /unknown approval; `\S*gatehouse approvals list --all` lists all/);
  }
  t.match(await say("approve"), { code: 2 });
  t.notOk(statSync(path.join(gateway.home, "approvals.sqlite"), { throwIfNoEntry: false }));
  const where = { column: "state", cmp: "=", value: "\u202e\u009b\u007f" };
  const id = idIn(await ask(bot, { Delete: { ...orders, where } }));
  const { stdout } = await say("show", id);
  t.match(stdout, /"value":"\\u202e\\u009b\\u007f"/);
  const { stdout: list } = await say("list");
  t.match(list, new RegExp(`${id} +pending +bot +query +Delete main.orders`));
  t.match(await say("deny", id), { code: 0, stdout: "Denied: Delete main.orders by bot.\n" });
  await step(gateway, id, "approval_denied");
});
