/** Three replicas behind the HAProxy of `deploy/replicas`, and a load that counts failures. */
import { Agent, request } from "node:https";
import { connect } from "node:net";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import { eventually, PATIENCE_MS } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { projectRoot } from "../kit/process.ts";
import { makeStore, select, type TestStore } from "../store/kit.ts";
import { PUBLIC_HOST, type RunningProxy, replicasProxy, startProxy } from "./proxies.ts";

const CONNECTIONS = 8;
const PAUSE_MS = 10;
/** HAProxy notices within two seconds. */
const SETTINGS = "[server]\nshutdown_delay = 4\n";

interface ProxyAnswer {
  readonly status: number;
  readonly body: string;
}

class ProxyClient {
  readonly #agent: Agent;
  readonly #port: number;
  token = "";

  constructor({ ca, tlsPort }: RunningProxy) {
    this.#agent = new Agent({ keepAlive: true, ca, servername: PUBLIC_HOST });
    this.#port = tlsPort;
  }

  async send(method: string, path: string, content: unknown): Promise<ProxyAnswer> {
    const sent = request({
      host: "127.0.0.1",
      port: this.#port,
      agent: this.#agent,
      path,
      method,
      headers: {
        host: PUBLIC_HOST,
        "content-type": "application/json",
        authorization: `Bearer ${this.token}`,
      },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const { promise, resolve } = Promise.withResolvers<ProxyAnswer>();
    const fail = (error: Error) => resolve({ status: 0, body: error.message });
    sent.once("error", fail).once("response", (response) => {
      const status = response.statusCode ?? 0;
      text(response).then((body) => resolve({ status, body }), fail);
    });
    sent.end(JSON.stringify(content));
    return promise;
  }

  close(): void {
    this.#agent.destroy();
  }
}

export class SteadyLoad {
  readonly #client: ProxyClient;
  readonly #loops: Promise<void>[];
  #isStopped = false;
  count = 0;
  readonly failed: ProxyAnswer[] = [];

  constructor(client: ProxyClient) {
    this.#client = client;
    this.#loops = Array.from({ length: CONNECTIONS }, () => this.#run());
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const answer = await this.#client.send("POST", "/query", select);
      this.count += 1;
      if (answer.status !== 200) this.failed.push(answer);
      await delay(PAUSE_MS);
    }
  }

  async waitForMore(): Promise<void> {
    const before = this.count;
    await eventually("the load continues", () => this.count > before + 100);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#loops);
  }
}

export class Fleet {
  readonly store: TestStore;
  readonly client: ProxyClient;
  readonly replicas: TestGateway[];
  readonly #ports: readonly number[];
  readonly #proxy: RunningProxy;

  private constructor(
    store: TestStore,
    replicas: TestGateway[],
    ports: readonly number[],
    proxy: RunningProxy,
    client: ProxyClient,
  ) {
    this.#proxy = proxy;
    this.store = store;
    this.replicas = replicas;
    this.#ports = ports;
    this.client = client;
  }

  static async start(t: Test, program: string): Promise<Fleet> {
    const store = await makeStore(t);
    const ports = [await freePort(), await freePort(), await freePort()];
    const replicas = await Promise.all(
      ports.map((port) => store.replica(undefined, undefined, SETTINGS, { port })),
    );
    const hosts = ports.map((port) => `127.0.0.1:${port}`);
    const proxy = await startProxy(t, replicasProxy(hosts), program, replicas[0]?.url ?? "");
    const client = new ProxyClient(proxy);
    t.teardown(() => client.close());
    client.token = (await replicas[0]?.login()) ?? "";
    await eventually("the reverse proxy has found a replica", async () => {
      return (await client.send("GET", "/readyz", undefined)).status === 200;
    });
    return new Fleet(store, replicas, ports, proxy, client);
  }

  async #command(line: string): Promise<string> {
    const socket = connect(path.join(this.#proxy.directory, "admin.sock"));
    socket.end(`${line}\n`);
    return text(socket);
  }

  async #isUp(server: string): Promise<boolean> {
    const rows = (await this.#command("show stat")).split("\n");
    const row = rows.find((each) => each.startsWith(`gatehouse,${server},`));
    return row?.split(",")[17] === "UP";
  }

  async restart(index: number, root = projectRoot): Promise<TestGateway> {
    const [old, port] = [this.replicas[index], this.#ports[index]];
    if (old === undefined || port === undefined) throw new Error("no such replica");
    const server = ["one", "two", "three"][index] ?? "";
    const code = await old.service.stop("SIGTERM");
    if (code !== 0) throw new Error(`it ended with ${code}:\n${old.service.output}`);
    const replica = await this.store.replica(undefined, old.home, SETTINGS, { port, root });
    this.replicas[index] = replica;
    await eventually("the reverse proxy has found it again", () => this.#isUp(server));
    return replica;
  }
}
