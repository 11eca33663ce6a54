import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { buffer } from "node:stream/consumers";
import t, { type Test } from "tap";
import { type GatewaySetup, openGatewaySetup, select } from "../gateway/kit.ts";
import { type Ask, ask, type PlainAnswer } from "../kit/client.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { queryHeaders } from "../kit/queries.ts";
import { acceptSockets, SocketClient } from "../kit/web-socket.ts";
import { deployed, fill, findProgram } from "./programs.ts";
import { PUBLIC_HOST, proxies, type RunningProxy, replicasProxy, startProxy } from "./proxies.ts";

/** Differs from the proxy's own address. */
const CLIENT = "127.0.0.2";

class Client {
  readonly #proxy: RunningProxy;
  #token = "";

  constructor(proxy: RunningProxy) {
    this.#proxy = proxy;
  }

  async open(path: string, { method = "POST", headers, body }: Ask): Promise<IncomingMessage> {
    const sent = request({
      host: "127.0.0.1",
      port: this.#proxy.tlsPort,
      localAddress: CLIENT,
      agent: false,
      servername: PUBLIC_HOST,
      ca: this.#proxy.ca,
      path,
      method,
      headers: { Host: PUBLIC_HOST, ...headers },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const answered = once(sent, "response");
    sent.end(body);
    const [answer] = await answered;
    return answer;
  }

  async send(path: string, options: Ask): Promise<PlainAnswer> {
    const answer = await this.open(path, options);
    const { statusCode: status = 0, headers, rawHeaders } = answer;
    return { status, headers, rawHeaders, body: await buffer(answer) };
  }

  async logIn(): Promise<void> {
    const { body } = await this.send("/login", {
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ username: "admin", password: ADMIN_PASSWORD }),
    });
    this.#token = JSON.parse(body.toString()).token;
  }

  get headers(): Record<string, string> {
    return queryHeaders(this.#token);
  }

  openSocket(path: string): Promise<SocketClient> {
    const { tlsPort, ca } = this.#proxy;
    const headers = { Host: PUBLIC_HOST, ...this.headers };
    const options = { servername: PUBLIC_HOST, ca, localAddress: CLIENT };
    return SocketClient.open(`https://127.0.0.1:${tlsPort}${path}`, headers, [], options);
  }

  query(headers: Record<string, string> = {}): Promise<PlainAnswer> {
    const body = JSON.stringify(select);
    return this.send("/query", { headers: { ...this.headers, ...headers }, body });
  }
}

function auditOf({ gateway }: GatewaySetup, { headers }: PlainAnswer) {
  const id = headers["x-request-id"];
  return gateway.service.logged((line) => line.audit === true && line.requestId === id);
}

const claims = {
  "X-Forwarded-For": "203.0.113.9",
  "X-Forwarded-Proto": "http",
  "X-Forwarded-Host": "evil.test",
  "X-Real-IP": "203.0.113.9",
  Forwarded: "for=203.0.113.9;host=evil.test",
  "X-Request-Id": "of-the-client",
  "X-Gatehouse-User": "root",
};

async function checkProvenance(t: Test, client: Client, setting: GatewaySetup): Promise<void> {
  const { upstream } = setting;
  upstream.take();
  const answer = await client.query(claims);
  t.equal(answer.status, 200);
  t.not(answer.headers["x-request-id"], "of-the-client", "the proxy assigns the request id");
  t.match(await auditOf(setting, answer), { address: CLIENT, user: "admin" });
  const [received] = upstream.take();
  t.match(received?.headers, {
    "x-forwarded-for": `${CLIENT}, 127.0.0.1`,
    "x-forwarded-proto": "https",
    "x-forwarded-host": PUBLIC_HOST,
    "x-request-id": answer.headers["x-request-id"],
    "x-gatehouse-user": "admin",
  });
  await client.send("/stats", { method: "GET", headers: { ...client.headers, ...claims } });
  const [streamed] = upstream.take();
  t.match(streamed?.headers, { "x-forwarded-for": `${CLIENT}, 127.0.0.1` });
  t.equal(streamed?.headers.forwarded, undefined, "other client claims are not forwarded");
  t.equal(streamed?.headers["x-real-ip"], undefined);
}

/** The upstream sends the rest of its response once the client has received the first part. */
async function checkStreaming(t: Test, client: Client, { upstream }: GatewaySetup): Promise<void> {
  const received = Promise.withResolvers<void>();
  upstream.answer = (_request, response) => {
    response.writeHead(200, { "content-type": "application/json" }).write("[1");
    void received.promise.then(() => response.end(",2]"));
  };
  const answer = await client.open("/query", {
    headers: client.headers,
    body: JSON.stringify(select),
  });
  const [first] = await once(answer, "data");
  t.equal(String(first), "[1", "the first part arrives before the last is written");
  received.resolve();
  t.equal(String(await buffer(answer)), ",2]");
}

async function checkTooLarge(t: Test, client: Client): Promise<void> {
  const { headers } = client;
  const { status, body } = await client.send("/query", { headers, body: randomBytes(3_000_000) });
  t.equal(status, 413);
  t.match(JSON.parse(body.toString()), { code: "body_too_large" }, "the refusal is the gateway's");
}

async function checkWebSocket(t: Test, client: Client, { upstream }: GatewaySetup): Promise<void> {
  const accepted = acceptSockets(t, upstream);
  const socket = await client.openSocket("/live");
  await socket.echo("through the proxy");
  t.match(accepted[0]?.request.headers, {
    "x-forwarded-for": `${CLIENT}, 127.0.0.1`,
    "x-gatehouse-user": "admin",
  });
  socket.cut();
}

const config = `${fill(deployed("gateway.toml"), { 'listen = "127.0.0.1:9464"\n': "" })}
[[routes]]
path = "/stats"
methods = ["GET"]
access = "authenticated"
[[routes]]
path = "/live"
access = "authenticated"
upgrade = true
`.replace("[server]\n", "[server]\nmax_body_bytes = 2000000\n");

for (const kind of [...proxies, replicasProxy([])]) {
  t.test(
    `${kind.file} sets the headers that the gateway trusts, and does not buffer`,
    async (t) => {
      const text = deployed(kind.file);
      for (const directive of kind.needs) t.match(text, directive);
    },
  );
}

for (const kind of proxies) {
  const program = findProgram(kind.program);
  if (program === undefined) continue;
  t.test(`${kind.program} passes on requests, streams and the client's address`, async (t) => {
    const setting = await openGatewaySetup(t, { config });
    const proxy = await startProxy(t, kind, program, setting.gateway.url);
    const client = new Client(proxy);
    await client.logIn();
    await checkProvenance(t, client, setting);
    await checkStreaming(t, client, setting);
    await checkTooLarge(t, client);
    await checkWebSocket(t, client, setting);
    const plain = await ask(`http://127.0.0.1:${proxy.plainPort}/x`, {
      headers: { Host: PUBLIC_HOST },
    });
    t.equal(plain.status, 308, "plain HTTP redirects to HTTPS");
    t.match(plain.headers.location, `https://${PUBLIC_HOST}`);
  });
}
