import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { careful, idIn } from "../approvals/kit.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import type { Answer, TestGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { connectStateless } from "../mcp/clients.ts";
import { Wire } from "./faults/wire.ts";
import { makeStore } from "./kit.ts";

const store = await makeStore(t, { maxStaleness: 60, mcp: "enabled = true" }, await sharedServer());
await store.addUser("bot");
await store.addAccess(careful());
const upstream = await new RecordingUpstream().listen(t);
const wire = await Wire.to(t, store.server.port);

const hook = await new RecordingUpstream().listen(t);
const secret = path.join(store.makeHome(), "hook");
writeFileSync(secret, "shh", { mode: 0o600 });
const notify = `[approvals]\nnotify = { url = "${hook.url}/x", secret_file = "${secret}" }\n`;

const start = (url = store.url) =>
  store.replica(url, store.makeHome(), notify, { upstream: upstream.url });
const [one, two, far] = await Promise.all([start(), start(), start(store.urlBy(wire))]);
const bot = await one.login("bot", "bot password");

function removal(id: number): string {
  const where = { column: "id", cmp: "=", value: id };
  return JSON.stringify({ Delete: { database: "main", table: "orders", where } });
}

function ask(gateway: TestGateway, query: string, approval?: string): Promise<Answer> {
  const headers = {
    authorization: `Bearer ${bot}`,
    "content-type": "application/json",
    ...(approval === undefined ? {} : { "x-gatehouse-approval": approval }),
  };
  return gateway.request("/query", { method: "POST", headers, body: query });
}

async function run(...flags: string[]): Promise<Record<string, unknown>> {
  return JSON.parse(await store.good(["approvals", ...flags, "--json"]));
}

/** The queries that reached the database since the last call. */
function forwarded(): string[] {
  const queries = upstream.take().filter(({ url }) => url === "/query");
  return queries.map(({ body }) => body.toString());
}

/** The audited steps of an approval at all replicas, in order of time. */
function stepsOf(id: string): unknown[] {
  return [one, two, far]
    .flatMap(({ service }) => service.log)
    .filter(({ approval, msg }) => approval === id && msg !== "request")
    .sort((a, b) => String(a.at).localeCompare(String(b.at)))
    .map(({ msg }) => msg);
}

t.test("an approval created at one replica and approved by a command runs once", async (t) => {
  const id = idIn(await ask(one, removal(1)));
  t.equal(idIn(await ask(two, removal(1))), id, "the same approval at another replica");
  t.equal(idIn(await ask(two, removal(1), id)), id, "it is pending there too");
  t.match(await run("list"), [{ id, state: "pending", user: "bot" }]);
  t.match(await run("show", id), { id, query: removal(1) });
  const [row] =
    await store.sql(`select position('orders'::bytea in body) as at, length(body) as length
    from gatehouse.approvals where id = '${id}'`);
  t.match(row, { at: 0 }, "the bytes are encrypted");
  t.ok(Number(row?.length) > 50);
  t.match(await run("approve", id), { state: "approved" });

  t.strictSame(forwarded(), []);
  const tries = [one, two, far].flatMap((gateway) =>
    Array.from({ length: 5 }, () => ask(gateway, removal(1), id)),
  );
  const answers = await Promise.all(tries);
  const codes = answers.map(({ status, body }) => body.code ?? status).sort();
  t.strictSame(codes, [200, ...Array(14).fill("approval_used")]);
  t.strictSame(forwarded(), [removal(1)], "one of all simultaneous runs is forwarded");
  const steps = ["approval_asked", "approval_approved", "approval_used"];
  await eventually("each step is audited", () => stepsOf(id).length >= steps.length);
  t.strictSame(stepsOf(id), steps, "once, by one replica");

  t.match(await run("show", id), { state: "used", query: removal(1) }, "it can be reviewed");
  const keyFile = path.join(store.home, "store.key");
  const old = readFileSync(keyFile, "utf8");
  const renewed = `${Buffer.alloc(32, 7).toString("base64url")}\n`;
  for (const lines of [renewed + old, old + renewed, old]) {
    writeFileSync(keyFile, lines);
    const isChanged = lines !== old;
    t.match(await store.good(["store", "rekey"]), isChanged ? " 1 quer" : " 0 quer");
    t.match(await run("show", id), { query: removal(1) }, "also after a rekey");
  }
  const past = "decided = decided - 30 * 86400000::bigint";
  await store.sql(`update gatehouse.approvals set ${past} where id = '${id}'`);
  await eventually("the bytes are deleted", async () => {
    const left = await store.sql(`select body from gatehouse.approvals where id = '${id}'`);
    return left[0]?.body === null;
  });
});

t.test("an approval created over MCP at one replica runs once over MCP at another", async (t) => {
  const [first, second] = await Promise.all([
    connectStateless(t, `${one.url}/mcp`, bot),
    connectStateless(t, `${two.url}/mcp`, bot),
  ]);
  const { Delete: args } = JSON.parse(removal(6));
  const { structured } = await first.call("delete", args);
  t.match(structured, { status: "pending", code: "approval_required" });
  const [{ id } = {}] = JSON.parse(await store.good(["approvals", "list", "--json"]));
  t.match(structured, { approval: { id } });
  const again = { ...args, approval: id };
  t.match(await second.call("delete", again), { structured: { status: "pending" } });
  await run("approve", id);
  t.match(await second.call("delete", again), { isError: false });
  t.match(await first.call("delete", again), { isError: true, text: /\(approval_used\)$/ });
  t.strictSame(forwarded(), [removal(6)]);
});

t.test("an approval expires by the clock of the store", async (t) => {
  const id = idIn(await ask(one, removal(2)));
  await store.sql(
    `update gatehouse.approvals set expires = extract(epoch from clock_timestamp()) * 1000
      where state = 'pending'`,
  );
  await eventually("it is audited", () => stepsOf(id).includes("approval_expired"));
  t.match(await ask(two, removal(2), id), { body: { code: "approval_expired" } });
});

t.test("without the store, no approval is created or used", async (t) => {
  const id = idIn(await ask(far, removal(4)));
  await run("approve", id);
  wire.cut();
  const unreachable = { status: 503, body: { code: "store_unreachable" } };
  t.match(await ask(far, removal(4), id), unreachable, "to run it");
  t.match(await ask(far, removal(5)), unreachable, "to create one");
  t.strictSame(forwarded(), []);
  wire.restore();
  await eventually("the store is there again", async () => {
    return (await far.request("/readyz")).body.store === "reached";
  });
  t.equal((await ask(far, removal(4), id)).status, 200, "it was not used up");
  t.strictSame(forwarded(), [removal(4)]);
  await eventually("it is audited", () => stepsOf(id).includes("approval_used"));
});

t.test("one of the replicas notifies of each approval", async (t) => {
  const told = () => hook.received.map(({ body }) => JSON.parse(String(body)).approval.id);
  hook.take();
  const asked = await Promise.all([one, two, one, two].map((one) => ask(one, removal(77))));
  const ids = new Set(asked.map(idIn));
  t.equal(ids.size, 1);
  const other = idIn(await ask(two, removal(78)));
  await eventually("both have arrived", async () => told().length >= 2);
  await new Promise((resolve) => setTimeout(resolve, 1500));
  t.strictSame(told().sort(), [...ids, other].sort());
});

t.test("the log says once why steps cannot be written to the audit", async (t) => {
  await store.sql("alter table gatehouse.approval_steps rename to other_steps");
  const failed = one.service.logged(({ detail }) => /approval_steps/.test(String(detail)));
  const fault = { level: "error", msg: /cannot be written to the audit yet/ };
  t.match(await failed, fault);
  await delay(2500);
  t.equal(one.service.log.filter(({ msg }) => fault.msg.test(String(msg))).length, 1);
  await store.sql("alter table gatehouse.other_steps rename to approval_steps");
});
