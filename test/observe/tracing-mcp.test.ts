import t from "tap";
import { callTool, send } from "../journeys/mcp.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { statelessCall } from "../mcp/messages.ts";
import { clientTrace, Recorder } from "./traced.ts";

const upstream = await new RecordingUpstream().listen(t);
const fixture = new FixtureServer();
const tool = await fixture.listen(t);
const route =
  '[[routes]]\npath = "/db/:database/stats"\nmethods = ["GET"]\naccess = "SELECT"\nquery = ["key"]\n';
const tools = `[mcp]\nupstream = "${tool}"\n[[mcp.tools]]\nname = "test_simple_text"\npermission = "SELECT"\ndatabase = "main"\n`;
const recorder = new Recorder(t);
const options = { upstream: upstream.url, config: route + tools, env: recorder.env };
const gateway = await startGateway(t, options);
const token = await gateway.login();
await eventually(
  "the upstream is up",
  async () => (await gateway.request("/readyz")).status === 200,
);

t.test("configured routes and the upstream MCP server receive the gateway's span", async (t) => {
  upstream.take();
  const [stream, call] = [clientTrace(), clientTrace()];
  const headers = { authorization: `Bearer ${token}`, traceparent: stream.traceparent };
  const { status } = await gateway.request(`/db/main/stats?key=${token}`, { headers });
  t.equal(status, 200);
  const { server, upstream: forwarded } = await recorder.of(stream);
  t.match(server, {
    name: "GET /db/:database/stats",
    attributes: { "url.path": "/db/main/stats" },
  });
  t.match(forwarded, [{ name: "GET", parentId: server.spanId }]);
  t.equal(
    upstream.takeOne().headers.traceparent,
    `00-${stream.traceId}-${forwarded[0]?.spanId}-01`,
  );

  const { headers: own, ...rest } = statelessCall("tools/call", { name: "test_simple_text" });
  const message = { ...rest, headers: { ...own, traceparent: call.traceparent } };
  t.equal((await send(gateway, message, token)).status, 200);
  const mcp = await recorder.of(call);
  t.match(mcp.server, { name: "POST /mcp", attributes: { "gatehouse.operation": "SELECT" } });
  t.equal(mcp.upstream[0]?.attributes["server.port"], Number(new URL(tool).port));
  const [request] = fixture.take();
  t.equal(request?.headers.traceparent, `00-${call.traceId}-${mcp.upstream[0]?.spanId}-01`);
  for (const part of token.split(".")) t.notOk(recorder.text.includes(part), "no token in a span");
});

t.test("each query of an embedded tool has a span of its own", async (t) => {
  const own = new Recorder(t);
  const embedded = await startGateway(t, { upstream: upstream.url, env: own.env });
  upstream.take();
  upstream.answer = (_request, response) => response.end('{"status":"success","data":[]}');
  const args = { database: "main", from: "t", columns: ["*"] };
  const answer = await callTool(embedded, "select", args, await embedded.login());
  t.equal(answer.status, 200);
  const { headers } = upstream.takeOne();
  const [, traceId = "", spanId] = String(headers.traceparent).split("-");
  const { server, upstream: forwarded } = await own.of({ traceId });
  t.match(server, { name: "POST /mcp", attributes: { "gatehouse.operation": "Select" } });
  t.match(forwarded, [{ spanId, parentId: server.spanId, status: 0 }]);
  t.equal(forwarded[0]?.attributes["http.response.status_code"], 200);
});
