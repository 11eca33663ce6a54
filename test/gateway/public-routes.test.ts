import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { openSetting } from "./kit.ts";

t.test("healthz says that the process lives, readyz that queries can be served", async (t) => {
  const { gateway, upstream } = await openSetting(t);
  const health = await gateway.request("/healthz");
  t.equal(health.status, 200);
  t.match(health.body, { status: "success", version: /^\d+\.\d+\.\d+/ });
  const ready = await gateway.request("/readyz");
  t.equal(ready.status, 200);
  t.match(ready.body, {
    status: "success",
    upstream: "up",
    access_file: "fresh",
    access_version: /^[0-9a-f]+$/,
    version: String,
  });
  const asked = upstream.take().map(({ method, url }) => `${method} ${url}`);
  t.strictSame(asked, ["GET /healthz"], "a probe is no query");
});

t.test("readyz is 503 while the upstream is down, and healthz is not", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  const { url, port } = { url: upstream.url, port: Number(new URL(upstream.url).port) };
  await upstream.close();
  const gateway = await startGateway(t, { upstream: url });
  const down = await gateway.request("/readyz");
  t.equal(down.status, 503);
  t.match(down.body, {
    status: "error",
    code: "upstream_unreachable",
    message: "The database does not answer",
    request_id: down.headers.get("x-request-id"),
    upstream: "down",
    access_file: "fresh",
    version: String,
  });
  t.equal((await gateway.request("/healthz")).status, 200);

  const again = new RecordingUpstream();
  again.server.listen(port, "127.0.0.1");
  t.teardown(() => again.close());
  await eventually("it is seen to come back", async () => {
    return (await gateway.request("/readyz")).status === 200;
  });
});

t.test("the metadata of the protected resource names it and where tokens come from", async (t) => {
  const { gateway } = await openSetting(t);
  const { status, body } = await gateway.request("/.well-known/oauth-protected-resource");
  t.equal(status, 200);
  t.match(body, {
    resource: `${gateway.url}/mcp`,
    authorization_servers: [gateway.url],
    scopes_supported: ["mcp:tools", "mcp:resources"],
  });
});

t.test("without MCP there is no such metadata", async (t) => {
  const { gateway } = await openSetting(t, { config: "[mcp]\nenabled = false\n" });
  const answer = await gateway.request("/.well-known/oauth-protected-resource");
  t.equal(answer.status, 404);
  t.equal(answer.body.code, "not_found");
});
