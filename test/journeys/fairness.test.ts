import type { ServerResponse } from "node:http";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";

/** A gateway with two users, before an upstream that holds its answers until a test gives them. */
async function scene(t: Test, config: string) {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const held: { user: string; response: ServerResponse }[] = [];
  upstream.answer = ({ headers }, response) =>
    held.push({ user: String(headers["x-gatehouse-user"]), response });
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const flood = await gateway.addUser("flood", "ReadWrite");
  const alice = await gateway.addUser("alice", "ReadWrite");
  return { gateway, held, flood, alice };
}

t.test("a flood of slow queries keeps another user waiting for one turn", async (t) => {
  const config = "connections = 4\nresponse_timeout = 600\n";
  const { gateway, held, flood, alice } = await scene(t, config);
  const request = wireRequest("POST /query", queryHeaders(flood), select);
  const wires = await Promise.all(Array.from({ length: 500 }, () => Wire.open(gateway.url)));
  t.teardown(() => wires.map((wire) => wire.cut()));
  for (const wire of wires) wire.send(request);
  const refused = () => wires.filter(({ text }) => text.includes("upstream_overloaded")).length;
  await eventually("the line is full", () => refused() === 500 - 4 - 4 * 16);
  await eventually("while nobody else asks, the flood has all", () => held.length === 4);

  const answers = Array.from({ length: 3 }, () => gateway.query(select, alice));
  await eventually("alice has her places", () => refused() === 500 - 4 - 4 * 16 + 3);
  for (let at = 0; at < 3; at++) {
    held[at]?.response.end("{}");
    await eventually("the next query goes up", () => held.length === 5 + at);
  }
  const users = held.slice(4).map(({ user }) => user);
  t.strictSame(users, ["alice", "alice", "flood"], "she has as many as the flood, and not more");
  held[4]?.response.end("{}");
  await eventually("her last one goes up", () => held[7]?.user === "alice");
  for (const { user, response } of held.slice(5)) if (user === "alice") response.end("{}");
  for (const { status } of await Promise.all(answers)) t.equal(status, 200);
});

t.test("one user's bodies leave room for those of others", async (t) => {
  const config = "[server]\nmax_body_bytes = 65536\nmax_buffered_bytes = 262144\n";
  const { gateway, held, flood, alice } = await scene(t, config);
  const large = select.padEnd(60_000);
  const first = [gateway.query(large, flood), gateway.query(large, flood)];
  await eventually("two are held", () => held.length === 2);
  const third = await gateway.query(large, flood);
  t.equal(third.status, 503, "as much would be left to nobody else");
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
