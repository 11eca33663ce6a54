import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { insert, select } from "../kit/queries.ts";
import { type OnRequest, RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

const success = wireAnswer('{"status":"success"}');

async function scene(t: Test, onRequest: OnRequest, config = "") {
  const upstream = await new RawUpstream(onRequest).listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  return { upstream, gateway, token: await gateway.login() };
}

/** Holds an answer against what the contract says of a failure. */
async function fails(
  t: Test,
  gateway: TestGateway,
  body: string,
  expected: { status: number; code: string },
  token: string,
): Promise<void> {
  const answer = await gateway.query(body, token);
  t.equal(answer.status, expected.status, expected.code);
  t.match(answer.body, { status: "error", code: expected.code, message: String });
  t.equal(answer.body.request_id, answer.headers.get("x-request-id"));
}

t.test(
  "an upstream that is not there is 502, and the next query finds it when it is",
  async (t) => {
    const upstream = await new RecordingUpstream().listen();
    const { url } = upstream;
    await upstream.close();
    const gateway = await startGateway(t, { upstream: url });
    const token = await gateway.login();
    const refused = { status: 502, code: "upstream_unreachable" };
    await fails(t, gateway, select, refused, token);
    await fails(t, gateway, insert, refused, token);
    t.equal((await gateway.request("/readyz")).status, 503);

    const again = new RecordingUpstream();
    again.server.listen(Number(new URL(url).port), "127.0.0.1");
    t.teardown(() => again.close());
    t.equal((await gateway.query(select, token)).status, 200);
    t.equal((await gateway.request("/readyz")).status, 200);
  },
);

t.test("a Unix socket that is not there is 502", async (t) => {
  const gateway = await startGateway(t, { upstream: "unix:/nonexistent/db.sock" });
  const refused = { status: 502, code: "upstream_unreachable" };
  await fails(t, gateway, select, refused, await gateway.login());
});

t.test("a connection that breaks before the answer is 502", async (t) => {
  const { upstream, gateway, token } = await scene(t, (socket) => socket.resetAndDestroy());
  const broken = { status: 502, code: "upstream_broken" };
  await fails(t, gateway, insert, broken, token);
  t.equal(upstream.requests.length, 1, "an Insert is sent once");
  await fails(t, gateway, select, broken, token);
  t.equal(upstream.requests.length, 3, "a Select is sent once more and not again");
});

t.test("an answer that is no HTTP is 502", async (t) => {
  const garbage = [
    "garbage\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
    `HTTP/1.1 200 OK\r\nX-Long: ${"x".repeat(100_000)}\r\n\r\n`,
    "",
  ];
  const { gateway, token } = await scene(t, (socket) => socket.end(garbage[0] ?? ""));
  for (; garbage.length > 0; garbage.shift()) {
    await fails(t, gateway, insert, { status: 502, code: "upstream_broken" }, token);
  }
});

t.test("an upstream that takes too long to answer is 504", async (t) => {
  const { upstream, gateway, token } = await scene(t, () => {}, "response_timeout = 1\n");
  const slow = { status: 504, code: "upstream_timeout" };
  await fails(t, gateway, select, slow, token);
  await fails(t, gateway, insert, slow, token);
  t.equal(upstream.requests.length, 2, "neither is sent again");
  await eventually("the connections are given up", () => upstream.closed === 2);
});

t.test("a Select that meets a connection just closed is sent once more on a new one", async (t) => {
  const seen: string[] = [];
  const { upstream, gateway, token } = await scene(t, (socket, request) => {
    const operation = /"(Select|Insert)"/.exec(request)?.[1] ?? "";
    seen.push(operation);
    // The second request on each connection is met by its end, as after an idle time.
    if (seen.length === 2) socket.destroy();
    else socket.write(success);
  });
  t.equal((await gateway.query(select, token)).status, 200);
  t.equal((await gateway.query(select, token)).status, 200, "the client does not notice");
  t.strictSame(seen, ["Select", "Select", "Select"]);
  t.equal(upstream.connections, 2);
});

t.test("an Insert that meets a connection just closed is not sent again", async (t) => {
  const { upstream, gateway, token } = await scene(t, (socket, request) => {
    if (request.includes("Insert")) socket.destroy();
    else socket.write(success);
  });
  t.equal((await gateway.query(select, token)).status, 200);
  await fails(t, gateway, insert, { status: 502, code: "upstream_broken" }, token);
  const batch = `{"Batch":[${select},${insert}]}`;
  await fails(t, gateway, batch, { status: 502, code: "upstream_broken" }, token);
  t.equal(upstream.requests.filter((request) => request.includes("Insert")).length, 2);
});

t.test(
  "more than the upstream and the line can hold is 503 at once, and nothing hangs",
  async (t) => {
    const config = "connections = 1\nresponse_timeout = 2\n";
    const { upstream, gateway, token } = await scene(t, () => {}, config);
    const queries = Array.from({ length: 40 }, () => gateway.query(select, token));
    const answers = await Promise.all(queries);
    const count = (code: string) => answers.filter(({ body }) => body.code === code).length;
    const overloaded = answers.filter(({ body }) => body.code === "upstream_overloaded");
    t.equal(overloaded.length + count("upstream_timeout"), 40);
    t.ok(count("upstream_timeout") >= 1);
    for (const answer of overloaded) {
      t.equal(answer.status, 503);
      t.equal(answer.headers.get("retry-after"), "1");
    }
    t.ok(upstream.requests.length < 5, "the upstream was spared");
  },
);
