import path from "node:path";
import t from "tap";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { routes, scene } from "./routes.ts";

const shared = await scene(t);

const { answer: usual } = shared.upstream;

t.beforeEach(() => {
  shared.upstream.take();
  shared.upstream.answer = usual;
});

t.test("a client that goes away ends its stream upstream", async () => {
  const { upstream, gateway } = shared;
  let closed = 0;
  upstream.answer = (_, response) => {
    response.once("close", () => closed++);
    response.write("data: 1\n\n");
  };
  const wire = await Wire.open(gateway.url);
  wire.send(wireRequest("GET /status", {}));
  await wire.until(/data: 1/);
  wire.cut();
  await eventually("the upstream saw it", () => closed === 1);
});

t.test("an upstream that is down, silent or broken is told as such", async (t) => {
  const { upstream, gateway } = await scene(t, "response_timeout = 1\n");
  upstream.answer = () => {};
  const silent = await gateway.request("/status");
  t.equal(silent.status, 504);
  t.equal(silent.body.code, "upstream_timeout");
  upstream.answer = (_, response) => response.socket?.resetAndDestroy();
  const broken = await gateway.request("/status");
  t.equal(broken.status, 502);
  t.equal(broken.body.code, "upstream_broken");
  upstream.answer = (_, response) => {
    response.write("half", () => response.socket?.destroy());
  };
  const wire = await Wire.open(gateway.url);
  wire.send(wireRequest("GET /status", {}));
  t.notMatch(await wire.untilClosed(), /\r\n0\r\n\r\n$/, "half an answer does not look whole");
  await upstream.close();
  const down = await gateway.request("/status");
  t.equal(down.status, 502);
  t.equal(down.body.code, "upstream_unreachable");
  upstream.server.listen(0);
});

t.test("a route leads to a Unix socket as well", async (t) => {
  const upstream = await new RecordingUpstream().listen(path.join(temporaryHome(t), "db.sock"));
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config: routes });
  const answer = await ask(`${gateway.url}/status?x=1`);
  t.equal(answer.body.toString(), '{"status":"success","data":[]}');
  // The gateway asks whether it is the engine that listens there.
  const received = upstream.take().find(({ url }) => url !== "/healthz");
  t.equal(received?.url, "/status?x=1");
  t.equal(received?.headers.host, "localhost");
});
