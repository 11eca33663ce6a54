import { request, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { caseCount } from "../kit/nightly.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { reserveMetrics } from "../observe/exposition.ts";

async function scene(t: Test, config: string, env: NodeJS.ProcessEnv = {}) {
  const upstream = await new RecordingUpstream().listen(t);
  const held: { user: string; response: ServerResponse }[] = [];
  upstream.answer = ({ headers: { "x-gatehouse-user": user } }, response) => {
    // The gateway's own requests have no user.
    if (user === undefined) response.end("{}");
    else held.push({ user: String(user), response });
  };
  const gateway = await startGateway(t, { upstream: upstream.url, config, env });
  const flood = await gateway.addUser("flood", "ReadWrite");
  const alice = await gateway.addUser("alice", "ReadWrite");
  return { gateway, held, flood, alice };
}

t.test("a flood of slow queries delays another user by one turn", async (t) => {
  const config = "connections = 4\nresponse_timeout = 600\n";
  const { gateway, held, flood, alice } = await scene(t, config);
  const flooding = wireRequest("POST /query", queryHeaders(flood), select);
  const wires = await Promise.all(Array.from({ length: 500 }, () => Wire.open(gateway.url)));
  t.teardown(() => wires.map((wire) => wire.cut()));
  for (const wire of wires) wire.send(flooding);
  const refused = () => wires.filter(({ text }) => text.includes("upstream_overloaded")).length;
  await eventually("the line is full", () => refused() === 500 - 4 - 4 * 16);
  const one = wires.find(({ text }) => text.includes("upstream_overloaded"));
  t.match(one?.text, /^HTTP\/1\.1 503 .*^Retry-After: 1\r$/ms);
  await eventually("without other users the flood has all connections", () => held.length === 4);

  const answers = Array.from({ length: 3 }, () => gateway.query(select, alice));
  await eventually("alice has her places", () => refused() === 500 - 4 - 4 * 16 + 3);
  for (let at = 0; at < 3; at++) {
    held[at]?.response.end("{}");
    await eventually("the next query is forwarded", () => held.length === 5 + at);
  }
  const users = held.slice(4).map(({ user }) => user);
  t.strictSame(users, ["alice", "alice", "flood"], "she has as many as the flood, and not more");
  held[4]?.response.end("{}");
  await eventually("her last one is forwarded", () => held[7]?.user === "alice");
  for (const { user, response } of held.slice(5)) if (user === "alice") response.end("{}");
  for (const { status } of await Promise.all(answers)) t.equal(status, 200);
});

const fourMebibytes = "--import=data:text/javascript,process.constrainedMemory=()=>4*1024*1024";
for (const [limit, keys, env] of [
  ["the configuration", "max_buffered_bytes = 262144", {}],
  ["the memory of the cgroup", "", { NODE_OPTIONS: fourMebibytes }],
] as const)
  t.test(`one user's bodies leave room for others within the limit of ${limit}`, async (t) => {
    const config = `[server]\nmax_body_bytes = 65536\n${keys}\n`;
    const { gateway, held, flood, alice } = await scene(t, config, env);
    const large = select.padEnd(60_000);
    const first = [gateway.query(large, flood), gateway.query(large, flood)];
    await eventually("two are held", () => held.length === 2);
    const third = await gateway.query(large, flood);
    t.equal(third.status, 503, "others would have too little left");
    t.match(third.body, { code: "busy" });
    first.push(gateway.query(large, alice));
    await eventually("another user's is taken", () => held.length === 3);
    for (const { response } of held) response.end("{}");
    for (const { status } of await Promise.all(first)) t.equal(status, 200);
    const again = gateway.query(large, flood);
    await eventually("what was held is given back", () => held.length === 4);
    held[3]?.response.end("{}");
    t.equal((await again).status, 200);
  });

const BODIES = 30;
const large = Buffer.from(select.padEnd(9_500_000));
const PIECE = 512 * 1024;

/** Sends the same body on many connections, a piece of each in turn. @returns status and code of each */
async function sendTogether(url: string, tokens: readonly string[], isChunked: boolean) {
  const framing = isChunked ? {} : { "content-length": String(large.length) };
  const answers: Promise<string>[] = [];
  const requests = Array.from({ length: BODIES }, (_, at) => {
    const headers = { ...queryHeaders(tokens[at % tokens.length] ?? ""), ...framing };
    const sent = request(`${url}/query`, { method: "POST", agent: false, headers });
    answers.push(
      new Promise((resolve, reject) => {
        sent.once("error", reject);
        sent.once("response", async (answer) => {
          const { code = "" } = JSON.parse(await text(answer));
          resolve(`${answer.statusCode} ${code}`);
        });
      }),
    );
    return sent;
  });
  for (let at = 0; at < large.length; at += PIECE) {
    for (const sent of requests) sent.write(large.subarray(at, at + PIECE));
    await setTimeout(10);
  }
  for (const sent of requests) sent.end();
  return Promise.all(answers);
}

const halfGibibyte = "--import=data:text/javascript,process.constrainedMemory=()=>512*1024*1024";
t.test("of many large bodies that arrive together, as many as fit are served", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  const env = { NODE_OPTIONS: halfGibibyte };
  const gateway = await startGateway(t, { upstream: upstream.url, env });
  const names = ["ann", "bob", "cid", "dan", "eve", "fay"];
  const tokens: string[] = [];
  for (const name of names) tokens.push(await gateway.addUser(name, "ReadWrite"));
  const [one = ""] = tokens;
  for (let round = 0; round < caseCount(1, 3); round++) {
    for (const [sender, senders, isChunked, least] of [
      ["six users", tokens, false, 3],
      ["one user", [one], false, 1],
      ["six users, without a length,", tokens, true, 1],
      ["one user, without a length,", [one], true, 1],
    ] as const) {
      const answers = await sendTogether(gateway.url, senders, isChunked);
      const served = answers.filter((answer) => answer === "200 ").length;
      const busy = answers.filter((answer) => answer === "503 busy").length;
      t.ok(served >= least, `${served} of ${sender} are served in round ${round}`);
      t.equal(served + busy, BODIES, "all others are refused");
      t.equal(upstream.take().length, served);
    }
  }
});

t.test("a queued query is authorized by the rights at the time that it is forwarded", async (t) => {
  const { section, value } = await reserveMetrics();
  const { gateway, held, alice, flood } = await scene(t, `connections = 1\n${section}`);
  const rita = await gateway.addUser("rita", "ReadOnly");
  const admin = await gateway.login();
  const first = gateway.query(select, flood);
  await eventually("the one connection is taken", () => held.length === 1);
  const read = gateway.query(select, alice);
  const batch = gateway.query(`{"Batch":[${select}]}`, alice);
  const waiting = gateway.query(select, rita);
  await eventually("three wait", async () => {
    return (await value("gatehouse_upstream_queries_waiting")) === 3;
  });
  const lowered = await gateway.send("PUT", "/api/access/alice/main", { role: "None" }, admin);
  t.equal(lowered.status, 200);
  held[0]?.response.end("{}");
  t.equal((await first).status, 200);
  await eventually("the query of another user is forwarded", () => held.length === 2);
  held[1]?.response.end("{}");
  t.equal((await waiting).status, 200);
  t.match(await read, { status: 403, body: { code: "role_insufficient" } });
  t.match(await batch, { status: 403, body: { code: "batch_member_denied" } });
  const users = held.map(({ user }) => user);
  t.strictSame(users, ["flood", "rita"], "the denied queries were not forwarded");
});
