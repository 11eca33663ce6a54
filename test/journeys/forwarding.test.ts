import { writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import { ask } from "../kit/client.ts";
import { type RunOptions, startGateway, temporaryHome } from "../kit/gateway.ts";
import { queryHeaders, select } from "../kit/queries.ts";
import { type ReceivedRequest, RecordingUpstream } from "../kit/upstream.ts";
import { statelessCall } from "../mcp/messages.ts";

async function scene(t: Test, options: RunOptions = {}, socketPath?: string) {
  const upstream = await new RecordingUpstream().listen(t, socketPath);
  const gateway = await startGateway(t, { upstream: upstream.url, ...options });
  return { gateway, upstream, token: await gateway.login() };
}

async function forwarded(
  { gateway, upstream, token }: Awaited<ReturnType<typeof scene>>,
  headers: Record<string, string> = {},
  route = "/query",
): Promise<ReceivedRequest> {
  const all = { ...queryHeaders(token), ...headers };
  await ask(`${gateway.url}${route}`, { method: "POST", headers: all, body: select });
  // On a Unix socket the gateway checks whether the engine listens there.
  const [received, ...more] = upstream.take().filter(({ url }) => url !== "/healthz");
  if (received === undefined || more.length > 0) throw new Error("not exactly one request arrived");
  return received;
}

const everything = {
  Accept: "application/json",
  "Accept-Encoding": "gzip",
  "User-Agent": "test",
  traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
  tracestate: "a=b",
  baggage: "c=d",
  Cookie: "session=1",
  "X-Tenant": "blue",
  "X-Other": "red",
  "X-Gatehouse-User": "root",
  X_Gatehouse_User: "root",
  "x_gatehouse-role": "Owner",
  "X-Request-Id": "mine",
  "X-Forwarded-For": "6.6.6.6",
  "X-Forwarded-Proto": "https",
  "X-Forwarded-Host": "evil.test",
  Forwarded: "for=6.6.6.6",
  "X-Real-IP": "6.6.6.6",
};

function namesOf({ rawHeaders }: ReceivedRequest): string[] {
  return rawHeaders
    .filter((_, at) => at % 2 === 0)
    .map((name) => name.toLowerCase())
    .sort();
}

const always = ["connection", "content-length", "content-type", "host"];
const added = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];
const identity = ["x-gatehouse-database", "x-gatehouse-role", "x-gatehouse-user"];

t.test("a query is forwarded with exactly the listed headers and the gateway's own", async (t) => {
  const here = await scene(t, { config: 'forward_headers = ["X-Tenant"]\n' });
  const received = await forwarded(here, everything, "/query?token=secret&x=1");
  const client = ["accept", "accept-encoding", "baggage", "traceparent", "tracestate"];
  const expected = [...always, ...client, "user-agent", "x-tenant", ...added, ...identity];
  t.strictSame(namesOf(received), expected.sort());
  t.equal(received.url, "/query", "the query string stays here");
  const { host } = new URL(here.gateway.url);
  t.match(received.headers, {
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-proto": "http",
    "x-forwarded-host": host,
    "x-gatehouse-user": "admin",
    "x-gatehouse-role": "Owner",
    "x-gatehouse-database": "main",
    "x-tenant": "blue",
    "content-type": "application/json",
    "content-length": String(select.length),
  });
  t.match(received.headers["x-request-id"], /^[0-9a-f-]{36}$/, "the id is the gateway's own");
});

t.test("a tool call at /mcp forwards the client's trace", async (t) => {
  const { gateway, upstream, token } = await scene(t);
  upstream.answer = (_request, response) => response.end('{"status":"success","data":[]}');
  const { traceparent, tracestate, baggage } = everything;
  const name = "select";
  const args = { database: "main", from: "t", columns: ["*"] };
  const { headers, ...call } = statelessCall("tools/call", { name, arguments: args });
  const sent = { ...everything, ...headers, authorization: `Bearer ${token}` };
  const { status } = await ask(`${gateway.url}/mcp`, { ...call, headers: sent });
  t.equal(status, 200);
  const received = upstream.take().find(({ url }) => url === "/query");
  if (received === undefined) throw new Error("no query arrived");
  t.match(received.headers, { traceparent, tracestate, baggage });
  const client = ["baggage", "traceparent", "tracestate"];
  t.strictSame(namesOf(received), [...always, ...client, ...added, ...identity].sort());
});

t.test("the headers of a trusted proxy are accepted and extended", async (t) => {
  const here = await scene(t, { config: '[server]\ntrusted_proxies = ["127.0.0.0/8"]\n' });
  const received = await forwarded(here, {
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "db.example.com",
    "X-Request-Id": "front-1",
    "X-Gatehouse-User": "root",
  });
  t.match(received.headers, {
    "x-forwarded-for": "203.0.113.9, 127.0.0.1",
    "x-forwarded-proto": "https",
    "x-forwarded-host": "db.example.com",
    "x-request-id": "front-1",
    "x-gatehouse-user": "admin",
  });
  const { host } = new URL(here.gateway.url);
  const empty = await forwarded(here, { "X-Forwarded-For": "", "X-Forwarded-Host": "" });
  t.match(empty.headers, { "x-forwarded-for": "127.0.0.1", "x-forwarded-host": host });
  const gaps = await forwarded(here, { "X-Forwarded-For": " , 203.0.113.9:80 ,," });
  t.equal(gaps.headers["x-forwarded-for"], "203.0.113.9:80, 127.0.0.1");
  const odd = await forwarded(here, { "X-Request-Id": `${"x".repeat(129)}` });
  t.match(odd.headers["x-request-id"], /^[0-9a-f-]{36}$/, "an id too long is replaced");
});

t.test("the configured credential replaces the client's, also from a file", async (t) => {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "credential"), "Bearer from-file\n", { mode: 0o600 });
  const config = 'authorization_file = "credential"\nforward_authorization = true\n';
  const here = await scene(t, { home, config });
  t.equal((await forwarded(here)).headers.authorization, "Bearer from-file");
});

t.test("the client's credential is forwarded only if configured", async (t) => {
  const here = await scene(t, { config: "forward_authorization = true\n" });
  t.equal((await forwarded(here)).headers.authorization, `Bearer ${here.token}`);
});

t.test("over a Unix socket the same is forwarded", async (t) => {
  const socketPath = path.join(temporaryHome(t), "db.sock");
  const here = await scene(t, {}, socketPath);
  const received = await forwarded(here, everything);
  t.equal(received.url, "/query");
  t.equal(received.body.toString(), select);
  t.equal(received.headers["x-gatehouse-user"], "admin");
  t.equal(received.headers["x-forwarded-for"], "127.0.0.1");
  for (const name of ["authorization", "cookie", "x_gatehouse_user", "x-tenant"]) {
    t.equal(received.headers[name], undefined, `${name} stays here`);
  }
});

t.test("in the form `op` fields are forwarded byte for byte", async (t) => {
  const { gateway, upstream, token } = await scene(t, { config: 'query_form = "op"\n' });
  const fields =
    '"database":"m\\u0061in", "table":"t",\n"values":[{"id":12345678901234567890,"x":1.50}]';
  t.equal((await gateway.query(`{ "Insert": {${fields}} }`, token)).status, 200);
  t.equal((await gateway.query(`{"Batch":[{"Insert":{${fields}}},${select}]}`, token)).status, 200);
  const [one, batch] = upstream.take();
  t.equal(one?.body.toString(), `{"op":"insert",${fields}}`);
  t.equal(one?.headers["content-length"], String(one?.body.length));
  const inner = select.slice(select.indexOf(":{") + 2, -2);
  t.equal(batch?.body.toString(), `["batch",{"op":"insert",${fields}},{"op":"select",${inner}}]`);
});

t.test("the upstream receives the role for each database of a Batch", async (t) => {
  const { gateway, upstream } = await scene(t);
  const token = await gateway.addUser("carol", "ReadOnly");
  await gateway.edit((text) => text + grant("carol", "logs", "Owner"));
  await gateway.service.logged(({ grantsAdded }) => String(grantsAdded) === "carol logs Owner");
  const elements = ["logs", "main", "logs"].map((name) => select.replace("main", name));
  t.equal((await gateway.query(`{"Batch":[${elements}]}`, token)).status, 200);
  t.match(upstream.takeOne().headers, {
    "x-gatehouse-database": "logs,main",
    "x-gatehouse-role": "Owner,ReadOnly",
  });
});
