import { parseTraceParent } from "@opentelemetry/core";
import fc from "fast-check";
import t from "tap";
import { parseTraceId } from "../../src/core/observe/audit.ts";
import {
  type Answer,
  auditOf,
  type RunOptions,
  startGateway,
  type TestGateway,
} from "../kit/gateway.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { clientTrace, Recorder } from "./traced.ts";

const ERROR = 2;
const cell = "a value that only the row holds";

const upstream = await new RecordingUpstream().listen(t);
const route = '[[routes]]\npath = "/db/:database/stats"\nmethods = ["GET"]\naccess = "SELECT"\n';
const recorder = new Recorder(t);
const options: RunOptions = { upstream: upstream.url, config: route };
const gateway = await startGateway(t, { ...options, env: recorder.env });
const token = await gateway.login();

function ask(
  body: string,
  headers: Record<string, string>,
  at: TestGateway = gateway,
  as = token,
): Promise<Answer> {
  const all = { ...queryHeaders(as), ...headers };
  return at.request("/query", { method: "POST", headers: all, body });
}

t.test("a query has a server span and a span of the upstream request", async (t) => {
  const client = clientTrace();
  await ask(select, { traceparent: client.traceparent });
  const { server, upstream: forwarded } = await recorder.of(client);
  t.match(server, { name: "POST /query", parentId: client.spanId, status: 0 });
  t.strictSame(server.attributes, {
    "http.request.method": "POST",
    "http.route": "/query",
    "url.path": "/query",
    "url.scheme": "http",
    "client.address": "127.0.0.1",
    "network.protocol.version": "1.1",
    "http.response.status_code": 200,
    "gatehouse.operation": "Select",
    "gatehouse.decision": "allow",
  });
  const { hostname, port } = new URL(upstream.url);
  t.match(forwarded, [{ name: "POST", parentId: server.spanId, status: 0 }]);
  t.strictSame(forwarded[0]?.attributes, {
    "http.request.method": "POST",
    "server.address": hostname,
    "server.port": Number(port),
    "http.response.status_code": 200,
  });
  t.ok(server.seconds > 0 && server.seconds < 60, "from the head to the end of the response");
});

t.test("the upstream receives the gateway's span as parent", async (t) => {
  const client = clientTrace();
  upstream.take();
  const more = { tracestate: "a=b", baggage: "c=d" };
  await ask(select, { traceparent: client.traceparent, ...more });
  const { headers } = upstream.takeOne();
  const { upstream: forwarded } = await recorder.of(client);
  t.match(headers, more);
  t.equal(headers.traceparent, `00-${client.traceId}-${forwarded[0]?.spanId}-01`);
});

t.test("an unsampled trace stays unsampled and keeps its ids", async (t) => {
  const client = clientTrace();
  upstream.take();
  await ask(select, { traceparent: client.traceparent.replace(/01$/, "00") });
  t.match(
    upstream.takeOne().headers.traceparent,
    new RegExp(`^00-${client.traceId}-[0-9a-f]{16}-00$`),
  );
  t.notMatch(recorder.text, client.traceId);
});

t.test("without a valid trace header, the gateway begins a trace", async (t) => {
  const { traceId, spanId } = clientTrace();
  const broken = [
    "",
    `00-${"0".repeat(32)}-${spanId}-01`,
    `00-${traceId}-${"0".repeat(16)}-01`,
    `00-${traceId.toUpperCase()}X-${spanId}-01`,
    `ff-${traceId}-${spanId}-01`,
    `00-${traceId}-${spanId}-01-more`,
    `00-${traceId}-${spanId}`,
  ];
  upstream.take();
  for (const traceparent of broken) {
    await ask(select, traceparent === "" ? {} : { traceparent, tracestate: "a=b" });
    const { headers } = upstream.takeOne();
    const [, found = ""] = String(headers.traceparent).split("-");
    t.not(found, traceId, traceparent);
    t.equal(headers.tracestate, undefined, "the state of an unknown trace");
    const { server } = await recorder.of({ traceId: found });
    t.equal(server.parentId, undefined);
  }
});

t.test("a denial records its reason and is not a server error", async (t) => {
  const [client, before] = [clientTrace(), clientTrace()];
  const rita = await gateway.addUser("rita", "ReadOnly");
  await ask(insert, { traceparent: client.traceparent }, gateway, rita);
  await ask(select, { traceparent: before.traceparent }, gateway, "a.b.c");
  const { server, upstream: forwarded } = await recorder.of(client);
  t.match(server, {
    name: "POST /query",
    status: 0,
    attributes: {
      "http.response.status_code": 403,
      "gatehouse.decision": "deny",
      "gatehouse.reason": "role_insufficient",
      "gatehouse.operation": "Insert",
    },
  });
  t.notOk("error.type" in server.attributes);
  t.strictSame(forwarded, [], "nothing was forwarded");
  t.match((await recorder.of(before)).server.attributes, {
    "gatehouse.reason": "token_invalid",
    "gatehouse.operation": "none",
  });
});

t.test("a span of an unknown route is named only by its method", async (t) => {
  const [unknown, odd] = [clientTrace(), clientTrace()];
  const headers = { traceparent: unknown.traceparent };
  await gateway.request(`/pasted/${token}?${token}`, { headers });
  const wire = await Wire.open(gateway.url, t);
  wire.send(wireRequest("PURGE /query", { traceparent: odd.traceparent }));
  await wire.until(/method_not_allowed/);
  const { server } = await recorder.of(unknown);
  t.equal(server.name, "GET");
  t.notOk("url.path" in server.attributes || "http.route" in server.attributes);
  t.equal(server.attributes["http.response.status_code"], 404);
  t.match((await recorder.of(odd)).server, {
    name: "HTTP /query",
    attributes: { "http.request.method": "_OTHER", "http.request.method_original": "PURGE" },
  });
});

t.test("an upstream failure is an error in both spans", async (t) => {
  t.teardown(() => {
    upstream.answer = (_request, response) => response.end("{}");
  });
  const [broken, failed] = [clientTrace(), clientTrace()];
  upstream.answer = (_request, response) => response.destroy();
  await ask(insert, { traceparent: broken.traceparent });
  const cut = await recorder.of(broken);
  t.match(cut.server.attributes, {
    "http.response.status_code": 502,
    "error.type": "upstream_broken",
    "gatehouse.reason": "upstream_broken",
  });
  t.match(cut.upstream, [{ status: ERROR, attributes: { "error.type": "upstream_broken" } }]);
  t.notOk(
    "http.response.status_code" in (cut.upstream[0]?.attributes ?? {}),
    "there was no status",
  );
  t.equal(cut.server.status, ERROR);

  upstream.answer = (_request, response) => void response.writeHead(500).end(cell);
  await ask(insert, { traceparent: failed.traceparent });
  const { server, upstream: forwarded } = await recorder.of(failed);
  const own = { "http.response.status_code": 500, "error.type": "500" };
  t.match(
    [server, ...forwarded],
    [
      { status: ERROR, attributes: own },
      { status: ERROR, attributes: own },
    ],
  );
});

t.test("a client that disconnects gets status 499 in its span", async (t) => {
  t.teardown(() => {
    upstream.answer = (_request, response) => response.end("{}");
  });
  const client = clientTrace();
  const arrived = Promise.withResolvers<void>();
  upstream.answer = () => arrived.resolve();
  const wire = await Wire.open(gateway.url);
  const headers = { ...queryHeaders(token), traceparent: client.traceparent };
  wire.send(wireRequest("POST /query", headers, select));
  await arrived.promise;
  wire.cut();
  const { server, upstream: forwarded } = await recorder.of(client);
  t.match(server, { status: 0, attributes: { "http.response.status_code": 499 } });
  t.match(forwarded, [{ status: 0, parentId: server.spanId }]);
});

t.test("no query, row or token is in any span", async (t) => {
  const client = clientTrace();
  upstream.answer = (_request, response) => response.end(JSON.stringify({ data: [cell] }));
  const values = [{ id: 1, secret: cell }];
  const body = JSON.stringify({ Insert: { database: "main", table: "t", values } });
  await ask(body, {
    traceparent: client.traceparent,
    baggage: `secret=${cell.replaceAll(" ", "_")}`,
  });
  await recorder.of(client);
  t.ok(recorder.spans.length > 20, "enough spans to search");
  const parts = token.split(".");
  for (const secret of [cell, cell.replaceAll(" ", "_"), ...parts]) {
    t.notOk(recorder.text.includes(secret), secret.slice(0, 12));
  }
});

t.test("the audit names the trace of a request", async (t) => {
  const client = clientTrace();
  const answer = await ask(select, { traceparent: client.traceparent });
  t.equal((await auditOf(gateway, answer)).traceId, client.traceId);
  t.match((await auditOf(gateway, await ask(select, {}))).traceId, /^\w{32}$/);
});

t.test("without an SDK, the client's trace headers pass unchanged", async (t) => {
  const plain = await startGateway(t, options);
  const isTraced = ({ msg }: Record<string, unknown>) => /traced/.test(String(msg));
  t.ok(gateway.service.log.some(isTraced));
  t.notOk(plain.service.log.some(isTraced), "tracing is off");
  const as = await plain.login();
  const { traceId, traceparent } = clientTrace();
  upstream.take();
  const sent = { traceparent, tracestate: "a=b", baggage: "c=d" };
  const answer = await ask(select, sent, plain, as);
  t.match(upstream.takeOne().headers, sent);
  const headers = { authorization: `Bearer ${as}`, ...sent };
  await plain.request("/db/main/stats", { headers });
  t.match(upstream.takeOne().headers, sent);
  t.equal((await auditOf(plain, answer)).traceId, traceId, "the audit still names the trace");

  const odd = { traceparent: `00-${traceId}-01`, tracestate: "a=b" };
  const other = await ask(select, odd, plain, as);
  t.match(upstream.takeOne().headers, odd, "also malformed ones");
  t.notOk("traceId" in (await auditOf(plain, other)));
});

const id = "0af7651916cd43dd8448eb211c80319c";
const parent = "b7ad6b7169203331";

t.test("traceparent must have the form of the specification", async (t) => {
  t.equal(parseTraceId(`00-${id}-${parent}-01`), id);
  t.equal(parseTraceId(`00-${id}-${parent}-00`), id);
  t.equal(parseTraceId(`cc-${id}-${parent}-01`), id, "a future version");
  t.equal(parseTraceId(`cc-${id}-${parent}-01-more-fields`), id);
  const broken = [
    "",
    `00-${id}-${parent}`,
    `00-${id}-${parent}-01-more`,
    `00-${id}-${parent}-01-`,
    `ff-${id}-${parent}-01`,
    `00-${"0".repeat(32)}-${parent}-01`,
    `00-${id}-${"0".repeat(16)}-01`,
    `00-${id.toUpperCase()}-${parent}-01`,
    `0-${id}-${parent}-01`,
    ` 00-${id}-${parent}-01`,
    `00-${id}-${parent}-01, 00`,
    `cc-${id}-${parent}-01.more`,
  ];
  for (const header of broken) t.equal(parseTraceId(header), undefined, header);
  t.equal(parseTraceId(undefined), undefined);
  t.equal(parseTraceId([`00-${id}-${parent}-01`]), undefined, "a repeated header");
});

t.test("traceIdOf agrees with the official library", async () => {
  const digits = { unit: fc.constantFrom(..."0123456789abcdef") };
  const hex = (length: number) =>
    fc.oneof(
      { arbitrary: fc.string({ ...digits, minLength: length, maxLength: length }), weight: 20 },
      { arbitrary: fc.constantFrom("0".repeat(length), "F".repeat(length), "f"), weight: 1 },
    );
  const version = fc.oneof(fc.constantFrom("00", "ff"), hex(2));
  const rest = fc.constantFrom("", "-", "-x");
  const header = fc.tuple(version, hex(32), hex(16), hex(2), rest);
  fc.assert(
    fc.property(header, ([version, traceId, spanId, flags, rest]) => {
      const text = `${version}-${traceId}-${spanId}-${flags}${rest}`;
      return parseTraceId(text) === parseTraceParent(text)?.traceId;
    }),
  );
});
