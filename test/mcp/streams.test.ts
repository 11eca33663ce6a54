import t from "tap";
import { OpenStreams } from "../../src/mcp/proxy/judged-request.ts";
import { ask, open } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { principalOf } from "./kit.ts";
import { initialize, statelessCall } from "./messages.ts";
import { openProxied } from "./proxied.ts";

const reader = { main: "ReadOnly" } as const;
const subscribe = statelessCall("subscriptions/listen", {
  notifications: { toolsListChanged: true },
});

t.test("streams of changes are bounded for each user, not for all", async (t) => {
  const streams = new OpenStreams(2);
  const { endpoint, fixture, denials } = await openProxied(t, {
    grants: { alice: reader, bob: reader },
    streams,
  });
  const session = (await ask(endpoint.url, initialize)).headers["mcp-session-id"];
  const ofSession = {
    headers: { "mcp-session-id": String(session), accept: "text/event-stream" },
  };
  const first = await open(endpoint.url, subscribe);
  const second = await open(endpoint.url, ofSession);
  t.same([first.statusCode, second.statusCode], [200, 200]);
  fixture.take();
  for (const request of [subscribe, ofSession]) {
    const { status, body } = await ask(endpoint.url, request);
    t.equal(status, 429);
    t.match(JSON.parse(body.toString()).error, { code: -32011, message: /Too many streams/ });
  }
  t.same(fixture.take(), [], "the server is not asked");
  t.same(denials, ["too_many_streams", "too_many_streams"]);
  t.equal((await ask(endpoint.url, statelessCall("tools/list"))).status, 200, "others go on");

  endpoint.principal = principalOf("bob");
  const ofBob = await open(endpoint.url, subscribe);
  t.equal(ofBob.statusCode, 200, "another user has its own");
  endpoint.principal = principalOf("alice");

  first.destroy();
  await eventually("there is room again", async () => {
    const again = await open(endpoint.url, subscribe);
    again.destroy();
    return again.statusCode === 200;
  });
  second.destroy();
  ofBob.destroy();
  await eventually("nothing is kept of whoever has left", () => streams.size === 0);
});
