import { PassThrough } from "node:stream";
import { finished } from "node:stream/promises";
import t from "tap";
import { Metrics, MetricsAggregation } from "../../src/observe/metrics.ts";
import { passLinesOn } from "../../src/workers/start.ts";

t.test("lines of a log are passed on whole, however they come", async (t) => {
  const source = new PassThrough();
  const written: string[] = [];
  passLinesOn(source, { write: (lines) => void written.push(lines) });
  const text = Buffer.from("one\nzwölf\nthree\ncut");
  for (const byte of text) source.write(Buffer.of(byte));
  source.end();
  await finished(source);
  t.strictSame(written, ["one\n", "zwölf\n", "three\n"]);
});

t.test("metrics of several processes are added up, and counts outlive their process", async (t) => {
  const [one, other] = [new Metrics(), new Metrics()];
  const request = {
    ...{ route: "/query", status: 200, reason: "allowed", decision: "allow" as const },
    ...{ operation: "Select", user: "ann", seconds: 0.1, gatewaySeconds: 0.1 },
  };
  one.request(request);
  other.request(request);
  other.request(request);
  one.reloaded("abc");
  other.reloaded("abc");
  other.reloadFailed();
  const gathered = new MetricsAggregation();
  gathered.note(1, await one.values());
  gathered.note(2, await other.values());
  const text = await gathered.text();
  t.match(text, 'gatehouse_requests_total{route="/query",status="200",reason="allowed"} 3');
  t.match(text, 'gatehouse_request_duration_seconds_count{route="/query"} 3');
  t.match(text, "gatehouse_access_file_last_reload_successful 0", "what one lacks, all lack");
  t.match(text, 'gatehouse_access_file_info{version="abc"} 1');

  await gathered.retire(2);
  const fresh = new Metrics();
  fresh.reloaded("abc");
  fresh.request(request);
  gathered.note(2, await fresh.values());
  const after = await gathered.text();
  t.match(after, 'gatehouse_requests_total{route="/query",status="200",reason="allowed"} 4');
  t.match(after, "gatehouse_access_file_last_reload_successful 1", "a state ends with its process");
});
