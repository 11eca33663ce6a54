/** Hooks that receive new approvals. */
import { createHmac } from "node:crypto";
import { writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import t, { type Test } from "tap";
import { consoleConfig } from "../console/kit.ts";
import { staffedHome } from "../journeys/staff.ts";
import { servedBy } from "../journeys/supervised.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { type ReceivedRequest, RecordingUpstream } from "../kit/upstream.ts";
import { connectStateless } from "../mcp/clients.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { careful, carefulOn, idIn, openCareful, removeOne } from "./kit.ts";

const SECRET = " shh ünï ";

async function hookOn(t: Test) {
  const hook = await new RecordingUpstream().listen(t);
  hook.answer = (_request, response) => void response.writeHead(204).end();
  const file = path.join(temporaryHome(t), "hook");
  writeFileSync(file, `${SECRET}\n`, { mode: 0o600 });
  const url = `${hook.url}/T0KEN?room=1`;
  const config = `[approvals]\nnotify = { url = "${url}", secret_file = "${file}" }\n`;
  return { hook, config, file };
}

async function received(hook: RecordingUpstream, count: number): Promise<ReceivedRequest[]> {
  await eventually(`${count} notifications`, async () => hook.received.length >= count);
  return [...hook.received];
}

const FAILED = "a notification of an approval was not accepted";
const failures = ({ service }: TestGateway) => service.log.filter(({ msg }) => msg === FAILED);

const { hook, config } = await hookOn(t);
const { answer } = hook;
const { section, value } = await reserveMetrics();
const counted = (outcome: string) =>
  value(`gatehouse_approval_notifications_total{outcome="${outcome}"}`);
const staff = await TestIssuer.start(t);
const pages = await consoleConfig(`${config}\n${section}${staff.section()}`);
const { gateway, ask, bot, run } = await openCareful(t, {
  more: careful() + careful("", "staff:alice"),
  config: pages.config,
});
t.afterEach(() => {
  hook.answer = answer;
  hook.received.length = 0;
  gateway.service.log.length = 0;
});

t.test("a new approval is posted once, signed, without values", async (t) => {
  const query = {
    Batch: [
      removeOne(1),
      {
        Delete: {
          database: "main",
          table: "orders",
          where: { column: "state", cmp: "=", value: "s3cret" },
        },
      },
      { Update: { database: "main", table: "orders", set: { state: "s3cret" }, where: null } },
    ],
  };
  const id = idIn(await ask(bot, query));
  t.equal(idIn(await ask(bot, query)), id, "asking again creates no other approval");
  const [first] = await received(hook, 1);
  const raw = first?.body ?? Buffer.alloc(0);
  t.match(first, { method: "POST", url: "/T0KEN?room=1" });
  t.equal(first?.headers["content-type"], "application/json");
  const hmac = createHmac("sha256", SECRET).update(raw).digest("hex");
  t.equal(first?.headers["x-gatehouse-signature"], `sha256=${hmac}`);
  const { text, approval } = JSON.parse(raw.toString());
  const expires = String(approval.expires);
  const url = `${pages.url}/approvals/${id}`;
  t.strictSame(approval, {
    id,
    user: "bot",
    operations: ["Delete", "Update"],
    tables: ["main.orders"],
    url,
    expires,
  });
  const inTime = Date.parse(expires) - Date.now();
  t.ok(inTime > 590_000 && inTime <= 600_000, "10 minutes by default");
  t.match(text, `bot requests approval for `);
  t.match(text, `before ${expires}: ${url}`);
  t.notMatch(raw.toString(), /s3cret/);
  await run("approve", id);
  t.equal((await ask(bot, query, id)).status, 200);
  const other = idIn(await ask(bot, removeOne(2)));
  const all = await received(hook, 2);
  t.match(JSON.parse(String(all[1]?.body)), { approval: { id: other } });
  await eventually("both are counted", async () => (await counted("sent")) === 2);
  t.equal(await counted("failed"), 0);
  t.equal(hook.received.length, 2);
  t.strictSame(failures(gateway), []);
});

t.test("a hook that fails is tried three times, and its URL is not in the log", async (t) => {
  hook.answer = (_request, response) =>
    void response.writeHead(307, { location: `${hook.url}/elsewhere` }).end();
  const id = idIn(await ask(bot, removeOne(3)));
  await eventually("it has failed", async () => (await counted("failed")) === 1);
  t.strictSame(
    hook.received.map(({ url }) => url),
    Array(3).fill("/T0KEN?room=1"),
  );
  const bodies = new Set(hook.received.map(({ body }) => String(body)));
  t.equal(bodies.size, 1);
  await gateway.service.logged(({ msg }) => msg === FAILED);
  t.match(failures(gateway), [{ approval: id, reason: "the hook answered 307" }]);
  t.notMatch(JSON.stringify(gateway.service.log), /T0KEN/);
});

t.test("a slow hook delays no answer, and one that recovers receives all", async (t) => {
  let tries = 0;
  let isSlow = true;
  const held: ServerResponse[] = [];
  hook.answer = (_request, response) => {
    tries++;
    if (tries === 1) response.destroy();
    else if (isSlow) held.push(response);
    else response.writeHead(200).end();
  };
  const ids = [];
  for (let id = 4; id < 9; id++) ids.push(idIn(await ask(bot, removeOne(id))));
  isSlow = false;
  for (const response of held) response.writeHead(200).end();
  await received(hook, 6);
  const told = hook.received.map(({ body }) => JSON.parse(String(body)).approval.id);
  t.strictSame(new Set(told), new Set(ids));
  t.strictSame(failures(gateway), []);
});

t.test("of several workers, one notifies", async (t) => {
  const { hook, config } = await hookOn(t);
  const { ask, bot } = await openCareful(t, servedBy(2, { config }));
  const query = removeOne(3);
  const asked = await Promise.all(Array.from({ length: 6 }, () => ask(bot, query)));
  const ids = asked.map(idIn);
  t.equal(new Set(ids).size, 1);
  const last = idIn(await ask(bot, removeOne(4)));
  await received(hook, 2);
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const told = hook.received.map(({ body }) => JSON.parse(String(body)).approval.id);
  t.strictSame(told.sort(), [ids[0], last].sort());
});

t.test("without a console, the notification names the command, also for a group", async (t) => {
  const { hook, config } = await hookOn(t);
  const more = [
    '[[groups]]\nname = "bots"\nmembers = ["bot"]\n\n',
    careful().replace('username = "bot"', 'group = "bots"'),
  ].join("");
  const home = await staffedHome(t, ["root * Owner", "bot other ReadOnly"], more);
  const { ask, bot } = await carefulOn(await startGateway(t, { home, config }));
  const id = idIn(await ask(bot, removeOne(1)));
  const [first] = await received(hook, 1);
  const { text, approval } = JSON.parse(String(first?.body));
  t.match(approval, { id, user: "bot", url: undefined });
  t.match(text, `gatehouse approvals show ${id}`);
});

t.test("users of an issuer and calls over MCP are posted like others", async (t) => {
  const external = idIn(await ask(await staff.sign("gatehouse"), removeOne(9)));
  await received(hook, 1);
  const mcp = await connectStateless(t, `${gateway.url}/mcp`, bot);
  const { structured } = await mcp.call("delete", removeOne(10).Delete);
  const all = await received(hook, 2);
  const [first, second] = all.map(({ body }) => JSON.parse(String(body)));
  const common = { operations: ["Delete"], tables: ["main.orders"] };
  t.match(first.approval, { id: external, user: "staff:alice", ...common });
  t.match(first.text, /^staff:alice requests approval/);
  t.match(second.approval, { ...common, user: "bot" });
  t.match(structured, { status: "pending", approval: { id: second.approval.id } });
  t.equal(hook.received.length, 2);
});
