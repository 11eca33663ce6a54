import type { AddressInfo } from "node:net";
import { pino } from "pino";
import t, { type Test } from "tap";
import {
  type CountedRequest,
  Metrics,
  NAMED_USERS,
  OTHER_USERS,
} from "../../src/core/observe/metrics.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { fetchMetrics, readExposition, valueIn } from "./exposition.ts";
import { exercise, openMeasured } from "./served-metrics.ts";

const denied: CountedRequest = {
  route: "/query",
  status: 403,
  reason: "no_grant",
  decision: "deny",
  operation: "Select",
  user: "ann",
  seconds: 0.002,
  gatewaySeconds: 0.001,
};

async function serve(t: Test, metrics: Metrics): Promise<string> {
  const server = await metrics.listen("127.0.0.1:0", pino({ enabled: false }));
  t.teardown(() => server.close());
  const address: AddressInfo | string | null = server.address();
  return `127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
}

t.test("metrics are served in the Prometheus format on their own listener", async (t) => {
  const metrics = new Metrics();
  metrics.request(denied);
  metrics.reloaded("abc");
  const address = await serve(t, metrics);
  const text = await fetchMetrics(address);
  t.match(text, 'gatehouse_requests_total{route="/query",status="403",reason="no_grant"} 1');
  t.match(text, 'gatehouse_request_duration_seconds_bucket{le="0.001",route="/query"} 0');
  t.match(text, 'gatehouse_request_duration_seconds_bucket{le="0.0025",route="/query"} 1');
  t.match(text, 'gatehouse_request_duration_seconds_bucket{le="+Inf",route="/query"} 1');
  t.match(text, 'gatehouse_request_gateway_seconds_sum{route="/query"} 0.001');
  t.match(text, 'gatehouse_access_file_info{version="abc"} 1');
  t.match(text, "gatehouse_access_file_last_reload_successful 1");

  metrics.reloadFailed();
  const after = await fetchMetrics(address);
  t.match(after, "gatehouse_access_file_last_reload_successful 0");
  t.match(after, 'gatehouse_access_file_info{version="abc"} 1', "the last good one is in force");
  t.equal((await ask(`http://${address}/`)).status, 404);
  t.equal((await ask(`http://${address}/metrics`, { method: "POST" })).status, 404);
  // Prometheus adds the `params` of a job.
  t.equal((await ask(`http://${address}/metrics?module=x`)).status, 200);
  const head = await ask(`http://${address}/metrics`, { method: "HEAD" });
  t.match(head, { status: 200, headers: { "content-type": /^text\/plain/ }, body: { length: 0 } });
});

t.test("a listener on loopback serves metrics to no page with a rebound DNS name", async (t) => {
  const address = await serve(t, new Metrics());
  for (const host of ["evil.example:9464", "localhost", "10.1.2.3:9464", "[fd00::1]"]) {
    const { status } = await ask(`http://${address}/metrics`, { headers: { host } });
    t.equal(status, host.startsWith("evil") ? 403 : 200, host);
  }
});

t.test("counters rise from one scrape to the next", async (t) => {
  const metrics = new Metrics();
  const address = await serve(t, metrics);
  for (const count of [1, 2]) {
    metrics.request(denied);
    const text = await fetchMetrics(address);
    t.match(
      text,
      `gatehouse_decisions_total{operation="Select",decision="deny",reason="no_grant"} ${count}\n`,
    );
    t.match(text, `gatehouse_user_requests_total{user="ann",decision="deny"} ${count}\n`);
    t.match(text, `gatehouse_request_duration_seconds_count{route="/query"} ${count}\n`);
  }
});

t.test("only a bounded number of users get their own label", async (t) => {
  const metrics = new Metrics();
  const address = await serve(t, metrics);
  const count = NAMED_USERS + 50;
  for (let at = 0; at < count; at++) metrics.request({ ...denied, user: `user${at}` });
  const users = readExposition(await fetchMetrics(address)).get("gatehouse_user_requests_total");
  t.equal(users?.samples.length, NAMED_USERS + 1);
  const other = `gatehouse_user_requests_total{user="${OTHER_USERS}",decision="deny"} 50`;
  t.ok(users?.samples.includes(other));
  metrics.request({ ...denied, user: "user0" });
  t.match(await fetchMetrics(address), '{user="user0",decision="deny"} 2');
});

for (const workers of [1, 2]) {
  t.test(`outcomes of requests are counted (processes: ${workers})`, async (t) => {
    const setting = await openMeasured(t, workers);
    await exercise(setting);
    const isIdle = async () => /_in_flight 0/.test(await setting.metrics.read());
    await eventually("all requests are answered", isIdle);
    const text = await setting.metrics.read();
    const counters = Array.from(readExposition(text)).filter(([name]) => name.endsWith("_total"));
    const misnamed = counters.filter(([, { type }]) => type !== "counter").map(([name]) => name);
    t.strictSame(misnamed, [], "names of counters end in _total");
    const value = (sample: string) => valueIn(text, sample);
    const decisions = "gatehouse_decisions_total";
    t.equal(
      value(`${decisions}{operation="Insert",decision="deny",reason="role_insufficient"}`),
      1,
    );
    t.equal(value(`${decisions}{operation="Batch",decision="allow",reason="allowed"}`), 1);
    t.equal(value(`${decisions}{operation="none",decision="deny",reason="token_invalid"}`), 1);
    t.equal(value('gatehouse_user_requests_total{user="rita",decision="deny"}'), 1);
    t.equal(value('gatehouse_upstream_failures_total{kind="broken"}'), 1);
    t.equal(value('gatehouse_upstream_failures_total{kind="timeout"}'), 0, "shown before it rises");
    t.equal(value("gatehouse_upstream_answers_cut_total"), 1);
    t.equal(value("gatehouse_upstream_up"), 1);
    t.equal(value("gatehouse_upstream_connections_busy"), 0);
    if (workers === 1) t.equal(value("gatehouse_upstream_wait_seconds_count"), 1);
    t.ok(value("gatehouse_upstream_answer_seconds_count") >= 5);
    t.ok(value("gatehouse_hash_seconds_count") >= 3, "logins and a new password");
    t.equal(value("gatehouse_hashes_waiting"), 0);
    t.equal(value('gatehouse_token_checks_total{result="refused"}'), 1);
    t.ok(value('gatehouse_token_checks_total{result="remembered"}') > 0);
    t.equal(value("gatehouse_access_file_last_reload_successful"), 1);
    const total = value('gatehouse_request_duration_seconds_sum{route="/query"}');
    const own = value('gatehouse_request_gateway_seconds_sum{route="/query"}');
    t.ok(own > 0 && own < total, "the gateway's time is part of the total");
  });
}
