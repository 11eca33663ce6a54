/** Approvals with an upstream that is not the engine, and with an unusable key. */
import { chmodSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { openApprovalsIn } from "../../src/features/approvals/approval-file.ts";
import { openGatewaySetup } from "../gateway/kit.ts";
import { openStaffed } from "../journeys/staff.ts";
import type { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { carefulOn, careful as entry, idIn, openCareful, removeOne } from "./kit.ts";

const { section, value: metric } = await reserveMetrics();
const boundary = '[[boundaries]]\nvia = "query"\nusername = "bot"\nrequire_approval = ["SELECT"]\n';
const { gateway, upstream } = await openStaffed(t, ["root * Owner", "bot other ReadOnly"], {
  more: `${entry()}${boundary}`,
  config: section,
});
const { ask, run, bot } = await carefulOn(gateway);
const remove =
  '{"Delete": {"database": "main", "table": "t", "where": {"column":"id","cmp":"=","value":9007199254740993}}}';

const queriesIn = (received: RecordingUpstream) =>
  received.take().filter(({ url }) => url === "/query");

t.test("the same bytes are forwarded without the approval header", async (t) => {
  t.equal(await metric("gatehouse_approvals_pending"), 0);
  const id = idIn(await ask(bot, remove));
  t.equal(await metric("gatehouse_approvals_pending"), 1);
  t.equal(queriesIn(upstream).length, 0);
  t.match(await run("show", id), {
    query: remove,
    preview: { reason: "a foreign upstream cannot show the rows" },
  });
  await run("approve", id);
  t.equal(await metric('gatehouse_approvals_total{outcome="approved"}'), 1);
  t.equal((await ask(bot, remove, id)).status, 200);
  t.equal(await metric('gatehouse_approvals_total{outcome="used"}'), 1);
  t.equal(await metric("gatehouse_approvals_pending"), 0);
  const [sent, ...others] = queriesIn(upstream);
  t.equal(others.length, 0);
  t.equal(sent?.body.toString(), remove);
  t.notOk("x-gatehouse-approval" in (sent?.headers ?? {}));
  t.notOk("x-gatehouse-limits" in (sent?.headers ?? {}));
});

t.test("a query with an unknown outcome is not sent again", async (t) => {
  const select = { Select: { database: "main", from: "t", columns: ["id"] } };
  const id = idIn(await ask(bot, select));
  await run("approve", id);
  const { answer } = upstream;
  upstream.answer = (_request, response) => response.destroy();
  t.match(await ask(bot, select, id), { status: 502 });
  upstream.answer = answer;
  t.equal(queriesIn(upstream).length, 1, "not retried, although it only reads");
  t.match(await ask(bot, select, id), { status: 409, body: { code: "approval_used" } });
  t.equal(queriesIn(upstream).length, 0);
});

t.test("an approval of shown rows is void if the upstream cannot compare rows", async (t) => {
  const id = idIn(await ask(bot, remove));
  const store = await openApprovalsIn(gateway.home, 30);
  const author = { kind: "cli", name: "root" } as const;
  await store.recordShown(id, author, "0".repeat(64));
  await store.decide(id, { state: "approved", author, wait: 60_000 });
  await store.close();
  t.match(await ask(bot, remove, id), { status: 409, body: { code: "approval_void" } });
  t.equal(queriesIn(upstream).length, 0);
});

t.test("no rows are shown of the engine's database beside a foreign upstream", async (t) => {
  const config = `[[upstream.databases]]\ndatabases = ["away"]\nurl = "${upstream.url}"\n`;

  const { ask, bot, root, run } = await openCareful(t, { config });
  const one = removeOne(0);
  const id = idIn(await ask(bot, one));
  const reason = "a foreign upstream cannot show the rows";
  t.match(await run("show", id), { preview: { reason } });
  await run("approve", id);
  t.match(await ask(bot, one, id), { status: 200 });
  t.match(await ask(root, removeOne(0)), { status: 200 });
});

t.test("with a key that others can read, no approval is shown or used", async (t) => {
  const { gateway: first } = await openStaffed(t, ["root * Owner", "bot other ReadOnly"], {
    more: entry(),
  });
  const before = await carefulOn(first);
  idIn(await before.ask(before.bot, remove));
  await first.service.stop();
  chmodSync(path.join(first.home, "approvals.key"), 0o644);
  const { stderr, code } = await runWarm(first.home, ["approvals", "list"]);
  t.equal(code, 1);
  t.match(stderr, /approvals.key: .*chmod/);
  const second = await openGatewaySetup(t, { home: first.home });
  const { ask, bot } = await carefulOn(second.gateway);
  t.match(await ask(bot, remove), { status: 503, body: { code: "approvals_failed" } });
  t.equal(queriesIn(second.upstream).length, 0);
});
