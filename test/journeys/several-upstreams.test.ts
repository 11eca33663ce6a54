import { writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer } from "node:https";
import path from "node:path";
import t, { type Test } from "tap";
import { makeCertificate } from "../kit/certificate.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { insert, select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { callTool, textOf } from "./mcp.ts";

t.test("queries are sent to the least busy database", async (t) => {
  const upstreams = [
    await new RecordingUpstream().listen(t),
    await new RecordingUpstream().listen(t),
    await new RecordingUpstream().listen(t),
  ];
  const held: ServerResponse[][] = [[], [], []];
  for (const [at, upstream] of upstreams.entries()) {
    upstream.answer = ({ url }, response) => {
      if (url === "/query") held[at]?.push(response);
      else response.end("{}");
    };
  }
  const release = (at: number) => {
    for (const response of held[at]?.splice(0) ?? []) response.end("{}");
  };
  const counts = () => held.map(({ length }) => length);
  const urls = upstreams.map(({ url }) => url);
  const gateway = await startGateway(t, { config: `[upstream]\nurls = ${JSON.stringify(urls)}\n` });
  const token = await gateway.login();
  const ask = (count: number) => Array.from({ length: count }, () => gateway.query(select, token));

  const first = ask(9);
  await eventually("all are under way", () => counts().join() === "3,3,3");
  release(1);
  await eventually("three are answered", async () => counts().join() === "3,0,3");
  const second = ask(3);
  await eventually("the free one takes them", () => counts().join() === "3,3,3");
  for (const at of [0, 1, 2]) release(at);
  const answers = await Promise.all([...first, ...second]);
  t.ok(answers.every(({ status }) => status === 200));
});

t.test("a database that never answers its health check is ejected until it does", async (t) => {
  let isHung = true;
  const hung = await new RawUpstream((socket, request) => {
    if (isHung) return;
    if (request.startsWith("GET /status HTTP/1.1")) socket.write(wireAnswer("{}"));
    else socket.write(wireAnswer('{"from":"hung"}'));
  }).listen();
  t.teardown(() => hung.close());
  const good = await new RecordingUpstream().listen(t);
  const urls = JSON.stringify([hung.url, good.url]);
  const config = `[upstream]\nurls = ${urls}\nhealth_path = "/status"\nhealth_interval = 1\n`;
  const gateway = await startGateway(t, { config });
  const token = await gateway.login();
  await gateway.service.logged(({ target, level }) => target === hung.url && level === "warn");
  for (let count = 0; count < 10; count++) {
    t.equal((await gateway.query(select, token)).status, 200);
  }
  t.ok(hung.requests.every((request) => request.startsWith("GET /status")));
  t.equal((await gateway.request("/readyz")).status, 200);

  isHung = false;
  await gateway.service.logged(({ target, level }) => target === hung.url && level === "info");
  await eventually("it is asked again", async () => {
    return (await gateway.query(select, token)).text === '{"from":"hung"}';
  });

  good.answer = (_request, response) => response.writeHead(500).end();
  isHung = true;
  await eventually("with both gone it is not ready", async () => {
    return (await gateway.request("/readyz")).status === 503;
  });
});

t.test("queries are routed by database and forwarded byte for byte", async (t) => {
  const home = await new RecordingUpstream().listen(t);
  const elsewhere = await new RecordingUpstream().listen(t);
  const config = `
[upstream]
url = "${home.url}"
[[upstream.databases]]
databases = ["sales", "stock", "acme.shop"]
url = "${elsewhere.url}"
`;
  const routes = tables("routes", [
    { path: "/db/:database/stats", access: "SELECT" },
    { path: "/:tenant/:name", access: "SELECT", database: ":tenant.:name" },
    { path: "/fixed", access: "SELECT", database: "stock" },
    { path: "/ping", access: "authenticated" },
  ]);
  const gateway = await startGateway(t, { config: config + routes });
  const token = await gateway.login();
  const on = (database: string) =>
    `{ "Select":{"database":"${database}","from":"t","columns":["*"], "limit":10} }`;
  const bodies = (upstream: RecordingUpstream) => upstream.take().map(({ body }) => String(body));

  for (const database of ["main", "sales", "stock", "Sales2"]) {
    t.equal((await gateway.query(on(database), token)).status, 200);
  }
  t.strictSame(bodies(home), [on("main"), on("Sales2")]);
  t.strictSame(bodies(elsewhere), [on("sales"), on("stock")]);

  const batch = `{"Batch":[${on("sales")}, ${on("stock")}]}`;
  t.equal((await gateway.query(batch, token)).status, 200);
  t.strictSame(bodies(elsewhere), [batch]);

  const mixed = await gateway.query(`{"Batch":[${on("main")}, ${on("sales")}]}`, token);
  t.equal(mixed.status, 400);
  t.match(mixed.body, { code: "batch_across_upstreams", message: /are on several: main, sales$/ });
  t.strictSame([...bodies(home), ...bodies(elsewhere)], [], "before anything is sent");

  const away = ["/db/sales/stats", "/db/%73tock/stats", "/fixed", "/acme/shop"];
  const atHome = ["/db/main/stats", "/acme/other", "/ping"];
  for (const route of [...away, ...atHome]) {
    t.equal((await gateway.get(route, token)).status, 200, route);
  }
  const paths = (upstream: RecordingUpstream) => upstream.take().map(({ url }) => url);
  t.strictSame(paths(elsewhere), away);
  t.strictSame(paths(home), atHome);

  const tool = { database: "sales", from: "t", columns: ["*"] };
  const called = await callTool(gateway, "select", tool, token);
  t.equal(called.status, 200, textOf(called));
  t.equal(elsewhere.take().length, 1, "a model's questions go the same way");
  t.equal(home.take().length, 0);

  await elsewhere.close();
  await eventually("each place must be there", async () => {
    return (await gateway.request("/readyz")).status === 503;
  });
});

t.test("the metrics list each upstream by its URL", async (t) => {
  const [one, two] = [
    await new RecordingUpstream().listen(t),
    await new RecordingUpstream().listen(t),
  ];
  const { section, value } = await reserveMetrics();
  const config = `[upstream]\nurls = ${JSON.stringify([one.url, two.url])}\nhealth_interval = 1\n${section}`;
  await startGateway(t, { config });
  const isUp = (url: string) => value(`gatehouse_upstream_target_up{target="${url}"}`);
  for (const { url } of [one, two]) {
    t.equal(await isUp(url), 1);
    t.equal(await value(`gatehouse_upstream_target_connections_busy{target="${url}"}`), 0);
  }
  const { url } = two;
  await two.close();
  await eventually("it shows as down", async () => (await isUp(url)) === 0);
});

async function encrypted(t: Test, name: string) {
  const { cert, key } = makeCertificate(name);
  const received: string[] = [];
  const state = { padding: 0, connections: 0 };
  const server = createServer({ cert, key }, (request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      received.push(Buffer.concat(pieces).toString());
      response.setHeader("Content-Type", "application/json");
      response.end(`{"data":"${"x".repeat(state.padding)}"}`);
    });
  });
  server.on("secureConnection", () => state.connections++);
  const port = await listening(t, server);
  return { cert, received, state, url: `https://localhost:${port}` };
}

async function behind(t: Test, upstream: { url: string }, trusted: string) {
  const authority = path.join(temporaryHome(t), "authority.pem");
  writeFileSync(authority, trusted);
  const env = { NODE_EXTRA_CA_CERTS: authority };
  const config = tables("routes", [{ path: "/status", access: "public" }]);
  const gateway = await startGateway(t, { upstream: upstream.url, env, config });
  return { gateway, token: await gateway.login() };
}

t.test("short and long answers arrive over TLS on a kept connection", async (t) => {
  const upstream = await encrypted(t, "localhost");
  const { gateway, token } = await behind(t, upstream, upstream.cert);
  for (const padding of [0, 5000, 20_000, 3_000_000, 1]) {
    upstream.state.padding = padding;
    const { status, text } = await gateway.query(select, token);
    t.equal(status, 200);
    t.ok(text === `{"data":"${"x".repeat(padding)}"}`, `${padding} bytes arrive as they were sent`);
  }
  const { status } = await gateway.query(insert, token);
  t.equal(status, 200);
  t.strictSame(upstream.received.at(-1), insert);
  t.equal(upstream.state.connections, 1);
});

for (const [what, name, isTrusted] of [
  ["that is not trusted", "localhost", false],
  ["of another one", "elsewhere.test", true],
] as const) {
  t.test(`an upstream with a certificate ${what} receives no query`, async (t) => {
    const upstream = await encrypted(t, name);
    const trusted = isTrusted ? upstream.cert : makeCertificate("localhost").cert;
    const { gateway, token } = await behind(t, upstream, trusted);
    const refusal = { status: 502, body: { code: "upstream_unreachable" } };
    t.match(await gateway.query(insert, token), refusal);
    t.match(await gateway.request("/status"), refusal);
    t.match(await gateway.request("/readyz"), { status: 503, body: { upstream: "down" } });
    await gateway.service.logged(({ detail }) => /certificate/.test(String(detail)));
    t.strictSame(upstream.received, []);
  });
}

t.test("a TLS handshake without an end is given up after connect_timeout", async (t) => {
  const mute = await new RawUpstream(() => {}).listen();
  t.teardown(() => mute.close());
  const section = `[upstream]\nurl = "${mute.url.replace("http", "https")}"\nconnect_timeout = 1\n`;
  const config = section + tables("routes", [{ path: "/status", access: "public" }]);
  const gateway = await startGateway(t, { config });
  const startedAt = performance.now();
  t.match(await gateway.request("/status"), { status: 504, body: { code: "upstream_timeout" } });
  t.ok(performance.now() - startedAt < 10_000);
});
