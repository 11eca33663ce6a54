import { request } from "node:http";
import t from "tap";
import { createMetrics } from "../../src/observe/metrics.ts";

function fetchText(port: number, path: string, method = "GET"): Promise<[number, string]> {
  const { promise, resolve, reject } = Promise.withResolvers<[number, string]>();
  const asked = request({ host: "127.0.0.1", port, path, method }, (response) => {
    let text = "";
    response.setEncoding("utf8").on("data", (part: string) => (text += part));
    response.once("end", () => resolve([response.statusCode ?? 0, text]));
  });
  asked.once("error", reject).end();
  return promise;
}

t.test("figures are served in Prometheus's form on a listener of their own", async (t) => {
  const metrics = createMetrics();
  metrics.request({ route: "/query", status: 403, reason: "no_grant" }, 0.002);
  metrics.reloaded("abc");
  const server = await metrics.listen("127.0.0.1:0");
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;

  const [status, text] = await fetchText(port, "/metrics");
  t.equal(status, 200);
  t.match(text, 'gatehouse_requests_total{route="/query",status="403",reason="no_grant"} 1');
  t.match(text, 'gatehouse_request_duration_seconds_bucket{le="0.0025",route="/query"} 1');
  t.match(text, 'gatehouse_access_file_info{version="abc"} 1');
  t.match(text, "gatehouse_access_file_last_reload_successful 1");

  metrics.reloadFailed();
  const [, after] = await fetchText(port, "/metrics");
  t.match(after, "gatehouse_access_file_last_reload_successful 0");
  t.match(after, 'gatehouse_access_file_info{version="abc"} 1', "the last good one is in force");
  t.equal((await fetchText(port, "/"))[0], 404);
  t.equal((await fetchText(port, "/metrics", "POST"))[0], 404);
});
